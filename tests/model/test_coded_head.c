/* test_coded_head.c - a head that a file has in codes, where ops put columns next to it: a bias of
 * the head, an adapter on it. */
#include "convert/convert_case.h"
#include "family_case.h"

#include "afinar/model.h"
#include "convert/input/folder_text.h"

enum { RANK = 2, PATH = 256 };

/* An adapter on lm_head of a model of `width` and `vocab`. */
static void write_adapter(const char *dir, int64_t width, int64_t vocab)
{
    static const char *const name[] = {"base_model.model.lm_head.lora_A.weight",
                                       "base_model.model.lm_head.lora_B.weight"};
    const int64_t dim[2][2] = {{RANK, width}, {vocab, RANK}};
    char path[PATH];
    float x[512];
    af_error err = {0};
    af_safetensors_writer *w;
    json_t *c = json_pack("{s:s, s:i, s:i, s:[s]}", "peft_type", "LORA", "r", RANK, "lora_alpha",
                          RANK, "target_modules", "lm_head");
    CHECK_OK(af_json_write(dir, "adapter_config.json", c, &err), err);
    json_decref(c);
    join(path, sizeof path, dir, "adapter_model.safetensors");
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    for (int k = 0; k < 2; k++)
        CHECK_OK(af_safetensors_writer_add(w, name[k], AF_DTYPE_F32, dim[k], 2, &err), err);
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    for (int k = 0; k < 2; k++) {
        const int64_t n = dim[k][0] * dim[k][1];
        assert_true(n <= (int64_t)AF_LEN(x));
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)sin((double)(i * 7 + k));
        CHECK_OK(af_safetensors_writer_data(w, x, (uint64_t)n * sizeof *x, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
}

static float *logits_of(const char *model, const char *adapter, af_compute compute,
                        const formula_model *f, int64_t *n)
{
    af_model *m = NULL;
    af_error err = {0};
    const af_model_opts o = {.device = "cpu",
                             .threads = 2,
                             .compute = compute,
                             .adapter = {adapter},
                             .adapter_weight = {1},
                             .adapters = adapter != NULL};
    CHECK_OK(af_model_open(&m, model, &o, &err), err);
    *n = f->len[0] * af_model_vocab(m);
    float *y = calloc((size_t)*n, sizeof *y);
    assert_non_null(y);
    CHECK_OK(af_model_logits_of(m, f->ids, f->len[0], y, &err), err);
    af_model_close(m);
    return y;
}

/* Rms of the difference over that of the values. */
static double distance(const float *a, const float *b, int64_t n)
{
    double d = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        d += pow((double)a[i] - b[i], 2);
        all += pow(b[i], 2);
    }
    return sqrt(d / all);
}

/* phi has a bias on its head. */
static void test_codes_of_a_head_with_more_columns(void **state)
{
    (void)state;
    formula_model f;
    char path[4200], file[PATH];
    af_error err = {0};
    af_convert_report *r = NULL;
    af_verify_result v = {0};
    scratch_dir d = scratch_new();
    snprintf(path, sizeof path, "%s/families/phi.json", golden_dir());
    json_t *j = read_json(path);
    formula_model_write(&f, j);
    json_decref(j);
    join(file, sizeof file, d.path, "m.gguf");
    const af_export_opts o = {.type = "q8_0", .threads = 1, .no_verify = true};
    CHECK_OK(af_export(f.dir, file, &o, &r, &v, &err), err);
    af_convert_report_free(r);
    write_adapter(d.path, 32, 48);
    for (int with = 0; with < 2; with++) {
        const char *adapter = with ? d.path : NULL;
        int64_t n, m, k;
        float *want = logits_of(f.dir, adapter, AF_COMPUTE_F32, &f, &n);
        float *got = logits_of(file, adapter, AF_COMPUTE_F32, &f, &m);
        float *half = logits_of(file, adapter, AF_COMPUTE_BF16, &f, &k);
        float *base = logits_of(f.dir, NULL, AF_COMPUTE_F32, &f, &k);
        assert_int_equal(n, m);
        const double e = distance(got, want, n), h = distance(half, want, n),
                     moved = distance(base, want, n);
        print_message("%s adapter: %.1e of the logits, in bf16 %.1e; moved by %.1e\n",
                      with ? "with" : "without", e, h, moved);
        assert_true(e > 0 && e < 0.05); /* 8 bits */
        assert_true(h < 0.1);
        assert_true(!with || moved > 0.3);
        free(want);
        free(got);
        free(half);
        free(base);
    }
    formula_model_clear(&f);
    scratch_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes_of_a_head_with_more_columns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
