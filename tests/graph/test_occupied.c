/* test_occupied.c - the lowest gap of an arena: next to a look at every entry, and its time. */
#include "test.h"

#include "base/rng.h"
#include "graph/occupied.h"

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

typedef struct entry {
    int first, last;
    uint64_t from, to;
} entry;

static int by_from(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

static uint64_t plain_gap(entry *e, int n, int first, int last, uint64_t size)
{
    uint64_t at = 0;
    qsort(e, (size_t)n, sizeof *e, by_from);
    for (int i = 0; i < n && e[i].from < at + size; i++)
        if (e[i].first <= last && e[i].last >= first && e[i].to > at)
            at = e[i].to;
    return at;
}

static void test_the_gap_is_that_of_a_look_at_every_entry(void **state)
{
    (void)state;
    enum { ENTRIES = 60, CASES = 500 };
    for (uint64_t seed = 0; seed < CASES; seed++) {
        uint64_t drawn = 0;
        entry e[ENTRIES];
        af_occupied o;
        const int positions = 1 + (int)af_rng_below(seed, 1, drawn++, 70);
        af_occupied_init(&o, positions);
        for (int i = 0; i < ENTRIES; i++) {
            const int a = (int)af_rng_below(seed, 1, drawn++, (uint64_t)positions);
            const int life = (int)af_rng_below(seed, 1, drawn++, i % 7 ? 6 : 70);
            const int b = AF_MIN(a + life, positions - 1);
            const uint64_t size = 1 + af_rng_below(seed, 1, drawn++, 9);
            const bool fixed = i < 5; /* anywhere, over others too */
            const uint64_t at =
                fixed ? af_rng_below(seed, 1, drawn++, 40) : af_occupied_gap(&o, a, b, size);
            if (!fixed)
                CHECK_MSG(at == plain_gap(e, i, a, b, size), "seed %d, entry %d", (int)seed, i);
            af_occupied_add(&o, a, b, at, at + size);
            e[i] = (entry){a, b, at, at + size};
        }
        assert_false(o.failed);
        af_occupied_clear(&o);
    }
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Distillation in many parts: each has a few values, which live while the part is computed. */
static double seconds_of_parts(int parts)
{
    const double start = seconds();
    af_occupied o;
    af_occupied_init(&o, 4 * parts);
    for (int i = 0; i < 5 * parts; i++) {
        const int first = i < parts ? 4 * i : (i - parts) % (4 * parts), life = i < parts ? 3 : 1;
        const int last = i % 1000 ? AF_MIN(first + life, 4 * parts - 1) : 4 * parts - 1;
        const uint64_t size = i < parts ? 4096 : 256;
        const uint64_t at = af_occupied_gap(&o, first, last, size);
        af_occupied_add(&o, first, last, at, at + size);
    }
    assert_false(o.failed);
    af_occupied_clear(&o);
    return seconds() - start;
}

static void test_time_is_not_the_square_of_the_entries(void **state)
{
    (void)state;
    const double few = seconds_of_parts(1000), many = seconds_of_parts(32000);
    printf("%.1f ms, %.1f ms\n", few * 1e3, many * 1e3);
    CHECK_MSG(many < 32 * 8 * few, "32 times the entries take %.0f times as long", many / few);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_gap_is_that_of_a_look_at_every_entry),
        cmocka_unit_test(test_time_is_not_the_square_of_the_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
