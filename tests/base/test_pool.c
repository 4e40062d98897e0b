/* The pool: every item runs once, whichever thread is slow; many small jobs. */
#include "base/pool.h"
#include "test.h"

#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct job {
    int hits[1000];
    int share[1000];
    int64_t least;
    _Atomic int busy[8], small;
} job;

static void mark(void *arg, int64_t from, int64_t to, int share)
{
    job *j = arg;
    for (int64_t i = from; i < to; i++) {
        j->hits[i]++;
        j->share[i] = share;
    }
}

static void test_every_item_runs_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        af_error err = {0};
        af_pool *p;
        CHECK_OK(af_pool_new(&p, threads, &err), err);
        assert_int_equal(af_pool_threads(p), threads);
        for (int round = 0; round < 400; round++) {
            const int64_t count = round % 2 ? 1000 : round / 2;
            job j = {.least = round % 7 ? 1 : round};
            af_pool_run_least(p, count, j.least, mark, &j);
            for (int i = 0; i < 1000; i++) {
                assert_int_equal(j.hits[i], i < count);
                assert_in_range(j.share[i], 0, threads - 1);
            }
        }
        af_pool_free(p);
    }
}

/* Two calls with the same share never run at the same time, and no piece is smaller than requested
 * unless it ends a share. */
static void alone(void *arg, int64_t from, int64_t to, int share)
{
    job *j = arg;
    assert_int_equal(atomic_fetch_add(&j->busy[share], 1), 0);
    mark(arg, from, to, share);
    if (to - from < j->least)
        atomic_fetch_add(&j->small, 1);
    atomic_fetch_sub(&j->busy[share], 1);
}

static void test_a_share_is_one_thread_at_a_time(void **state)
{
    (void)state;
    af_error err = {0};
    af_pool *p;
    CHECK_OK(af_pool_new(&p, 4, &err), err);
    for (int round = 0; round < 300; round++) {
        job j = {.least = 30};
        af_pool_run_least(p, 1000, j.least, alone, &j);
        assert_in_range(j.small, 0, 4);
        for (int i = 0; i < 1000; i++)
            assert_int_equal(j.hits[i], 1);
    }
    af_pool_free(p);
}

/* The first call of the first share blocks until everything else is done: with fixed shares that
 * would never happen. */
static void stand_still(void *arg, int64_t from, int64_t to, int share)
{
    job *j = arg;
    mark(arg, from, to, share);
    if (from == 0) {
        const struct timespec nap = {.tv_nsec = 100000};
        for (int i = 0; i < 100000 && atomic_load(&j->small) < 999 - (int)to; i++)
            nanosleep(&nap, NULL);
        j->least = atomic_load(&j->small);
    } else {
        atomic_fetch_add(&j->small, (int)(to - from));
    }
}

static void test_the_rest_of_a_slow_share_is_taken_by_others(void **state)
{
    (void)state;
    af_error err = {0};
    af_pool *p;
    CHECK_OK(af_pool_new(&p, 3, &err), err);
    job j = {0};
    af_pool_run(p, 999, stand_still, &j);
    assert_true(j.least > 700); /* a third is its share, half of that its first piece */
    for (int i = 0; i < 1000; i++)
        assert_int_equal(j.hits[i], i < 999);
    af_pool_free(p);
}

static void test_no_pool_runs_in_the_caller(void **state)
{
    (void)state;
    job j = {0};
    af_pool_run(NULL, 10, mark, &j);
    assert_int_equal(j.hits[9], 1);
    assert_int_equal(j.hits[10], 0);
    assert_int_equal(af_pool_threads(NULL), 1);
    af_pool_free(NULL);
    assert_true(af_cpu_count() >= 1);
}

/* In a child whose address space is too small for so many stacks. */
static int ask_too_much(void)
{
    enum { MANY = 4000 };
    af_pool *pool = NULL;
    af_error err = {0};
    int given = 0, of = 0;
    const struct rlimit room = {UINT64_C(1) << 30, UINT64_C(1) << 30};
    if (setrlimit(RLIMIT_AS, &room) != 0)
        return 1;
    if (af_pool_new(&pool, MANY, &err) != AF_EIO ||
        sscanf(err.msg, "the system gave %d of %d threads", &given, &of) != 2)
        return 2;
    return of == MANY && given > 0 && given < MANY ? 0 : 3;
}

static void test_threads_that_cannot_start_are_counted(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_because("sanitizers need more memory than the limit");
#endif
    int status = -1;
    const pid_t child = fork();
    if (child == 0)
        _exit(ask_too_much());
    assert_int_equal(waitpid(child, &status, 0), child);
    CHECK_MSG(status == 0, "the child ended with %x", status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_item_runs_once),
        cmocka_unit_test(test_a_share_is_one_thread_at_a_time),
        cmocka_unit_test(test_the_rest_of_a_slow_share_is_taken_by_others),
        cmocka_unit_test(test_no_pool_runs_in_the_caller),
        cmocka_unit_test(test_threads_that_cannot_start_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
