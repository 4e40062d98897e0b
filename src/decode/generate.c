/* generate.c - af_model_generate: all prompts through one decoder, which the model keeps. */
#include "decode/generate.h"

#include "decode/answer_text.h"
#include "decode/decoder.h"
#include "graph/graph_access.h"

enum {
    CHUNK_CPU = 256, /* prompt tokens per run */
    CHUNK_GPU = 512,
    SEQUENCES_MAX = 32, /* at once; more prompts wait */
    CONTEXT_UNIT = 512, /* of a decoder that is kept */
    PAGE_UNIT = 16,     /* of one that serves this call alone */
};

typedef struct generation generation;

/* One prompt and what comes of it. */
typedef struct answer {
    generation *g;
    int index; /* in the caller's list */
    af_answer_text text;
    uint64_t emitted; /* bytes of the text that the caller has */
    af_stop stop;
    bool done;
} answer;

struct generation {
    af_model *m;
    const af_generate_opts *o;
    const af_tokenizer *tokenizer; /* NULL: ids only */
    answer *answer;
    af_status st; /* of what went wrong in a hook */
    af_error err;
};

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
    if (!r)
        return;
    free(r->ids);
    free(r->text);
    *r = (af_generated){0};
}

/* ---- tokens as they come ---- */

/* Passes new text on; id -1: no token belongs to it. */
static void emit(answer *a, int32_t id)
{
    const af_generate_opts *o = a->g->o;
    const uint64_t len = a->text.safe - a->emitted;
    const char *text = len ? a->text.text.data + a->emitted : "";
    a->emitted = a->text.safe;
    if (!o->hook || (len == 0 && id < 0))
        return;
    if (!o->hook(o->user, a->index, id, text, len)) {
        a->done = true;
        a->stop = AF_STOP_USER;
    }
}

static af_status add_token(answer *a, const af_decoded *t, af_error *err)
{
    af_status st = AF_OK;
    const bool eos = t->end == AF_DECODE_EOS;
    AF_TRY(af_answer_text_add(&a->text, t->id, !eos, err));
    if (!eos)
        emit(a, t->id);
    if (!a->done && (a->text.stopped || t->end != AF_DECODE_GOES_ON)) {
        a->done = true;
        a->stop = a->text.stopped ? AF_STOP_STRING : eos ? AF_STOP_EOS : AF_STOP_LENGTH;
    }
    if (a->done && !a->text.stopped) { /* what was held back */
        AF_TRY(af_answer_text_end(&a->text, false, err));
        emit(a, -1);
    }
done:
    return st;
}

static bool on_mask(void *user, const int32_t *made, int64_t n, uint32_t *allowed)
{
    const answer *a = user;
    const af_generate_opts *o = a->g->o;
    if (o->mask(o->mask_user, a->index, made, n, allowed))
        return true;
    a->g->st = af_fail(&a->g->err, AF_EUSAGE, "no token may follow in answer %d", a->index + 1);
    return false;
}

static bool on_token(void *user, const af_decoded *t)
{
    answer *a = user;
    generation *g = a->g;
    if (t->end == AF_DECODE_ERROR && g->st == AF_OK)
        g->st = af_fail(&g->err, AF_EFORMAT,
                        "the model gave a logit that is not a number after "
                        "%" PRId64 " tokens",
                        g->o->prompt_len[a->index] + a->text.count);
    if (t->id < 0 || g->st != AF_OK)
        return false;
    g->st = add_token(a, t, &g->err);
    return g->st == AF_OK && !a->done;
}

/* ---- the decoder ---- */

/* A graph that is to serve this call alone has no space for others. */
static af_decode_plan plan_of(const af_model *m, const af_generate_opts *o)
{
    const bool cpu = af_device_is_cpu(m->device);
    const int64_t unit = o->once ? PAGE_UNIT : CONTEXT_UNIT;
    af_decode_plan p = {.rows = cpu ? CHUNK_CPU : CHUNK_GPU,
                        .slots = AF_MIN(AF_MAX(o->sequences, 1), SEQUENCES_MAX),
                        .own_adapter = true,
                        .shares = !o->once,
                        .draws = !cpu};
    int64_t longest = 0, all = 0;
    for (int i = 0; i < o->sequences; i++) {
        longest = AF_MAX(longest, o->prompt_len[i]);
        all += o->prompt_len[i];
    }
    p.context = (longest + o->max_new + unit) / unit * unit;
    p.page = AF_MIN(p.context, (int64_t)AF_PAGE_TOKENS);
    p.pages = (p.context + p.page - 1) / p.page * p.slots;
    if (o->once)
        p.rows = AF_MIN(p.rows, all);
    return p;
}

static bool serves(const af_decoder *d, const af_decode_plan *p)
{
    return d && d->context >= p->context && d->slots >= p->slots && d->counts.running == 0 &&
           d->counts.waiting == 0;
}

static af_status need_decoder(af_model *m, const af_generate_opts *o, af_error *err)
{
    af_decode_plan p = plan_of(m, o);
    const int64_t each = p.pages / p.slots;
    if (serves(m->decoder, &p))
        return AF_OK;
    af_engine_close(&m->engine); /* first: two graphs need not fit */
    af_model_drop_decoder(m);
    m->decoder_close = af_decoder_close;
    af_status st = af_decode_open(&m->decoder, m, &p, err);
    while (st == AF_ENOMEM && p.slots > 1) { /* fewer at a time */
        p.slots /= 2;
        p.pages = each * p.slots;
        st = af_decode_open(&m->decoder, m, &p, err);
    }
    return st;
}

/* Tokens after a prompt of a model whose sequences have a limit: the last one is not fed. */
static int64_t room_after(const af_model *m, int64_t prompt)
{
    return AF_MAX(AF_MIN(af_spec_longest(af_decode_spec(m)), INT64_MAX - 1) - prompt, 0) + 1;
}

static af_status submit(generation *g, int i, af_error *err)
{
    const af_generate_opts *o = g->o;
    uint64_t ticket;
    const af_decode_request r = {.ids = o->prompt[i],
                                 .count = o->prompt_len[i],
                                 .adapter = g->m->decoder->own_adapter,
                                 .sample = o->sample,
                                 .stream = (uint64_t)i,
                                 .max_tokens =
                                     AF_MIN(o->max_new, room_after(g->m, o->prompt_len[i])),
                                 .ignore_eos = o->ignore_eos,
                                 .top_logprobs = -1,
                                 .mask = o->mask ? on_mask : NULL,
                                 .token = on_token,
                                 .user = &g->answer[i]};
    return af_decoder_submit(g->m->decoder, &r, &ticket, err);
}

static af_status run(generation *g, af_error *err)
{
    af_status st = AF_OK;
    af_decoder *d = g->m->decoder;
    int64_t active = 0;
    d->tokenizer = g->tokenizer;
    d->prompt_s = d->token_s = 0;
    for (int i = 0; i < g->o->sequences && g->o->max_new > 0; i++) {
        AF_TRY(submit(g, i, err));
        active++;
    }
    while (active > 0) {
        AF_TRY(af_decoder_step(d, &active, err));
        if (g->st != AF_OK && err)
            *err = g->err;
        AF_TRY(g->st);
    }
done:
    g->m->times.prompt_s = d->prompt_s;
    g->m->times.token_s = d->token_s;
    if (st != AF_OK) /* requests are left in it */
        af_model_drop_decoder(g->m);
    return st;
}

/* ---- begin and end ---- */

static af_status finish(generation *g, answer *a, af_generated *out, af_error *err)
{
    g->m->times.prompt_tokens += g->o->prompt_len[a->index];
    g->m->times.new_tokens += a->text.count;
    *out = (af_generated){.count = a->text.count, .stop = a->stop, .ids = a->text.ids};
    a->text.ids = NULL;
    if (!out->ids)
        out->ids = af_calloc(1, sizeof *out->ids);
    if (!out->ids)
        return af_fail_nomem(err, "tokens", sizeof *out->ids);
    if (g->tokenizer) {
        out->text_len = a->text.text.len;
        out->text = out->text_len ? af_buf_take(&a->text.text) : af_strdup("");
        if (!out->text)
            return af_fail_nomem(err, "text", out->text_len);
    }
    return AF_OK;
}

static af_status check(const af_model *m, const af_generate_opts *o, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_sample_check(&o->sample, err));
    AF_TRY(af_need_strings(o->stop, o->stops, AF_STOPS_MAX, "stop", err));
    if (o->max_new < 0 || o->max_new > INT32_MAX / 2)
        return af_fail(err, AF_EUSAGE, "%" PRId64 " new tokens are not possible", o->max_new);
    for (int i = 0; i < o->sequences; i++) {
        if (!o->prompt || !o->prompt_len || !o->prompt[i] || o->prompt_len[i] < 1)
            return af_fail(err, AF_EUSAGE, "prompt %d has no tokens", i + 1);
        AF_TRY(af_model_check_ids(m, o->prompt[i], o->prompt_len[i], err));
    }
done:
    return st;
}

static af_status begin(generation *g, af_error *err)
{
    const af_generate_opts *o = g->o;
    g->answer = af_calloc((uint64_t)AF_MAX(o->sequences, 1), sizeof *g->answer);
    if (!g->answer)
        return af_fail_nomem(err, "answers", (uint64_t)o->sequences * sizeof *g->answer);
    for (int i = 0; i < o->sequences; i++) {
        g->answer[i] = (answer){.g = g, .index = i};
        af_answer_text_init(&g->answer[i].text, g->tokenizer, o->stop, o->stops, o->skip_special);
    }
    return AF_OK;
}

af_status af_model_generate(af_model *m, const af_generate_opts *o, af_generated *out,
                            af_error *err)
{
    AF_NEED(err, m, o, out);
    af_status st = AF_OK;
    generation g = {.m = m, .o = o};
    if (o->sequences < 0)
        return af_fail(err, AF_EUSAGE, "%d sequences are not possible", o->sequences);
    memset(out, 0, (size_t)o->sequences * sizeof *out);
    m->times = (af_generate_times){0};
    AF_TRY(af_model_need_tokens(m, err));
    AF_TRY(check(m, o, err));
    if (o->ids_only == false)
        AF_TRY(af_model_tokenizer(m, &g.tokenizer, err));
    AF_TRY(begin(&g, err));
    AF_TRY(need_decoder(m, o, err));
    AF_TRY(run(&g, err));
    for (int i = 0; i < o->sequences; i++)
        AF_TRY(finish(&g, &g.answer[i], &out[i], err));
done:
    for (int i = 0; st != AF_OK && i < o->sequences; i++)
        af_generated_clear(&out[i]);
    for (int i = 0; g.answer && i < o->sequences; i++)
        af_answer_text_clear(&g.answer[i].text);
    free(g.answer);
    return st;
}

af_status af_model_generate_plan(const af_model *m, const af_generate_opts *o, uint64_t *bytes,
                                 af_error *err)
{
    af_status st = AF_OK;
    const af_decode_plan p = plan_of(m, o);
    const af_engine_from from = {m->loader, m->adapter, m->compute, m->live};
    const af_decode_sizes z = af_decode_sizes_of(&p);
    AF_TRY(af_decode_graph_plan(bytes, m->device, &from, &z, err));
    *bytes += (uint64_t)af_decode_spec(m)->vocab *
              (sizeof(float) + sizeof(af_token_candidate)); /* a row of logits */
done:
    return st;
}
