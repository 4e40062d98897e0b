/* test_export_mxfp4.c - experts of gpt-oss that are stored in MXFP4 stay so in a GGUF file, and
 * their values are the same. */
#include "convert_case.h"

#include "model/family_case.h"
#include "model/model_reader.h"

#include <unistd.h>

enum { PATH = 1024 };

/* Rows of all tensors of a model that are experts; compares those of two readers. */
static int same_experts(const af_model_reader *a, const af_model_reader *b)
{
    const af_model_spec *s = af_model_reader_spec(a);
    int seen = 0;
    for (int i = 0; i < s->tensors; i++) {
        const af_tensor_spec *t = &s->tensor[i];
        if (t->slot != AF_SLOT_EXPERTS_GATE_UP && t->slot != AF_SLOT_EXPERTS_DOWN)
            continue;
        const int64_t rows = t->dim[0] * t->dim[1], n = rows * t->dim[2];
        float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y);
        assert_true(x && y);
        af_model_reader_rows(a, i, 0, rows, x);
        af_model_reader_rows(b, i, 0, rows, y);
        for (int64_t k = 0; k < n; k++)
            CHECK_MSG(x[k] == y[k], "%s: value %d is %g, not %g", t->name, (int)k, (double)y[k],
                      (double)x[k]);
        free(x);
        free(y);
        seen++;
    }
    return seen;
}

static af_model_reader *open_matched(const char *path)
{
    af_error err = {0};
    af_model_reader *in;
    CHECK_OK(af_model_reader_open(&in, path, &err), err);
    CHECK_OK(af_model_reader_match(in, &err), err);
    return in;
}

/* A copy whose head is a tensor of its own: llama.cpp has no tied gpt-oss. */
static void write_untied(const char *from, const char *to)
{
    af_error err = {0};
    af_weights *w;
    af_safetensors_writer *out;
    char path[2 * PATH];
    join(path, sizeof path, from, "config.json");
    json_t *config = read_json(path);
    json_object_set_new(config, "tie_word_embeddings", json_false());
    join(path, sizeof path, to, "config.json");
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
    CHECK_OK(af_weights_open(&w, from, &err), err);
    join(path, sizeof path, to, "model.safetensors");
    CHECK_OK(af_safetensors_writer_new(&out, path, 0, &err), err);
    const af_stored *embed = af_weights_find(w, "model.embed_tokens.weight");
    assert_non_null(embed);
    const int n = af_weights_count(w);
    for (int i = 0; i <= n; i++) {
        const af_stored *t = i < n ? af_weights_at(w, i) : embed;
        CHECK_OK(af_safetensors_writer_add(out, i < n ? t->name : "lm_head.weight", t->dtype,
                                           t->dim, t->ndim, &err),
                 err);
    }
    CHECK_OK(af_safetensors_writer_begin(out, &err), err);
    for (int i = 0; i <= n; i++) {
        const af_stored *t = i < n ? af_weights_at(w, i) : embed;
        CHECK_OK(af_safetensors_writer_data(out, t->data, t->bytes, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(out, &err), err);
    af_weights_close(w);
}

static void test_codes_are_kept(void **state)
{
    (void)state;
    char from[PATH], file[PATH];
    af_error err = {0};
    af_convert_report *r = NULL;
    af_verify_result v = {0};
    if (!shared_dir())
        skip_because("no shared folder");
    snprintf(from, sizeof from, "%s/golden/families/gpt_oss_mxfp4", shared_dir());
    if (access(from, R_OK) != 0)
        skip_because("no golden of gpt-oss in MXFP4");
    scratch_dir d = scratch_new();
    write_untied(from, d.path);
    for (int typed = 0; typed < 2; typed++) {
        join(file, sizeof file, d.path, "m.gguf");
        const af_export_opts o = {.type = typed ? "f32" : NULL, .threads = 2, .force = true};
        CHECK_OK(af_export(d.path, file, &o, &r, &v, &err), err);
        CHECK_MSG(v.ran && v.ok && v.logit_error < 1e-5, "logits differ by %g", v.logit_error);
        af_convert_report_free(r);
        r = NULL;
        af_model_reader *a = open_matched(d.path), *b = open_matched(file);
        const af_stored *w = af_weights_find(b->weights, "blk.1.ffn_down_exps.weight");
        assert_non_null(w);
        assert_int_equal(w->dtype, typed ? AF_DTYPE_F32 : AF_DTYPE_MXFP4);
        assert_int_equal(same_experts(a, b), 4);
        af_model_reader_close(a);
        af_model_reader_close(b);
    }
    scratch_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes_are_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
