/* test_checkpoint_move.c - checkpoints in a lower layer of overlayfs (the image of a container):
 * rename() refuses such folders with EXDEV. renameat2 below does the same for the folders in
 * `lower`, and stands in for the C library's. */
#define _GNU_SOURCE
#include "base/file.h"
#include "test.h"
#include "train/checkpoint/run_files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LOWER_MAX = 8 };

static ino_t lower[LOWER_MAX];
static int lowers, refusals;
static char top[] = "/tmp/afinar-move-XXXXXX";

static bool is_lower(const char *path)
{
    struct stat s;
    for (int i = 0; i < lowers && lstat(path, &s) == 0; i++)
        if (s.st_ino == lower[i])
            return true;
    return false;
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    if (is_lower(from) || is_lower(to)) {
        refusals++;
        errno = EXDEV;
        return -1;
    }
    return (int)syscall(SYS_renameat2, a, from, b, to, flags);
}

static const char *in_top(const char *name)
{
    static char path[4][256];
    static unsigned at;
    char *p = path[at++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", top, name);
    return p;
}

static void write_text(const char *name, const char *text)
{
    af_error err = {0};
    CHECK_OK(af_file_write(in_top(name), text, strlen(text), &err), err);
}

static void check_text(const char *name, const char *want)
{
    af_error err = {0};
    char *text = NULL;
    uint64_t n = 0;
    CHECK_OK(af_file_read(&text, &n, in_top(name), 1 << 20, &err), err);
    assert_string_equal(text, want);
    free(text);
}

/* A checkpoint with one file of ours, and a note and a folder of the user's. */
static void make_checkpoint(const char *name, const char *weights, bool notes)
{
    char path[256];
    af_error err = {0};
    CHECK_OK(af_dir_make(in_top(name), &err), err);
    snprintf(path, sizeof path, "%s/manifest.json", name);
    write_text(path, "{\"files\": {\"weights\": {}}}");
    snprintf(path, sizeof path, "%s/weights", name);
    write_text(path, weights);
    if (!notes)
        return;
    snprintf(path, sizeof path, "%s/kept", name);
    CHECK_OK(af_dir_make(in_top(path), &err), err);
    snprintf(path, sizeof path, "%s/kept/note", name);
    write_text(path, "mine");
}

static void set_lower(const char *name)
{
    struct stat s;
    assert_int_equal(lstat(in_top(name), &s), 0);
    assert_true(lowers < LOWER_MAX);
    lower[lowers++] = s.st_ino;
}

static int begin(void **state)
{
    (void)state;
    lowers = refusals = 0;
    snprintf(top, sizeof top, "/tmp/afinar-move-XXXXXX");
    return mkdtemp(top) ? 0 : -1;
}

/* Nothing but the named entries is left, so no temporary name either. */
static void check_entries(int want)
{
    af_error err = {0};
    char **names = NULL;
    int n = 0;
    CHECK_OK(af_dir_list(&names, &n, top, &err), err);
    assert_int_equal(n, want);
    af_names_free(names, n);
    assert_true(refusals > 0);
}

static int end(void **state)
{
    (void)state;
    return af_path_remove(top, NULL) == AF_OK ? 0 : -1;
}

static void test_a_checkpoint_is_replaced(void **state)
{
    af_error err = {0};
    (void)state;
    make_checkpoint("checkpoint-6", "old", true);
    set_lower("checkpoint-6");
    set_lower("checkpoint-6/kept");
    make_checkpoint("checkpoint-6.tmp", "new", false);
    CHECK_OK(af_checkpoint_replace(in_top("checkpoint-6.tmp"), in_top("checkpoint-6"), &err), err);
    check_text("checkpoint-6/weights", "new");
    check_text("checkpoint-6/kept/note", "mine");
    check_entries(1);
}

static void test_a_checkpoint_gets_another_name(void **state)
{
    struct stat a, b;
    af_error err = {0};
    (void)state;
    make_checkpoint("checkpoint-6", "old", true);
    set_lower("checkpoint-6");
    assert_int_equal(chmod(in_top("checkpoint-6"), 0750), 0);
    assert_int_equal(symlink("nowhere", in_top("checkpoint-6/link")), 0);
    assert_int_equal(lstat(in_top("checkpoint-6"), &a), 0);
    CHECK_OK(af_path_move(in_top("checkpoint-6"), in_top("checkpoint-6.left"), &err), err);
    check_text("checkpoint-6.left/weights", "old");
    check_text("checkpoint-6.left/kept/note", "mine");
    assert_int_equal(lstat(in_top("checkpoint-6.left"), &b), 0);
    assert_int_equal(a.st_mode, b.st_mode);
    assert_true(a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec);
    assert_int_equal(lstat(in_top("checkpoint-6.left/link"), &b), 0);
    assert_true(S_ISLNK(b.st_mode));
    check_entries(1);
}

static void test_a_name_that_is_taken_is_kept(void **state)
{
    af_error err = {0};
    (void)state;
    make_checkpoint("a", "old", false);
    make_checkpoint("b", "other", false);
    set_lower("a");
    assert_int_equal(af_path_move(in_top("a"), in_top("b"), &err), AF_EIO);
    check_text("a/weights", "old");
    check_text("b/weights", "other");
    check_entries(2);
}

/* A killed run's: with the checkpoint it was to replace, and without. */
static void test_a_temporary_one_is_dropped(void **state)
{
    af_error err = {0};
    (void)state;
    make_checkpoint("checkpoint-6.tmp", "old", true);
    set_lower("checkpoint-6.tmp");
    set_lower("checkpoint-6.tmp/kept");
    CHECK_OK(af_checkpoint_drop(in_top("checkpoint-6.tmp"), in_top("checkpoint-6"), &err), err);
    check_text("checkpoint-6/kept/note", "mine");
    check_entries(1);
    make_checkpoint("checkpoint-8", "whole", false);
    make_checkpoint("checkpoint-8.tmp", "old", true);
    set_lower("checkpoint-8.tmp");
    set_lower("checkpoint-8.tmp/kept");
    CHECK_OK(af_checkpoint_drop(in_top("checkpoint-8.tmp"), in_top("checkpoint-8"), &err), err);
    check_text("checkpoint-8/weights", "whole");
    check_text("checkpoint-8/kept/note", "mine");
    check_entries(2);
}

static void test_a_damaged_one_is_moved_aside(void **state)
{
    af_error err = {0};
    (void)state;
    make_checkpoint("checkpoint-6", "old", true);
    write_text("checkpoint-6/manifest.json", "{");
    set_lower("checkpoint-6");
    make_checkpoint("checkpoint-6.tmp", "new", false);
    CHECK_OK(af_dir_make(in_top("checkpoint-6.damaged"), &err), err);
    CHECK_OK(af_checkpoint_replace(in_top("checkpoint-6.tmp"), in_top("checkpoint-6"), &err), err);
    check_text("checkpoint-6/weights", "new");
    check_text("checkpoint-6.damaged.1/weights", "old");
    check_text("checkpoint-6.damaged.1/kept/note", "mine");
    check_entries(3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_checkpoint_is_replaced, begin, end),
        cmocka_unit_test_setup_teardown(test_a_checkpoint_gets_another_name, begin, end),
        cmocka_unit_test_setup_teardown(test_a_name_that_is_taken_is_kept, begin, end),
        cmocka_unit_test_setup_teardown(test_a_temporary_one_is_dropped, begin, end),
        cmocka_unit_test_setup_teardown(test_a_damaged_one_is_moved_aside, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
