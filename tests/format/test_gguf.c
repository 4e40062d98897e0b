/* The GGUF reader against hostile files, the writer against the reader, and a real file's bytes. */
#define _GNU_SOURCE
#include "base/buf.h"
#include "base/file.h"
#include "format/weights/weights.h"
#include "test.h"

#include <unistd.h>

static char tmp_dir[] = "/tmp/afinar-gguf-XXXXXX";

static void u(af_buf *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        af_buf_char(b, (char)(v >> (8 * i)));
}

static void str(af_buf *b, const char *s)
{
    u(b, strlen(s), 8);
    af_buf_str(b, s);
}

static void head(af_buf *b, uint32_t version, uint64_t tensors, uint64_t keys)
{
    af_buf_str(b, "GGUF");
    u(b, version, 4);
    u(b, tensors, 8);
    u(b, keys, 8);
}

static void tensor(af_buf *b, const char *name, int ndim, const uint64_t *ne, uint32_t type,
                   uint64_t offset)
{
    str(b, name);
    u(b, (uint64_t)ndim, 4);
    for (int i = 0; i < ndim; i++)
        u(b, ne[i], 8);
    u(b, type, 4);
    u(b, offset, 8);
}

static void data(af_buf *b, uint64_t n)
{
    while (b->len % 32)
        af_buf_char(b, 0);
    for (uint64_t i = 0; i < n; i++)
        af_buf_char(b, 0);
}

/* Parses exactly sized memory; gives the status and closes. */
static af_status parse(const af_buf *b, af_error *err)
{
    af_gguf *g = NULL;
    uint8_t *copy = malloc(b->len ? b->len : 1);
    assert_non_null(copy);
    if (b->len)
        memcpy(copy, b->data, b->len);
    const af_status st = af_gguf_parse(&g, copy, b->len, "f", err);
    if (st == AF_OK)
        af_gguf_close(g);
    free(copy);
    return st;
}

static void make_absurd_counts(af_buf *b) { head(b, 3, UINT64_MAX, 1); }
static void make_absurd_keys(af_buf *b) { head(b, 3, 0, UINT64_C(1) << 60); }
static void make_keys_of_the_limit(af_buf *b)
{
    head(b, 3, 0, AF_GGUF_KEYS_MAX); /* allowed, but not in 60 bytes: no memory is asked for them */
    data(b, 60);
}
static void make_version_1(af_buf *b) { head(b, 1, 0, 0); }
static void make_big_endian(af_buf *b) { head(b, 0x03000000, 0, 0); }
static void make_no_magic(af_buf *b) { af_buf_str(b, "GGML1234567890123456789012345"); }
static void make_long_key(af_buf *b)
{
    head(b, 3, 0, 1);
    u(b, UINT64_MAX, 8);
    data(b, 32);
}
static void make_bad_type(af_buf *b)
{
    head(b, 3, 0, 1);
    str(b, "k");
    u(b, 13, 4);
    data(b, 32);
}
static void make_bad_item(af_buf *b)
{
    head(b, 3, 0, 1);
    str(b, "k");
    u(b, 9, 4);
    u(b, 77, 4);
    u(b, 1, 8);
    data(b, 32);
}
static void make_huge_array(af_buf *b)
{
    head(b, 3, 0, 1);
    str(b, "k");
    u(b, 9, 4);
    u(b, 10, 4);
    u(b, UINT64_MAX / 8 + 2, 8);
    data(b, 64);
}
static void make_huge_strings(af_buf *b)
{
    head(b, 3, 0, 1);
    str(b, "k");
    u(b, 9, 4);
    u(b, 8, 4);
    u(b, UINT64_C(1) << 40, 8);
    data(b, 64);
}
static void make_deep_array(af_buf *b)
{
    head(b, 3, 0, 1);
    str(b, "k");
    u(b, 9, 4);
    for (int i = 0; i < 20; i++) {
        u(b, 9, 4);
        u(b, 1, 8);
    }
    u(b, 0, 4);
    u(b, 0, 8);
}
static void make_same_key(af_buf *b)
{
    head(b, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        str(b, "k");
        u(b, 4, 4);
        u(b, 7, 4);
    }
    data(b, 32);
}
static void alignment(af_buf *b, uint32_t v)
{
    head(b, 3, 1, 1);
    str(b, "general.alignment");
    u(b, 4, 4);
    u(b, v, 4);
    tensor(b, "a", 1, (uint64_t[]){4}, 0, 0);
    data(b, 64);
}
static void make_alignment_0(af_buf *b) { alignment(b, 0); }
static void make_alignment_3(af_buf *b) { alignment(b, 3); }
static void make_five_dims(af_buf *b)
{
    head(b, 3, 1, 0);
    tensor(b, "a", 5, (uint64_t[]){1, 1, 1, 1, 1}, 0, 0);
    data(b, 64);
}
static void make_overflow(af_buf *b)
{
    head(b, 3, 1, 0);
    tensor(b, "a", 2, (uint64_t[]){UINT64_C(1) << 40, UINT64_C(1) << 40}, 0, 0);
    data(b, 64);
}
static void make_zero_hides_overflow(af_buf *b)
{
    head(b, 3, 1, 0);
    tensor(b, "a", 3, (uint64_t[]){0, UINT64_C(1) << 40, UINT64_C(1) << 40}, 0, 0);
    data(b, 64);
}
static void make_part_block(af_buf *b)
{
    head(b, 3, 1, 0);
    tensor(b, "a", 2, (uint64_t[]){16, 2}, 8, 0);
    data(b, 64);
}
static void make_unknown_type(af_buf *b)
{
    head(b, 3, 1, 0);
    tensor(b, "a", 1, (uint64_t[]){16}, 999, 0);
    data(b, 64);
}
static void make_past_end(af_buf *b)
{
    head(b, 3, 1, 0);
    tensor(b, "a", 1, (uint64_t[]){16}, 0, 32);
    data(b, 64);
}
static void make_offset_wraps(af_buf *b)
{
    head(b, 3, 1, 0);
    tensor(b, "a", 1, (uint64_t[]){16}, 0, UINT64_MAX - 31);
    data(b, 64);
}
static void make_odd_offset(af_buf *b)
{
    head(b, 3, 1, 0);
    tensor(b, "a", 1, (uint64_t[]){4}, 0, 8);
    data(b, 64);
}
static void make_overlap(af_buf *b)
{
    head(b, 3, 2, 0);
    tensor(b, "a", 1, (uint64_t[]){16}, 0, 0);
    tensor(b, "b", 1, (uint64_t[]){8}, 0, 32);
    data(b, 128);
}
static void make_same_tensor(af_buf *b)
{
    head(b, 3, 2, 0);
    tensor(b, "a", 1, (uint64_t[]){8}, 0, 0);
    tensor(b, "a", 1, (uint64_t[]){8}, 0, 32);
    data(b, 128);
}
static void make_no_data(af_buf *b)
{
    head(b, 3, 1, 0);
    tensor(b, "a", 1, (uint64_t[]){8}, 0, 0);
}

static void test_reader_rejects_hostile_files(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        void (*make)(af_buf *b);
    } cases[] = {
        {"do not fit", make_absurd_counts},
        {"do not fit", make_absurd_keys},
        {"do not fit", make_keys_of_the_limit},
        {"version 1", make_version_1},
        {"big-endian", make_big_endian},
        {"begin with", make_no_magic},
        {"limit of", make_long_key},
        {"type 13", make_bad_type},
        {"type 77", make_bad_item},
        {"ends inside k", make_huge_array},
        {"ends inside k", make_huge_strings},
        {"deeper", make_deep_array},
        {"duplicate key 'k'", make_same_key},
        {"alignment 0", make_alignment_0},
        {"alignment 3", make_alignment_3},
        {"5 dimensions", make_five_dims},
        {"invalid dimension", make_overflow},
        {"invalid dimension", make_zero_hides_overflow},
        {"multiple of q8_0's 32", make_part_block},
        {"unknown type 999", make_unknown_type},
        {"64 bytes at 32", make_past_end},
        {"64 bytes at", make_offset_wraps},
        {"multiple of the alignment", make_odd_offset},
        {"overlap", make_overlap},
        {"duplicate tensor 'a'", make_same_tensor},
        {"ends inside the tensor list", make_no_data},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        af_error err = {0};
        af_buf b = {0};
        cases[i].make(&b);
        CHECK_MSG(parse(&b, &err) != AF_OK, "accepted: %s", cases[i].says);
        CHECK_MSG(strstr(err.msg, cases[i].says), "wanted '%s', got '%s'", cases[i].says, err.msg);
        af_buf_clear(&b);
    }
}

/* Arrays in arrays to the limit are read; one more is not. */
static void test_arrays_nest_to_the_limit(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        af_error err = {0};
        af_buf b = {0};
        head(&b, 3, 0, 1);
        str(&b, "k");
        u(&b, 9, 4);
        for (int i = 0; i < AF_GGUF_DEPTH_MAX - 1 + more; i++) {
            u(&b, 9, 4);
            u(&b, 1, 8);
        }
        u(&b, 8, 4);
        u(&b, 0, 8);
        CHECK_MSG((parse(&b, &err) == AF_OK) == !more, "%d more: '%s'", more, err.msg);
        af_buf_clear(&b);
    }
}

/* A float is cut to an integer where one can hold it, else 0. */
static void test_floats_as_integers(void **state)
{
    static const struct {
        double value;
        int64_t want;
    } cases[] = {{-2.9, -2},
                 {-9e18, -9000000000000000000},
                 {9e18, 9000000000000000000},
                 {1e19, 0},
                 {-1e19, 0}};
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        const af_gguf_kv kv = {.key = "k",
                               .type = AF_GGUF_ARRAY,
                               .item = AF_GGUF_F64,
                               .count = 1,
                               .data = (const uint8_t *)&cases[i].value,
                               .bytes = 8};
        assert_true(af_gguf_item_int(&kv, 0) == cases[i].want);
    }
}

static void put_all(af_gguf_writer *w)
{
    af_error err = {0};
    const int32_t ints[3] = {-1, 0, 7};
    const af_gguf_str strs[2] = {{"ab", 2}, {"", 0}};
    CHECK_OK(af_gguf_put_str(w, "general.architecture", "llama", 5, &err), err);
    CHECK_OK(af_gguf_put_u32(w, "n", 4000000000u, &err), err);
    CHECK_OK(af_gguf_put_int(w, "i8", AF_GGUF_I8, -3, &err), err);
    CHECK_OK(af_gguf_put_int(w, "u64", AF_GGUF_U64, -1, &err), err);
    CHECK_OK(af_gguf_put_f32(w, "f", 1.5f, &err), err);
    CHECK_OK(af_gguf_put_bool(w, "b", true, &err), err);
    CHECK_OK(af_gguf_put_array(w, "ints", AF_GGUF_I32, ints, 3, &err), err);
    CHECK_OK(af_gguf_put_strs(w, "strs", strs, 2, &err), err);
    CHECK_OK(af_gguf_put_tensor(w, "x", AF_DTYPE_F32, (int64_t[]){2, 3}, 2, &err), err);
    CHECK_OK(af_gguf_put_tensor(w, "q", AF_DTYPE_Q8_0, (int64_t[]){2, 32}, 2, &err), err);
    CHECK_OK(af_gguf_put_tensor(w, "y", AF_DTYPE_F16, (int64_t[]){1}, 1, &err), err);
    CHECK_OK(af_gguf_writer_begin(w, &err), err);
    const float x[6] = {0, 1, 2, 3, 4, 5};
    uint8_t q[68];
    memset(q, 9, sizeof q);
    CHECK_OK(af_gguf_writer_data(w, x, 7, &err), err);
    CHECK_OK(af_gguf_writer_data(w, (const uint8_t *)x + 7, sizeof x - 7, &err), err);
    CHECK_OK(af_gguf_writer_data(w, q, sizeof q, &err), err);
    CHECK_OK(af_gguf_writer_data(w, "\0\x3c", 2, &err), err);
    CHECK_OK(af_gguf_writer_commit(w, &err), err);
}

static void check_values(const af_gguf *g)
{
    assert_int_equal(af_gguf_int(g, "n", 0), 4000000000);
    assert_int_equal(af_gguf_int(g, "i8", 0), -3);
    assert_int_equal(af_gguf_int(g, "u64", -9), -9); /* does not fit in int64 */
    assert_int_equal(af_gguf_int(g, "f", -9), -9);   /* a float is not an integer */
    assert_int_equal(af_gguf_int(g, "none", 5), 5);
    assert_int_equal(af_gguf_int(g, "ints", 5), 5);
    assert_true(af_gguf_float(g, "f", 0) == 1.5);
    assert_true(af_gguf_float(g, "i8", 0) == -3);
    assert_true(af_gguf_bool(g, "b", false));
    assert_false(af_gguf_bool(g, "c", false));
    const af_gguf_str s = af_gguf_string(g, "general.architecture");
    assert_int_equal(s.len, 5);
    assert_memory_equal(s.at, "llama", 5);
    const af_gguf_kv *ints = af_gguf_find_kv(g, "ints"), *strs = af_gguf_find_kv(g, "strs");
    assert_int_equal(ints->count, 3);
    assert_int_equal(af_gguf_item_int(ints, 0), -1);
    assert_int_equal(af_gguf_item_int(ints, 3), 0); /* past the end */
    assert_int_equal(strs->count, 2);
    assert_memory_equal(strs->str[0].at, "ab", 2);
    assert_int_equal(strs->str[1].len, 0);
}

static void test_written_files_read_back(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/a.gguf", tmp_dir);
    af_error err = {0};
    af_gguf_writer *out;
    CHECK_OK(af_gguf_writer_new(&out, path, &err), err);
    assert_false(af_file_exists(path));
    put_all(out);
    af_weights *w;
    CHECK_OK(af_weights_open(&w, path, &err), err);
    const af_gguf *g = af_weights_gguf(w);
    check_values(g);
    assert_int_equal(af_weights_count(w), 3);
    const af_stored *x = af_weights_find(w, "x"), *q = af_gguf_find(g, "q");
    assert_int_equal(x->dim[0], 2);
    assert_int_equal(x->dim[1], 3);
    assert_int_equal(af_gguf_ne(x, 0), 3);
    assert_int_equal(af_gguf_ne(x, 1), 2);
    assert_int_equal(af_gguf_ne(x, 2), 1);
    assert_true(((const float *)x->data)[5] == 5);
    assert_int_equal(q->bytes, 68);
    assert_int_equal(((const uint8_t *)q->data)[67], 9);
    assert_int_equal(af_file_size(path) % 32, 0);
    /* keys copied one by one and the same tensors give the same bytes */
    char twin[512];
    snprintf(twin, sizeof twin, "%s/b.gguf", tmp_dir);
    CHECK_OK(af_gguf_writer_new(&out, twin, &err), err);
    for (int i = 0; i < af_gguf_kv_count(g); i++)
        CHECK_OK(af_gguf_put_kv(out, af_gguf_kv_at(g, i), &err), err);
    for (int i = 0; i < af_gguf_count(g); i++) {
        const af_stored *t = af_gguf_at(g, i);
        CHECK_OK(af_gguf_put_tensor(out, t->name, t->dtype, t->dim, t->ndim, &err), err);
    }
    CHECK_OK(af_gguf_writer_begin(out, &err), err);
    for (int i = 0; i < af_gguf_count(g); i++)
        CHECK_OK(af_gguf_writer_data(out, af_gguf_at(g, i)->data, af_gguf_at(g, i)->bytes, &err),
                 err);
    CHECK_OK(af_gguf_writer_commit(out, &err), err);
    af_map a, b;
    CHECK_OK(af_map_open(&a, path, &err), err);
    CHECK_OK(af_map_open(&b, twin, &err), err);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    af_map_close(&a);
    af_map_close(&b);
    af_weights_close(w);
}

static void test_writer_refuses_wrong_use(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/wrong.gguf", tmp_dir);
    af_error err = {0};
    af_gguf_writer *w;
    CHECK_OK(af_gguf_writer_new(&w, path, &err), err);
    assert_int_equal(af_gguf_put_tensor(w, "a", AF_DTYPE_U8, (int64_t[]){4}, 1, &err),
                     AF_EUNSUPPORTED);
    assert_int_equal(af_gguf_put_tensor(w, "a", AF_DTYPE_Q4_K, (int64_t[]){2, 128}, 2, &err),
                     AF_EUSAGE);
    CHECK_OK(af_gguf_put_tensor(w, "a", AF_DTYPE_F32, (int64_t[]){2}, 1, &err), err);
    CHECK_OK(af_gguf_writer_begin(w, &err), err);
    CHECK_OK(af_gguf_writer_data(w, "1234", 4, &err), err);
    assert_int_equal(af_gguf_writer_commit(w, &err), AF_EUSAGE);
    assert_false(af_file_exists(path));
}

/* Written by the gguf Python package: nested arrays, every width, unaligned text. */
static void test_foreign_file(void **state)
{
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s/../fuzz/corpus/fuzz_gguf/small.gguf", golden_dir());
    af_error err = {0};
    af_gguf *g;
    CHECK_OK(af_gguf_open(&g, path, &err), err);
    assert_int_equal(af_gguf_version(g), 3);
    assert_int_equal(af_gguf_find_kv(g, "x.nested")->item, AF_GGUF_ARRAY);
    assert_int_equal(af_gguf_find_kv(g, "x.nested")->count, 2);
    assert_int_equal(af_gguf_find_kv(g, "tokenizer.ggml.tokens")->str[1].len, 2);
    assert_true(af_gguf_float(g, "x.d", 0) == 1.5);
    assert_true(af_gguf_float(g, "x.u64", 0) == 9223372036854775809.0);
    const af_stored *w = af_gguf_find(g, "q");
    assert_int_equal(w->dtype, AF_DTYPE_Q8_0);
    assert_int_equal(w->dim[0], 2);
    assert_int_equal(w->dim[1], 32);
    af_gguf_close(g);
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(tmp_dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return af_path_remove(tmp_dir, NULL) == AF_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reader_rejects_hostile_files),
        cmocka_unit_test(test_arrays_nest_to_the_limit),
        cmocka_unit_test(test_floats_as_integers),
        cmocka_unit_test(test_written_files_read_back),
        cmocka_unit_test(test_writer_refuses_wrong_use),
        cmocka_unit_test(test_foreign_file),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
