/* test.h - what every cmocka program starts from. */
#ifndef AF_TEST_H
#define AF_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stops the test with the library's message when a call failed. */
#define CHECK_OK(call, err)                                                                        \
    do {                                                                                           \
        if ((call) != 0)                                                                           \
            fail_msg("%s: %s", #call, (err).msg);                                                  \
    } while (0)
#define CHECK_MSG(ok, ...)                                                                         \
    do {                                                                                           \
        if (!(ok))                                                                                 \
            fail_msg(__VA_ARGS__);                                                                 \
    } while (0)

/* A program that skipped a case says so to ctest (SKIP_RETURN_CODE in cmake/tests.cmake) instead of
 * counting as passed; tools/skipped-tests prints which cases and why. A failure comes first. */
static size_t test_skips;
static inline int test_result(int failed) { return failed ? 1 : test_skips ? 77 : 0; }
/* Skips the running test. tools/run-tests counts skipped tests by their reason. */
#undef skip
#define skip_because(reason)                                                                       \
    (test_skips++, print_message("SKIP: %s\n", reason), _skip(__FILE__, __LINE__))
#undef cmocka_run_group_tests
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    test_result(                                                                                   \
        _cmocka_run_group_tests(#tests, tests, sizeof(tests) / sizeof(tests)[0], setup, teardown))

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { test_sanitized = 1 };
#else
enum { test_sanitized = 0 };
#endif

/* Programs run 3 to 5 times slower under a sanitizer. There a test of many combinations takes every
 * third: a memory error depends on a shape or a kind, not on their pair, and the release build
 * checks the values of all of them. `i` counts the combinations. */
static inline bool test_takes(size_t i) { return !test_sanitized || i % 3 == 0; }
/* Every sixth, of hundreds. */
static inline bool test_takes_few(size_t i) { return !test_sanitized || i % 6 == 0; }

/* The device of whole runs: AF_TEST_DEVICE=cuda runs them on a GPU. */
static inline const char *test_device(void)
{
    const char *d = getenv("AF_TEST_DEVICE");
    return d ? d : "cpu";
}

/* tests/golden in the source tree. */
static inline const char *golden_dir(void)
{
    const char *d = getenv("AF_GOLDEN");
    return d ? d : "tests/golden";
}

/* The folder of third-party texts next to the checkout, or NULL when it is absent: then
 * skip_because() of it. */
static inline const char *shared_dir(void)
{
    const char *d = getenv("AF_SHARED");
    d = d ? d : "../shared";
    char probe[4096];
    snprintf(probe, sizeof probe, "%s/tokenizers", d);
    FILE *f = fopen(probe, "r");
    if (!f)
        return NULL;
    fclose(f);
    return d;
}
#endif
