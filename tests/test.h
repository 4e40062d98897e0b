/* test.h - what every cmocka program starts from. */
#ifndef AF_TEST_H
#define AF_TEST_H

#include <setjmp.h>
#include <stdarg.h>
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

/* tests/golden in the source tree. */
static inline const char *golden_dir(void)
{
    const char *d = getenv("AF_GOLDEN");
    return d ? d : "tests/golden";
}

/* The folder of third-party texts beside the checkout, or NULL when it is absent: then say so and
 * skip(). */
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
