/* decoder.c - opens a decoder, and runs batches; see afinar/decode.h. */
#include "decode/decoder.h"

#include "graph/graph_access.h"

enum {
    CHUNK_CPU = 256, /* prompt tokens per run */
    CHUNK_GPU = 1024,
    PICKS = 64, /* logits of one run */
    SEQUENCES = 32,
    CONTEXT = 4096,
};

/* ---- open and close ---- */

static af_status take_scratch(af_decoder *d, af_error *err)
{
    d->slot = af_calloc((uint64_t)d->slots, sizeof(af_decode_seq *));
    d->feed = af_calloc((uint64_t)d->slots, sizeof *d->feed);
    d->logits = af_calloc((uint64_t)d->V, sizeof *d->logits);
    d->candidates = af_calloc((uint64_t)d->V, sizeof *d->candidates);
    d->allowed = af_calloc((uint64_t)(d->V + 31) / 32, sizeof *d->allowed);
    if (!d->slot || !d->feed || !d->logits || !d->candidates || !d->allowed)
        return af_fail_nomem(err, "a decoder", (uint64_t)d->V * sizeof *d->candidates);
    return AF_OK;
}

static af_status open_parts(af_decoder *d, const af_decoder_opts *o, af_error *err)
{
    af_status st = AF_OK;
    af_model *m = d->m;
    const int64_t most = af_spec_context(af_loader_spec(m->loader));
    AF_TRY(af_model_need_tokens(m, err));
    if (o->context < 0 || o->sequences < 0 || o->tokens < 0)
        AF_TRY(af_fail(err, AF_EUSAGE,
                       "a context of %" PRId64 ", %d sequences or %" PRId64
                       " tokens are not possible",
                       o->context, o->sequences, o->tokens));
    d->V = af_model_vocab(m);
    d->context = o->context ? o->context : most > 0 ? AF_MIN(most, (int64_t)CONTEXT) : CONTEXT;
    d->slots = o->sequences ? o->sequences : SEQUENCES;
    d->chunk = af_device_is_cpu(m->device) ? CHUNK_CPU : CHUNK_GPU;
    if (af_model_tokenizer(m, &d->tokenizer, NULL) != AF_OK)
        d->tokenizer = NULL;
    AF_TRY(take_scratch(d, err));
    const af_engine_from from = {m->loader, m->adapter, m->compute, m->live,
                                 AF_MAX((int64_t)d->slots, (int64_t)PICKS)};
    AF_TRY(af_engine_open(&d->engine, AF_ENGINE_GENERATE, m->device, &from, d->chunk, d->slots,
                          d->context, err));
done:
    return st;
}

af_status af_decoder_open(af_decoder **out, af_model *m, const af_decoder_opts *o, af_error *err)
{
    if (!m || !out)
        return af_fail(err, AF_EUSAGE, "af_decoder_open needs a model");
    af_decoder *d = af_calloc(1, sizeof *d);
    if (!d)
        return af_fail_nomem(err, "a decoder", sizeof *d);
    d->m = m;
    pthread_mutex_init(&d->lock, NULL);
    const af_status st = open_parts(d, o ? o : &(af_decoder_opts){0}, err);
    if (st == AF_OK)
        *out = d;
    else
        af_decoder_close(d);
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
    af_engine_close(&d->engine);
    pthread_mutex_destroy(&d->lock);
    free(d->slot);
    free(d->feed);
    free(d->logits);
    free(d->candidates);
    free(d->allowed);
    free(d->cancel);
    free(d);
}

af_decoder_counts af_decoder_count(const af_decoder *d)
{
    af_decoder_counts c = d ? d->counts : (af_decoder_counts){0};
    c.context = d ? d->context : 0;
    c.sequences = d ? d->slots : 0;
    return c;
}

/* ---- slots ---- */

static void release(af_decoder *d, int i)
{
    af_decode_seq_free(d->slot[i]);
    d->slot[i] = NULL;
    d->counts.running--;
}

static void admit(af_decoder *d)
{
    for (int i = 0; i < d->slots && d->first; i++)
        if (!d->slot[i]) {
            af_decode_seq *s = d->first;
            d->first = s->next;
            s->next = NULL;
            d->slot[i] = s;
            d->counts.waiting--;
            d->counts.running++;
            d->counts.prompt_tokens += (uint64_t)s->prompt;
            af_model_watch_length(d->m, s->prompt);
        }
}

static void cancel_one(af_decoder *d, uint64_t ticket)
{
    for (int i = 0; i < d->slots; i++)
        if (d->slot[i] && d->slot[i]->ticket == ticket) {
            af_decode_finish(d->slot[i], AF_DECODE_CANCELLED);
            release(d, i);
            return;
        }
    af_decode_seq *before = NULL;
    for (af_decode_seq *s = d->first; s; before = s, s = s->next)
        if (s->ticket == ticket) {
            *(before ? &before->next : &d->first) = s->next;
            d->at_end = d->at_end == s ? before : d->at_end;
            d->counts.waiting--;
            af_decode_finish(s, AF_DECODE_CANCELLED);
            af_decode_seq_free(s);
            return;
        }
}

static void take_cancelled(af_decoder *d)
{
    for (;;) {
        pthread_mutex_lock(&d->lock);
        const uint64_t ticket = d->cancels ? d->cancel[--d->cancels] : 0;
        pthread_mutex_unlock(&d->lock);
        if (!ticket)
            return;
        cancel_one(d, ticket);
    }
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

/* Tokens that a sequence feeds in the next run, alone or not. */
static int64_t wanted(const af_decoder *d, const af_decode_seq *s)
{
    const int64_t most = s->r.prompt_logprobs ? PICKS : d->chunk;
    return AF_MIN(s->count - s->cached, most);
}

/* What the rows of the run mean: log-probabilities of the prompt, and the next token. */
static void use_logits(af_decoder *d, int i, const float *logits)
{
    af_decode_seq *s = d->slot[i];
    const int64_t from = s->cached - d->feed[i].picks;
    bool end = false;
    for (int64_t k = 0; k < d->feed[i].picks && !end; k++) {
        const int64_t next = from + k + 1;
        if (next < s->count)
            end = !af_decode_prompt(d, s, next, logits + k * d->V);
        else
            af_decode_next(d, s, logits + k * d->V, &end);
    }
    if (end) {
        release(d, i);
        return;
    }
    if (s->count > s->cached + 1 || !d->feed[i].picks)
        return;
    if (tables_differ(af_loader_spec(d->m->loader), s->count - 1, s->count))
        s->cached = 0;
    af_model_watch_length(d->m, s->count);
}

static af_status run_feed(af_decoder *d, af_error *err)
{
    af_status st = AF_OK;
    const float *logits;
    AF_TRY(af_engine_run(&d->engine, d->feed, d->slots, &logits, err));
    for (int i = 0; i < d->slots; i++) {
        if (!d->feed[i].n)
            continue;
        d->slot[i]->cached += d->feed[i].n;
        use_logits(d, i, logits);
        logits += d->feed[i].picks * d->V;
    }
done:
    return st;
}

static af_feed feed_of(const af_decoder *d, const af_decode_seq *s)
{
    const int64_t n = wanted(d, s);
    const bool all = s->r.prompt_logprobs && in_prompt(s);
    return (af_feed){.ids = s->ids + s->cached,
                     .from = s->cached,
                     .length = s->count,
                     .n = n,
                     .picks = all ? n : s->cached + n == s->count};
}

/* The next run: of sequences from `from` on that are (not) in their prompt, those that fit. Returns
 * where the next run begins. */
static int choose(af_decoder *d, int from, bool prompts)
{
    int64_t rows = 0, picks = 0;
    memset(d->feed, 0, (size_t)d->slots * sizeof *d->feed);
    af_graph_set_one_token(d->engine.graph, !prompts);
    for (int i = from; i < d->slots; i++) {
        if (!d->slot[i] || in_prompt(d->slot[i]) != prompts)
            continue;
        const af_feed f = feed_of(d, d->slot[i]);
        if (rows + f.n > d->chunk || picks + f.picks > d->engine.picks)
            return i;
        d->feed[i] = f;
        rows += f.n;
        picks += f.picks;
        if (af_loader_spec(d->m->loader)->rope_by_length)
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

af_status af_decoder_step(af_decoder *d, int64_t *active, af_error *err)
{
    af_status st = AF_OK;
    if (!d)
        return af_fail(err, AF_EUSAGE, "af_decoder_step needs a decoder");
    take_cancelled(d);
    admit(d);
    choose(d, 0, true);
    if (any_fed(d))
        AF_TRY(run_feed(d, err));
    for (int at = 0; at < d->slots;) {
        at = choose(d, at, false);
        if (any_fed(d))
            AF_TRY(run_feed(d, err));
    }
done:
    if (active)
        *active = d->counts.running + d->counts.waiting;
    return st;
}
