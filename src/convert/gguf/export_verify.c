/* export_verify.c - see export_verify.h.
 *
 * Rounding weights moves logits a little: how much is allowed follows from the bits per weight.
 * A wrong permutation, scale, norm or rotation moves them by as much as they spread. */
#include "convert/gguf/export_verify.h"

#include "afinar/chat.h"
#include "afinar/model.h"
#include "base/base.h"
#include "base/file.h"
#include "base/log.h"
#include "convert/gguf/template_parts.h"
#include "model/model_state.h"

#include <math.h>

enum { PROMPT_TOKENS = 24, PROMPTS = 2 };

typedef struct logit_sums {
    double diff2, spread2;
    int64_t values, same_top, positions;
} logit_sums;

/* Ids of a prompt: text where there is a tokenizer, else ids across the vocabulary. */
static int64_t make_prompt(af_model *m, int which, int32_t *ids)
{
    static const char *const texts[PROMPTS] = {
        "The quick brown fox jumps over the lazy dog, and then it counts to 12.",
        "def add(a, b):\n    return a + b  # sum of two numbers\n"};
    const af_tokenizer *k;
    af_encoding e = {0};
    const int64_t V = af_model_vocab(m);
    int64_t n = 0;
    if (af_model_tokenizer(m, &k, NULL) == AF_OK &&
        af_tokenizer_encode(k, &e, texts[which], strlen(texts[which]), true, NULL) == AF_OK)
        for (; n < e.count && n < PROMPT_TOKENS && e.ids[n] < V; n++)
            ids[n] = e.ids[n];
    af_encoding_clear(&e);
    for (int64_t i = 0; n < 4 && i < PROMPT_TOKENS; i++)
        ids[i] = (int32_t)((1 + which * 5 + i * 7) % V);
    return n < 4 ? PROMPT_TOKENS : n;
}

static void compare(const float *a, const float *b, int64_t rows, int64_t V, logit_sums *s)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *x = a + r * V, *y = b + r * V;
        int64_t top_x = 0, top_y = 0;
        double mean_x = 0, mean_y = 0;
        for (int64_t i = 0; i < V; i++) {
            mean_x += x[i];
            mean_y += y[i];
            top_x = x[i] > x[top_x] ? i : top_x;
            top_y = y[i] > y[top_y] ? i : top_y;
        }
        mean_x /= (double)V;
        mean_y /= (double)V;
        for (int64_t i = 0; i < V; i++) { /* a shift of all logits means nothing */
            const double p = x[i] - mean_x, q = y[i] - mean_y;
            s->diff2 += (p - q) * (p - q);
            s->spread2 += p * p;
        }
        s->values += V;
        s->same_top += top_x == top_y;
        s->positions++;
    }
}

/* Rows of n that are to be the same: beyond a window that the file has no place for, it attends to
 * more than the model does, as the export has warned. */
static int64_t rows_alike(const af_model *a, const af_model *b, int64_t n)
{
    const af_model_spec *x = af_loader_spec(a->loader), *y = af_loader_spec(b->loader);
    for (int i = 0; i < x->layers && i < y->layers; i++)
        if (x->layer[i].window > 0 && y->layer[i].window == 0)
            n = AF_MIN(n, x->layer[i].window);
    return n;
}

static af_status run_prompts(af_model *a, af_model *b, logit_sums *s, af_error *err)
{
    af_status st = AF_OK;
    const int64_t V = af_model_vocab(a);
    float *x = NULL, *y = NULL;
    if (af_model_vocab(b) != V)
        return af_fail(err, AF_EFORMAT, "the written model has %" PRId64 " tokens, not %" PRId64,
                       af_model_vocab(b), V);
    x = af_calloc((uint64_t)(PROMPT_TOKENS * V), sizeof *x);
    y = af_calloc((uint64_t)(PROMPT_TOKENS * V), sizeof *y);
    if (!x || !y)
        AF_TRY(af_fail_nomem(err, "logits", (uint64_t)(PROMPT_TOKENS * V) * 8));
    for (int p = 0; p < PROMPTS; p++) {
        int32_t ids[PROMPT_TOKENS];
        const int64_t n = rows_alike(a, b, make_prompt(a, p, ids));
        AF_TRY(af_model_logits_of(a, ids, n, x, err));
        AF_TRY(af_model_logits_of(b, ids, n, y, err));
        compare(x, y, n, V, s);
    }
done:
    free(x);
    free(y);
    return st;
}

static double allowed_error(double bits)
{
    return bits > 24    ? 1e-3
           : bits > 12  ? 0.03
           : bits > 7.9 ? 0.12
           : bits > 6   ? 0.2
           : bits > 5   ? 0.35
           : bits > 4   ? 0.6
                        : 0.95;
}

/* 1 when the two tokenizers give other ids for a text, 0 when they agree or one cannot. */
static int cuts_differ(const af_tokenizer *a, const af_tokenizer *b, const char *text, uint64_t n,
                       bool special)
{
    af_encoding x = {0}, y = {0};
    const bool both = af_tokenizer_encode(a, &x, text, n, special, NULL) == AF_OK &&
                      af_tokenizer_encode(b, &y, text, n, special, NULL) == AF_OK;
    const bool same = both && x.count == y.count &&
                      (x.count == 0 || memcmp(x.ids, y.ids, (size_t)x.count * sizeof *x.ids) == 0);
    af_encoding_clear(&x);
    af_encoding_clear(&y);
    return both && !same;
}

/* What a GGUF file says of a tokenizer is less than a folder does. Whoever reads the file
 * cuts texts as our own reader of it: where that is not what was trained with, a warning is logged.
 */
static void compare_tokens(af_model *a, af_model *b)
{
    static const char *const texts[] = {
        "The quick brown fox jumps over the lazy dog, and then it counts to 12.",
        "def add(a, b):\n    return a + b  # sum of two numbers\n",
        " a blank in front, 1234567 of them,\n\n\tand don't I'LL ...",
        "na\xc3\xafve caf\xc3\xa9, \xe6\x9d\xb1\xe4\xba\xac, \xd0\x9c\xd0\xbe\xd1\x81\xd0\xba"};
    static const char row[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi there.\"}, "
                              "{\"role\": \"assistant\", \"content\": \"Hello!\"}]}";
    const af_tokenizer *x, *y;
    const af_template *chat;
    char *text = NULL;
    uint64_t n = 0;
    int other = 0;
    if (af_model_tokenizer(a, &x, NULL) != AF_OK || af_model_tokenizer(b, &y, NULL) != AF_OK)
        return;
    for (size_t i = 0; i < AF_LEN(texts); i++)
        other += cuts_differ(x, y, texts[i], strlen(texts[i]), true);
    const bool talks =
        af_model_template(a, &chat, NULL) == AF_OK &&
        af_template_render_row(chat, row, strlen(row), &text, &n, NULL, NULL) == AF_OK;
    const bool chats = talks && cuts_differ(x, y, text, n, false);
    free(text);
    if (other || chats)
        af_log_write(
            AF_LOG_WARN,
            "the tokenizer that GGUF can describe cuts %d of %d sample texts%s into other tokens "
            "than that of the folder: so will programs that read the file",
            other, (int)AF_LEN(texts), chats ? " and a conversation" : "");
}

/* The end of a turn stops. */
static af_status check_turns(const char *written, af_verify_result *r, af_error *err)
{
    af_template_parts t = {0};
    const af_status st = af_template_parts_read(&t, written, err);
    if (st != AF_OK)
        return st;
    r->stops = !t.found || t.end_id < 0 || t.end_stops;
    if (!r->stops)
        snprintf(r->message, sizeof r->message,
                 "'%s' ends a turn in the chat template but does not stop generation",
                 t.end_text ? t.end_text : "?");
    af_template_parts_clear(&t);
    return AF_OK;
}

/* A model may be without a tokenizer, but one that is there can be read. A file that a folder got
 * from a GGUF file as it was may be invalid: a warning, as the weights are right. */
static af_status check_tokenizer(af_model *m, const char *path, af_error *err)
{
    const af_tokenizer *k;
    af_error why = {0};
    const af_status st = af_model_tokenizer(m, &k, &why);
    const bool in_folder = af_folder_has_tokenizer(path), there = in_folder || af_file_exists(path);
    if (st == AF_EFORMAT && in_folder)
        af_log_write(AF_LOG_WARN, "the tokenizer is not valid: %s", why.msg);
    return st == AF_ENOMEM || (st == AF_EIO && there) ? af_fail(err, st, "%s", why.msg) : AF_OK;
}

af_status af_export_verify(const char *model, const char *adapter, const char *written, double bits,
                           int threads, af_verify_result *out, af_error *err)
{
    af_status st = AF_OK;
    af_model *a = NULL, *b = NULL;
    logit_sums s = {0};
    af_model_opts o = {.device = "cpu", .threads = threads, .compute = AF_COMPUTE_F32};
    *out = (af_verify_result){.ran = true, .allowed = allowed_error(bits)};
    AF_TRY(af_model_open(&b, written, &o, err));
    if (adapter) {
        o.adapter[0] = adapter;
        o.adapter_weight[0] = 1;
        o.adapters = 1;
    }
    AF_TRY(af_model_open(&a, model, &o, err));
    AF_TRY(check_tokenizer(a, model, err));
    AF_TRY(check_tokenizer(b, written, err));
    AF_TRY(run_prompts(a, b, &s, err));
    compare_tokens(a, b);
    AF_TRY(check_turns(written, out, err));
    out->logit_error = s.spread2 > 0 ? sqrt(s.diff2 / s.spread2) : sqrt(s.diff2);
    out->same_top = s.same_top;
    out->positions = s.positions;
    out->same = out->logit_error <= out->allowed; /* false for NaN */
    if (isnan(out->logit_error))
        snprintf(out->message, sizeof out->message, "the logits are not numbers");
    else if (!out->same)
        snprintf(out->message, sizeof out->message,
                 "logits differ by %.3g of their spread, %.3g is allowed", out->logit_error,
                 out->allowed);
    out->ok = out->same && out->stops;
done:
    af_model_close(a);
    af_model_close(b);
    return st;
}
