/* The pool: every item once, shares fixed, many small jobs. */
#include "base/pool.h"
#include "test.h"

typedef struct job {
    int hits[1000];
    int share[1000];
} job;

static void mark(void *arg, int64_t from, int64_t to, int share)
{
    job *j = arg;
    for (int64_t i = from; i < to; i++) {
        j->hits[i]++;
        j->share[i] = share;
    }
}

static void test_every_item_runs_once_in_fixed_shares(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        af_error err = {0};
        af_pool *p;
        CHECK_OK(af_pool_new(&p, threads, &err), err);
        assert_int_equal(af_pool_threads(p), threads);
        job first = {0};
        af_pool_run(p, 1000, mark, &first);
        for (int round = 0; round < 200; round++) {
            const int64_t count = round % 2 ? 1000 : round;
            job j = {0};
            af_pool_run(p, count, mark, &j);
            for (int i = 0; i < 1000; i++)
                assert_int_equal(j.hits[i], i < count);
            if (count == 1000)
                assert_memory_equal(j.share, first.share, sizeof j.share);
        }
        af_pool_free(p);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_item_runs_once_in_fixed_shares),
        cmocka_unit_test(test_no_pool_runs_in_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
