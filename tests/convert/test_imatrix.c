/* test_imatrix.c - importance matrices: computed, kept, and used. */
#include "convert/quantize/imatrix_collect.h"
#include "convert_case.h"
#include "format/weights/safetensors.h"

enum { PATH = 1024 };

static const char *model_path(char *buf, size_t size)
{
    return join(buf, size, golden_dir(), "gguf_models/llama/hf");
}

static void collect(af_imatrix *m, int64_t chunks)
{
    char model[PATH], text[PATH];
    af_error err = {0};
    const af_collect_opts o = {.device = "cpu", .chunks = chunks, .threads = 2};
    CHECK_OK(af_imatrix_collect(m, model_path(model, sizeof model),
                                join(text, sizeof text, golden_dir(), "imatrix/text.txt"), &o,
                                &err),
             err);
}

/* Sums of squares by hooks on PyTorch's linears, in float64. */
static void test_sums_are_those_of_pytorch(void **state)
{
    char path[PATH];
    af_error err = {0};
    af_imatrix m = {0};
    af_safetensors *want = NULL;
    (void)state;
    collect(&m, 0);
    CHECK_OK(af_safetensors_open(
                 &want, join(path, sizeof path, golden_dir(), "imatrix/llama.safetensors"), &err),
             err);
    assert_int_equal(m.count, af_safetensors_count(want));
    assert_true(m.chunks == 2 && m.chunk_size == 512);
    for (int i = 0; i < m.count; i++) {
        const af_imatrix_entry *e = &m.entry[i];
        const af_stored *t = af_safetensors_find(want, e->name);
        CHECK_MSG(t != NULL, "%s", e->name);
        assert_int_equal(af_weight_count(t), e->count);
        assert_true(e->counts[0] == 1024.0f);
        for (int64_t k = 0; k < e->count; k++) {
            const float w = ((const float *)t->data)[k];
            CHECK_MSG(fabsf(e->sums[k] - w) <= 1e-5f * w, "%s[%lld]: %g, not %g", e->name,
                      (long long)k, (double)e->sums[k], (double)w);
        }
    }
    af_safetensors_close(want);
    af_imatrix_clear(&m);
}

static void test_fewer_chunks_are_a_part_of_it(void **state)
{
    af_imatrix one = {0}, two = {0};
    (void)state;
    collect(&one, 1);
    collect(&two, 0);
    assert_true(one.chunks == 1 && one.entry[0].counts[0] == 512.0f);
    for (int64_t k = 0; k < one.entry[0].count; k++)
        assert_true(one.entry[0].sums[k] < two.entry[0].sums[k]);
    af_imatrix_clear(&one);
    af_imatrix_clear(&two);
}

/* Computed and used at once, or kept, read and used: the same file. */
static void test_kept_matrix_gives_the_same_model(void **state)
{
    scratch_dir d = scratch_new();
    char model[PATH], text[PATH], a[PATH], b[PATH], im[PATH];
    af_error err = {0};
    af_convert_report *r = NULL;
    (void)state;
    model_path(model, sizeof model);
    join(text, sizeof text, golden_dir(), "imatrix/text.txt");
    join(im, sizeof im, d.path, "im.gguf");
    const af_quantize_opts make = {
        .type = "q5_1", .imatrix_data = text, .imatrix_out = im, .device = "cpu", .threads = 2};
    CHECK_OK(af_quantize(&r, model, join(a, sizeof a, d.path, "a.gguf"), &make, &err), err);
    af_convert_report_free(r);
    const af_quantize_opts use = {.type = "q5_1", .imatrix = im, .threads = 1};
    CHECK_OK(af_quantize(&r, model, join(b, sizeof b, d.path, "b.gguf"), &use, &err), err);
    af_convert_report_free(r);
    assert_true(same_tensors(a, b));
    const af_quantize_opts without = {.type = "q5_1", .force = true};
    CHECK_OK(af_quantize(&r, model, b, &without, &err), err);
    af_convert_report_free(r);
    assert_false(same_tensors(a, b)); /* it does something */
    scratch_free(&d);
}

/* One value that is not a mean of squares, in both formats. */
static void test_values_are_checked(void **state)
{
    static const float wrong[] = {NAN, INFINITY, -1};
    static const char *const names[] = {"im.dat", "im.gguf"};
    (void)state;
    for (size_t i = 0; i < 2 * AF_LEN(wrong); i++) {
        scratch_dir d = scratch_new();
        char path[PATH];
        af_error err = {0};
        af_imatrix m = {0}, back = {0};
        af_imatrix_entry *e;
        CHECK_OK(af_imatrix_reserve(&m, 1, &err), err);
        CHECK_OK(af_imatrix_add(&m, &e, "blk.0.attn_q.weight", 19, 2, 1, &err), err);
        e->values[1] = e->sums[1] = wrong[i / 2];
        e->counts[0] = 1;
        CHECK_OK(af_imatrix_write(&m, join(path, sizeof path, d.path, names[i % 2]), &err), err);
        assert_int_equal(af_imatrix_read(&back, path, &err), AF_EFORMAT);
        CHECK_MSG(strstr(err.msg, names[i % 2]) && strstr(err.msg, "'blk.0.attn_q.weight'"), "%s",
                  err.msg);
        af_imatrix_clear(&m);
        scratch_free(&d);
    }
}

static void test_mistakes_are_named(void **state)
{
    scratch_dir d = scratch_new();
    char model[PATH], empty[PATH], out[PATH], im[PATH];
    af_error err = {0};
    af_imatrix m = {0};
    af_imatrix_entry *e;
    (void)state;
    model_path(model, sizeof model);
    CHECK_OK(af_file_write(join(empty, sizeof empty, d.path, "empty.txt"), "", 0, &err), err);
    CHECK_OK(af_imatrix_reserve(&m, 1, &err), err);
    CHECK_OK(af_imatrix_add(&m, &e, "blk.0.attn_q.weight", 19, 7, 1, &err), err);
    CHECK_OK(af_imatrix_write(&m, join(im, sizeof im, d.path, "other.dat"), &err), err);
    af_imatrix_clear(&m);
    join(out, sizeof out, d.path, "out.gguf");
    const struct {
        const char *says;
        af_quantize_opts o;
    } cases[] = {
        {"0 tokens", {.type = "q4_0", .imatrix_data = empty, .device = "cpu"}},
        {"not both", {.type = "q4_0", .imatrix_data = empty, .imatrix = im}},
        {"no importance matrix to keep", {.type = "q4_0", .imatrix_out = out}},
        {"7 values for 'blk.0.attn_q.weight'", {.type = "q4_0", .imatrix = im}},
        {"no importance matrix", {.type = "nf4", .imatrix_data = empty}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        af_convert_report *r = NULL;
        CHECK_MSG(af_quantize(&r, model, out, &cases[i].o, &err) != AF_OK, "%s", cases[i].says);
        CHECK_MSG(strstr(err.msg, cases[i].says), "says '%s'", err.msg);
        assert_false(af_file_exists(out));
    }
    scratch_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_are_those_of_pytorch),
        cmocka_unit_test(test_fewer_chunks_are_a_part_of_it),
        cmocka_unit_test(test_kept_matrix_gives_the_same_model),
        cmocka_unit_test(test_values_are_checked),
        cmocka_unit_test(test_mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
