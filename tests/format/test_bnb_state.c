/* Quantised weights in a file: found, checked, and equal to quantising the original. */
#define _GNU_SOURCE
#include "format/weights/bnb_state.h"
#include "tensor/codec_bnb.h"
#include "test.h"

#include <math.h>
#include <unistd.h>

static af_weights *open_golden(const char *name)
{
    char path[4096];
    af_error err = {0};
    af_weights *w = NULL;
    snprintf(path, sizeof path, "%s/bnb_model/%s.safetensors", golden_dir(), name);
    CHECK_OK(af_weights_open(&w, path, &err), err);
    return w;
}

static float *original(const af_weights *base, const char *name, int64_t *n)
{
    const af_stored *t = af_weights_find(base, name);
    assert_non_null(t);
    *n = af_weight_count(t);
    float *x = malloc((size_t)*n * sizeof *x);
    assert_non_null(x);
    af_convert(x, AF_DTYPE_F32, t->data, t->dtype, (uint64_t)*n);
    return x;
}

static void check_weight(const af_weights *base, const char *name, const af_bnb_state *s)
{
    int64_t n;
    float *x = original(base, name, &n);
    assert_int_equal(n, s->count);
    if (s->type == AF_DTYPE_I8) {
        int8_t *q = malloc((size_t)n);
        assert_non_null(q);
        for (int64_t r = 0; r < s->dim[0]; r++)
            assert_true(af_int8_encode_row(x + r * s->block, s->block, q + r * s->block) ==
                        s->absmax[r]);
        for (int64_t i = 0; i < n; i++) {
            const int d = abs(q[i] - ((const int8_t *)s->codes)[i]);
            const float w = af_f32_from_f16(af_f16_from_f32(x[i]));
            const float y = w * (1.0f / s->absmax[i / s->block] * 127.0f);
            const bool half = fabsf(fabsf(y - truncf(y)) - 0.5f) < 2e-5f; /* the GPU may differ */
            CHECK_MSG(d == 0 || (d == 1 && half), "%s: code %d", name, (int)i);
        }
        free(q);
    } else {
        const int64_t blocks = af_bnb_blocks(n, s->block);
        uint8_t *codes = malloc((size_t)af_bnb_bytes(n)), *q = malloc((size_t)blocks);
        float *absmax = malloc((size_t)blocks * 4), *back = malloc((size_t)blocks * 4);
        assert_true(codes && q && absmax && back);
        af_bnb_encode(s->type, x, n, s->block, codes, absmax);
        int wrong = 0;
        for (int64_t i = 0; i < af_bnb_bytes(n); i++)
            wrong += codes[i] != s->codes[i];
        /* fp4 of bf16 inputs hits thresholds exactly where the GPU's reciprocal is inexact */
        CHECK_MSG(s->type == AF_DTYPE_FP4 ? wrong * 500 < n : wrong == 0, "%s: %d bytes", name,
                  wrong);
        assert_memory_equal(af_bnb_table(s->type), s->table, 64);
        if (s->nested) {
            const float mine = af_bnb_offset(absmax, blocks);
            assert_true(fabsf(mine - s->nested_offset) <= 1e-6f * s->nested_offset);
            af_bnb_nest(absmax, blocks, s->nested_offset, q, back);
            assert_memory_equal(q, s->nested, (size_t)blocks);
            assert_memory_equal(af_bnb_map(true), s->nested_map, 1024);
        }
        if (s->nested)
            af_bnb_unnest(s->nested_map, s->nested, s->nested_absmax, s->nested_offset,
                          s->nested_block, 0, blocks, back);
        else
            memcpy(back, s->absmax, (size_t)blocks * sizeof *back);
        for (int64_t i = 0; i < blocks; i++)
            assert_true(fabsf(back[i] - absmax[i]) <= 0.05f * absmax[i]);
        free(codes);
        free(q);
        free(absmax);
        free(back);
    }
    free(x);
}

static void test_stored_weights_equal_our_own(void **state)
{
    (void)state;
    static const char *const variants[] = {"nf4_dq", "fp4", "int8"};
    af_weights *base = open_golden("bf16");
    for (size_t v = 0; v < 3; v++) {
        af_weights *w = open_golden(variants[v]);
        int seen = 0, parts = 0;
        for (int i = 0; i < af_weights_count(w); i++) {
            const char *name = af_weights_at(w, i)->name;
            af_error err = {0};
            af_bnb_state s;
            bool found;
            CHECK_OK(af_bnb_state_find(&s, &found, w, name, &err), err);
            parts += af_bnb_is_part(w, name);
            if (!found)
                continue;
            assert_false(af_bnb_is_part(w, name));
            check_weight(base, name, &s);
            seen++;
        }
        assert_int_equal(seen, 14); /* seven linears in each of two layers */
        assert_int_equal(parts, 14 * (v == 0 ? 5 : v == 1 ? 3 : 2));
        af_weights_close(w);
    }
    af_weights_close(base);
}

/* A file with eight nf4 codes named x, in this type, and this quant_state. */
static af_weights *with_state_in(const char *json, af_dtype storage)
{
    char path[] = "/tmp/afinar-bnb-XXXXXX";
    af_error err = {0};
    af_safetensors_writer *out;
    af_weights *w;
    const float zeros[16] = {0};
    const int64_t len = (int64_t)strlen(json);
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    CHECK_OK(af_safetensors_writer_new(&out, path, 0, &err), err);
    CHECK_OK(af_safetensors_writer_add(out, "x.quant_map", AF_DTYPE_F32, (int64_t[]){16}, 1, &err),
             err);
    CHECK_OK(af_safetensors_writer_add(out, "x.absmax", AF_DTYPE_F32, (int64_t[]){1}, 1, &err),
             err);
    const int64_t dim[2] = {4 / af_dtype_get(storage)->bytes, 1};
    CHECK_OK(af_safetensors_writer_add(out, "x", storage, dim, 2, &err), err);
    CHECK_OK(af_safetensors_writer_add(out, "x.quant_state.bitsandbytes__nf4", AF_DTYPE_U8, &len, 1,
                                       &err),
             err);
    CHECK_OK(af_safetensors_writer_begin(out, &err), err);
    CHECK_OK(af_safetensors_writer_data(out, zeros, 64, &err), err);
    CHECK_OK(af_safetensors_writer_data(out, zeros, 4, &err), err);
    CHECK_OK(af_safetensors_writer_data(out, zeros, 4, &err), err);
    CHECK_OK(af_safetensors_writer_data(out, json, (uint64_t)len, &err), err);
    CHECK_OK(af_safetensors_writer_commit(out, &err), err);
    CHECK_OK(af_weights_open(&w, path, &err), err);
    unlink(path);
    return w;
}

static af_weights *with_state(const char *json) { return with_state_in(json, AF_DTYPE_U8); }

static void test_broken_states_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"{", "JSON"},
        {"{\"shape\":[4,-1],\"blocksize\":64,\"dtype\":\"float32\"}", "shape"},
        {"{\"shape\":[4294967296,4294967296],\"blocksize\":64,\"dtype\":\"float32\"}", "shape"},
        {"{\"shape\":[2,4],\"blocksize\":0,\"dtype\":\"float32\"}", "blocksize"},
        {"{\"shape\":[2,4],\"blocksize\":64,\"dtype\":\"int3\"}", "dtype"},
        {"{\"shape\":[2,5],\"blocksize\":64,\"dtype\":\"float32\"}", "4 bytes of codes"},
        {"{\"shape\":[2,4],\"blocksize\":4,\"dtype\":\"float32\"}", "1 elements"},
        {"{\"shape\":[2,4],\"blocksize\":64,\"dtype\":\"float32\",\"nested_blocksize\":256}",
         "nested"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        af_error err = {0};
        af_bnb_state s;
        bool found;
        af_weights *w = with_state(cases[i].json);
        assert_int_equal(af_bnb_state_find(&s, &found, w, "x", &err), AF_EFORMAT);
        CHECK_MSG(strstr(err.msg, cases[i].says), "%s: '%s'", cases[i].json, err.msg);
        af_weights_close(w);
    }
}

/* A vector, and dimensions of 1, are shapes like others. */
static void test_small_shapes_are_read(void **state)
{
    static const struct {
        const char *json;
        int ndim;
        int64_t dim[3];
    } cases[] = {
        {"{\"shape\":[8],\"blocksize\":64,\"dtype\":\"float32\"}", 1, {8}},
        {"{\"shape\":[1,8],\"blocksize\":64,\"dtype\":\"float16\"}", 2, {1, 8}},
        {"{\"shape\":[2,4,1],\"blocksize\":64,\"dtype\":\"bfloat16\"}", 3, {2, 4, 1}},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        af_bnb_state s;
        bool found;
        af_weights *w = with_state(cases[i].json);
        CHECK_OK(af_bnb_state_find(&s, &found, w, "x", &err), err);
        assert_true(found && s.count == 8 && s.ndim == cases[i].ndim);
        assert_memory_equal(s.dim, cases[i].dim, (size_t)s.ndim * sizeof *s.dim);
        af_weights_close(w);
    }
}

/* bnb_4bit_quant_storage: the same bytes, called numbers of another type. */
static void test_codes_of_any_type(void **state)
{
    static const af_dtype types[] = {AF_DTYPE_U8, AF_DTYPE_BF16, AF_DTYPE_F16, AF_DTYPE_F32};
    (void)state;
    for (size_t i = 0; i < AF_LEN(types); i++) {
        af_error err = {0};
        af_bnb_state s;
        bool found;
        af_weights *w =
            with_state_in("{\"shape\":[2,4],\"blocksize\":64,\"dtype\":\"float32\"}", types[i]);
        CHECK_OK(af_bnb_state_find(&s, &found, w, "x", &err), err);
        assert_true(found && s.codes == af_weights_find(w, "x")->data);
        af_weights_close(w);
    }
}

/* The scales of 8-bit rows belong to their weight, however short its name. */
static void test_row_scales_of_short_names_are_parts(void **state)
{
    char path[] = "/tmp/afinar-bnb-XXXXXX";
    static const char *const names[] = {"a.SCB", "a.weight", "b.SCB"};
    static const float scales[2] = {1, 2};
    af_error err = {0};
    af_safetensors_writer *out;
    af_weights *w;
    const int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    CHECK_OK(af_safetensors_writer_new(&out, path, 0, &err), err);
    for (int i = 0; i < 3; i++)
        CHECK_OK(af_safetensors_writer_add(out, names[i], i == 1 ? AF_DTYPE_I8 : AF_DTYPE_F32,
                                           i == 1 ? (int64_t[]){2, 4} : (int64_t[]){2},
                                           i == 1 ? 2 : 1, &err),
                 err);
    CHECK_OK(af_safetensors_writer_begin(out, &err), err);
    for (int i = 0; i < 3; i++)
        CHECK_OK(af_safetensors_writer_data(out, scales, 8, &err), err);
    CHECK_OK(af_safetensors_writer_commit(out, &err), err);
    CHECK_OK(af_weights_open(&w, path, &err), err);
    unlink(path);
    for (int i = 0; i < 3; i++) /* b has no weight */
        assert_int_equal(af_bnb_is_part(w, names[i]), i == 0);
    af_weights_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stored_weights_equal_our_own),
        cmocka_unit_test(test_broken_states_are_refused),
        cmocka_unit_test(test_small_shapes_are_read),
        cmocka_unit_test(test_codes_of_any_type),
        cmocka_unit_test(test_row_scales_of_short_names_are_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
