/* A mapped file that becomes shorter while it is in use: the handler is called with its name, on
 * another thread, and other faults end the process as before. */
#define _GNU_SOURCE
#include "afinar/output.h"
#include "base/file.h"
#include "base/map_watch.h"
#include "test.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 40, HANDLED = 17 }; /* larger than the buffer of an output file */

static char dir[] = "/tmp/afinar-map-XXXXXX", path[64], other[64];

static void on_lost(const char *file, const af_error *why)
{
    const bool right = strcmp(file, path) == 0 && strstr(why->msg, path) &&
                       strstr(why->msg, "became shorter") && why->code == AF_EIO;
    af_output_abort();
    _exit(right && !af_file_exists(other) ? HANDLED : 1);
}

static void make_file(const char *name, size_t size)
{
    char *text = calloc(1, size);
    af_error err = {0};
    assert_non_null(text);
    CHECK_OK(af_file_write(name, text, size, &err), err);
    free(text);
}

static int in_child(void (*body)(void))
{
    int how;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (af_output_on_lost_file(on_lost, NULL) != AF_OK)
            _exit(2);
        body();
        _exit(3);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how);
}

static void read_lost(void)
{
    af_map m, more[40];
    af_out *o;
    const long page = sysconf(_SC_PAGESIZE);
    for (int i = 0; i < 40; i++) /* slots are used again */
        if (af_map_open(&more[i], other, NULL) != AF_OK)
            _exit(4);
    for (int i = 0; i < 40; i += 2)
        af_map_close(&more[i]);
    if (af_map_open(&m, path, NULL) != AF_OK || unlink(other) != 0 ||
        af_out_open(&o, other, NULL) != AF_OK || truncate(path, page) != 0)
        _exit(5);
    volatile const uint8_t *p = m.data;
    if (p[0] != 0) /* still there */
        _exit(6);
    (void)p[2 * page];
}

/* The kernel reads from the map: an error, not a signal. */
static void write_lost(void)
{
    af_map m;
    af_error err = {0};
    if (af_map_open(&m, path, NULL) != AF_OK || truncate(path, 0) != 0)
        _exit(4);
    const af_status st = af_file_write(other, m.data, m.size, &err);
    _exit(st == AF_EIO && strstr(err.msg, path) && strstr(err.msg, "became shorter") ? 0 : 5);
}

/* Not one of our maps: the process ends by the signal. */
static void read_other(void)
{
    FILE *f = fopen(path, "r");
    volatile const uint8_t *p =
        f ? mmap(NULL, 1 << 12, PROT_READ, MAP_PRIVATE, fileno(f), 0) : MAP_FAILED;
    if (p == MAP_FAILED || truncate(path, 0) != 0)
        _exit(4);
    (void)p[0];
}

static int begin(void **state)
{
    (void)state;
    make_file(path, (size_t)(PAGES * sysconf(_SC_PAGESIZE)));
    make_file(other, 100);
    return 0;
}

static void test_reading(void **state)
{
    (void)state;
    assert_int_equal(in_child(read_lost), HANDLED);
}

static void test_writing_from_a_map(void **state)
{
    (void)state;
    assert_int_equal(in_child(write_lost), 0);
}

static void test_other_faults(void **state)
{
    (void)state;
    const int how = in_child(read_other);
    CHECK_MSG(how == -SIGBUS || how == 1, "%d", how); /* 1: a sanitizer reports it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_reading, begin),
        cmocka_unit_test_setup(test_writing_from_a_map, begin),
        cmocka_unit_test_setup(test_other_faults, begin),
    };
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/mapped", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    (void)!af_path_remove(dir, NULL);
    return rc;
}
