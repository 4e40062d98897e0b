/* test_golden_models.c - every model of the goldens: logits, token losses and all gradients as
 * transformers computes them in f32, packed and one by one. */
#include "model_case.h"
#include "worse.h"

/* golden/models/README.md: suggested absolute tolerances */
#define TOL_LOGITS 2e-5
#define TOL_LOSS   1e-5
#define TOL_GRAD   5e-6

static const char *const models[] = {
    "llama",         "qwen2",       "qwen3",
    "mistral",       "gemma2",      "phi3",
    "llama3rope",    "smollm2",     "qwen2-bf16-sharded",
    "llama3_tiny",   "qwen2_tiny",  "qwen3_tiny",
    "mistral_tiny",  "gemma2_tiny", "gemma",
    "gemma3_text",   "smollm3",     "olmo2",
    "granite",       "qwen3_moe",   "qwen3_moe_raw",
    "phi3_longrope", "yarn",        "dynamic",
    "linear",
};

typedef struct golden {
    af_weights *w;
    int32_t ids[1024], labels[1024]; /* packed; labels shifted */
    int64_t len[8];
    int rows;
    int64_t T, N;
} golden;

static void golden_open(golden *g, const char *dir)
{
    af_error err = {0};
    char path[4200];
    *g = (golden){0};
    snprintf(path, sizeof path, "%s/golden.safetensors", dir);
    CHECK_OK(af_weights_open(&g->w, path, &err), err);
    const af_stored *ids = case_golden(g->w, "input_ids"), *labels = case_golden(g->w, "labels");
    const int32_t *len = case_golden(g->w, "lengths")->data;
    g->rows = (int)ids->dim[0];
    g->T = ids->dim[1];
    for (int b = 0; b < g->rows; b++) {
        g->len[b] = len[b];
        for (int64_t t = 0; t < len[b]; t++, g->N++) {
            g->ids[g->N] = ((const int32_t *)ids->data)[b * g->T + t];
            g->labels[g->N] =
                t + 1 < len[b] ? ((const int32_t *)labels->data)[b * g->T + t + 1] : -100;
        }
    }
}

/* logits [live][V] and rows [live][2] of sequences from..to against the golden's. */
static void check_forward(const char *name, const golden *g, const float *logits, const float *rows,
                          int64_t V, int from, int to)
{
    const float *want = case_golden(g->w, "logits")->data;
    const float *loss = case_golden(g->w, "token_loss")->data;
    double worst = 0, worst_loss = 0, diff = 0, norm = 0;
    int64_t r = 0;
    for (int b = from; b < to; b++)
        for (int64_t t = 0; t < g->len[b]; t++, r++) {
            for (int64_t v = 0; v < V; v++) {
                const double x = want[(b * g->T + t) * V + v], d = logits[r * V + v] - x;
                worst = worse(worst, fabs(d));
                diff += d * d;
                norm += x * x;
                assert_true(isfinite(logits[r * V + v]));
            }
            if (t + 1 < g->len[b])
                worst_loss = worse(worst_loss, fabs(rows[r * 2] - loss[b * g->T + t + 1]));
        }
    print_message("%-20s logits %.1e (relative %.1e), token loss %.1e\n", name, worst,
                  sqrt(diff / norm), worst_loss);
    CHECK_MSG(worst < TOL_LOGITS, "%s: logits differ by %g", name, worst);
    CHECK_MSG(sqrt(diff / norm) < 1e-5, "%s: logits differ by %g relative", name,
              sqrt(diff / norm));
    CHECK_MSG(worst_loss < TOL_LOSS, "%s: token losses differ by %g", name, worst_loss);
}

static void check_gradients(const char *name, const golden *g, model_case *c)
{
    const af_model_spec *s = af_loader_spec(c->loader);
    double worst = 0;
    int checked = 0;
    for (int i = 0; i < s->tensors; i++) {
        char key[600];
        snprintf(key, sizeof key, "grad.%s", s->tensor[i].name);
        const af_stored *want = af_weights_find(g->w, key);
        if (!want)
            continue;
        const af_tensor *grad = af_tensor_gradient(c->leaves.tensor[i]);
        CHECK_MSG(grad, "%s: %s has no gradient", name, s->tensor[i].name);
        assert_int_equal(af_tensor_count(grad), af_weight_count(want));
        float *x = case_read(c, grad);
        double most = 0, d = 0;
        for (int64_t k = 0; k < af_weight_count(want); k++) {
            most = worse(most, fabs(((const float *)want->data)[k]));
            d = worse(d, fabs(x[k] - ((const float *)want->data)[k]));
            assert_true(isfinite(x[k]));
        }
        CHECK_MSG(d < TOL_GRAD * fmax(most, 1), "%s: gradient of %s differs by %g (largest %g)",
                  name, s->tensor[i].name, d, most);
        worst = worse(worst, d);
        checked++;
        free(x);
    }
    print_message("%-20s %d gradients %.1e\n", name, checked, worst);
}

/* Sequence after sequence, gradients adding up: for models whose rope depends on the length. */
static void check_singly(const char *name, const golden *g, model_case *c)
{
    int64_t at = 0;
    c->counted = 0;
    for (int64_t i = 0; i < g->N; i++)
        c->counted += g->labels[i] != -100;
    for (int b = 0; b < g->rows; b++) {
        case_run(c, g->ids + at, g->labels + at, &g->len[b], 1);
        float *logits = case_read(c, c->logits), *rows = case_read(c, c->rows);
        check_forward(name, g, logits, rows, af_loader_spec(c->loader)->vocab, b, b + 1);
        free(logits);
        free(rows);
        at += g->len[b];
    }
    check_gradients(name, g, c);
}

static void check_model(const char *name, const char *dir)
{
    golden g;
    model_case c;
    golden_open(&g, dir);
    case_open(&c, dir, &(case_opts){.rows = g.N, .seqs = g.rows, .train = true});
    if (af_rope_depends_on_length(&af_loader_spec(c.loader)->rope[0].config)) {
        check_singly(name, &g, &c);
        case_close(&c);
        af_weights_close(g.w);
        return;
    }
    const int64_t V = af_loader_spec(c.loader)->vocab;
    case_run(&c, g.ids, g.labels, g.len, g.rows);
    float *logits = case_read(&c, c.logits), *rows = case_read(&c, c.rows);
    check_forward(name, &g, logits, rows, V, 0, g.rows);
    check_gradients(name, &g, &c);

    int64_t at = 0; /* one by one: the same bits */
    for (int b = 0; b < g.rows; b++) {
        case_run(&c, g.ids + at, g.labels + at, &g.len[b], 1);
        float *one = case_read(&c, c.logits);
        CHECK_MSG(memcmp(one, logits + at * V, (size_t)(g.len[b] * V) * sizeof *one) == 0,
                  "%s: sequence %d alone has other logits than in the batch", name, b);
        free(one);
        at += g.len[b];
    }
    free(logits);
    free(rows);
    case_close(&c);
    af_weights_close(g.w);
}

static void test_models_agree_with_transformers(void **state)
{
    (void)state;
    char dir[4096], sub[128];
    int seen = 0;
    for (size_t i = 0; i < AF_LEN(models); i++) {
        snprintf(sub, sizeof sub, "models/%s", models[i]);
        if (!case_dir(dir, sizeof dir, sub)) {
            print_message("%-20s not here: skipped\n", models[i]);
            continue;
        }
        check_model(models[i], dir);
        seen++;
    }
    assert_true(seen > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models_agree_with_transformers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
