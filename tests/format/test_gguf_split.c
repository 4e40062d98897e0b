/* A GGUF model in several files: whichever file is named, and sets that do not belong together. */
#define _GNU_SOURCE
#include "base/file.h"
#include "format/config/hf_config.h"
#include "format/weights/weights.h"
#include "test.h"

#include <unistd.h>

static char tmp_dir[] = "/tmp/afinar-split-XXXXXX";

static const char *in_dir(char *path, size_t n, const char *dir, const char *name)
{
    snprintf(path, n, "%s/%s/%s", tmp_dir, dir, name);
    return path;
}

/* A part with one tensor of one number, or none; `total` below 0: without the keys of a split. */
static void write_part(const char *dir, const char *name, int no, int count, int total,
                       const char *tensor, float value)
{
    char path[512];
    af_error err = {0};
    af_gguf_writer *w;
    CHECK_OK(af_dir_make(in_dir(path, sizeof path, dir, ""), &err), err);
    CHECK_OK(af_gguf_writer_new(&w, in_dir(path, sizeof path, dir, name), &err), err);
    if (no == 0)
        CHECK_OK(af_gguf_put_str(w, "general.name", "first", 5, &err), err);
    if (total >= 0) {
        CHECK_OK(af_gguf_put_int(w, "split.no", AF_GGUF_U16, no, &err), err);
        CHECK_OK(af_gguf_put_int(w, "split.count", AF_GGUF_U16, count, &err), err);
        CHECK_OK(af_gguf_put_int(w, "split.tensors.count", AF_GGUF_I32, total, &err), err);
    }
    if (tensor)
        CHECK_OK(af_gguf_put_tensor(w, tensor, AF_DTYPE_F32, (int64_t[]){1}, 1, &err), err);
    CHECK_OK(af_gguf_writer_begin(w, &err), err);
    if (tensor)
        CHECK_OK(af_gguf_writer_data(w, &value, sizeof value, &err), err);
    CHECK_OK(af_gguf_writer_commit(w, &err), err);
}

static void check_all_parts(const char *path)
{
    static const char *const names[] = {"a", "b"};
    af_error err = {0};
    af_weights *w;
    CHECK_OK(af_weights_open(&w, path, &err), err);
    const af_gguf *g = af_weights_gguf(w);
    assert_int_equal(af_gguf_string(g, "general.name").len, 5);
    assert_int_equal(af_weights_count(w), 2);
    assert_int_equal(af_weights_files(w), 3);
    for (int i = 0; i < 2; i++) {
        char tail[64];
        const af_stored *t = af_weights_find(w, names[i]);
        assert_ptr_equal(af_gguf_find(g, names[i])->data, t->data);
        assert_true(*(const float *)t->data == (float)(i + 1));
        assert_true(af_weights_mapped(w, t));
        af_weights_forget(w, t);
        snprintf(tail, sizeof tail, "/m-0000%d-of-00003.gguf", i + 2);
        CHECK_MSG(strstr(af_weights_file_path(w, t->file), tail), "%s is in %s", t->name,
                  af_weights_file_path(w, t->file));
    }
    af_weights_close(w);
}

static void test_any_part_opens_them_all(void **state)
{
    (void)state;
    char path[512];
    static const char *const names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                        "m-00003-of-00003.gguf"};
    write_part("good", names[0], 0, 3, 2, NULL, 0); /* as --no-tensor-first-split has it */
    write_part("good", names[1], 1, 3, 2, "a", 1);
    write_part("good", names[2], 2, 3, 2, "b", 2);
    for (int i = 0; i < 3; i++)
        check_all_parts(in_dir(path, sizeof path, "good", names[i]));
}

static void test_folders_of_gguf_files_are_resolved(void **state)
{
    (void)state;
    char path[512], want[512], *found;
    af_error err = {0};
    snprintf(path, sizeof path, "%s/good", tmp_dir);
    write_part("good", "mmproj-m.gguf", 0, 0, -1, "p", 1); /* not language models */
    write_part("good", "imatrix-m.gguf", 0, 0, -1, "p", 1);
    CHECK_OK(af_model_resolve_whole(&found, path, &err), err);
    assert_string_equal(found, in_dir(want, sizeof want, "good", "m-00001-of-00003.gguf"));
    free(found);
    write_part("inner/Q8_0", "one.gguf", 0, 0, -1, "a", 1);
    snprintf(path, sizeof path, "%s/inner", tmp_dir);
    CHECK_OK(af_model_resolve(&found, path, &err), err);
    assert_string_equal(found, in_dir(want, sizeof want, "inner/Q8_0", "one.gguf"));
    free(found);
    CHECK_OK(af_file_write(in_dir(want, sizeof want, "inner", "tokenizer.json"), "{}", 2, &err),
             err);
    CHECK_OK(af_model_resolve(&found, path, &err), err); /* a file further down is not its model */
    assert_string_equal(found, path);
    free(found);
    CHECK_OK(af_path_remove(want, &err), err);
    write_part("inner", "two.gguf", 0, 0, -1, "a", 1);
    assert_int_equal(af_model_resolve(&found, path, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "has several GGUF files"), "says '%s'", err.msg);
    /* a folder with safetensors, or a tokenizer next to several files, stays a folder */
    CHECK_OK(af_file_write(in_dir(want, sizeof want, "inner", "tokenizer.json"), "{}", 2, &err),
             err);
    CHECK_OK(af_model_resolve(&found, path, &err), err);
    assert_string_equal(found, path);
    free(found);
    write_part("sets", "m-00001-of-00002.gguf", 0, 2, 2, "a", 1);
    write_part("sets", "m-00001-of-00003.gguf", 0, 3, 3, "a", 1); /* not a part of the other */
    snprintf(path, sizeof path, "%s/sets", tmp_dir);
    assert_int_equal(af_model_resolve(&found, path, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "has several GGUF files"), "says '%s'", err.msg);
    snprintf(path, sizeof path, "%s/good", tmp_dir);
    CHECK_OK(af_file_write(in_dir(want, sizeof want, "good", "x.safetensors"), "", 0, &err), err);
    CHECK_OK(af_model_resolve(&found, path, &err), err);
    assert_string_equal(found, path);
    free(found);
}

static void test_wrong_sets_are_refused(void **state)
{
    static const struct {
        const char *why, *dir, *name[2];
        int no[2], count[2], total;
        const char *tensor[2], *says;
    } cases[] = {
        {"missing", "missing", {"m-00001-of-00002.gguf"}, {0}, {2}, 2, {"a"}, "has 2 files, and '"},
        {"named otherwise", "named", {"m.gguf"}, {0}, {2}, 2, {"a"}, "its name does not end"},
        {"another number",
         "number",
         {"m-00002-of-00002.gguf"},
         {0},
         {2},
         2,
         {"a"},
         "the name says part 2 of 2, but split.no"},
        {"of another set",
         "count",
         {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"},
         {0, 1},
         {2, 3},
         2,
         {"a", "b"},
         "split.count 3"},
        {"the first twice",
         "twice",
         {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"},
         {0, 0},
         {2, 2},
         2,
         {"a", "b"},
         "split.no"},
        {"a tensor twice",
         "tensor",
         {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"},
         {0, 1},
         {2, 2},
         2,
         {"a", "a"},
         "tensor 'a' is in both"},
        {"another sum",
         "sum",
         {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"},
         {0, 1},
         {2, 2},
         3,
         {"a", "b"},
         "have 2 tensors, but split.tensors.count is 3"},
        {"a smaller sum, by a file that has as many",
         "fewer",
         {"m-00002-of-00002.gguf", "m-00001-of-00002.gguf"},
         {1, 0},
         {2, 2},
         1,
         {"b", "a"},
         "have 2 tensors, but split.tensors.count is 1"},
        {"count beyond",
         "beyond",
         {"m-00003-of-00002.gguf"},
         {2},
         {2},
         2,
         {"a"},
         "its name does not end"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char path[512];
        af_error err = {0};
        af_weights *w = NULL;
        for (int k = 0; k < 2 && cases[i].name[k]; k++)
            write_part(cases[i].dir, cases[i].name[k], cases[i].no[k], cases[i].count[k],
                       cases[i].total, cases[i].tensor[k], 1);
        CHECK_MSG(af_weights_open(&w, in_dir(path, sizeof path, cases[i].dir, cases[i].name[0]),
                                  &err) != AF_OK,
                  "%s", cases[i].why);
        CHECK_MSG(strstr(err.msg, cases[i].says), "%s says '%s'", cases[i].why, err.msg);
    }
}

static void test_a_joined_file_may_keep_the_keys(void **state)
{
    (void)state;
    char path[512];
    af_error err = {0};
    af_gguf *g;
    write_part("joined", "m.gguf", 0, 3, 1, "a", 1);
    CHECK_OK(af_gguf_open(&g, in_dir(path, sizeof path, "joined", "m.gguf"), &err), err);
    assert_int_equal(af_gguf_files(g), 1);
    af_gguf_close(g);
}

/* Ollama's files have a hash for a name. */
static void test_files_without_the_ending(void **state)
{
    (void)state;
    char path[512];
    af_error err = {0};
    write_part("blob", "sha256-1234", 0, 0, -1, "a", 1);
    assert_true(af_gguf_is_file(in_dir(path, sizeof path, "blob", "sha256-1234")));
    CHECK_OK(af_file_write(in_dir(path, sizeof path, "blob", "text"), "GGU", 3, &err), err);
    assert_false(af_gguf_is_file(path));
    assert_false(af_gguf_is_file(tmp_dir));
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
        cmocka_unit_test(test_any_part_opens_them_all),
        cmocka_unit_test(test_folders_of_gguf_files_are_resolved),
        cmocka_unit_test(test_wrong_sets_are_refused),
        cmocka_unit_test(test_a_joined_file_may_keep_the_keys),
        cmocka_unit_test(test_files_without_the_ending),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
