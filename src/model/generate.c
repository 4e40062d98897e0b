#define _GNU_SOURCE
/* generate.c - token after token with caches: the prompts in chunks, then one row per sequence.
 *
 * One graph serves both: its live rows shrink from a chunk to one token. What a sequence has in the
 * cache is always a prefix of its tokens; everything after it is fed in the next runs. */
#include "model/model_state.h"

#include "base/buf.h"
#include "graph/graph_access.h"
#include "model/sample.h"

#include <math.h>

enum {
    CHUNK_CPU = 256, /* prompt tokens per run */
    CHUNK_GPU = 1024,
    SEQUENCES_MAX = 8, /* at once; more prompts wait */
    CACHE_STEP = 512,
    CACHE_UNIT = 16,
};

typedef struct sequence {
    int index; /* in the caller's list */
    int32_t *ids;
    int64_t count, prompt, cached;
    bool done;
    af_stop stop;
    af_decode_stream stream;
    af_buf text;      /* all of it */
    uint64_t emitted; /* bytes passed to the hook */
} sequence;

typedef struct generator {
    af_model *m;
    const af_generate_opts *o;
    const af_tokenizer *tokenizer; /* NULL: ids only */
    sequence seq[SEQUENCES_MAX];
    int n;
    af_token_candidate *scratch;
    float *logits;
    int64_t V;
} generator;

const char *af_stop_name(af_stop s)
{
    static const char *const names[] = {[AF_STOP_LENGTH] = "length",
                                        [AF_STOP_EOS] = "eos",
                                        [AF_STOP_STRING] = "stop",
                                        [AF_STOP_USER] = "user"};
    return (unsigned)s < AF_LEN(names) ? names[s] : "?";
}

void af_generated_clear(af_generated *r)
{
    free(r->ids);
    free(r->text);
    *r = (af_generated){0};
}

static bool is_stop_token(const generator *g, int32_t id)
{
    const af_hf_config *c = af_loader_config(g->m->loader);
    int n = 0;
    const int32_t *stops = g->tokenizer ? af_tokenizer_stops(g->tokenizer, &n) : NULL;
    for (int i = 0; i < n; i++)
        if (stops[i] == id)
            return true;
    for (int i = 0; i < c->eos_count; i++)
        if (c->eos_token_id[i] == id)
            return true;
    return false;
}

/* ---- text and stop strings ---- */

/* Where the first stop string begins in the text, or its length. */
static uint64_t find_stop(const generator *g, const af_buf *text, uint64_t from)
{
    uint64_t best = text->len;
    for (int i = 0; i < g->o->stops && text->data; i++) {
        const size_t n = strlen(g->o->stop[i]);
        const uint64_t start = from > n ? from - n : 0;
        const char *hit =
            n ? memmem(text->data + start, text->len - start, g->o->stop[i], n) : NULL;
        if (hit)
            best = AF_MIN(best, (uint64_t)(hit - text->data));
    }
    return best;
}

/* Bytes at the end that could be the beginning of a stop string. */
static uint64_t held_back(const generator *g, const af_buf *text)
{
    uint64_t most = 0;
    for (int i = 0; i < g->o->stops; i++) {
        const uint64_t n = strlen(g->o->stop[i]);
        for (uint64_t k = AF_MIN(n ? n - 1 : 0, text->len); k > most; k--)
            if (memcmp(text->data + text->len - k, g->o->stop[i], k) == 0)
                most = k;
    }
    return most;
}

static void emit_text(const generator *g, sequence *s, int32_t id, uint64_t to)
{
    if (!g->o->hook || to < s->emitted || (to == s->emitted && id < 0))
        return;
    if (!g->o->hook(g->o->user, s->index, id, s->text.data ? s->text.data + s->emitted : "",
                    to - s->emitted)) {
        s->done = true;
        s->stop = AF_STOP_USER;
    }
    s->emitted = to;
}

/* Adds a token's text; stops the sequence at a stop string. */
static af_status add_text(const generator *g, sequence *s, int32_t id, af_error *err)
{
    const char *text = "";
    uint64_t len = 0;
    if (g->tokenizer) {
        const af_status st = af_decode_stream_next(&s->stream, id, &text, &len, err);
        if (st != AF_OK)
            return st;
    }
    const uint64_t before = s->text.len;
    af_buf_add(&s->text, text, len);
    if (s->text.bad)
        return af_fail_nomem(err, "text", before + len);
    const uint64_t stop = find_stop(g, &s->text, before);
    if (g->o->stops && stop < s->text.len) {
        emit_text(g, s, id, AF_MAX(stop, s->emitted));
        s->text.len = stop;
        s->text.data[stop] = '\0';
        s->done = true;
        s->stop = AF_STOP_STRING;
        return AF_OK;
    }
    emit_text(g, s, id, s->text.len - held_back(g, &s->text));
    return AF_OK;
}

static af_status add_token(const generator *g, sequence *s, int32_t id, af_error *err)
{
    af_status st = AF_OK;
    s->ids[s->count++] = id;
    if (!g->o->ignore_eos && is_stop_token(g, id)) {
        s->done = true;
        s->stop = AF_STOP_EOS;
        return AF_OK;
    }
    AF_TRY(add_text(g, s, id, err));
    if (!s->done && s->count - s->prompt >= g->o->max_new) {
        s->done = true;
        s->stop = AF_STOP_LENGTH;
    }
    if (s->done)
        emit_text(g, s, -1, s->text.len); /* what was held back */
done:
    return st;
}

/* ---- the loop ---- */

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

/* Tokens that a sequence would feed if it were alone. */
static int64_t wanted(const generator *g, const sequence *s)
{
    return s->done ? 0 : AF_MIN(s->count - s->cached, g->m->engine.N);
}

/* Whether its next run is one token after the prompt. */
static bool is_one(const sequence *s)
{
    return s->cached >= s->prompt && s->cached == s->count - 1;
}

/* Chooses what goes into the next run: prompts that fit, or one token of every sequence that is
 * past its own; these are summed in orders of their own (af_graph_set_one_token). */
static void choose(const generator *g, af_feed feed[SEQUENCES_MAX])
{
    bool one = true;
    for (int i = 0; i < g->n; i++)
        one &= g->seq[i].done || is_one(&g->seq[i]);
    int64_t rows_left = g->m->engine.N;
    for (int i = 0; i < g->n; i++) {
        const sequence *s = &g->seq[i];
        const int64_t n = wanted(g, s);
        const bool goes = n <= rows_left && is_one(s) == one;
        feed[i] = (af_feed){.ids = s->ids + s->cached, .from = s->cached, .length = s->count};
        feed[i].n = goes ? n : 0;
        feed[i].picks = goes && n > 0 && s->cached + n == s->count;
        rows_left -= feed[i].n;
    }
    af_graph_set_one_token(g->m->engine.graph, one);
}

/* One run; every sequence whose last token went in gets its next token. */
static af_status step(generator *g, af_error *err)
{
    af_status st = AF_OK;
    af_engine *e = &g->m->engine;
    af_feed feed[SEQUENCES_MAX] = {0};
    const float *logits;
    int64_t row = 0; /* of logits */
    choose(g, feed);
    AF_TRY(af_engine_run(e, feed, g->n, &logits, err));
    for (int i = 0; i < g->n; i++) {
        sequence *s = &g->seq[i];
        s->cached += feed[i].n;
        if (!feed[i].picks)
            continue;
        memcpy(g->logits, logits + g->V * row++, (size_t)g->V * sizeof *g->logits);
        const int32_t id =
            af_sample(&g->o->sample, g->logits, g->V, s->ids, s->count, (uint64_t)s->index,
                      (uint64_t)(s->count - s->prompt), g->scratch);
        if (id < 0)
            AF_TRY(af_fail(err, AF_EFORMAT,
                           "the model gave a logit that is not a number after "
                           "%" PRId64 " tokens",
                           s->count));
        if (tables_differ(af_loader_spec(g->m->loader), s->count, s->count + 1))
            s->cached = 0;
        AF_TRY(add_token(g, s, id, err));
        af_model_watch_length(g->m, s->count);
    }
done:
    return st;
}

static bool all_done(const generator *g)
{
    for (int i = 0; i < g->n; i++)
        if (!g->seq[i].done)
            return false;
    return true;
}

static bool prompts_left(const generator *g)
{
    for (int i = 0; i < g->n; i++)
        if (!g->seq[i].done && g->seq[i].count == g->seq[i].prompt)
            return true;
    return false;
}

static af_status run_group(generator *g, af_error *err)
{
    af_status st = AF_OK;
    af_generate_times *t = &g->m->times;
    while (!all_done(g)) {
        const bool prompt = prompts_left(g);
        const double from = af_seconds_now();
        AF_TRY(step(g, err));
        *(prompt ? &t->prompt_s : &t->token_s) += af_seconds_now() - from;
    }
done:
    return st;
}

/* ---- sequences ---- */

static af_status begin(generator *g, sequence *s, int index, af_error *err)
{
    const int64_t n = g->o->prompt_len[index];
    *s = (sequence){.index = index, .count = n, .prompt = n};
    s->ids = af_calloc((uint64_t)(n + g->o->max_new + 1), sizeof *s->ids);
    if (!s->ids)
        return af_fail_nomem(err, "tokens", (uint64_t)(n + g->o->max_new) * sizeof *s->ids);
    memcpy(s->ids, g->o->prompt[index], (size_t)n * sizeof *s->ids);
    if (g->tokenizer)
        af_decode_stream_init(&s->stream, g->tokenizer, g->o->skip_special);
    s->done = g->o->max_new == 0;
    af_model_watch_length(g->m, n);
    return AF_OK;
}

static af_status finish(generator *g, sequence *s, af_generated *out, af_error *err)
{
    const int64_t n = s->count - s->prompt;
    g->m->times.prompt_tokens += s->prompt;
    g->m->times.new_tokens += n;
    *out = (af_generated){.count = n, .stop = s->stop};
    out->ids = af_calloc((uint64_t)n + 1, sizeof *out->ids);
    if (!out->ids)
        return af_fail_nomem(err, "tokens", (uint64_t)n * sizeof *out->ids);
    memcpy(out->ids, s->ids + s->prompt, (size_t)n * sizeof *out->ids);
    if (g->tokenizer) {
        out->text_len = s->text.len;
        out->text = s->text.len ? af_buf_take(&s->text) : af_strdup("");
        if (!out->text)
            return af_fail_nomem(err, "text", s->text.len);
    }
    return AF_OK;
}

static void end(sequence *s)
{
    if (s->stream.tokenizer)
        af_decode_stream_clear(&s->stream);
    af_buf_clear(&s->text);
    free(s->ids);
    *s = (sequence){0};
}

/* A conversation continues: what its new prompt shares with the cached tokens need not be fed. */
static void reuse_cache(generator *g)
{
    const af_model *m = g->m;
    sequence *s = &g->seq[0];
    int64_t n = 0;
    if (g->n != 1 || af_loader_spec(m->loader)->rope_by_length)
        return;
    while (n < m->cached_count && n < s->count - 1 && m->cached[n] == s->ids[n])
        n++;
    /* a recurrent state is that of all tokens fed so far, and none earlier */
    s->cached = af_loader_spec(m->loader)->recurrent && n < m->cached_count ? 0 : n;
}

static void keep_cache(generator *g)
{
    af_model *m = g->m;
    free(m->cached);
    m->cached = NULL;
    m->cached_count = 0;
    if (g->n != 1 || g->seq[0].cached == 0)
        return;
    m->cached = af_calloc((uint64_t)g->seq[0].cached, sizeof *m->cached);
    if (!m->cached)
        return; /* the next prompt is fed whole */
    m->cached_count = g->seq[0].cached;
    memcpy(m->cached, g->seq[0].ids, (size_t)m->cached_count * sizeof *m->cached);
}

/* Rows, sequences and positions of the graph for some of the prompts. A graph that is to serve this
 * call alone has no space for others. */
typedef struct sizes {
    int64_t N, S, L;
} sizes;

static sizes sizes_of(const af_model *m, const af_generate_opts *o, int first, int n)
{
    const bool cpu = af_device_is_cpu(m->device);
    const int64_t chunk = cpu ? CHUNK_CPU : CHUNK_GPU, unit = o->once ? CACHE_UNIT : CACHE_STEP;
    int64_t longest = 0, all = 0;
    for (int i = first; i < first + n; i++) {
        longest = AF_MAX(longest, o->prompt_len[i]);
        all += o->prompt_len[i];
    }
    const int64_t need = longest + o->max_new + 1;
    return (sizes){o->once ? AF_MIN(chunk, all) : chunk, n, (need + unit - 1) / unit * unit};
}

/* Prompts that are answered at the same time: tables that follow the length belong to one. */
static int group_of(const af_model_spec *s) { return s->rope_by_length ? 1 : SEQUENCES_MAX; }

static af_status generate_group(generator *g, int first, int n, af_generated *out, af_error *err)
{
    af_status st = AF_OK;
    const sizes z = sizes_of(g->m, g->o, first, n);
    g->n = n;
    for (int i = 0; i < n; i++)
        AF_TRY(begin(g, &g->seq[i], first + i, err));
    AF_TRY(af_model_engine(g->m, AF_ENGINE_GENERATE, z.N, z.S, z.L, err));
    reuse_cache(g);
    AF_TRY(run_group(g, err));
    keep_cache(g);
    for (int i = 0; i < n; i++)
        AF_TRY(finish(g, &g->seq[i], &out[first + i], err));
done:
    for (int i = 0; i < n; i++)
        end(&g->seq[i]);
    return st;
}

static af_status check(const af_model *m, const af_generate_opts *o, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_sample_check(&o->sample, err));
    if (o->max_new < 0 || o->max_new > INT32_MAX / 2)
        return af_fail(err, AF_EUSAGE, "%" PRId64 " new tokens are not possible", o->max_new);
    for (int i = 0; i < o->sequences; i++) {
        if (o->prompt_len[i] < 1)
            return af_fail(err, AF_EUSAGE, "prompt %d has no tokens", i + 1);
        AF_TRY(af_model_check_ids(m, o->prompt[i], o->prompt_len[i], err));
    }
done:
    return st;
}

af_status af_model_generate(af_model *m, const af_generate_opts *o, af_generated *out,
                            af_error *err)
{
    af_status st = AF_OK;
    generator g = {.m = m, .o = o, .V = af_model_vocab(m)};
    memset(out, 0, (size_t)o->sequences * sizeof *out);
    m->times = (af_generate_times){0};
    AF_TRY(af_model_need_tokens(m, err));
    AF_TRY(check(m, o, err));
    if (o->ids_only == false)
        AF_TRY(af_model_tokenizer(m, &g.tokenizer, err));
    g.scratch = af_calloc((uint64_t)g.V, sizeof *g.scratch);
    g.logits = af_calloc((uint64_t)g.V, sizeof *g.logits);
    if (!g.scratch || !g.logits)
        AF_TRY(af_fail_nomem(err, "logits", (uint64_t)g.V * sizeof *g.scratch));
    const int group = group_of(af_loader_spec(m->loader));
    for (int i = 0; i < o->sequences; i += group)
        AF_TRY(generate_group(&g, i, AF_MIN(group, o->sequences - i), out, err));
done:
    for (int i = 0; st != AF_OK && i < o->sequences; i++)
        af_generated_clear(&out[i]);
    free(g.scratch);
    free(g.logits);
    return st;
}

af_status af_model_generate_plan(const af_model *m, const af_generate_opts *o, uint64_t *bytes,
                                 af_error *err)
{
    af_status st = AF_OK;
    const af_engine_from from = {m->loader, m->adapter, m->compute, m->live, 0};
    const af_model_spec *spec = m->live ? m->live->spec : af_loader_spec(m->loader);
    const int group = group_of(spec);
    *bytes = 0;
    for (int i = 0; i < o->sequences; i += group) {
        const sizes z = sizes_of(m, o, i, AF_MIN(group, o->sequences - i));
        uint64_t some;
        AF_TRY(af_engine_plan(&some, AF_ENGINE_GENERATE, m->device, &from, z.N, z.S, z.L, err));
        *bytes =
            AF_MAX(*bytes, some + (uint64_t)spec->vocab * sizeof(float)); /* and a row of logits */
    }
done:
    return st;
}
