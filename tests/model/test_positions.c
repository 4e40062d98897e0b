/* test_positions.c - models whose sequences have a limit, by learned positions or by an indexer
 * that picks so many keys: generation equals recomputation, ends at the limit, and what is longer
 * is refused. */
#include "family_case.h"

#include "afinar/decode.h"
#include "afinar/model.h"

enum { MOST = 128, PROMPT = 5 };

static af_status generate(af_model *m, const int32_t *ids, int64_t n, int64_t most, af_generated *r,
                          af_error *err)
{
    const af_generate_opts o = {.prompt = &ids,
                                .prompt_len = &n,
                                .sequences = 1,
                                .max_new = most,
                                .ignore_eos = true,
                                .ids_only = true};
    return af_model_generate(m, &o, r, err);
}

static void check_family(const char *name, int64_t most, const char *why)
{
    formula_model f;
    af_model *m;
    af_generated all, one;
    af_error err = {0};
    int32_t ids[MOST + 2] = {0};
    char path[4400], want[100];
    snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), name);
    json_t *j = read_json(path);
    formula_model_write(&f, j);
    const af_model_opts o = {.device = "cpu", .threads = 2, .compute = AF_COMPUTE_F32};
    CHECK_OK(af_model_open(&m, f.dir, &o, &err), err);
    CHECK_OK(generate(m, f.ids, PROMPT, 2 * most, &all, &err), err);
    CHECK_MSG(all.count == most - PROMPT + 1, "%s: %d tokens", name, (int)all.count);
    memcpy(ids, f.ids, PROMPT * sizeof *ids);
    memcpy(ids + PROMPT, all.ids, (size_t)all.count * sizeof *ids);
    for (int64_t n = PROMPT; n <= most; n += n < PROMPT + 3 ? 1 : 40) { /* each prefix anew */
        CHECK_OK(generate(m, ids, n, 1, &one, &err), err);
        CHECK_MSG(one.ids[0] == ids[n], "%s: token %d is %d, not %d", name, (int)n, (int)one.ids[0],
                  (int)ids[n]);
        af_generated_clear(&one);
    }
    assert_true(generate(m, ids, most + 1, 1, &one, &err) != AF_OK);
    snprintf(want, sizeof want, "sequences of %d tokens: longer than the %d %s", (int)most + 1,
             (int)most, why);
    CHECK_MSG(strstr(err.msg, want), "%s", err.msg);
    af_decoder *d = NULL;
    const af_decoder_opts wide = {.context = most + 1};
    assert_true(af_decoder_open(&d, m, &wide, &err) != AF_OK);
    snprintf(want, sizeof want, "a context of %d tokens: longer", (int)most + 1);
    CHECK_MSG(strstr(err.msg, want), "%s", err.msg);
    af_generated_clear(&all);
    af_model_close(m);
    formula_model_clear(&f);
    json_decref(j);
}

static void test_limits(void **state)
{
    (void)state;
    check_family("gpt2", MOST, "positions this model has learned");
    check_family("gpt_bigcode", MOST, "positions this model has learned");
    check_family("opt", MOST, "positions this model has learned");
    check_family("opt_350m", MOST, "positions this model has learned");
    check_family("openai_gpt", MOST, "positions this model has learned");
    check_family("biogpt", MOST, "positions this model has learned");
    check_family("xglm", MOST, "positions this model was made for");
    check_family("axk2", 16, "keys that the indexer");
    check_family("deepseek_v32", 16, "keys that the indexer");
    check_family("glm_moe_dsa", 16, "keys that the indexer");
    check_family("minimax_m3", 16, "keys that the indexer");
}

/* Older folders of xglm have the table of its positions, which is computed here. */
static void test_a_stored_table_is_not_read(void **state)
{
    (void)state;
    formula_model f;
    af_model *m;
    af_error err = {0};
    af_hf_config c;
    af_model_spec s;
    af_safetensors_writer *w;
    char path[4400];
    const float none[2] = {9, 9};
    snprintf(path, sizeof path, "%s/families/xglm.json", golden_dir());
    json_t *j = read_json(path);
    formula_model_write(&f, j);
    CHECK_OK(af_hf_config_read(&c, f.dir, &err), err);
    CHECK_OK(af_model_spec_init(&s, &c, &err), err);
    snprintf(path, sizeof path, "%s/model.safetensors", f.dir);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    formula_tensors(w, &s, json_object_get(j, "rules"), true);
    CHECK_OK(af_safetensors_writer_add(w, "model.embed_positions.weights", AF_DTYPE_F32,
                                       (int64_t[]){2, 1}, 2, &err),
             err);
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    formula_tensors(w, &s, json_object_get(j, "rules"), false);
    CHECK_OK(af_safetensors_writer_data(w, none, sizeof none, &err), err);
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
    const af_model_opts o = {.device = "cpu", .threads = 1, .compute = AF_COMPUTE_F32};
    CHECK_OK(af_model_open(&m, f.dir, &o, &err), err);
    af_model_close(m);
    af_model_spec_clear(&s);
    af_hf_config_clear(&c);
    formula_model_clear(&f);
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits),
                                       cmocka_unit_test(test_a_stored_table_is_not_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
