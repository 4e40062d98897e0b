/* decode_token.c - from a row of logits to a token, its log-probability and the caller's hook. */
#include "decode/decoder.h"

#include "base/rng.h"

#include <math.h>

static_assert((int)AF_TOP_LOGPROBS_MAX == (int)AF_DRAW_TOPS_MAX, "what the device lists");

static bool is_end_token(const af_decoder *d, int32_t id)
{
    const af_hf_config *c = af_loader_config(d->m->loader);
    int n = 0;
    const int32_t *stops = d->tokenizer ? af_tokenizer_stops(d->tokenizer, &n) : NULL;
    for (int i = 0; i < n; i++)
        if (stops[i] == id)
            return true;
    for (int i = 0; i < c->eos_count; i++)
        if (c->eos_token_id[i] == id)
            return true;
    return false;
}

/* An answer that may not end yet. */
static bool wants_more(const af_decode_seq *s)
{
    return !s->r.ignore_eos && s->count - s->prompt < s->r.min_tokens;
}

/* Takes out the tokens that end, unless the mask left no other. */
static void hold_back_ends(const af_decoder *d, bool masked)
{
    const af_hf_config *c = af_loader_config(d->m->loader);
    int n = 0;
    const int32_t *stops = d->tokenizer ? af_tokenizer_stops(d->tokenizer, &n) : NULL;
    bool other = !masked;
    for (int64_t i = 0; i < d->V && !other; i++)
        other = d->logits[i] > -INFINITY && !is_end_token(d, (int32_t)i);
    for (int i = 0; i < n && other; i++)
        if (stops[i] < d->V)
            d->logits[stops[i]] = -INFINITY;
    for (int i = 0; i < c->eos_count && other; i++)
        if (c->eos_token_id[i] >= 0 && c->eos_token_id[i] < d->V)
            d->logits[c->eos_token_id[i]] = -INFINITY;
}

/* Of the model's own logits: log sum exp, in double and in the order of the ids. */
static double log_sum_exp(const float *x, int64_t n)
{
    double sum = 0;
    float top = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)x[i] - top);
    return top + log(sum); // cppcheck-suppress invalidFunctionArg ; n > 0
}

/* The n largest, best first; of equal ones the smaller id. */
static int largest(const float *x, int64_t V, int n, af_token_logprob *top, double lse)
{
    int count = 0;
    for (int64_t i = 0; i < V && n > 0; i++) {
        const double p = (double)x[i] - lse;
        if (count == n && !(p > top[n - 1].logprob))
            continue;
        int k = count < n ? count++ : n - 1;
        for (; k > 0 && p > top[k - 1].logprob; k--)
            top[k] = top[k - 1];
        top[k] = (af_token_logprob){(int32_t)i, p};
    }
    return count;
}

static bool call_hook(const af_decode_seq *s, af_decoded *t)
{
    t->ticket = s->ticket;
    t->prefix = s->prefix;
    return !s->r.token || s->r.token(s->r.user, t);
}

/* Calls the hook for a token whose row of logits this is. */
static bool tell(const af_decoder *d, const af_decode_seq *s, const float *logits, af_decoded *t)
{
    af_token_logprob top[AF_TOP_LOGPROBS_MAX];
    t->logprob = NAN;
    if (s->r.top_logprobs >= 0) {
        const double lse = log_sum_exp(logits, d->V);
        t->logprob = (double)logits[t->id] - lse;
        t->tops = largest(logits, d->V, s->r.top_logprobs, top, lse);
        t->top = top;
    }
    return call_hook(s, t);
}

void af_decode_finish(af_decode_seq *s, af_decode_end end)
{
    const af_decoded t = {.ticket = s->ticket,
                          .index = s->count - s->prompt,
                          .id = -1,
                          .logprob = NAN,
                          .end = end,
                          .prefix = s->prefix};
    if (s->r.token && !s->cancelled)
        (void)s->r.token(s->r.user, &t);
    s->cancelled = true;
}

bool af_decode_prompt(af_decoder *d, af_decode_seq *s, int64_t index, const float *logits)
{
    af_decoded t = {.prompt = true, .index = index, .id = s->ids[index]};
    if (!s->r.prompt_logprobs || index >= s->prompt || index <= s->told)
        return true;
    s->told = index;
    return tell(d, s, logits, &t);
}

/* Biases and the mask, on a copy of the logits. False: no token may come. */
static bool restrict_logits(af_decoder *d, const af_decode_seq *s)
{
    for (int i = 0; i < s->r.biases; i++)
        d->logits[s->bias[i].id] = (float)(d->logits[s->bias[i].id] + s->bias[i].bias);
    if (!s->r.mask)
        return true;
    const int64_t words = (d->V + 31) / 32;
    memset(d->allowed, 0xff, (size_t)words * sizeof *d->allowed);
    if (!s->r.mask(s->r.user, s->ids + s->prompt, s->count - s->prompt, d->allowed))
        return false;
    bool any = false;
    for (int64_t i = 0; i < d->V; i++) {
        const bool on = d->allowed[i / 32] >> (i % 32) & 1;
        any |= on;
        if (!on)
            d->logits[i] = -INFINITY;
    }
    return any;
}

/* A new token becomes part of the sequence. False: there is none, and the sequence is finished. */
static bool append(af_decoder *d, af_decode_seq *s, af_decoded *t)
{
    if (t->id < 0) {
        af_decode_finish(s, AF_DECODE_ERROR);
        return false;
    }
    s->ids[s->count++] = t->id;
    d->counts.new_tokens++;
    if (!s->r.ignore_eos && is_end_token(d, t->id))
        t->end = AF_DECODE_EOS;
    else if (s->count >= s->most)
        t->end = AF_DECODE_LENGTH;
    return true;
}

bool af_decode_draws(const af_decoder *d, const af_decode_seq *s, double want[AF_DRAW_WANTS])
{
    const af_sample_opts *o = &s->r.sample;
    if (!d->graph.want || s->r.mask || s->r.biases || wants_more(s) || af_sample_penalises(o))
        return false;
    want[AF_DRAW_TEMPERATURE] = af_sample_is_greedy(o) ? 0 : o->temperature;
    want[AF_DRAW_TOP_K] = (double)o->top_k;
    want[AF_DRAW_TOP_P] = o->top_p;
    want[AF_DRAW_MIN_P] = o->min_p;
    want[AF_DRAW_NUMBER] = af_rng_f64(o->seed, s->r.stream, (uint64_t)(s->count - s->prompt));
    want[AF_DRAW_TOPS] = s->r.top_logprobs;
    return true;
}

void af_decode_drawn(af_decoder *d, af_decode_seq *s, const double *choice, const double *top,
                     bool *end)
{
    af_token_logprob tops[AF_TOP_LOGPROBS_MAX];
    af_decoded t = {.index = s->count - s->prompt, .id = (int32_t)choice[0], .logprob = NAN};
    *end = true;
    if (!append(d, s, &t))
        return;
    if (s->r.top_logprobs >= 0) {
        t.logprob = choice[1];
        t.tops = (int)AF_MIN((int64_t)s->r.top_logprobs, d->V);
        t.top = tops;
    }
    for (int i = 0; i < t.tops; i++)
        tops[i] = (af_token_logprob){(int32_t)top[2 * i], top[2 * i + 1]};
    s->cancelled |= !call_hook(s, &t);
    *end = t.end != AF_DECODE_GOES_ON || s->cancelled;
}

void af_decode_next(af_decoder *d, af_decode_seq *s, const float *logits, bool *end)
{
    af_decoded t = {.index = s->count - s->prompt, .id = -1};
    *end = true;
    memcpy(d->logits, logits, (size_t)d->V * sizeof *logits);
    const bool any = restrict_logits(d, s);
    if (any && wants_more(s))
        hold_back_ends(d, s->r.mask != NULL);
    if (any)
        t.id = af_sample(&s->r.sample, d->logits, d->V, (af_seen_tokens){s->ids, s->count, t.index},
                         s->r.stream, (uint64_t)t.index, d->candidates);
    if (!append(d, s, &t))
        return;
    s->cancelled |= !tell(d, s, logits, &t);
    *end = t.end != AF_DECODE_GOES_ON || s->cancelled;
}
