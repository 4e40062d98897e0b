/* Outputs: what exists is refused, force replaces what was written here before and nothing else,
 * and a failure in the middle leaves the old files. */
#define _GNU_SOURCE
#include "afinar/output.h"
#include "base/file.h"
#include "base/publish.h"
#include "test.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the library (--wrap): a file system that is full from the moment on at which `full_after` has
 * its place and its folder is synced. Removing works. */
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);
int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags);

static const char *full_after;
static bool is_full;

int __wrap_fsync(int fd)
{
    struct stat s;
    if (full_after && fstat(fd, &s) == 0 && S_ISDIR(s.st_mode) && access(full_after, F_OK) == 0)
        is_full = true;
    errno = ENOSPC;
    return is_full ? -1 : __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
    errno = ENOSPC;
    return is_full ? -1 : __real_rename(from, to);
}

/* Where set: somebody else's file is there first. */
static const char *appears;

int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    if (is_full)
        errno = ENOSPC;
    if (appears && strcmp(to, appears) == 0) {
        FILE *f = fopen(to, "w");
        if (f) {
            fputs("theirs", f);
            fclose(f);
        }
    }
    return is_full ? -1 : __real_renameat2(a, from, b, to, flags);
}

static char dir[] = "/tmp/afinar-publish-XXXXXX";

static char *in_dir(const char *name)
{
    static char path[8][512];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[0], "%s/%s", dir, name);
    return path[turn];
}

static void put(const char *name, const char *text)
{
    af_error err = {0};
    CHECK_OK(af_file_write(in_dir(name), text, strlen(text), &err), err);
}

static void check_content(const char *name, const char *want)
{
    char *text = NULL;
    uint64_t n = 0;
    af_error err = {0};
    CHECK_OK(af_file_read(&text, &n, in_dir(name), 1 << 20, &err), err);
    assert_string_equal(text, want);
    free(text);
}

static int count_in(const char *name)
{
    char **names;
    int n;
    af_error err = {0};
    CHECK_OK(af_dir_list(&names, &n, in_dir(name), &err), err);
    af_names_free(names, n);
    return n;
}

static void put_in(const af_output *o, const char *name, const char *text)
{
    af_error err = {0};
    char *path = af_path_join(o->temp, name);
    CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
    free(path);
}

/* Writes the folder "out" with these files (NAME, TEXT, ..., NULL). */
static af_status write_folder(bool force, const char *const *files, af_error *err)
{
    static const char *const names[] = {"config.json", NULL};
    af_output o = {0};
    af_status st = af_output_open_folder(&o, in_dir("out"), names, force, err);
    if (st != AF_OK)
        return st;
    for (; *files; files += 2)
        put_in(&o, files[0], files[1]);
    st = af_output_commit(&o, err);
    af_output_abandon(&o);
    return st;
}

static const char *const first[] = {"config.json", "one", "a.bin", "1", "b.bin", "1", NULL};
static const char *const second[] = {"config.json", "two", "a.bin", "2", NULL};

static int begin(void **state)
{
    (void)state;
    return af_dir_make(dir, NULL) == AF_OK ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return af_path_remove(dir, NULL) == AF_OK ? 0 : -1;
}

static void refused(bool force, const char *says)
{
    af_error err = {0};
    assert_int_equal(write_folder(force, second, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, says), "no '%s' in: %s", says, err.msg);
}

static void test_a_folder_is_refused_then_replaced(void **state)
{
    (void)state;
    af_error err = {0};
    CHECK_OK(write_folder(false, first, &err), err);
    refused(false, "exists and is not empty (it has 'a.bin' and 2 more)");
    refused(false, "--force");
    put("out/notes.txt", "mine");
    CHECK_OK(write_folder(true, second, &err), err);
    check_content("out/config.json", "two");
    check_content("out/a.bin", "2");
    check_content("out/notes.txt", "mine");
    assert_false(af_file_exists(in_dir("out/b.bin"))); /* the earlier output had it */
    assert_int_equal(count_in("out"), 4);              /* and the manifest */
}

static void test_an_empty_folder_is_used(void **state)
{
    (void)state;
    af_error err = {0};
    CHECK_OK(af_dir_make(in_dir("real"), &err), err);
    assert_int_equal(symlink("real", in_dir("out")), 0);
    CHECK_OK(write_folder(false, first, &err), err);
    check_content("real/config.json", "one");
    struct stat s;
    assert_int_equal(lstat(in_dir("out"), &s), 0);
    assert_true(S_ISLNK(s.st_mode));
}

static void test_foreign_files_are_not_replaced(void **state)
{
    (void)state;
    af_error err = {0};
    CHECK_OK(af_dir_make(in_dir("out"), &err), err);
    put("out/config.json", "mine");
    refused(true, "/out/config.json' was not written by afinar");
    CHECK_OK(af_path_remove(in_dir("out/config.json"), &err), err);
    put("out/a.bin", "mine"); /* a name that is known at the end only */
    refused(true, "/out/a.bin' was not written by afinar");
    check_content("out/a.bin", "mine");
    assert_int_equal(count_in("out"), 1);
}

static void test_changed_files_are_not_replaced(void **state)
{
    (void)state;
    af_error err = {0};
    CHECK_OK(write_folder(false, first, &err), err);
    put("out/b.bin", "9");
    refused(true, "/out/b.bin' has been changed since afinar wrote it");
    CHECK_OK(af_path_remove(in_dir("out/b.bin"), &err), err);
    assert_int_equal(symlink("config.json", in_dir("out/b.bin")), 0);
    refused(true, "/out/b.bin' was not written by afinar");
    check_content("out/config.json", "one");
}

static void test_a_readme_of_somebody_else_stays(void **state)
{
    (void)state;
    af_error err = {0};
    static const char *const card[] = {"config.json", "two", "README.md", "card", NULL};
    CHECK_OK(write_folder(false, card, &err), err);
    CHECK_OK(write_folder(true, card, &err), err);
    check_content("out/README.md", "card");
    put("out/README.md", "edited");
    CHECK_OK(write_folder(true, card, &err), err);
    check_content("out/README.md", "edited");
}

static void test_paths_that_are_no_folder(void **state)
{
    (void)state;
    af_error err = {0};
    af_output o = {0};
    put("out", "file");
    refused(true, "is a file");
    check_content("out", "file");
    CHECK_OK(af_path_remove(in_dir("out"), &err), err);
    assert_int_equal(symlink("nowhere", in_dir("out")), 0);
    refused(true, "link to nothing");
    assert_int_equal(af_output_open_folder(&o, "//", NULL, true, &err), AF_EUSAGE);
    assert_int_equal(af_output_open_folder(&o, "", NULL, true, &err), AF_EUSAGE);
    const char *in[] = {in_dir("a/b")};
    CHECK_OK(af_dir_make(in[0], &err), err);
    assert_int_equal(af_output_check(in_dir("a"), in, 1, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "lies in the output folder"));
    CHECK_OK(af_output_check(in_dir("a/b/c"), in, 1, &err), err);
}

static void test_files(void **state)
{
    (void)state;
    af_error err = {0};
    put("other", "mine");
    CHECK_OK(af_output_write(in_dir("f"), "1", 1, false, &err), err);
    assert_int_equal(af_output_write(in_dir("f"), "2", 1, false, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "--force"));
    check_content("f", "1");
    CHECK_OK(af_output_write(in_dir("f"), "2", 1, true, &err), err);
    check_content("f", "2");
    assert_int_equal(af_output_write(in_dir("other"), "2", 1, true, &err), AF_EUSAGE);
    put("f", "3");
    assert_int_equal(af_output_check_file(in_dir("f"), true, &err), AF_EUSAGE);
    assert_int_equal(af_output_write(in_dir("f"), "4", 1, true, &err), AF_EUSAGE);
    check_content("f", "3");
    check_content("other", "mine");
    assert_int_equal(count_in(""), 3);
    assert_int_equal(af_output_write(in_dir("no/f"), "4", 1, true, &err), AF_EIO);
    assert_int_equal(af_output_write(in_dir("new/"), "4", 1, true, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "is a folder, a file is to be written"));
    assert_int_equal(af_output_write("-", "4", 1, false, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "stdout"));
}

/* A file of a converted folder is not one of a training run, and the other way round. */
static void test_groups_are_apart(void **state)
{
    (void)state;
    af_error err = {0};
    af_written w = {0};
    CHECK_OK(write_folder(false, first, &err), err);
    CHECK_OK(af_output_write(in_dir("out/x.gguf"), "g", 1, false, &err), err);
    CHECK_OK(write_folder(true, second, &err), err);
    check_content("out/x.gguf", "g");
    assert_int_equal(af_output_write(in_dir("out/a.bin"), "g", 1, true, &err), AF_EUSAGE);
    CHECK_OK(af_written_read(&w, in_dir("out"), &err), err);
    assert_int_equal(w.count, 3);
    assert_int_equal(af_written_check(&w, "file", in_dir("out"), "x.gguf"), AF_WRITTEN_OWN);
    assert_int_equal(af_written_check(&w, "model", in_dir("out"), "x.gguf"), AF_WRITTEN_FOREIGN);
    af_written_clear(&w);
    put("out/" AF_WRITTEN_NAME, "afinar files 1\nmodel 1 x ../f\n");
    assert_int_equal(write_folder(true, second, &err), AF_EFORMAT);
    assert_non_null(strstr(err.msg, "is damaged"));
}

/* The second of two files cannot be renamed (a folder has its name): the first is put back. */
static void test_a_failure_in_the_middle_puts_the_old_files_back(void **state)
{
    (void)state;
    af_error err = {0};
    af_output o = {0};
    CHECK_OK(write_folder(false, first, &err), err);
    CHECK_OK(af_output_open_folder(&o, in_dir("out"), NULL, true, &err), err);
    put_in(&o, "a.bin", "2");
    CHECK_OK(af_dir_make(in_dir("sub"), &err), err);
    char *sub = af_path_join(o.temp, "sub"), *inner = af_path_join(o.temp, "sub/x");
    CHECK_OK(af_dir_make(sub, &err), err);
    CHECK_OK(af_file_write(inner, "x", 1, &err), err);
    put("out/sub", "a file where a folder is needed");
    assert_int_not_equal(af_output_commit(&o, &err), AF_OK);
    af_output_abandon(&o);
    free(sub);
    free(inner);
    check_content("out/a.bin", "1");
    check_content("out/config.json", "one");
    check_content("out/b.bin", "1");
    assert_int_equal(count_in("out"), 5);
    CHECK_OK(af_path_remove(in_dir("out/sub"), &err), err);
    CHECK_OK(write_folder(true, second, &err), err); /* and is still known as ours */
    check_content("out/a.bin", "2");
}

static void test_a_file_that_cannot_be_put_back_stays_known(void **state)
{
    (void)state;
    af_error err = {0};
    full_after = in_dir("f.bin");
    assert_int_equal(af_output_write(full_after, "new", 3, false, &err), AF_EIO);
    assert_non_null(strstr(err.msg, "No space left"));
    assert_true(is_full);
    full_after = NULL;
    is_full = false;
    check_content("f.bin", "new");
    CHECK_OK(af_output_write(in_dir("f.bin"), "other", 5, true, &err), err);
    check_content("f.bin", "other");
}

/* As long as a file system has them: temporary names beside them are shorter. */
static void test_names_of_255_bytes(void **state)
{
    (void)state;
    af_error err = {0};
    char name[256], folder[256];
    memset(name, 'n', sizeof name - 1);
    memcpy(name + 199, "\xe2\x82\xac", 3); /* a character where names are cut */
    name[sizeof name - 1] = '\0';
    memset(folder, 'f', sizeof folder - 1);
    folder[sizeof folder - 1] = '\0';
    CHECK_OK(af_output_write(in_dir(name), "one", 3, false, &err), err);
    CHECK_OK(af_output_write(in_dir(name), "two", 3, true, &err), err);
    check_content(name, "two");
    af_output o = {0};
    CHECK_OK(af_output_open_folder(&o, in_dir(folder), NULL, false, &err), err);
    put_in(&o, "a.bin", "1");
    CHECK_OK(af_output_commit(&o, &err), err);
    assert_int_equal(count_in(folder), 2);
}

/* Names are checked first; what comes between that and the rename stays. */
static void test_a_file_that_appears_meanwhile_stays(void **state)
{
    (void)state;
    af_error err = {0};
    char path[300];
    snprintf(path, sizeof path, "%s", in_dir("late.bin"));
    appears = path;
    assert_int_equal(af_output_write(path, "ours", 4, false, &err), AF_EIO);
    assert_non_null(strstr(err.msg, "File exists"));
    appears = NULL;
    check_content("late.bin", "theirs");
    assert_int_not_equal(af_output_write(path, "ours", 4, true, &err), AF_OK); /* not ours */
    check_content("late.bin", "theirs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_folder_is_refused_then_replaced, begin, end),
        cmocka_unit_test_setup_teardown(test_an_empty_folder_is_used, begin, end),
        cmocka_unit_test_setup_teardown(test_foreign_files_are_not_replaced, begin, end),
        cmocka_unit_test_setup_teardown(test_changed_files_are_not_replaced, begin, end),
        cmocka_unit_test_setup_teardown(test_a_readme_of_somebody_else_stays, begin, end),
        cmocka_unit_test_setup_teardown(test_paths_that_are_no_folder, begin, end),
        cmocka_unit_test_setup_teardown(test_files, begin, end),
        cmocka_unit_test_setup_teardown(test_groups_are_apart, begin, end),
        cmocka_unit_test_setup_teardown(test_a_file_that_appears_meanwhile_stays, begin, end),
        cmocka_unit_test_setup_teardown(test_names_of_255_bytes, begin, end),
        cmocka_unit_test_setup_teardown(test_a_failure_in_the_middle_puts_the_old_files_back, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_a_file_that_cannot_be_put_back_stays_known, begin,
                                        end),
    };
    if (!mkdtemp(dir))
        return 1;
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    (void)!af_path_remove(dir, NULL);
    return rc;
}
