/* decode_case.h - requests on a model of the goldens, and what they gave. */
#ifndef AF_DECODE_CASE_H
#define AF_DECODE_CASE_H

#include "../model/model_case.h"

#include "afinar/decode.h"

enum { CASE_TOKENS = 600, CASE_REQUESTS = 40 };

/* What a request gave. */
typedef struct decode_case {
    int32_t prompt[CASE_TOKENS], id[CASE_TOKENS];
    double logprob[CASE_TOKENS], top[CASE_TOKENS], given[CASE_TOKENS];
    int64_t V, len, count, givens, prefix;
    int64_t stop_at; /* the hook refuses after so many; 0 = never */
    int calls_after; /* the end */
    af_decode_end end;
    af_decode_request r;
    uint64_t ticket;
} decode_case;

static inline bool case_token(void *user, const af_decoded *t)
{
    decode_case *c = user;
    c->calls_after += c->end != AF_DECODE_GOES_ON;
    c->end = t->end;
    c->prefix = t->prefix;
    if (t->prompt) {
        c->given[t->index] = t->logprob;
        c->givens++;
    } else if (t->id >= 0) {
        c->id[t->index] = t->id;
        c->logprob[t->index] = t->logprob;
        c->top[t->index] = t->tops ? t->top[0].logprob : 0;
        c->count = t->index + 1;
    }
    return c->stop_at == 0 || c->count < c->stop_at;
}

/* Request k of many: other lengths, seeds and sampling. */
static inline void case_request(decode_case *c, int k, int64_t V)
{
    static const int64_t lens[] = {1, 3, 7, 8, 9, 17, 40, 64, 65, 130, 257, 300};
    memset(c, 0, sizeof *c);
    c->V = V;
    c->len = lens[k % (int)AF_LEN(lens)];
    for (int64_t i = 0; i < c->len; i++)
        c->prompt[i] = (int32_t)((i * 31 + k * 17 + i * i % 7) % V);
    c->r = (af_decode_request){.ids = c->prompt,
                               .count = c->len,
                               .max_tokens = 6 + k % 5,
                               .ignore_eos = true,
                               .top_logprobs = 2,
                               .prompt_logprobs = k % 4 == 1,
                               .token = case_token,
                               .user = c};
    if (k % 3)
        c->r.sample = (af_sample_opts){.temperature = 0.9, .top_k = 20, .seed = (uint64_t)k};
}

static inline void case_submit(af_decoder *d, decode_case *c)
{
    af_error err = {0};
    c->r.ids = c->prompt;
    c->r.user = c;
    CHECK_OK(af_decoder_submit(d, &c->r, &c->ticket, &err), err);
}

static inline void case_finish(af_decoder *d)
{
    af_error err = {0};
    int steps = 0;
    for (int64_t active = 1; active > 0; steps++) {
        CHECK_MSG(steps < 100000, "requests that do not end");
        CHECK_OK(af_decoder_step(d, &active, &err), err);
    }
}

static inline void case_same(const decode_case *a, const decode_case *b, const char *what)
{
    CHECK_MSG(a->count == b->count && a->end == b->end && a->givens == b->givens,
              "%s: %d tokens, end %d; alone %d, end %d", what, (int)a->count, (int)a->end,
              (int)b->count, (int)b->end);
    for (int64_t i = 0; i < a->count; i++)
        CHECK_MSG(a->id[i] == b->id[i] && a->logprob[i] == b->logprob[i] && a->top[i] == b->top[i],
                  "%s: token %d is %d (%.17g), alone %d (%.17g)", what, (int)i, (int)a->id[i],
                  a->logprob[i], (int)b->id[i], b->logprob[i]);
    for (int64_t i = 1; i < a->len && a->givens; i++)
        CHECK_MSG(a->given[i] == b->given[i], "%s: prompt token %d has %.17g, alone %.17g", what,
                  (int)i, a->given[i], b->given[i]);
}

/* Of a path among the goldens; NULL without them. */
static inline af_model *decode_open_at(const char *sub, af_compute compute)
{
    char dir[4096];
    af_model *m = NULL;
    af_error err = {0};
    if (!case_dir(dir, sizeof dir, sub))
        return NULL;
    const af_model_opts o = {.device = case_device(), .threads = 2, .compute = compute};
    CHECK_OK(af_model_open(&m, dir, &o, &err), err);
    return m;
}

static inline af_model *decode_open(const char *name, af_compute compute)
{
    char sub[128];
    snprintf(sub, sizeof sub, "models/%s", name);
    return decode_open_at(sub, compute);
}
#endif
