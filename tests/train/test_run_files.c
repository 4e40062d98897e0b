/* test_run_files.c - what killed runs leave in an output folder next to its own files. */
#include "base/file.h"
#include "test.h"
#include "train/checkpoint/run_files.h"

#include <sys/wait.h>
#include <unistd.h>

/* The number of a process that has ended. */
static long dead_process(void)
{
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return (long)child;
}

/* A run was killed while it wrote run.yaml, and the next one between removing the files of the
 * first and listing its own: what is there then must not look like the user's. */
static void test_leftovers_of_listed_files(void **state)
{
    (void)state;
    char top[] = "/tmp/afinar-files-XXXXXX", path[200];
    af_error err = {0};
    assert_non_null(mkdtemp(top));
    CHECK_OK(af_run_files_claim_start(top, &err), err);
    snprintf(path, sizeof path, "%s/.run.yaml.%ld.2.tmp", top, dead_process());
    CHECK_OK(af_file_write(path, "half", 4, &err), err);
    CHECK_OK(af_run_files_remove(top, true, &err), err);
    CHECK_OK(af_run_files_check(top, false, &err), err);
    assert_false(af_file_exists(path));
    CHECK_OK(af_path_remove(top, &err), err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_leftovers_of_listed_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
