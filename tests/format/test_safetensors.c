/* The safetensors reader against hostile files, the writer against the reader, and folders. */
#define _GNU_SOURCE
#include "base/file.h"
#include "format/weights/weights.h"
#include "tensor/codec.h"
#include "test.h"

#include <unistd.h>

static char tmp_dir[] = "/tmp/afinar-st-XXXXXX";

static char *in_tmp(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", tmp_dir, name);
    return path;
}

/* header length + header + `data` zero bytes, in exactly sized memory. */
static uint8_t *file_of(const char *header, uint64_t data, uint64_t *size)
{
    const uint64_t n = strlen(header);
    *size = 8 + n + data;
    uint8_t *p = calloc(1, *size);
    assert_non_null(p);
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(n >> (8 * i));
    memcpy(p + 8, header, n);
    return p;
}

#define T(name, dtype, shape, off)                                                                 \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" off "}"

static void test_reader_rejects_hostile_files(void **state)
{
    (void)state;
    static const struct {
        const char *why, *header;
        uint64_t data;
        const char *says;
    } cases[] = {
        {"not JSON", "{", 0, "JSON"},
        {"not an object", "[1]", 0, "'{'"},
        {"leading space", " {}", 0, "'{'"},
        {"empty header", "", 0, "'{'"},
        {"bytes left over", "{}", 4, "cover 0"},
        {"no dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype"},
        {"bad dtype", "{" T("a", "F33", "[1]", "[0,4]") "}", 4, "F33"},
        {"no shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape"},
        {"negative dimension", "{" T("a", "F32", "[-1]", "[0,4]") "}", 4, "dimension 0"},
        {"float dimension", "{" T("a", "F32", "[1.5]", "[0,4]") "}", 4, "dimension 0"},
        {"product overflows", "{" T("a", "U8", "[4294967296,4294967296]", "[0,0]") "}", 0,
         "dimension 1"},
        {"a zero hides an overflow", "{" T("a", "U8", "[4611686018427387904,4,0]", "[0,0]") "}", 0,
         "dimension 1"},
        {"bytes overflow", "{" T("a", "F64", "[4611686018427387904]", "[0,0]") "}", 0, "elements"},
        {"nine dimensions", "{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, "shape"},
        {"shape and offsets differ", "{" T("a", "F32", "[2]", "[0,4]") "}", 4, "8 bytes"},
        {"offsets swapped", "{" T("a", "F32", "[1]", "[4,0]") "}", 4, "data_offsets"},
        {"one offset", "{" T("a", "F32", "[1]", "[0]") "}", 4, "data_offsets"},
        {"past the end", "{" T("a", "F32", "[2]", "[0,8]") "}", 4, "ends at byte 8"},
        {"hole at the start", "{" T("a", "F32", "[1]", "[4,8]") "}", 8, "hole"},
        {"hole", "{" T("a", "U8", "[1]", "[0,1]") "," T("b", "U8", "[1]", "[2,3]") "}", 3, "hole"},
        {"overlap", "{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[1,3]") "}", 3,
         "overlap"},
        {"same bytes twice", "{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[0,2]") "}",
         2, "overlap"},
        {"same name twice", "{" T("a", "U8", "[1]", "[0,1]") "," T("a", "U8", "[1]", "[1,2]") "}",
         2, "duplicate"},
        {"metadata is a number", "{\"__metadata__\":3}", 0, "__metadata__"},
        {"metadata holds a number", "{\"__metadata__\":{\"a\":3}}", 0, "'a'"},
        {"entry is a list", "{\"a\":[]}", 0, "'a'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        af_error err = {0};
        af_safetensors *s = NULL;
        uint64_t n;
        uint8_t *p = file_of(cases[i].header, cases[i].data, &n);
        CHECK_MSG(af_safetensors_parse(&s, p, n, "f", &err) != AF_OK, "accepted: %s", cases[i].why);
        CHECK_MSG(strstr(err.msg, cases[i].says), "%s: message is '%s'", cases[i].why, err.msg);
        free(p);
    }
}

static void test_reader_rejects_absurd_header_lengths(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {3, 1000000000, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        uint8_t bytes[10] = {0};
        af_error err = {0};
        af_safetensors *s;
        memcpy(bytes, &lengths[i], 8);
        memcpy(bytes + 8, "{}", 2);
        assert_int_equal(af_safetensors_parse(&s, bytes, sizeof bytes, "f", &err), AF_EFORMAT);
    }
    af_safetensors *s;
    const uint64_t size = AF_SAFETENSORS_HEADER_MAX + 16, over = AF_SAFETENSORS_HEADER_MAX + 1;
    uint8_t *large = calloc(1, size); /* pages that nobody reads cost nothing */
    af_error err = {0};
    assert_non_null(large);
    memcpy(large, &over, 8);
    assert_int_equal(af_safetensors_parse(&s, large, size, "f", &err), AF_EFORMAT);
    CHECK_MSG(strstr(err.msg, "limit"), "a header over the limit: %s", err.msg);
    free(large);
    for (uint64_t n = 0; n < 8; n++)
        assert_int_equal(af_safetensors_parse(&s, "\2\0\0\0\0\0\0\0", n, "f", NULL), AF_EFORMAT);
}

static void test_reader_finds_tensors_and_metadata(void **state)
{
    (void)state;
    uint64_t n;
    uint8_t *p = file_of(
        "{" T("z", "F32", "[2,3]", "[0,24]") "," T("empty", "F16", "[0,4]", "[24,24]") "," T(
            "scalar", "I64", "[]",
            "[24,32]") ",\"__metadata__\":{\"format\":\"pt\",\"k\":\"v\"}}   ",
        32, &n);
    af_error err = {0};
    af_safetensors *s;
    CHECK_OK(af_safetensors_parse(&s, p, n, "f", &err), err);
    assert_int_equal(af_safetensors_count(s), 3);
    const af_stored *z = af_safetensors_find(s, "z");
    assert_non_null(z);
    assert_int_equal(z->ndim, 2);
    assert_int_equal(z->dim[1], 3);
    assert_int_equal(z->dtype, AF_DTYPE_F32);
    assert_int_equal(af_weight_count(af_safetensors_find(s, "scalar")), 1);
    assert_int_equal(af_weight_count(af_safetensors_find(s, "empty")), 0);
    assert_null(af_safetensors_find(s, "y"));
    assert_string_equal(af_safetensors_meta(s, "k"), "v");
    assert_null(af_safetensors_meta(s, "q"));
    assert_int_equal(af_safetensors_meta_count(s), 2);
    af_safetensors_close(s);
    free(p);
}

/* Every type of the format has a size; those that cannot be decoded are known to be so. */
static void test_every_type_of_the_format_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int bytes; /* of 8 elements */
        bool decoded;
    } types[] = {{"BOOL", 8, true},        {"U8", 8, true},       {"I8", 8, true},
                 {"F8_E5M2", 8, true},     {"F8_E4M3", 8, true},  {"I16", 16, true},
                 {"U16", 16, true},        {"F16", 16, true},     {"BF16", 16, true},
                 {"I32", 32, true},        {"U32", 32, true},     {"F32", 32, true},
                 {"F64", 64, true},        {"I64", 64, true},     {"U64", 64, true},
                 {"C64", 64, false},       {"F8_E8M0", 8, false}, {"F4", 4, false},
                 {"F6_E2M3", 6, false},    {"F6_E3M2", 6, false}, {"F8_E4M3FNUZ", 8, false},
                 {"F8_E5M2FNUZ", 8, false}};
    for (size_t i = 0; i < AF_LEN(types); i++) {
        char header[128];
        af_error err = {0};
        af_safetensors *st = NULL;
        uint64_t size;
        snprintf(header, sizeof header, "{" T("a", "%s", "[2,4]", "[0,%d]") "}", types[i].name,
                 types[i].bytes);
        uint8_t *p = file_of(header, (uint64_t)types[i].bytes, &size);
        CHECK_OK(af_safetensors_parse(&st, p, size, "f", &err), err);
        const af_stored *t = af_safetensors_find(st, "a");
        CHECK_MSG(t && af_codec_can_decode(t->dtype) == types[i].decoded, "%s", types[i].name);
        af_safetensors_close(st);
        free(p);
    }
}

static void test_metadata_may_be_null(void **state)
{
    (void)state;
    uint64_t n;
    af_error err = {0};
    af_safetensors *s;
    uint8_t *p = file_of("{" T("a", "U8", "[1]", "[0,1]") ",\"__metadata__\":null}", 1, &n);
    CHECK_OK(af_safetensors_parse(&s, p, n, "f", &err), err);
    assert_int_equal(af_safetensors_meta_count(s), 0);
    assert_int_equal(af_safetensors_count(s), 1);
    af_safetensors_close(s);
    free(p);
}

static void test_unaligned_tensors_can_be_indexed(void **state)
{
    (void)state;
    uint64_t n;
    uint8_t *p =
        file_of("{" T("a", "U8", "[1]", "[0,1]") "," T("b", "F32", "[2]", "[1,9]") "}", 9, &n);
    const float want[2] = {1.5f, -2.0f};
    memcpy(p + n - 8, want, 8);
    af_error err = {0};
    af_safetensors *s;
    CHECK_OK(af_safetensors_parse(&s, p, n, "f", &err), err);
    const af_stored *b = af_safetensors_find(s, "b");
    assert_int_equal((uintptr_t)b->data % 4, 0);
    assert_memory_equal(b->data, want, 8);
    af_safetensors_close(s);
    /* a copy is not in the file: dropping its pages would lose it */
    af_weights *w;
    const char *path = in_tmp("unaligned.safetensors");
    CHECK_OK(af_file_write(path, p, n, &err), err);
    CHECK_OK(af_weights_open(&w, path, &err), err);
    assert_true(af_weights_mapped(w, af_weights_find(w, "a")));
    assert_false(af_weights_mapped(w, af_weights_find(w, "b")));
    af_weights_close(w);
    assert_int_equal(unlink(path), 0);
    free(p);
}

/* Three tensors whose declared order would leave the f32 unaligned. */
static void write_three(const char *path, uint64_t shard)
{
    af_error err = {0};
    af_safetensors_writer *w;
    const uint8_t bytes[3] = {1, 2, 3};
    const float floats[4] = {1, 2, 3, 4};
    const uint16_t halves[2] = {0x3c00, 0x4000};
    CHECK_OK(af_safetensors_writer_new(&w, path, shard, &err), err);
    CHECK_OK(af_safetensors_writer_meta(w, "who", "a \"quoted\"\nname", &err), err);
    CHECK_OK(af_safetensors_writer_add(w, "bytes", AF_DTYPE_U8, (int64_t[]){3}, 1, &err), err);
    CHECK_OK(af_safetensors_writer_add(w, "floats", AF_DTYPE_F32, (int64_t[]){2, 2}, 2, &err), err);
    CHECK_OK(af_safetensors_writer_add(w, "none", AF_DTYPE_F32, (int64_t[]){0}, 1, &err), err);
    CHECK_OK(af_safetensors_writer_add(w, "halves", AF_DTYPE_F16, (int64_t[]){2}, 1, &err), err);
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    CHECK_OK(af_safetensors_writer_data(w, bytes, 3, &err), err);
    CHECK_OK(af_safetensors_writer_data(w, floats, 5, &err), err); /* in odd pieces */
    CHECK_OK(af_safetensors_writer_data(w, (const uint8_t *)floats + 5, 11, &err), err);
    CHECK_OK(af_safetensors_writer_data(w, halves, 4, &err), err);
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
}

static void check_three(const char *path, int files)
{
    af_error err = {0};
    af_weights *w;
    CHECK_OK(af_weights_open(&w, path, &err), err);
    assert_int_equal(af_weights_count(w), 4);
    assert_int_equal(af_weights_files(w), files);
    assert_memory_equal(af_weights_find(w, "bytes")->data, "\1\2\3", 3);
    assert_true(((const float *)af_weights_find(w, "floats")->data)[3] == 4);
    assert_true(((const uint16_t *)af_weights_find(w, "halves")->data)[1] == 0x4000);
    assert_string_equal(af_safetensors_meta(af_weights_safetensors(w, 0), "format"), "pt");
    assert_string_equal(af_safetensors_meta(af_weights_safetensors(w, 0), "who"),
                        "a \"quoted\"\nname");
    const af_map *m = af_safetensors_map(af_weights_safetensors(w, 0));
    assert_int_equal(m->data[0] % 8, 0); /* the header is padded */
    const af_stored *f = af_weights_find(w, "floats");
    const af_map *fm = af_safetensors_map(af_weights_safetensors(w, f->file));
    assert_true((const uint8_t *)f->data > fm->data);
    assert_true(af_weights_mapped(w, f)); /* aligned in the file, not a copy */
    af_weights_forget(w, f);
    af_weights_close(w);
}

static void test_written_files_read_back(void **state)
{
    (void)state;
    write_three(in_tmp("model.safetensors"), 0);
    check_three(in_tmp("model.safetensors"), 1);
    check_three(tmp_dir, 1);
    assert_int_equal(unlink(in_tmp("model.safetensors")), 0);
}

/* A closed file is mapped no longer. */
static void test_closing_gives_the_map_back(void **state)
{
    char line[1024];
    af_safetensors *s = NULL;
    af_error err = {0};
    int seen[2] = {0};
    (void)state;
    write_three(in_tmp("mapped.safetensors"), 0);
    CHECK_OK(af_safetensors_open(&s, in_tmp("mapped.safetensors"), &err), err);
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen("/proc/self/maps", "r");
        assert_non_null(f);
        while (fgets(line, sizeof line, f))
            seen[i] += strstr(line, "mapped.safetensors") != NULL;
        fclose(f);
        if (i == 0)
            af_safetensors_close(s);
    }
    assert_true(seen[0] > 0);
    assert_int_equal(seen[1], 0);
}

static void test_shards_and_index(void **state)
{
    (void)state;
    af_error err = {0};
    CHECK_OK(af_dir_make(in_tmp("full"), &err), err);
    write_three(in_tmp("full/model.safetensors"), 3 + 16); /* two tensors fill the first */
    check_three(in_tmp("full"), 2);
    write_three(in_tmp("model.safetensors"), 16);
    assert_false(af_file_exists(in_tmp("model.safetensors")));
    assert_true(af_file_exists(in_tmp("model-00001-of-00003.safetensors")));
    check_three(tmp_dir, 3);
    /* a shard the index names is gone */
    char *gone = strdup(in_tmp("model-00002-of-00003.safetensors"));
    assert_int_equal(unlink(gone), 0);
    af_weights *w;
    assert_int_equal(af_weights_open(&w, tmp_dir, &err), AF_EIO);
    assert_non_null(strstr(err.msg, "00002-of-00003"));
    free(gone);
    static const struct {
        const char *index, *says;
    } bad[] = {
        {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "../x"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "/etc/passwd"},
        {"{\"weight_map\":{\"a\":3}}", "not a string"},
        {"{\"weight_map\":[]}", "weight_map"},
        {"{\"weight_map\":{\"q\":\"model-00001-of-00003.safetensors\"}}", "'q' is not in"},
        {"{", "index.json:1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_OK(af_file_write(in_tmp("model.safetensors.index.json"), bad[i].index,
                               strlen(bad[i].index), &err),
                 err);
        assert_int_equal(af_weights_open(&w, tmp_dir, &err), AF_EFORMAT);
        CHECK_MSG(strstr(err.msg, bad[i].says), "message is '%s'", err.msg);
    }
}

static void copy_in(const char *from, const char *to)
{
    af_error err = {0};
    char *a = strdup(in_tmp(from));
    CHECK_OK(af_file_copy(a, in_tmp(to), &err), err);
    free(a);
}

static void test_shards_without_an_index(void **state)
{
    static const struct {
        const char *from, *to, *gone, *says;
    } bad[] = {
        {"n/model-00001-of-00003.safetensors", "n/model-00002-of-00003.safetensors", NULL,
         "tensor 'bytes' is in both"},
        {"n/model-00001-of-00003.safetensors", "n/b-00001-of-00001.safetensors", NULL,
         "shards of two sets, 'b-00001-of-00001.safetensors' and 'model-00001-of"},
        {NULL, NULL, "n/model-00001-of-00003.safetensors", "has 3 files, and"},
    };
    af_error err = {0};
    af_weights *w;
    (void)state;
    CHECK_OK(af_dir_make(in_tmp("n/original"), &err), err);
    assert_false(af_weights_in(in_tmp("n")));
    write_three(in_tmp("n/model.safetensors"), 16);
    assert_int_equal(unlink(in_tmp("n/model.safetensors.index.json")), 0);
    copy_in("n/model-00001-of-00003.safetensors", "n/consolidated-00001-of-00001.safetensors");
    copy_in("n/model-00001-of-00003.safetensors", "n/consolidated.safetensors");
    copy_in("n/model-00001-of-00003.safetensors", "n/original/model-00001-of-00001.safetensors");
    copy_in("n/model-00001-of-00003.safetensors", "n/adapter_model.safetensors");
    assert_true(af_weights_in(in_tmp("n")));
    check_three(in_tmp("n"), 3);
    for (size_t i = 0; i < AF_LEN(bad); i++) {
        if (bad[i].to)
            copy_in(bad[i].from, bad[i].to);
        else
            assert_int_equal(unlink(in_tmp(bad[i].gone)), 0);
        assert_true(af_weights_in(in_tmp("n")));
        assert_int_not_equal(af_weights_open(&w, in_tmp("n"), &err), AF_OK);
        CHECK_MSG(strstr(err.msg, bad[i].says), "message is '%s'", err.msg);
        if (bad[i].to)
            assert_int_equal(unlink(in_tmp(bad[i].to)), 0);
    }
}

static void test_writer_refuses_wrong_use(void **state)
{
    (void)state;
    af_error err = {0};
    af_safetensors_writer *w;
    const char *path = in_tmp("wrong.safetensors");
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    assert_int_equal(af_safetensors_writer_add(w, "q", AF_DTYPE_Q4_K, (int64_t[]){256}, 1, &err),
                     AF_EUNSUPPORTED);
    CHECK_OK(af_safetensors_writer_add(w, "a", AF_DTYPE_U8, (int64_t[]){2}, 1, &err), err);
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    assert_int_equal(af_safetensors_writer_data(w, "abc", 3, &err), AF_EUSAGE);
    af_safetensors_writer_abandon(w);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    CHECK_OK(af_safetensors_writer_add(w, "a", AF_DTYPE_U8, (int64_t[]){2}, 1, &err), err);
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    CHECK_OK(af_safetensors_writer_data(w, "a", 1, &err), err);
    assert_int_equal(af_safetensors_writer_commit(w, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "1 of its 2 bytes"));
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    CHECK_OK(af_safetensors_writer_add(w, "a", AF_DTYPE_U8, (int64_t[]){2}, 1, &err), err);
    CHECK_OK(af_safetensors_writer_add(w, "a", AF_DTYPE_U8, (int64_t[]){2}, 1, &err), err);
    assert_int_equal(af_safetensors_writer_begin(w, &err), AF_EUSAGE);
    af_safetensors_writer_abandon(w);
    assert_false(af_file_exists(path));
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
        cmocka_unit_test(test_reader_rejects_absurd_header_lengths),
        cmocka_unit_test(test_reader_finds_tensors_and_metadata),
        cmocka_unit_test(test_every_type_of_the_format_is_known),
        cmocka_unit_test(test_metadata_may_be_null),
        cmocka_unit_test(test_unaligned_tensors_can_be_indexed),
        cmocka_unit_test(test_written_files_read_back),
        cmocka_unit_test(test_closing_gives_the_map_back),
        cmocka_unit_test(test_shards_and_index),
        cmocka_unit_test(test_shards_without_an_index),
        cmocka_unit_test(test_writer_refuses_wrong_use),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
