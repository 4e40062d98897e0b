/* test_mix.c - mix_strategy: the records of several datasets in turn. */
#include "data_case.h"

#include "data/store/dataset.h"
#include "data/store/interleave.h"

static char model[1024];

static int find_model(void **state)
{
    (void)state;
    snprintf(model, sizeof model, "%s/models/qwen2", golden_dir());
    return 0;
}

/* What interleave_datasets of Hugging Face's datasets 5.2 gives for datasets of 3, 5 and 2 records.
 */
static void test_turns_are_those_of_hugging_face(void **state)
{
    static const int64_t records[] = {3, 5, 2};
    static const struct {
        af_mix_strategy mix;
        int count;
        int order[15];
    } cases[] = {
        {AF_MIX_INTERLEAVE_UNDER, 6, {0, 3, 8, 1, 4, 9}},
        {AF_MIX_INTERLEAVE_OVER, 15, {0, 3, 8, 1, 4, 9, 2, 5, 8, 0, 6, 9, 1, 7, 8}},
        {AF_MIX_INTERLEAVE_ONCE, 10, {0, 3, 8, 1, 4, 9, 2, 5, 6, 7}},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        const af_interleave_opts o = {.mix = cases[i].mix, .records = records, .datasets = 3};
        int64_t *order, count;
        af_error err;
        CHECK_OK(af_interleave(&order, &count, &o, &err), err);
        assert_int_equal(count, cases[i].count);
        for (int k = 0; k < cases[i].count; k++)
            assert_int_equal(order[k], cases[i].order[k]);
        free(order);
    }
}

/* Draws by chance: each dataset in its own order, from the start again where it may end; the last
 * record is the one that ends it all. */
static void test_draws_by_probability(void **state)
{
    static const int64_t records[] = {3000, 500}, first[] = {0, 3000};
    static const double probs[] = {0.7, 0.3};
    (void)state;
    for (int mix = AF_MIX_INTERLEAVE_UNDER; mix <= AF_MIX_INTERLEAVE_ONCE; mix++) {
        af_interleave_opts o = {.mix = (af_mix_strategy)mix,
                                .records = records,
                                .datasets = 2,
                                .probs = probs,
                                .seed = 7};
        int64_t *order, *again, *other, count, count_again, count_other, taken[2] = {0};
        af_error err;
        CHECK_OK(af_interleave(&order, &count, &o, &err), err);
        CHECK_OK(af_interleave(&again, &count_again, &o, &err), err);
        o.seed = 8;
        CHECK_OK(af_interleave(&other, &count_other, &o, &err), err);
        int last = 0;
        for (int64_t i = 0; i < count; i++) {
            last = order[i] >= first[1];
            assert_int_equal(order[i], first[last] + taken[last]++ % records[last]);
        }
        if (mix == AF_MIX_INTERLEAVE_UNDER) {
            assert_int_equal(last, 1); /* 500 / 0.3 comes before 3000 / 0.7 */
            assert_int_equal(taken[1], 500);
            assert_in_range(taken[0], 1167 - 200, 1167 + 200); /* 4 sigma is 198 */
        } else if (mix == AF_MIX_INTERLEAVE_OVER) {
            assert_int_equal(last, 0);
            assert_int_equal(taken[0], 3000);
            assert_in_range(taken[1], 1286 - 180, 1286 + 180);
        } else {
            assert_int_equal(taken[0], 3000);
            assert_int_equal(taken[1], 500);
        }
        assert_int_equal(count, count_again);
        assert_memory_equal(order, again, (size_t)count * sizeof *order);
        assert_true(count != count_other ||
                    memcmp(order, other, (size_t)count * sizeof *order) != 0);
        free(order);
        free(again);
        free(other);
    }
}

static void write_numbers(const data_case *c, const char *name, int from, int to)
{
    af_buf b = {0};
    for (int i = from; i < to; i++)
        af_buf_printf(&b, "{\"input_ids\": [%d, %d, 7], \"labels\": [-100, %d, 7]}\n", i, i, i);
    case_write(c, name, b.data, b.len);
    af_buf_clear(&b);
}

/* The store has the records in turn, its sums count them as often as they are there, and another
 * strategy, seed or probability is another store. */
static void test_store_of_a_mix(void **state)
{
    static const char *const even[] = {"0.5", "0.5"}, *const more[] = {"0.9", "0.1"};
    const struct {
        af_mix_strategy mix;
        const char *const *probs;
        uint64_t seed;
        const char *records; /* NULL: only another order than before */
    } cases[] = {
        {AF_MIX_CONCAT, NULL, 1, "10 11 12 20 21 "},
        {AF_MIX_INTERLEAVE_UNDER, NULL, 1, "10 20 11 21 "},
        {AF_MIX_INTERLEAVE_OVER, NULL, 1, "10 20 11 21 12 20 "},
        {AF_MIX_INTERLEAVE_ONCE, NULL, 1, "10 20 11 21 12 "},
        {AF_MIX_INTERLEAVE_OVER, even, 1, NULL},
        {AF_MIX_INTERLEAVE_OVER, more, 1, NULL},
        {AF_MIX_INTERLEAVE_OVER, more, 3, NULL},
        {AF_MIX_INTERLEAVE_UNDER, NULL, 1, "10 20 11 21 "}, /* from the cache */
    };
    data_case c;
    af_arena mem = {0};
    char yaml[2400], before[400] = "";
    (void)state;
    case_open(&c);
    write_numbers(&c, "a.jsonl", 10, 13);
    write_numbers(&c, "b.jsonl", 20, 22);
    int used = snprintf(yaml, sizeof yaml, "[{path: %s}, ", case_path(&c, "a.jsonl"));
    snprintf(yaml + used, sizeof yaml - (size_t)used, "{path: %s}]", case_path(&c, "b.jsonl"));
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_yaml *list;
        af_token_store s;
        af_data_counts counts;
        af_error err = {0};
        CHECK_OK(af_yaml_parse(&list, &mem, yaml, strlen(yaml), "run.yaml", &err), err);
        const af_data_opts o = {.datasets = list,
                                .run_path = "run.yaml",
                                .model = model,
                                .sequence_len = 64,
                                .mix = cases[i].mix,
                                .mix_probs = cases[i].probs,
                                .mix_prob_count = cases[i].probs ? 2 : 0,
                                .seed = cases[i].seed};
        CHECK_OK(af_dataset_open(&s, &counts, &o, &err), err);
        char text[400] = "";
        size_t at = 0;
        for (int64_t r = 0; r < s.records && at < sizeof text; r++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%u ",
                                   af_token_words(&s, r)[0] & ~AF_TOKEN_NO_LOSS);
        if (cases[i].records)
            assert_string_equal(text, cases[i].records);
        else
            assert_string_not_equal(text, before);
        snprintf(before, sizeof before, "%s", text);
        assert_int_equal(s.tokens, 3 * s.records);
        assert_int_equal(s.supervised, 2 * s.records);
        assert_int_equal(counts.records, 5);
        af_token_store_close(&s);
    }
    af_arena_clear(&mem);
    case_close(&c);
}

static void test_probabilities_that_are_none(void **state)
{
    static const struct {
        const char *keys, *why;
    } cases[] = {
        {"mix_strategy: interleave_under\ninterleave_probs: 0.25,0.75", NULL},
        {"mix_strategy: interleave_under\ninterleave_probs: [0, 1]", NULL},
        {"mix_strategy: interleave_over\ninterleave_probs: 0.5", "has 1 values for 2 datasets"},
        {"mix_strategy: interleave_over\ninterleave_probs: [0.5, 0.4]",
         "must add up to 1, not 0.9"},
        {"mix_strategy: interleave_over\ninterleave_probs: [0.5, x]", "between 0 and 1, not 'x'"},
        {"mix_strategy: interleave_over\ninterleave_probs: [-1, 2]", "between 0 and 1, not '-1'"},
        {"mix_strategy: interleave_once\ninterleave_probs: [0, 1]", "gives a dataset 0"},
        {"mix_strategy: interleave", "mix_strategy"},
        {"strict: true\ninterleave_probs: [0, 1]", "'interleave_probs' has no effect"},
    };
    data_case c;
    (void)state;
    case_open(&c);
    write_numbers(&c, "a.jsonl", 10, 13);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char more[2000];
        snprintf(more, sizeof more, "%s\ndatasets: [{path: %s/a.jsonl}, {path: %s/a.jsonl}]\n",
                 cases[i].keys, c.dir, c.dir);
        case_run(&c, model, more);
        case_refused(&c, case_preview(&c), cases[i].why);
    }
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns_are_those_of_hugging_face),
        cmocka_unit_test(test_draws_by_probability),
        cmocka_unit_test(test_store_of_a_mix),
        cmocka_unit_test(test_probabilities_that_are_none),
    };
    return cmocka_run_group_tests(tests, find_model, NULL);
}
