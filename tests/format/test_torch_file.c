/* Files of torch.save: both forms, views, dtypes, what is refused, damaged files. Made by
 * tools/golden/make_torch.py. */
#include "format/weights/torch_file.h"

#include "base/file.h"
#include "format/weights/weights.h"
#include "test.h"

#include <unistd.h>

static const char *golden(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/torch/%s", golden_dir(), name);
    return path;
}

static af_weights *open_golden(const char *name)
{
    af_error err = {0};
    af_weights *w = NULL;
    if (af_weights_open(&w, golden(name), &err) != AF_OK)
        fail_msg("%s: %s", name, err.msg);
    return w;
}

static void same(const af_weights *w, const char *name, int ndim, const int64_t *dim,
                 const double *values)
{
    const af_stored *t = af_weights_find(w, name);
    if (!t)
        fail_msg("%s is missing", name);
    assert_int_equal(t->ndim, ndim);
    for (int i = 0; i < ndim; i++)
        assert_int_equal(t->dim[i], dim[i]);
    for (int64_t i = 0; i < af_weight_count(t); i++)
        if (af_load_f64(t->data, t->dtype, (uint64_t)i) != values[i])
            fail_msg("%s: value %d is %g", name, (int)i,
                     af_load_f64(t->data, t->dtype, (uint64_t)i));
}

static void check_dictionary(const af_weights *w)
{
    static const struct {
        const char *name;
        af_dtype type;
    } types[] = {{"float16", AF_DTYPE_F16}, {"bfloat16", AF_DTYPE_BF16}, {"float64", AF_DTYPE_F64},
                 {"uint8", AF_DTYPE_U8},    {"int8", AF_DTYPE_I8},       {"int16", AF_DTYPE_I16},
                 {"int32", AF_DTYPE_I32},   {"bool", AF_DTYPE_BOOL}};
    double rows[24], turned[24];
    for (int i = 0; i < 24; i++) {
        rows[i] = i;
        turned[i % 6 * 4 + i / 6] = i;
    }
    assert_int_equal(af_weights_count(w), 16);
    assert_string_equal(af_weights_at(w, 0)->name, "rows");
    same(w, "rows", 2, (int64_t[]){4, 6}, rows);
    same(w, "turned", 2, (int64_t[]){6, 4}, turned);
    same(w, "part", 2, (int64_t[]){2, 2}, (double[]){8, 9, 14, 15});
    same(w, "tied.a", 1, (int64_t[]){6}, rows);
    same(w, "tied.b", 1, (int64_t[]){6}, rows);
    same(w, "parameter", 1, (int64_t[]){2}, (double[]){0.5, -2});
    same(w, "scalar", 0, NULL, (double[]){7});
    same(w, "empty", 2, (int64_t[]){0, 3}, NULL);
    for (size_t i = 0; i < AF_LEN(types); i++) {
        char name[32];
        snprintf(name, sizeof name, "type.%s", types[i].name);
        same(w, name, 1, (int64_t[]){3}, (double[]){1, 0, 1});
        assert_int_equal(af_weights_find(w, name)->dtype, types[i].type);
    }
}

static void test_both_forms(void **state)
{
    (void)state;
    static const char *const names[] = {"archive.bin", "stream.bin"};
    for (size_t i = 0; i < AF_LEN(names); i++) {
        af_weights *w = open_golden(names[i]);
        check_dictionary(w);
        for (int k = 0; k < af_weights_count(w); k++)
            af_weights_forget(w, af_weights_at(w, k));
        check_dictionary(w);
        af_weights_close(w);
    }
    af_weights *w = open_golden("archive.bin");
    assert_true(af_weights_mapped(w, af_weights_find(w, "rows"))); /* no copy */
    assert_ptr_equal(af_weights_find(w, "tied.a")->data, af_weights_find(w, "tied.b")->data);
    assert_false(af_weights_mapped(w, af_weights_find(w, "turned")));
    af_weights_close(w);
}

static void test_other_protocols(void **state)
{
    (void)state;
    af_weights *w = open_golden("fp8.bin");
    assert_int_equal(af_weights_find(w, "a")->dtype, AF_DTYPE_E4M3);
    same(w, "a", 1, (int64_t[]){2}, (double[]){1, 1});
    af_weights_close(w);
    w = open_golden("protocol4.bin");
    assert_int_equal(af_weights_find(w, "a")->dtype, AF_DTYPE_BF16);
    same(w, "a", 1, (int64_t[]){2}, (double[]){1, 1});
    af_weights_close(w);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *says;
    } cases[] = {{"call.bin", "'a' is made by a call of 'posix.system', which is not done"},
                 {"nested.bin", "'model' is not a tensor"},
                 {"list.bin", "it is not a dictionary of tensors"},
                 {"sparse.bin", "call of 'torch._utils._rebuild_sparse_tensor'"}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        af_weights *w = NULL;
        assert_int_not_equal(af_weights_open(&w, golden(cases[i].name), &err), AF_OK);
        if (!strstr(err.msg, cases[i].says) || !strstr(err.msg, cases[i].name))
            fail_msg("%s: %s", cases[i].name, err.msg);
    }
}

/* What is opened has all its values inside; the sanitizers look on. */
static void read_all(const uint8_t *bytes, uint64_t size)
{
    af_error err = {0};
    af_torch_file *f = NULL;
    uint8_t *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    if (af_torch_file_parse(&f, copy, size, "x", &err) == AF_OK) {
        volatile uint8_t sum = 0;
        for (int i = 0; i < af_torch_file_count(f); i++) {
            const af_stored *t = af_torch_file_at(f, i);
            for (uint64_t k = 0; k < t->bytes; k++)
                sum = (uint8_t)(sum + ((const uint8_t *)t->data)[k]);
        }
        af_torch_file_close(f);
    } else {
        assert_true(strlen(err.msg) > 3);
    }
    free(copy);
}

static void test_damaged_files(void **state)
{
    (void)state;
    static const char *const names[] = {"archive.bin", "stream.bin", "call.bin"};
    uint64_t seed = 1;
    for (size_t i = 0; i < AF_LEN(names); i++) {
        af_map m = {0};
        assert_int_equal(af_map_open(&m, golden(names[i]), NULL), AF_OK);
        for (uint64_t n = 0; n < m.size; n += 7)
            read_all(m.data, n);
        uint8_t *bytes = malloc(m.size);
        assert_non_null(bytes);
        for (int k = 0; k < 3000; k++) {
            memcpy(bytes, m.data, m.size);
            for (int j = 0; j < 1 + k % 4; j++) {
                seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
                bytes[(seed >> 33) % m.size] = (uint8_t)(seed >> 20);
            }
            read_all(bytes, m.size);
        }
        free(bytes);
        af_map_close(&m);
    }
}

/* Shards without an index, as older versions of transformers never wrote them, but people do. */
static void test_shards_without_an_index(void **state)
{
    char dir[] = "/tmp/afinar-torch-XXXXXX", path[2][64];
    af_error err = {0};
    af_weights *w;
    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "%s/pytorch_model-0000%d-of-00002.bin", dir, i + 1);
    assert_false(af_weights_in(dir));
    CHECK_OK(af_file_copy(golden("archive.bin"), path[0], &err), err);
    assert_true(af_weights_in(dir));
    assert_int_not_equal(af_weights_open(&w, dir, &err), AF_OK);
    CHECK_MSG(strstr(err.msg, "has 2 files, and"), "'%s'", err.msg);
    CHECK_OK(af_file_copy(golden("fp8.bin"), path[1], &err), err);
    CHECK_OK(af_weights_open(&w, dir, &err), err);
    assert_int_equal(af_weights_files(w), 2);
    assert_non_null(af_weights_find(w, "rows"));
    assert_true(af_weights_count(w) > 16);
    af_weights_close(w);
    unlink(path[0]);
    unlink(path[1]);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_forms),
        cmocka_unit_test(test_other_protocols),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_shards_without_an_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
