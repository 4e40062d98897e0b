/* decode_adapters.c - adapters that requests choose: loaded and unloaded at run time.
 *
 * The graph has space for some adapters of some rank on some modules. One that does not fit makes
 * another graph, which takes over the caches of the last where requests are running. */
#include "decode/decoder.h"

enum {
    PLACES = 4, /* space is made for so many more at a time */
    RANKS = 4   /* and for ranks in such steps: kernels read so many at once */
};

int af_decode_place(const af_decoder *d, int id)
{
    if (id == 0)
        return -1;
    return id > 0 && id <= d->adapters && d->adapter[id - 1].name ? id - 1 : -2;
}

int af_decoder_find_adapter(const af_decoder *d, const char *name)
{
    for (int i = 0; d && name && i < d->adapters; i++)
        if (d->adapter[i].name && strcmp(d->adapter[i].name, name) == 0)
            return i + 1;
    return -1;
}

bool af_decode_fits(const af_adapter *a, const char **why)
{
    const af_model_spec *s = a->spec;
    *why = a->tables != AF_TABLES_OF_BASE || a->grown || a->tokens[0].count || a->tokens[1].count
               ? "tokens of its own"
           : a->module[s->embed_module].rank || a->module[s->head_module].rank
               ? "an adapter on the embedding or the head"
           : a->as_stored ? "rotations (OFT)"
                          : NULL;
    for (int i = 0; i < s->tensors && !*why; i++)
        if (a->saved[i])
            *why = "saved modules";
    for (int i = 0; i < s->modules && !*why; i++) {
        if (a->module[i].rank && af_module_is_experts(&s->module[i]))
            *why = "adapters on experts";
        if (a->module[i].a0)
            *why = "a base that is reduced by its start";
    }
    return !*why;
}

/* ---- the graph ---- */

static int largest_rank(const af_decoder *d)
{
    int most = 1;
    for (int i = 0; i < d->adapters; i++)
        for (int k = 0; d->adapter[i].values && k < af_decode_spec(d->m)->modules; k++)
            most = AF_MAX(most, d->adapter[i].values->module[k].rank);
    return most;
}

static bool any_columns(const af_decoder *d)
{
    for (int i = 0; i < d->adapters; i++)
        if (d->adapter[i].columns)
            return true;
    return false;
}

/* Notes the modules of all adapters; true when one is new. */
static bool note_modules(af_decoder *d)
{
    bool more = false;
    for (int i = 0; i < d->adapters; i++)
        for (int k = 0; d->adapter[i].values && k < af_decode_spec(d->m)->modules; k++)
            if (d->adapter[i].values->module[k].rank && !d->module[k])
                d->module[k] = more = true;
    return more;
}

static af_status write_values(af_decoder *d, af_decode_graph *g, af_error *err)
{
    af_decode_values *all = af_calloc((uint64_t)AF_MAX(d->adapters, 1), sizeof *all);
    if (!all)
        return af_fail_nomem(err, "adapters", (uint64_t)d->adapters * sizeof *all);
    for (int i = 0; i < d->adapters; i++)
        all[i] = (af_decode_values){d->adapter[i].values, d->adapter[i].columns};
    const af_status st = af_decode_graph_adapters(g, all, d->adapters, err);
    free(all);
    return st;
}

/* A graph that has space for the adapters. Where nothing runs the old one is closed first: on a GPU
 * there need not be space for both. */
static af_status make_graph(af_decoder *d, af_error *err)
{
    af_status st = AF_OK;
    af_decode_graph fresh = {0};
    const af_engine_from from = af_decode_from(d);
    af_decode_sizes z = d->z;
    z.adapters = (d->adapters + PLACES - 1) / PLACES * PLACES;
    z.rank = AF_ALIGN_UP(largest_rank(d), RANKS);
    z.columns = any_columns(d);
    z.module = d->module;
    const bool idle = d->counts.running == 0;
    if (idle) {
        af_decode_graph_close(&d->graph);
        af_decode_pages_forget(&d->pages);
    }
    AF_TRY(af_decode_graph_open(&fresh, d->m->device, &from, &z, err));
    AF_TRY(write_values(d, &fresh, err));
    if (!idle)
        AF_TRY(af_decode_graph_move(&fresh, &d->graph, err));
    af_decode_graph_close(&d->graph);
    d->graph = fresh;
    d->z.adapters = z.adapters;
    d->z.rank = z.rank;
    d->z.columns = z.columns;
    fresh = (af_decode_graph){0};
done:
    af_decode_graph_close(&fresh);
    return st;
}

/* The graph as it was before an adapter that could not be added. */
static af_status restore_graph(af_decoder *d, af_error *err)
{
    const af_engine_from from = af_decode_from(d);
    af_decode_sizes z = d->z;
    z.module = d->module;
    if (d->graph.graph)
        return AF_OK;
    af_status st = af_decode_graph_open(&d->graph, d->m->device, &from, &z, err);
    return st == AF_OK ? write_values(d, &d->graph, err) : st;
}

/* ---- adding and removing ---- */

static af_status free_place(af_decoder *d, int *place, af_error *err)
{
    for (*place = 0; *place < d->adapters; ++*place)
        if (!d->adapter[*place].name)
            return AF_OK;
    af_decode_adapter *more = af_calloc((uint64_t)d->adapters + 1, sizeof *more);
    if (!more)
        return af_fail_nomem(err, "adapters", (uint64_t)d->adapters * sizeof *more);
    if (d->adapter)
        memcpy(more, d->adapter, (size_t)d->adapters * sizeof *more);
    free(d->adapter);
    d->adapter = more;
    d->adapters++;
    return AF_OK;
}

static void drop(const af_decoder *d, af_decode_adapter *a)
{
    free(a->name);
    af_adapter_columns_free(a->columns, af_decode_spec(d->m)->modules);
    if (!a->borrowed)
        af_adapter_free(a->values);
    *a = (af_decode_adapter){0};
}

/* *values is the decoder's afterwards, unless it fails. */
static af_status add(af_decoder *d, const char *name, af_adapter **values, bool borrowed, int *id,
                     af_error *err)
{
    af_status st = AF_OK;
    int place;
    const char *why;
    if (!af_decode_fits(*values, &why))
        return af_fail(err, AF_EUSAGE,
                       "adapter '%s' has %s and cannot be chosen per request; merge it into the "
                       "base",
                       name, why);
    AF_TRY(free_place(d, &place, err));
    af_decode_adapter *a = &d->adapter[place];
    *a = (af_decode_adapter){af_strdup(name), *values, NULL, borrowed, ++d->adapter_serials};
    st = a->name ? af_adapter_columns_new(&a->columns, *values, d->m->loader, err)
                 : af_fail_nomem(err, "a name", strlen(name));
    const bool more = note_modules(d);
    if (st == AF_OK)
        st = more || place >= d->z.adapters || largest_rank(d) > d->z.rank ||
                     (a->columns && !d->z.columns)
                 ? make_graph(d, err)
                 : write_values(d, &d->graph, err);
    if (st == AF_OK) {
        *values = NULL;
        *id = place + 1;
        return AF_OK;
    }
    a->values = NULL;
    drop(d, a);
    if (restore_graph(d, NULL) != AF_OK)
        af_decode_graph_close(&d->graph);
done:
    return st;
}

af_status af_decode_add_own(af_decoder *d, af_error *err)
{
    af_adapter *own = d->m->adapter;
    int id;
    return add(d, "own", &own, true, &id, err);
}

af_status af_decoder_add_adapter(af_decoder *d, const char *name, const char *folder, int *id,
                                 af_error *err)
{
    AF_NEED(err, d, name, folder, id);
    af_status st = AF_OK;
    af_adapter *values = NULL;
    if (af_decoder_find_adapter(d, name) > 0)
        return af_fail(err, AF_EUSAGE, "there is an adapter '%s' already", name);
    AF_TRY(af_adapter_read(&values, af_decode_spec(d->m), folder, err));
    AF_TRY(add(d, name, &values, false, id, err));
done:
    af_adapter_free(values);
    return st;
}

af_status af_decoder_remove_adapter(af_decoder *d, int id, af_error *err)
{
    AF_NEED(err, d);
    int64_t users = 0;
    if (af_decode_place(d, id) < 0)
        return af_fail(err, AF_EUSAGE, "there is no adapter %d", id);
    for (int i = 0; i < d->slots; i++)
        users += d->slot[i] && d->slot[i]->r.adapter == id;
    for (const af_decode_seq *s = d->first; s; s = s->next)
        users += s->r.adapter == id;
    if (users)
        return af_fail(err, AF_EUSAGE, "adapter '%s' is used by %" PRId64 " requests",
                       d->adapter[id - 1].name, users);
    drop(d, &d->adapter[id - 1]);
    return AF_OK;
}

void af_decode_clear_adapters(af_decoder *d)
{
    for (int i = 0; i < d->adapters; i++)
        drop(d, &d->adapter[i]);
    free(d->adapter);
}
