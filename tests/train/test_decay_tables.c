/* test_decay_tables.c - folders of minimax have tables of their decays, which the config gives:
 * they are kept, and others than it gives are refused. And what weight decay leaves alone. */
#include "train/layout_case.h"

enum { HEADS = 3 };

static const char *const tables[] = {"model.layers.0.self_attn.slope_rate",
                                     "model.layers.0.self_attn.key_decay"};

/* The folder of the golden with the tables of layer 0. */
static void write_tables(const char *to, const float *slopes)
{
    char path[4400];
    static const int64_t dim[3] = {HEADS, 1, 1};
    af_error err = {0};
    formula_model m;
    af_safetensors *f;
    af_safetensors_writer *w;
    snprintf(path, sizeof path, "%s/families/minimax.json", golden_dir());
    json_t *j = read_json(path);
    formula_model_write(&m, j);
    json_decref(j);
    assert_int_equal(mkdir(to, 0777), 0);
    snprintf(path, sizeof path, "cp %s/config.json %s/", m.dir, to);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", m.dir);
    CHECK_OK(af_safetensors_open(&f, path, &err), err);
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    const int n = af_safetensors_count(f), more = slopes ? (int)AF_LEN(tables) : 0;
    for (int i = 0; i < n + more; i++) {
        const af_stored *t = i < n ? af_safetensors_at(f, i) : NULL;
        CHECK_OK(t ? af_safetensors_writer_add(w, t->name, t->dtype, t->dim, t->ndim, &err)
                   : af_safetensors_writer_add(w, tables[i - n], AF_DTYPE_F32, dim, 3, &err),
                 err);
    }
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    for (int i = 0; i < n + more; i++) {
        const af_stored *t = i < n ? af_safetensors_at(f, i) : NULL;
        CHECK_OK(t ? af_safetensors_writer_data(w, t->data, t->bytes, &err)
                   : af_safetensors_writer_data(w, slopes, HEADS * sizeof *slopes, &err),
                 err);
    }
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
    af_safetensors_close(f);
    formula_model_clear(&m);
}

/* What transformers has for three heads, 2^-(8/3), its square and its third power, times 1.00001.
 */
static const float right[HEADS] = {0.157491706f, 0.0248033895f, 0.0039062891f};

static void test_tables_are_kept(void **state)
{
    (void)state;
    static float logits[4][TOKENS * 20];
    char model[2][300], run[2][300];
    for (int i = 0; i < 2; i++) {
        snprintf(model[i], sizeof model[i], "%s/model-%d", dir, i);
        snprintf(run[i], sizeof run[i], "%s/full-%d", dir, i);
        write_tables(model[i], i ? right : NULL);
        logits_of(model[i], logits[i]);
        train(model[i], run[i], "");
        same_names(model[i], run[i]);
        logits_of(run[i], logits[2 + i]);
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    assert_memory_equal(logits[2], logits[3], sizeof logits[0]);
    assert_memory_not_equal(logits[0], logits[2], sizeof logits[0]);
}

static void test_other_decays_are_refused(void **state)
{
    (void)state;
    const float wrong[HEADS] = {right[0], 0.03f, right[2]};
    char model[300];
    af_error err = {0};
    af_model *m;
    snprintf(model, sizeof model, "%s/wrong", dir);
    write_tables(model, wrong);
    assert_int_equal(af_model_open(&m, model, &(af_model_opts){.device = "cpu"}, &err),
                     AF_EUNSUPPORTED);
    CHECK_MSG(strstr(err.msg, "slope_rate' has 0.03 for head 1"), "%s", err.msg);
}

/* A step without a gradient: what is decayed becomes 0.9 times as large, the rest stays. */
static void check_decay(const char *family, const char *const *still, int tensors)
{
    char path[4400], out[300];
    formula_model m;
    int stayed = 0;
    snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), family);
    snprintf(out, sizeof out, "%s/decay-%s", dir, family);
    json_t *j = read_json(path);
    formula_model_write(&m, j);
    json_decref(j);
    train(m.dir, out,
          "optimizer: sgd\nlr_scheduler: constant\nweight_decay: 10\nmax_grad_norm: 1e-30\n"
          "attention_dropout: 0\nsequence_len: 64\n");
    af_safetensors *a = open_model_weights(m.dir), *b = open_model_weights(out);
    for (int i = 0; i < af_safetensors_count(a); i++) {
        const af_stored *x = af_safetensors_at(a, i), *y = af_safetensors_find(b, x->name);
        const float *v = (const void *)x->data, *w = (const void *)y->data;
        bool expected = false;
        for (int k = 0; still[k]; k++)
            expected |= strstr(x->name, still[k]) != NULL;
        const bool same = memcmp(v, w, x->bytes) == 0;
        CHECK_MSG(same == expected, "%s: %s is %s", family, x->name, same ? "the same" : "decayed");
        for (uint64_t k = 0; !same && k < x->bytes / sizeof *v; k++)
            CHECK_MSG(fabsf(w[k] - 0.9f * v[k]) < 1e-6f, "%s: %s", family, x->name);
        stayed += same;
    }
    assert_int_equal(stayed, tensors);
    af_safetensors_close(a);
    af_safetensors_close(b);
    formula_model_clear(&m);
}

/* As many tensors as Trainer.get_decay_parameter_names of transformers 5.23 leaves out; and norm_f
 * of mamba2, which it does not know for a norm. */
static void test_norms_and_biases_are_not_decayed(void **state)
{
    (void)state;
    static const char *const gpt2[] = {"ln_", "bias", NULL};
    static const char *const falcon[] = {"ln_", NULL};
    static const char *const gpt_oss[] = {"norm", "bias", NULL};
    static const char *const mamba2[] = {"norm", "bias", NULL};
    static const char *const mimo[] = {"norm", "proj.bias", "correction", NULL};
    check_decay("gpt2", gpt2, 18);
    check_decay("falcon", falcon, 10);
    check_decay("gpt_oss", gpt_oss, 19);
    check_decay("mamba2", mamba2, 13);
    check_decay("mimo_v2_flash", mimo, 16 + 2); /* two are not trained; its sinks are decayed */
}

/* PEFT's matrices inside of a norm are not decayed, either: the Trainer asks their whole names. */
static void check_adapter_decay(const char *family, const char *still, int tensors)
{
    char path[4400], out[2][300], keys[300];
    formula_model m;
    af_safetensors *f[2];
    int stayed = 0;
    snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), family);
    json_t *j = read_json(path);
    formula_model_write(&m, j);
    json_decref(j);
    for (int i = 0; i < 2; i++) {
        snprintf(out[i], sizeof out[i], "%s/adapter-%s-%d", dir, family, i);
        snprintf(keys, sizeof keys,
                 "optimizer: sgd\nlr_scheduler: constant\nweight_decay: %d\nmax_grad_norm: 1e-30\n"
                 "sequence_len: 16\nadapter: lora\nlora_r: 2\nlora_target_linear: true\n",
                 i ? 10 : 0);
        train(m.dir, out[i], keys);
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", out[i]);
        af_error err = {0};
        CHECK_OK(af_safetensors_open(&f[i], path, &err), err);
    }
    for (int i = 0; i < af_safetensors_count(f[0]); i++) {
        const af_stored *x = af_safetensors_at(f[0], i), *y = af_safetensors_find(f[1], x->name);
        const bool same = memcmp(x->data, y->data, x->bytes) == 0; /* B is 0 in any case */
        CHECK_MSG(strstr(x->name, "lora_B") || same == (strstr(x->name, still) != NULL), "%s: %s",
                  family, x->name);
        stayed += same && strstr(x->name, "lora_A");
    }
    assert_int_equal(stayed, tensors);
    af_safetensors_close(f[0]);
    af_safetensors_close(f[1]);
    formula_model_clear(&m);
}

static void test_adapters_inside_of_norms_are_not_decayed(void **state)
{
    (void)state;
    check_adapter_decay("dbrx", "norm_attn_norm.", 4);
    check_adapter_decay("axk2", "layernorm.", 6);
    check_adapter_decay("mixtral", "norm", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_are_kept), cmocka_unit_test(test_other_decays_are_refused),
        cmocka_unit_test(test_norms_and_biases_are_not_decayed),
        cmocka_unit_test(test_adapters_inside_of_norms_are_not_decayed)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
