/* test_state_generate.c - generation with states, windows, chunks, ALiBi and several residual
 * streams: prompts fed in chunks and then token by token are full recomputation, batches are their
 * sequences alone, and a prompt that leaves what is cached begins anew. */
#include "family_case.h"

#include "afinar/model.h"

static const char *const families[] = {
    "qwen3_5",        "qwen3_next",    "lfm2",           "granitemoehybrid", "nemotron_h",
    "mamba2",         "falcon_h1",     "bloom",          "falcon_alibi",     "jamba",
    "gemma3n",        "llama4_text",   "olmo_hybrid",    "longcat_flash",    "kolibri1",
    "lfm3",           "mimo_v2_flash", "gemma4_unified", "bitnet",           "bitnet_online",
    "diffllama",      "jetmoe",        "minimax",        "kimi_linear",      "bailing_hybrid",
    "minimax_text_01"};
enum { PROMPTS = 5, NEW = 6, LONGEST = 300 };

static af_model *open_family(formula_model *f, const char *name)
{
    char path[4400];
    af_model *m;
    af_error err = {0};
    snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), name);
    json_t *j = read_json(path);
    formula_model_write(f, j);
    json_decref(j);
    CHECK_OK(af_model_open(&m, f->dir, &(af_model_opts){.device = "cpu", .threads = 2}, &err), err);
    return m;
}

static af_generated continued(af_model *m, const int32_t *ids, int64_t len, int64_t more)
{
    af_generated r;
    af_error err = {0};
    const af_generate_opts o = {.prompt = &ids,
                                .prompt_len = &len,
                                .sequences = 1,
                                .max_new = more,
                                .ignore_eos = true,
                                .ids_only = true};
    CHECK_OK(af_model_generate(m, &o, &r, &err), err);
    assert_int_equal(r.count, more);
    return r;
}

static void fill_prompt(const af_model *m, int32_t *ids, int64_t n, int stream)
{
    for (int64_t t = 0; t < n; t++)
        ids[t] = (int32_t)((t * 7 + stream * 5 + t * t % 11) % (af_model_vocab(m) - 4) + 2);
}

/* Token k of the cached run is the arg max of all tokens fed at once. */
static void check_recomputation(const char *name, af_model *m)
{
    static int32_t ids[LONGEST + NEW];
    static float logits[(LONGEST + NEW) * 48];
    af_error err = {0};
    int64_t len = 61; /* decoding crosses a chunk of 64 */
    fill_prompt(m, ids, len, 1);
    const int64_t V = af_model_vocab(m);
    assert_true(V <= 48);
    af_generated r = continued(m, ids, len, NEW);
    for (int k = 0; k < NEW; k++) {
        int64_t best = 0;
        CHECK_OK(af_model_logits_of(m, ids, len, logits, &err), err);
        for (int64_t v = 0; v < V; v++)
            best = logits[(len - 1) * V + v] > logits[(len - 1) * V + best] ? v : best;
        CHECK_MSG(r.ids[k] == best, "%s: token %d is %d, recomputation gives %d", name, k,
                  (int)r.ids[k], (int)best);
        ids[len++] = (int32_t)best;
    }
    af_generated_clear(&r);
}

static void check_batch(const char *name, af_model *m)
{
    static int32_t buf[PROMPTS][LONGEST];
    static const int64_t len[PROMPTS] = {70, 1, LONGEST, 64,
                                         9}; /* one longer than a chunk of rows */
    const int32_t *ids[PROMPTS];
    af_generated all[PROMPTS];
    af_error err = {0};
    for (int p = 0; p < PROMPTS; p++) {
        fill_prompt(m, buf[p], len[p], p);
        ids[p] = buf[p];
    }
    const af_generate_opts o = {.prompt = ids,
                                .prompt_len = len,
                                .sequences = PROMPTS,
                                .max_new = NEW,
                                .ignore_eos = true,
                                .ids_only = true};
    CHECK_OK(af_model_generate(m, &o, all, &err), err);
    for (int p = 0; p < PROMPTS; p++) {
        af_generated one = continued(m, ids[p], len[p], NEW);
        CHECK_MSG(memcmp(one.ids, all[p].ids, NEW * sizeof *one.ids) == 0,
                  "%s: prompt %d alone continues differently", name, p);
        af_generated_clear(&one);
        af_generated_clear(&all[p]);
    }
}

/* The conversation goes on; then another prompt shares its beginning only. */
static void check_prefixes(const char *name, af_model *m, af_model *fresh)
{
    int32_t ids[200];
    int64_t len = 40;
    fill_prompt(m, ids, len, 2);
    af_generated r = continued(m, ids, len, NEW);
    memcpy(ids + len, r.ids, NEW * sizeof *ids);
    af_generated_clear(&r);
    len += NEW;
    ids[len++] = 7;
    for (int turn = 0; turn < 2; turn++) {
        af_generated a = continued(m, ids, len, NEW), b = continued(fresh, ids, len, NEW);
        CHECK_MSG(memcmp(a.ids, b.ids, NEW * sizeof *ids) == 0, "%s: turn %d differs", name, turn);
        af_generated_clear(&a);
        af_generated_clear(&b);
        /* in the model that has not seen this one, nothing may be left of the last */
        r = continued(fresh, (const int32_t[]){5, 3}, 2, NEW);
        af_generated_clear(&r);
        len = 20;
        ids[len++] = 9;
    }
}

static void test_families(void **state)
{
    (void)state;
    for (size_t i = 0; i < AF_LEN(families); i++) {
        formula_model f, g;
        af_model *m = open_family(&f, families[i]), *fresh = open_family(&g, families[i]);
        check_recomputation(families[i], m);
        check_batch(families[i], m);
        check_prefixes(families[i], m, fresh);
        af_model_close(m);
        af_model_close(fresh);
        formula_model_clear(&f);
        formula_model_clear(&g);
    }
}

/* Logits of llama4 without norms of queries and keys, whose layers have rope or not. */
static void llama4_logits(bool rope, bool tuned, float *logits)
{
    enum { TOKENS = 9 };
    int32_t ids[TOKENS];
    char path[4400];
    formula_model f;
    af_model *m;
    af_error err = {0};
    snprintf(path, sizeof path, "%s/families/llama4_text.json", golden_dir());
    json_t *j = read_json(path), *config = json_object_get(j, "config");
    json_object_set_new(config, "use_qk_norm", json_false());
    json_object_set_new(config, "attn_temperature_tuning", json_boolean(tuned));
    json_object_set_new(config, "no_rope_layers", json_pack("[iii]", rope, rope, rope));
    json_object_del(config, "layer_types");
    formula_model_write(&f, j);
    json_decref(j);
    CHECK_OK(af_model_open(&m, f.dir, &(af_model_opts){.device = "cpu", .threads = 1}, &err), err);
    fill_prompt(m, ids, TOKENS, 3);
    CHECK_OK(af_model_logits_of(m, ids, TOKENS, logits, &err), err);
    af_model_close(m);
    formula_model_clear(&f);
}

static void test_queries_of_llama4_are_scaled_in_layers_without_rope(void **state)
{
    static float logits[2][9 * 48];
    (void)state;
    for (int rope = 0; rope < 2; rope++) {
        llama4_logits(rope, true, logits[0]);
        llama4_logits(rope, false, logits[1]);
        const bool same = memcmp(logits[0], logits[1], sizeof logits[0]) == 0;
        assert_int_equal(same, rope);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_queries_of_llama4_are_scaled_in_layers_without_rope)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
