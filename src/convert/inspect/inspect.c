/* inspect.c - opens whatever the path is and collects its facts and tensors. */
#include "afinar/inspect.h"

#include "base/file.h"
#include "convert/inspect/inspect_facts.h"
#include "convert/inspect/inspect_values.h"
#include "format/config/hf_config.h"
#include "format/weights/bnb_state.h"

#include <math.h>

static const char *packed_note(af_arena *a, const af_bnb_weight *s)
{
    const char *text = af_arena_strdup(a, "");
    for (int i = 0; i < s->ndim && text; i++)
        text = af_arena_printf(a, "%s%s%" PRId64, text, i ? "," : "", s->dim[i]);
    const char *type = s->type == AF_DTYPE_I8 ? "int8" : af_dtype_name(s->type);
    const char *note = text ? af_arena_printf(a, "%s [%s]", type, text) : NULL;
    return note ? note : "";
}

static af_status add_tensor(af_inspect_report *r, af_inspect_tensor *row, const af_weights *w,
                            const af_stored *t, af_pool *pool, bool stats, af_error *err)
{
    af_status st = AF_OK;
    af_stored_values v = {0};
    bool readable = false;
    AF_TRY(af_stored_values_init(&v, &readable, w, t, AF_DTYPE_F32, err));
    row->name = af_arena_strdup(af_arena_of(r), t->name);
    row->dtype = af_stored_type_name(af_arena_of(r), t);
    row->note = v.packed ? packed_note(af_arena_of(r), &v.bnb) : "";
    row->file = af_arena_strdup(af_arena_of(r), af_path_name(af_weights_file_path(w, t->file)));
    row->ndim = t->ndim;
    memcpy(row->dim, t->dim, sizeof row->dim);
    row->count = af_weight_count(t);
    row->bytes = t->bytes;
    if (!row->name || !row->file)
        AF_TRY(af_fail_nomem(err, t->name, strlen(t->name)));
    row->part = af_bnb_is_part(w, t->name);
    r->bytes += t->bytes;
    r->parameters += row->part ? 0 : v.count;
    if (stats && readable) {
        AF_TRY(af_values_stats(&v, pool, &row->stats, err));
        row->has_stats = true;
        af_weights_forget(w, t);
    }
done:
    return st;
}

static af_status add_tensors(af_inspect_report *r, const af_weights *w, const af_inspect_options *o,
                             af_error *err)
{
    af_status st = AF_OK;
    af_pool *pool = NULL;
    const int n = af_weights_count(w);
    af_inspect_tensor *rows = af_arena_take(af_arena_of(r), (uint64_t)AF_MAX(n, 1) * sizeof *rows);
    if (!rows)
        return af_fail_nomem(err, "the tensor list", (uint64_t)n * sizeof *rows);
    r->tensors = rows;
    if (o->stats)
        AF_TRY(af_pool_new(&pool, o->threads, err));
    for (int i = 0; i < n; i++) {
        AF_TRY(add_tensor(r, &rows[i], w, af_weights_at(w, i), pool, o->stats, err));
        r->tensor_count++;
    }
done:
    af_pool_free(pool);
    return st;
}

/* By its name, or by its first bytes. */
static bool holds_tensors(const char *path)
{
    static const char *const ends[] = {".safetensors", ".gguf", ".bin", ".index.json"};
    const size_t n = strlen(path);
    af_map m = {0};
    for (size_t i = 0; i < AF_LEN(ends); i++)
        if (n > strlen(ends[i]) && strcmp(path + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    if (af_map_open(&m, path, NULL) != AF_OK)
        return true; /* the reader will say why */
    const bool yes = m.size > 8 && (memcmp(m.data, "GGUF", 4) == 0 || m.data[8] == '{');
    af_map_close(&m);
    return yes;
}

/* The weights of a folder, or nothing when it has none (a tokenizer, a config alone). */
static af_status open_weights(af_weights **w, const char *path, af_error *err)
{
    if (!af_dir_exists(path) && !holds_tensors(path))
        return af_fail(err, AF_EFORMAT,
                       "'%s' is neither a safetensors nor a GGUF file, nor a .bin file of "
                       "torch.save (nor a folder with a model)",
                       path);
    return !af_dir_exists(path) || af_weights_in(path) ? af_weights_open(w, path, err) : AF_OK;
}

static af_status collect(af_inspect_report *r, const char *path, const af_inspect_options *o,
                         af_error *err)
{
    af_status st = AF_OK;
    af_weights *w = NULL;
    AF_TRY(open_weights(&w, path, err));
    if (w)
        AF_TRY(add_tensors(r, w, o, err));
    AF_TRY(af_inspect_facts(r, path, w, err));
    AF_TRY(af_memory_check(err)); /* a fact that has no memory is left out there */
    if (!w && r->fact_count == 0)
        AF_TRY(af_fail(err, AF_EFORMAT,
                       "folder '%s' has no config.json, adapter_config.json or safetensors", path));
done:
    af_weights_close(w);
    return st;
}

af_status af_inspect(af_inspect_report **out, const char *path, const af_inspect_options *options,
                     af_error *err)
{
    AF_NEED(err, out, path);
    af_status st = AF_OK;
    char *real = NULL;
    af_inspect_report *r = af_arena_owner_new(sizeof *r);
    if (!r)
        AF_TRY(af_fail_nomem(err, "a report", sizeof *r));
    AF_TRY(af_model_resolve(&real, path, err));
    r->path = af_arena_strdup(af_arena_of(r), real);
    if (!r->path)
        AF_TRY(af_fail_nomem(err, "a path", strlen(real)));
    AF_TRY(collect(r, real, options ? options : &(af_inspect_options){0}, err));
    *out = r;
    r = NULL;
done:
    free(real);
    af_inspect_free(r);
    return st;
}

void af_inspect_free(af_inspect_report *r) { af_arena_owner_free(r); }
