/* test_resident.c - memory of this process. */
#include "test.h"

#include "train/step/resident.h"

#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

enum { LARGE = 256 << 20 };

/* Python's subprocess starts programs so: getrusage gives them the peak of Python. */
static void test_the_peak_is_not_that_of_the_process_that_started_this_one(void **state)
{
    (void)state;
    char *argv[] = {"test_resident", "started", NULL};
    char *all = malloc(LARGE);
    pid_t id;
    int status = -1;
    assert_non_null(all);
    memset(all, 1, LARGE);
    assert_true(af_resident_peak() >= LARGE);
    assert_int_equal(posix_spawn(&id, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    assert_int_equal(waitpid(id, &status, 0), id);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    free(all);
    assert_true(af_resident_peak() >= LARGE);
}

int main(int argc, char **argv)
{
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_peak_is_not_that_of_the_process_that_started_this_one),
    };
    if (argc > 1)
        return af_resident_peak() == 0 || af_resident_peak() >= LARGE;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
