/* test_generate.c - generation through the public interface: greedy tokens of the goldens, caches
 * against full recomputation, batches, seeds, causality, sampling. */
#include "model_case.h"

#include "afinar/convert.h"
#include "afinar/model.h"
#include "base/file.h"
#include "base/rng.h"
#include "decode/decoder.h"
#include "decode/generate.h"
#include "format/weights/safetensors.h"
#include "graph/node.h"
#include "model/model_state.h"
#include "model/sample.h"

static const char *const models[] = {
    "llama",       "qwen2",         "qwen3",       "mistral",    "gemma2",     "phi3",
    "llama3rope",  "smollm2",       "llama3_tiny", "qwen2_tiny", "qwen3_tiny", "mistral_tiny",
    "gemma2_tiny", "gemma",         "gemma3_text", "smollm3",    "olmo2",      "granite",
    "qwen3_moe",   "phi3_longrope", "yarn",        "dynamic",    "linear",     "qwen2-bf16-sharded",
};

static af_model *open_model(const char *name, char *dir, size_t size)
{
    char sub[128];
    af_model *m = NULL;
    af_error err = {0};
    snprintf(sub, sizeof sub, "models/%s", name);
    if (!case_dir(dir, size, sub))
        return NULL;
    CHECK_OK(af_model_open(&m, dir, &(af_model_opts){.device = "cpu", .threads = 2}, &err), err);
    return m;
}

static af_generate_opts greedy(const int32_t *const *prompt, const int64_t *len, int n, int64_t max)
{
    return (af_generate_opts){.prompt = prompt,
                              .prompt_len = len,
                              .sequences = n,
                              .max_new = max,
                              .ignore_eos = true,
                              .ids_only = true};
}

static void test_greedy_tokens_are_those_of_transformers(void **state)
{
    (void)state;
    int seen = 0;
    for (size_t i = 0; i < AF_LEN(models); i++) {
        char dir[4096], path[4200];
        af_error err = {0};
        af_weights *w;
        af_generated r;
        af_model *m = open_model(models[i], dir, sizeof dir);
        if (!m)
            continue;
        snprintf(path, sizeof path, "%s/golden.safetensors", dir);
        CHECK_OK(af_weights_open(&w, path, &err), err);
        const af_stored *prompt = case_golden(w, "greedy_prompt_ids");
        const af_stored *want = case_golden(w, "greedy_ids");
        const int32_t *ids = prompt->data;
        const int64_t len = prompt->dim[0];
        const af_generate_opts o = greedy(&ids, &len, 1, want->dim[0]);
        CHECK_OK(af_model_generate(m, &o, &r, &err), err);
        assert_int_equal(r.count, want->dim[0]);
        for (int64_t k = 0; k < r.count; k++)
            CHECK_MSG(r.ids[k] == ((const int32_t *)want->data)[k], "%s: token %d is %d, not %d",
                      models[i], (int)k, (int)r.ids[k], (int)((const int32_t *)want->data)[k]);
        af_generated_clear(&r);
        af_weights_close(w);
        af_model_close(m);
        seen++;
    }
    print_message("%d models\n", seen);
    assert_true(seen >= 10);
}

/* Prompts of different lengths, one longer than a chunk. */
enum { PROMPTS = 11, NEW = 10 };

static void make_prompts(int32_t buf[PROMPTS][400], const int32_t **ids, int64_t *len)
{
    for (int p = 0; p < PROMPTS; p++) {
        len[p] = p == 3 ? 300 : 3 + p * 2;
        for (int64_t t = 0; t < len[p]; t++)
            buf[p][t] = (int32_t)((t * 7 + p * 5) % 29 + 3);
        ids[p] = buf[p];
    }
}

static void batch_is_alone(af_model *m, int64_t most, int64_t new)
{
    static int32_t buf[PROMPTS][400];
    const int32_t *ids[PROMPTS];
    int64_t len[PROMPTS];
    af_error err = {0};
    af_generated all[PROMPTS], one;
    make_prompts(buf, ids, len);
    for (int p = 0; p < PROMPTS; p++)
        len[p] = AF_MIN(len[p], most);
    af_generate_opts o = greedy(ids, len, PROMPTS, new);
    CHECK_OK(af_model_generate(m, &o, all, &err), err);
    for (int p = 0; p < PROMPTS; p++) {
        af_generate_opts single = greedy(&ids[p], &len[p], 1, new);
        CHECK_OK(af_model_generate(m, &single, &one, &err), err);
        assert_int_equal(one.count, new);
        CHECK_MSG(memcmp(one.ids, all[p].ids, (size_t) new * sizeof *one.ids) == 0,
                  "prompt %d alone continues differently", p);
        af_generated_clear(&one);
        af_generated_clear(&all[p]);
    }
}

static void test_a_batch_is_its_sequences_alone(void **state)
{
    (void)state;
    char dir[4096];
    af_model *m = open_model("gemma3_text", dir, sizeof dir);
    assert_non_null(m);
    batch_is_alone(m, 300, NEW);
    af_model_close(m);
}

/* In bf16, GEMMs of many rows round the dequantised values of blocks, those of a few rows do not: a
 * short prompt must take the same path in a batch as alone. */
static void test_a_batch_of_blocks_in_bf16_is_too(void **state)
{
    (void)state;
    char dir[4096], out[] = "/tmp/af_blocks_XXXXXX", path[64];
    af_model *m = NULL;
    af_error err = {0};
    snprintf(dir, sizeof dir, "%s/models/qwen2", golden_dir());
    assert_non_null(mkdtemp(out));
    snprintf(path, sizeof path, "%s/q8_0.gguf", out);
    const af_export_opts to = {.type = "q8_0", .no_verify = true};
    af_convert_report *report = NULL;
    af_verify_result verify;
    CHECK_OK(af_export(dir, path, &to, &report, &verify, &err), err);
    af_convert_report_free(report);
    const af_model_opts o = {.device = "cpu", .threads = 2, .compute = AF_COMPUTE_BF16};
    CHECK_OK(af_model_open(&m, path, &o, &err), err);
    batch_is_alone(m, 6, 60);
    af_model_close(m);
    CHECK_OK(af_path_remove(out, &err), err);
}

/* A graph without capacity for another call: the same tokens, in as much memory as was planned. */
static void test_a_graph_for_one_call_is_the_planned_one(void **state)
{
    static const char *const some[] = {"gemma3_text", "dynamic", "qwen2_tiny"};
    static int32_t buf[PROMPTS][400];
    const int32_t *ids[PROMPTS];
    int64_t len[PROMPTS];
    (void)state;
    make_prompts(buf, ids, len);
    for (size_t i = 0; i < AF_LEN(some); i++)
        for (int n = 1; n <= PROMPTS; n += PROMPTS - 1) {
            char dir[4096];
            af_error err = {0};
            af_generated r[2][PROMPTS];
            uint64_t planned[2], taken[2];
            for (int once = 0; once < 2; once++) {
                af_model *m = open_model(some[i], dir, sizeof dir);
                assert_non_null(m);
                af_generate_opts o = greedy(ids, len, n, NEW);
                o.once = once;
                CHECK_OK(af_model_generate_plan(m, &o, &planned[once], &err), err);
                CHECK_OK(af_model_generate(m, &o, r[once], &err), err);
                taken[once] = af_graph_bytes(m->decoder->graph.graph);
                af_model_close(m);
            }
            CHECK_MSG(planned[1] < planned[0] && taken[1] < taken[0], "%s: not less memory",
                      some[i]);
            for (int once = 0; once < 2; once++)
                CHECK_MSG(taken[once] < planned[once] &&
                              (n > 1 || planned[once] < taken[once] + (1 << 20)),
                          "%s: %llu bytes planned, %llu taken", some[i],
                          (unsigned long long)planned[once], (unsigned long long)taken[once]);
            for (int p = 0; p < n; p++) {
                assert_memory_equal(r[0][p].ids, r[1][p].ids, NEW * sizeof(int32_t));
                af_generated_clear(&r[0][p]);
                af_generated_clear(&r[1][p]);
            }
        }
}

/* Greedy with the cache = arg max of full recomputation; a continued prompt reuses the cache. */
static void test_caches_equal_recomputation(void **state)
{
    (void)state;
    static const char *const some[] = {"mistral_tiny", "qwen3_tiny", "dynamic", "phi3_longrope",
                                       "smollm3"};
    for (size_t i = 0; i < AF_LEN(some); i++) {
        char dir[4096];
        af_error err = {0};
        af_generated r;
        int32_t ids[64] = {5, 9, 17, 4, 8, 21};
        int64_t len = 6;
        af_model *m = open_model(some[i], dir, sizeof dir);
        assert_non_null(m);
        const int64_t V = af_model_vocab(m);
        const int32_t *p = ids;
        const af_generate_opts o = greedy(&p, &len, 1, 14);
        CHECK_OK(af_model_generate(m, &o, &r, &err), err);
        float *logits = malloc((size_t)(64 * V) * sizeof *logits);
        for (int k = 0; k < 14; k++) {
            CHECK_OK(af_model_logits_of(m, ids, len, logits, &err), err);
            const float *last = logits + (len - 1) * V;
            int64_t best = 0;
            for (int64_t v = 0; v < V; v++)
                best = last[v] > last[best] ? v : best;
            CHECK_MSG(r.ids[k] == best, "%s: token %d is %d, recomputation gives %d", some[i], k,
                      (int)r.ids[k], (int)best);
            ids[len++] = (int32_t)best;
        }
        free(logits);
        af_generated_clear(&r);
        af_model_close(m);
    }
}

static void test_a_conversation_reuses_the_cache(void **state)
{
    (void)state;
    char dir[4096];
    af_error err = {0};
    af_generated first, second, fresh;
    int32_t ids[64] = {5, 9, 17, 4, 8, 21};
    int64_t len = 6;
    af_model *m = open_model("llama3_tiny", dir, sizeof dir);
    af_model *n = open_model("llama3_tiny", dir, sizeof dir);
    const int32_t *p = ids;
    af_generate_opts o = greedy(&p, &len, 1, 8);
    CHECK_OK(af_model_generate(m, &o, &first, &err), err);
    memcpy(ids + len, first.ids, 8 * sizeof *ids);
    len += 8;
    ids[len++] = 11;
    CHECK_OK(af_model_generate(m, &o, &second, &err), err);
    CHECK_OK(af_model_generate(n, &o, &fresh, &err), err);
    assert_memory_equal(second.ids, fresh.ids, 8 * sizeof *ids);
    af_generated_clear(&first);
    af_generated_clear(&second);
    af_generated_clear(&fresh);
    af_model_close(m);
    af_model_close(n);
}

static void test_later_tokens_do_not_change_earlier_logits(void **state)
{
    (void)state;
    static const char *const some[] = {"llama3_tiny", "gemma2_tiny", "qwen3_moe", "olmo2"};
    for (size_t i = 0; i < AF_LEN(some); i++) {
        char dir[4096];
        af_error err = {0};
        int32_t ids[20];
        af_model *m = open_model(some[i], dir, sizeof dir);
        const int64_t V = af_model_vocab(m);
        float *a = malloc((size_t)(20 * V) * sizeof *a), *b = malloc((size_t)(20 * V) * sizeof *b);
        for (int t = 0; t < 20; t++)
            ids[t] = 3 + t * 5 % 28;
        CHECK_OK(af_model_logits_of(m, ids, 20, a, &err), err);
        for (int t = 12; t < 20; t++)
            ids[t] = 3 + (ids[t] + 9) % 28;
        CHECK_OK(af_model_logits_of(m, ids, 20, b, &err), err);
        CHECK_MSG(memcmp(a, b, (size_t)(12 * V) * sizeof *a) == 0, "%s looks ahead", some[i]);
        assert_true(memcmp(a, b, (size_t)(20 * V) * sizeof *a) != 0);
        free(a);
        free(b);
        af_model_close(m);
    }
}

static void test_seeds_reproduce(void **state)
{
    (void)state;
    char dir[4096];
    af_error err = {0};
    af_generated r[3];
    const int32_t ids[] = {5, 9, 17};
    const int32_t *p = ids;
    const int64_t len = 3;
    af_model *m = open_model("qwen2_tiny", dir, sizeof dir);
    af_generate_opts o = greedy(&p, &len, 1, 30);
    o.sample = (af_sample_opts){.temperature = 1.5, .seed = 1};
    CHECK_OK(af_model_generate(m, &o, &r[0], &err), err);
    CHECK_OK(af_model_generate(m, &o, &r[1], &err), err);
    o.sample.seed = 2;
    CHECK_OK(af_model_generate(m, &o, &r[2], &err), err);
    assert_memory_equal(r[0].ids, r[1].ids, 30 * sizeof *r[0].ids);
    assert_true(memcmp(r[0].ids, r[2].ids, 30 * sizeof *r[0].ids) != 0);
    for (int i = 0; i < 3; i++)
        af_generated_clear(&r[i]);
    o.sample = (af_sample_opts){.temperature = -1};
    assert_int_equal(af_model_generate(m, &o, &r[0], &err), AF_EUSAGE);
    const int32_t bad[] = {5, 4000};
    const int32_t *q = bad;
    const int64_t two = 2;
    o = greedy(&q, &two, 1, 3);
    assert_int_equal(af_model_generate(m, &o, &r[0], &err), AF_EUSAGE);
    af_model_close(m);
}

/* Shares of many draws against the probabilities they should have. */
static void check_shares(const char *why, af_sample_opts o, const double *want, int n)
{
    const float base[6] = {2.0f, 1.0f, 0.5f, 0.0f, -1.0f, -3.0f};
#ifdef __SANITIZE_ADDRESS__ /* draws take eight times as long, and the numbers are the same */
    enum { DRAWS = 4000 };
#else
    enum { DRAWS = 40000 };
#endif
    double share[6] = {0};
    af_token_candidate scratch[6];
    for (int i = 0; i < DRAWS; i++) {
        float logits[6];
        const int32_t seen[] = {0, 1, 0, 0}; /* the last two are new */
        memcpy(logits, base, sizeof base);
        const int32_t id =
            af_sample(&o, logits, 6, (af_seen_tokens){seen, 4, 2}, 0, (uint64_t)i, scratch);
        assert_in_range(id, 0, 5);
        share[id] += 1.0 / DRAWS;
    }
    for (int v = 0; v < 6; v++)
        CHECK_MSG(fabs(share[v] - (v < n ? want[v] : 0)) < 2.4 / sqrt(DRAWS),
                  "%s: token %d has share %g, not %g", why, v, share[v], v < n ? want[v] : 0);
}

enum { MANY = 3000 };

static int by_logit(const void *a, const void *b)
{
    const af_token_candidate *x = a, *y = b;
    return x->logit != y->logit ? (x->logit > y->logit ? -1 : 1) : x->id - y->id;
}

/* The choice among all tokens with p of at least min_p of the best, by sorting them. */
static int32_t choose_sorted(const float *logits, double min_p, double random)
{
    static af_token_candidate c[MANY];
    double sum = 0, at = 0;
    for (int i = 0; i < MANY; i++)
        c[i] = (af_token_candidate){.id = i, .logit = logits[i]};
    qsort(c, MANY, sizeof *c, by_logit);
    for (int i = 0; i < MANY; i++) {
        c[i].p = exp((double)c[i].logit - c[0].logit);
        sum += c[i].p >= min_p ? c[i].p : 0;
    }
    for (int i = 0; i < MANY; i++) {
        at += c[i].p;
        if (random * sum < at)
            return c[i].id;
    }
    return -1;
}

/* Logits of a narrow and of a wide range, many of them equal, some forbidden by a mask. */
static void test_choices_from_a_large_vocabulary(void **state)
{
    (void)state;
    static af_token_candidate scratch[MANY];
    static float base[MANY], logits[MANY];
    for (int wide = 0; wide < 2; wide++) {
        for (int i = 0; i < MANY; i++) {
            const double r = af_rng_f64(5, (uint64_t)wide, (uint64_t)i);
            base[i] = (float)(wide ? floor(r * 900) / 10 : floor(r * 90) / 100);
            base[i] = i % 7 == 3 ? -INFINITY : base[i];
        }
        for (int i = 0; i < 300; i++) {
            af_sample_opts o = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 9};
            o.min_p = i % 2 ? 0.3 : 0;
            memcpy(logits, base, sizeof base);
            const int32_t id =
                af_sample(&o, logits, MANY, (af_seen_tokens){0}, 2, (uint64_t)i, scratch);
            const int32_t want = choose_sorted(base, o.min_p, af_rng_f64(9, 2, (uint64_t)i));
            CHECK_MSG(id == want, "draw %d of range %d: token %d, not %d", i, wide, id, want);
        }
    }
}

/* The probabilities of six logits. */
static void penalised(double *p, const double *logits)
{
    double sum = 0;
    for (int i = 0; i < 6; i++)
        sum += p[i] = exp(logits[i]);
    for (int i = 0; i < 6; i++)
        p[i] /= sum;
}

static void test_sampling_draws_from_the_right_distribution(void **state)
{
    (void)state;
    /* softmax of the logits: .5354 .1970 .1195 .0725 .0267 .0036 ... normalised by hand below */
    double e[6], sum = 0;
    const double l[6] = {2, 1, 0.5, 0, -1, -3};
    for (int i = 0; i < 6; i++)
        sum += e[i] = exp(l[i]);
    double full[6], k2[2], p3[3], pen[6];
    for (int i = 0; i < 6; i++)
        full[i] = e[i] / sum;
    for (int i = 0; i < 2; i++)
        k2[i] = e[i] / (e[0] + e[1]);
    for (int i = 0; i < 3; i++)
        p3[i] = e[i] / (e[0] + e[1] + e[2]);
    check_shares("plain", (af_sample_opts){.temperature = 1}, full, 6);
    check_shares("top-k 2", (af_sample_opts){.temperature = 1, .top_k = 2}, k2, 2);
    /* 0.55 + 0.20 < 0.8 <= with the third */
    check_shares("top-p", (af_sample_opts){.temperature = 1, .top_p = 0.85}, p3, 3);
    check_shares("min-p", (af_sample_opts){.temperature = 1, .min_p = 0.2}, p3, 3);
    /* one penalty halves the logits of seen tokens, once; two are subtracted from that of the new
     * one, which occurs twice */
    af_sample_opts o = {.temperature = 1, .repeat_penalty = 2};
    penalised(pen, (double[]){1, 0.5, 0.5, 0, -1, -3});
    check_shares("penalty", o, pen, 6);
    o = (af_sample_opts){.temperature = 1, .frequency_penalty = 0.5, .presence_penalty = 0.25};
    penalised(pen, (double[]){2 - 2 * 0.5 - 0.25, 1, 0.5, 0, -1, -3});
    check_shares("frequency and presence", o, pen, 6);
    o.frequency_penalty = 0;
    penalised(pen, (double[]){2 - 0.25, 1, 0.5, 0, -1, -3});
    check_shares("presence", o, pen, 6);
    o.frequency_penalty = 0.5;
    o.repeat_penalty = 2;
    penalised(pen, (double[]){1 - 2 * 0.5 - 0.25, 0.5, 0.5, 0, -1, -3});
    check_shares("all penalties", o, pen, 6);
    /* of so many tokens back: the last three are 1, 0, 0 */
    o.repeat_last_n = 1;
    penalised(pen, (double[]){1 - 0.5 - 0.25, 1, 0.5, 0, -1, -3});
    check_shares("one token back", o, pen, 6);
    o.repeat_last_n = 2;
    penalised(pen, (double[]){1 - 2 * 0.5 - 0.25, 1, 0.5, 0, -1, -3});
    check_shares("two tokens back", o, pen, 6);
    o.repeat_last_n = 9;
    penalised(pen, (double[]){1 - 2 * 0.5 - 0.25, 0.5, 0.5, 0, -1, -3});
    check_shares("more tokens than there are", o, pen, 6);
    const double one = 1; /* quotients beyond an f32 */
    check_shares("small temperature", (af_sample_opts){.temperature = 1e-38}, &one, 1);
    check_shares("smaller temperature", (af_sample_opts){.temperature = 1e-300}, &one, 1);
    check_shares("small penalty", (af_sample_opts){.temperature = 1, .repeat_penalty = 1e-300},
                 &one, 1);
    check_shares("greedy", (af_sample_opts){.temperature = 0}, (double[]){1}, 1);
}

static void write_ids(const char *path, const int32_t *ids, const int32_t *mask, int64_t n)
{
    af_safetensors_writer *w;
    af_error err = {0};
    const int64_t dim[2] = {1, n};
    const uint64_t bytes = (uint64_t)n * sizeof *ids;
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    CHECK_OK(af_safetensors_writer_add(w, "input_ids", AF_DTYPE_I32, dim, 2, &err), err);
    CHECK_OK(af_safetensors_writer_add(w, "attention_mask", AF_DTYPE_I32, dim, 2, &err), err);
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    CHECK_OK(af_safetensors_writer_data(w, ids, bytes, &err), err);
    CHECK_OK(af_safetensors_writer_data(w, mask, bytes, &err), err);
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
}

/* Positions count from the first token of a row, so padding must not be between tokens. */
static void test_padding_is_before_or_after_the_tokens(void **state)
{
    (void)state;
    enum { N = 5 };
    static const struct {
        int32_t mask[N];
        bool fine;
    } cases[] = {{{0, 0, 1, 1, 1}, true}, {{1, 1, 1, 0, 0}, true},  {{0, 1, 1, 1, 0}, true},
                 {{0, 0, 0, 0, 0}, true}, {{1, 0, 1, 1, 1}, false}, {{1, 1, 0, 0, 1}, false},
                 {{0, 1, 0, 1, 0}, false}};
    const int32_t ids[N] = {3, 9, 4, 11, 30};
    char dir[4096], in[] = "/tmp/af_ids_XXXXXX", out[64];
    af_model *m = open_model("qwen2_tiny", dir, sizeof dir);
    assert_non_null(m);
    assert_non_null(mkdtemp(in));
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char path[64];
        af_error err = {0};
        snprintf(path, sizeof path, "%s/ids.safetensors", in);
        snprintf(out, sizeof out, "%s/logits.safetensors", in);
        write_ids(path, ids, cases[i].mask, N);
        const bool fine = af_model_logits_file(m, path, out, true, &err) == AF_OK;
        CHECK_MSG(fine == cases[i].fine, "case %zu: %s", i, fine ? "passes" : err.msg);
    }
    af_error err = {0};
    CHECK_OK(af_path_remove(in, &err), err);
    af_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_tokens_are_those_of_transformers),
        cmocka_unit_test(test_a_batch_is_its_sequences_alone),
        cmocka_unit_test(test_a_batch_of_blocks_in_bf16_is_too),
        cmocka_unit_test(test_a_graph_for_one_call_is_the_planned_one),
        cmocka_unit_test(test_caches_equal_recomputation),
        cmocka_unit_test(test_a_conversation_reuses_the_cache),
        cmocka_unit_test(test_later_tokens_do_not_change_earlier_logits),
        cmocka_unit_test(test_padding_is_before_or_after_the_tokens),
        cmocka_unit_test(test_seeds_reproduce),
        cmocka_unit_test(test_choices_from_a_large_vocabulary),
        cmocka_unit_test(test_sampling_draws_from_the_right_distribution),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
