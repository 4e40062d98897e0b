/* decoder.c - opens a decoder, and runs batches; see afinar/decode.h. */
#include "decode/decoder.h"

#include "graph/graph_access.h"

enum {
    CHUNK_CPU = 256, /* prompt tokens per run */
    CHUNK_GPU = 512,
    SEQUENCES = 32,
    CONTEXT = 4096,   /* of a model that names none */
    TOKENS = 32768,   /* in all pages, where nobody asks for more and the context is shorter */
    MEMORY_SHARE = 4, /* pages take at most 1/MEMORY_SHARE of the free memory by themselves */
};

/* ---- open and close ---- */

const af_model_spec *af_decode_spec(const af_model *m)
{
    return m->live ? m->live->spec : af_loader_spec(m->loader);
}

af_engine_from af_decode_from(const af_decoder *d)
{
    const af_model *m = d->m;
    return (af_engine_from){m->loader, d->own_adapter ? NULL : m->adapter, m->compute, m->live};
}

af_decode_sizes af_decode_sizes_of(const af_decode_plan *p)
{
    const int64_t seqs = p->slots + p->embeds;
    return (af_decode_sizes){
        .rows = AF_MAX(p->rows, seqs),
        .seqs = seqs,
        .picks = AF_MIN(AF_MAX(seqs, (int64_t)AF_DECODE_PICKS), AF_MAX(p->rows, seqs)),
        .pages = p->pages,
        .page = p->page,
        .table = (p->context + p->page - 1) / p->page,
        .least = p->slots,
        .hidden = p->embeds,
        .rounded = p->rounds,
        .draws = p->draws};
}

static af_status take_scratch(af_decoder *d, af_error *err)
{
    const uint64_t seqs = (uint64_t)d->z.seqs, table = (uint64_t)d->z.table;
    d->slot = af_calloc((uint64_t)d->slots, sizeof(af_decode_seq *));
    d->feed = af_calloc(seqs, sizeof *d->feed);
    d->table = af_calloc(seqs * table, sizeof *d->table);
    d->logits = af_calloc((uint64_t)d->V, sizeof *d->logits);
    d->candidates = af_calloc((uint64_t)d->V, sizeof *d->candidates);
    d->allowed = af_calloc((uint64_t)(d->V + 31) / 32, sizeof *d->allowed);
    d->module = af_calloc((uint64_t)af_decode_spec(d->m)->modules, sizeof *d->module);
    if (!d->slot || !d->feed || !d->table || !d->logits || !d->candidates || !d->allowed ||
        !d->module)
        return af_fail_nomem(err, "a decoder", (uint64_t)d->V * sizeof *d->candidates);
    return af_decode_pages_init(&d->pages, d->z.pages, d->z.page, err);
}

static af_status open_parts(af_decoder *d, const af_decode_plan *p, af_error *err)
{
    af_status st = AF_OK;
    const af_model_spec *spec = af_decode_spec(d->m);
    d->V = spec->vocab;
    d->context = p->context;
    d->slots = p->slots;
    d->z = af_decode_sizes_of(p);
    /* a state is that of all tokens so far; a table that follows the length changes old keys */
    d->shares = p->shares && !spec->recurrent && !spec->rope_by_length;
    AF_TRY(take_scratch(d, err));
    const char *why;
    d->own_adapter =
        p->own_adapter && !d->m->live && d->m->adapter && af_decode_fits(d->m->adapter, &why);
    if (d->own_adapter)
        return af_decode_add_own(d, err);
    const af_engine_from from = af_decode_from(d);
    AF_TRY(af_decode_graph_open(&d->graph, d->m->device, &from, &d->z, err));
done:
    return st;
}

af_status af_decode_open(af_decoder **out, af_model *m, const af_decode_plan *p, af_error *err)
{
    af_decoder *d = af_calloc(1, sizeof *d);
    if (!d)
        return af_fail_nomem(err, "a decoder", sizeof *d);
    d->m = m;
    pthread_mutex_init(&d->lock, NULL);
    const af_status st = open_parts(d, p, err);
    if (st == AF_OK)
        *out = d;
    else
        af_decoder_close(d);
    return st;
}

/* As many pages as the context of all sequences needs, or as memory allows. */
static af_status choose_pages(af_decode_plan *p, const af_model *m, const af_decoder_opts *o,
                              af_error *err)
{
    af_status st = AF_OK;
    const af_engine_from from = {m->loader, m->adapter, m->compute, m->live};
    const int64_t table = (p->context + p->page - 1) / p->page;
    uint64_t one, two;
    int64_t tokens = o->tokens ? o->tokens : AF_MAX(p->context, (int64_t)TOKENS);
    p->pages = 1;
    af_decode_sizes z = af_decode_sizes_of(p);
    AF_TRY(af_decode_graph_plan(&one, m->device, &from, &z, err));
    z.pages = 2;
    AF_TRY(af_decode_graph_plan(&two, m->device, &from, &z, err));
    const uint64_t each = AF_MAX(two - one, UINT64_C(1)),
                   budget = af_device_memory_free(m->device) / MEMORY_SHARE;
    p->pages = AF_MIN((tokens + p->page - 1) / p->page, table * (p->slots + p->embeds));
    if (!o->tokens)
        p->pages = AF_MIN(p->pages, (int64_t)AF_MAX(budget / each, UINT64_C(1)));
    if (p->pages < table && !o->context) /* nobody asked for such a context */
        p->context = p->pages * p->page;
    p->pages = AF_MAX(p->pages, (p->context + p->page - 1) / p->page);
done:
    return st;
}

af_status af_decoder_open(af_decoder **out, af_model *m, const af_decoder_opts *o, af_error *err)
{
    AF_NEED(err, out, m);
    af_status st = AF_OK;
    const af_decoder_opts none = {0};
    o = o ? o : &none;
    AF_TRY(af_model_need_tokens(m, err));
    enum { CONTEXT_MAX = INT32_MAX / 2 };
    if (o->context < 0 || o->context > CONTEXT_MAX || o->sequences < 0 || o->tokens < 0 ||
        o->sequences > 1 << 16 || o->tokens > INT64_C(1) << 40)
        AF_TRY(af_fail(err, AF_EUSAGE,
                       "a context of %" PRId64 ", %d sequences or %" PRId64
                       " tokens are not possible",
                       o->context, o->sequences, o->tokens));
    const int64_t most = af_spec_context(af_decode_spec(m));
    AF_TRY(af_spec_check_length(af_decode_spec(m), "a context", o->context, err));
    const bool cpu = af_device_is_cpu(m->device);
    af_decode_plan p = {.context = o->context ? o->context
                                   : most > 0 ? most
                                              : CONTEXT,
                        .rows = cpu ? CHUNK_CPU : CHUNK_GPU,
                        .page = AF_PAGE_TOKENS,
                        .slots = o->sequences ? o->sequences : SEQUENCES,
                        .embeds = true,
                        .shares = !o->keep_no_text,
                        .rounds = o->round_activations,
                        .draws = !cpu};
    AF_TRY(choose_pages(&p, m, o, err));
    AF_TRY(af_decode_open(out, m, &p, err));
    if (af_model_tokenizer(m, &(*out)->tokenizer, NULL) != AF_OK)
        (*out)->tokenizer = NULL;
done:
    return st;
}

void af_decoder_close(af_decoder *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->slots && d->slot; i++)
        if (d->slot[i]) {
            af_decode_finish(d->slot[i], AF_DECODE_CANCELLED);
            af_decode_seq_free(d->slot[i]);
        }
    for (af_decode_seq *s = d->first, *next; s; s = next) {
        next = s->next;
        af_decode_finish(s, AF_DECODE_CANCELLED);
        af_decode_seq_free(s);
    }
    af_decode_graph_close(&d->graph);
    af_decode_pages_clear(&d->pages);
    af_decode_clear_adapters(d);
    pthread_mutex_destroy(&d->lock);
    free(d->slot);
    free(d->feed);
    free(d->table);
    free(d->logits);
    free(d->candidates);
    free(d->allowed);
    free(d->module);
    free(d->cancel);
    free(d);
}

af_decoder_counts af_decoder_count(const af_decoder *d)
{
    af_decoder_counts c = d ? d->counts : (af_decoder_counts){0};
    if (d) {
        c.context = d->context;
        c.sequences = d->slots;
        c.pages = d->pages.count;
        c.pages_free = d->pages.free;
    }
    return c;
}

/* ---- batches ---- */

/* Rotary tables that change with the length make cached keys stale. */
static bool tables_differ(const af_model_spec *s, int64_t before, int64_t after)
{
    for (int i = 0; i < s->ropes; i++) {
        const af_rope_config *r = &s->rope[i].config;
        const int64_t limit = r->original_max_position_embeddings;
        if (r->type == AF_ROPE_LONGROPE && (before > limit) != (after > limit))
            return true;
        if (r->type == AF_ROPE_DYNAMIC && before != after && after > s->max_positions)
            return true;
    }
    return false;
}

/* Or again, after its cache became stale. */
static bool in_prompt(const af_decode_seq *s)
{
    return s->cached < s->prompt || s->cached < s->count - 1;
}

/* What the wanted rows of a run from `row` on mean to slot i: log-probabilities of the prompt, and
 * the next token. */
static af_status use_rows(af_decoder *d, int i, int64_t row, af_error *err)
{
    af_decode_seq *s = d->slot[i];
    af_status st = AF_OK;
    const int64_t picks = d->feed[i].picks, from = s->cached - picks, before = s->count;
    const int64_t read = picks == 1 && d->feed[i].draws ? 0 : picks; /* on the host */
    const float *logits = NULL;
    bool end = false;
    AF_TRY(af_decode_graph_logits(&d->graph, row, read, &logits, err));
    for (int64_t k = 0; k < picks && !end; k++) {
        const int64_t next = from + k + 1;
        if (next < s->count)
            end = !af_decode_prompt(d, s, next, logits + k * d->V);
        else if (d->feed[i].draws)
            af_decode_drawn(d, s, af_decode_graph_choice(&d->graph, row + k),
                            af_decode_graph_top(&d->graph, row + k), &end);
        else
            af_decode_next(d, s, logits + k * d->V, &end);
    }
    if (end) {
        af_decode_release(d, i);
        return AF_OK;
    }
    if (s->count == before) /* no new token */
        return AF_OK;
    if (tables_differ(af_decode_spec(d->m), s->count - 1, s->count))
        s->cached = 0;
    af_model_watch_length(d->m, s->count);
done:
    return st;
}

static af_decode_feed feed_of(const af_decoder *d, const af_decode_seq *s)
{
    const bool all = s->r.prompt_logprobs && in_prompt(s);
    const int64_t n = AF_MIN(s->count - s->cached, all ? d->z.picks : d->z.rows);
    af_decode_feed f = {.ids = s->ids + s->cached,
                        .from = s->cached,
                        .length = s->count,
                        .n = n,
                        .adapter = af_decode_place(d, s->r.adapter),
                        .picks = all ? n : s->cached + n == s->count};
    f.draws = s->cached + n == s->count && af_decode_draws(d, s, f.want);
    return f;
}

/* The next run: of sequences from `from` on that are (not) in their prompt, those that fit. Returns
 * where the next run begins. */
static int choose(af_decoder *d, int from, bool prompts)
{
    int64_t rows = 0, picks = 0;
    memset(d->feed, 0, (size_t)d->z.seqs * sizeof *d->feed);
    for (int i = from; i < d->slots; i++) {
        if (!d->slot[i] || in_prompt(d->slot[i]) != prompts)
            continue;
        const af_decode_feed f = feed_of(d, d->slot[i]);
        if (rows + f.n > d->z.rows || picks + f.picks > d->z.picks)
            return i;
        d->feed[i] = f;
        rows += f.n;
        picks += f.picks;
        if (af_decode_spec(d->m)->rope_by_length)
            return i + 1;
    }
    return d->slots;
}

static bool any_fed(const af_decoder *d)
{
    for (int i = 0; i < d->slots; i++)
        if (d->feed[i].n)
            return true;
    return false;
}

static af_status run_feed(af_decoder *d, bool prompts, af_error *err)
{
    af_status st = AF_OK;
    int64_t row = 0;
    if (!any_fed(d))
        return AF_OK;
    const double from = af_seconds_now();
    AF_TRY(af_decode_graph_run(&d->graph, d->feed, d->table, !prompts, err));
    *(prompts ? &d->prompt_s : &d->token_s) += af_seconds_now() - from;
    for (int i = 0; i < d->slots; i++) {
        if (!d->feed[i].n)
            continue;
        d->slot[i]->cached += d->feed[i].n;
        if (prompts)
            af_decode_keep(d, i);
        st = use_rows(d, i, row, err);
        if (st != AF_OK) { /* the device's: the same rows again, next time */
            d->slot[i]->cached -= d->feed[i].n;
            return st;
        }
        row += d->feed[i].picks;
    }
done:
    return st;
}

af_status af_decoder_step(af_decoder *d, int64_t *active, af_error *err)
{
    AF_NEED(err, d);
    af_status st = AF_OK;
    if (!d->graph.graph)
        return af_fail(err, AF_ENOMEM, "the decoder has no memory left to run");
    af_decode_take_cancelled(d);
    af_decode_admit(d);
    choose(d, 0, true);
    AF_TRY(run_feed(d, true, err));
    for (int at = 0; at < d->slots;) {
        at = choose(d, at, false);
        AF_TRY(run_feed(d, false, err));
    }
done:
    if (active)
        *active = d->counts.running + d->counts.waiting;
    return st;
}
