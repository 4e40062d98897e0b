/* test_picks.c - which files and which records of a dataset are taken. */
#include "data_case.h"

static char model[1024];

static int find_model(void **state)
{
    (void)state;
    snprintf(model, sizeof model, "%s/models/qwen2", golden_dir());
    return 0;
}

/* The numbers of the records that a preview shows, as "1 2 3". */
static const char *records_shown(data_case *c)
{
    static char text[400];
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < json_array_size(c->rows) && used < sizeof text; i++) {
        const json_t *t = json_object_get(json_array_get(c->rows, i), "text");
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", i ? " " : "",
                                 (int)strtol(json_string_value(t), NULL, 10));
    }
    return text;
}

static void write_numbers(const data_case *c, const char *name, int from, int to)
{
    af_buf b = {0};
    for (int i = from; i < to; i++)
        af_buf_printf(&b, "{\"text\": \"%d\"}\n", i);
    case_write(c, name, b.data, b.len);
    af_buf_clear(&b);
}

static void test_parts_of_a_split(void **state)
{
    static const struct {
        const char *entry, *records; /* NULL: refused, with the words of `why` */
        const char *why;
    } cases[] = {
        {"split: train", "0 1 2 3 4 5 6 7 8 9", NULL},
        {"split: 'train[:20%]'", "0 1", NULL},
        {"split: 'train[25%:75%]'", "2 3 4 5 6 7", NULL}, /* 2.5 and 7.5 go to the even number */
        {"split: 'train[-30%:]'", "7 8 9", NULL},
        {"split: 'train[3:5]'", "3 4", NULL},
        {"split: 'train[-2:]'", "8 9", NULL},
        {"split: 'train[8:100]'", "8 9", NULL},
        {"split: 'train[:]'\n    max_samples: 3", "0 1 2", NULL},
        {"max_samples: 2", "0 1", NULL},
        {"first_share: 0.39", "0 1 2", NULL},
        {"first_share: 1", "0 1 2 3 4 5 6 7 8 9", NULL},
        {"first_share: 0.5\n    split: 'train[4:]'", "4 5 6", NULL},
        {"first_share: 0.5\n    max_samples: 2", "0 1", NULL},
        {"first_share: 0.05", NULL, ":3: a share of 0.05 takes none of the 10 records"},
        {"first_share: 0", NULL, ":5: first_share of a dataset wants a share above 0, not '0'"},
        {"split: 'train[5:]'\n    max_samples: 2", "5 6", NULL},
        {"split: 'train[:2]+train[-10%:]'", "0 1 9", NULL},
        {"split: 'train[3:4] + train[:1] + train[8:9]'", "3 0 8", NULL},
        {"split: 'train[:2]+'", NULL, ":5: split 'train[:2]+' is not supported"},
        {"split: 'train[:2]+test'", NULL, ":5: 'split: test' has no effect"},
        {"split: 'train[:2]+train[4:]'\n    max_samples: 3", NULL, ":5: a sum of splits has no"},
        {"split: 'train[:2]+train[4:]'\n    first_share: 0.5", NULL, ":5: a sum of splits has no"},
        {"split: 'train[4:4]'", NULL, ":5: split takes none of the 10 records"},
        {"skip: 8", "8 9", NULL},
        {"split: train\n    skip: 10", NULL, ":6: skip takes none of the 10 records"},
        {"split: 'train[:20%'", NULL, ":5: split 'train[:20%' is not supported"},
        {"split: 'train[-9223372036854775808%:]'", NULL, "is not supported"},
        {"split: 'train[:101%]'", NULL, ":5: split 'train[:101%]' is not supported"},
        {"split: 'test[:2]'", NULL, ":5: 'split: test' has no effect"},
    };
    data_case c;
    (void)state;
    case_open(&c);
    write_numbers(&c, "data.jsonl", 0, 10);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char more[1600];
        snprintf(more, sizeof more, "datasets:\n  - path: %s\n    type: text\n    %s\n",
                 case_path(&c, "data.jsonl"), cases[i].entry);
        case_run(&c, model, more);
        if (!case_refused(&c, case_preview(&c), cases[i].why))
            assert_string_equal(records_shown(&c), cases[i].records);
    }
    case_close(&c);
}

/* As TRL's get_dataset mixes: the mixture is as large as its datasets allow. */
static void test_fractions_of_a_mixture(void **state)
{
    static const struct {
        const char *first, *second, *records, *why;
    } cases[] = {
        {"fraction: 0.5", "fraction: 0.5", "0 1 2 3 100 101 102 103", NULL},
        {"fraction: 3", "fraction: 1", "0 1 2 3 4 5 6 7 8 9 100 101 102", NULL}, /* 3.33 */
        {"fraction: 0.2", "fraction: 0.8", "0 100 101 102 103", NULL},
        {"fraction: 0.5\n    split: 'train[7:]'", "fraction: 0.5", "7 8 9 100 101 102", NULL},
        {"fraction: 0.5", "split: train", NULL, "is for all datasets or none"},
        {"fraction: 0.5\n    weight: 0.5", "fraction: 0.5", NULL, "without 'weight'"},
        {"fraction: 0.01", "fraction: 0.99", NULL, "'fraction' leaves no record of "},
    };
    data_case c;
    (void)state;
    case_open(&c);
    write_numbers(&c, "a.jsonl", 0, 10);
    write_numbers(&c, "b.jsonl", 100, 104);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char more[1600];
        snprintf(more, sizeof more,
                 "datasets:\n  - path: %s/a.jsonl\n    type: text\n    %s\n  - path: %s/b.jsonl\n"
                 "    type: text\n    %s\n",
                 c.dir, cases[i].first, c.dir, cases[i].second);
        case_run(&c, model, more);
        if (!case_refused(&c, case_preview(&c), cases[i].why))
            assert_string_equal(records_shown(&c), cases[i].records);
    }
    case_close(&c);
}

static void test_files_by_pattern_and_name(void **state)
{
    static const struct {
        const char *entry, *records, *why;
    } cases[] = {
        {"path: D/part*.jsonl", "0 1 2 3", NULL},
        {"path: D\n    data_files: part2.jsonl", "2 3", NULL},
        {"path: D\n    data_files: [part2.jsonl, part1.jsonl]", "2 3 0 1", NULL},
        {"path: D\n    data_files: ['*.jsonl']\n    split: 'train[1:3]'", "1 2", NULL},
        {"path: D\n    split: 'train[2:]'", "2 3", NULL}, /* names without a split are train */
        {"path: D\n    split: 'part2[1:]+part1'", "3 0 1", NULL},
        {"path: json\n    data_files: D/part1.jsonl", "0 1", NULL},
        {"data_files: [D/part1.jsonl]", "0 1", NULL},
        {"path: D/nothing*.jsonl", NULL, ":3: no file matches"},
        {"path: D\n    data_files: part3.jsonl", NULL, ":3: dataset"},
    };
    data_case c;
    af_error err;
    (void)state;
    case_open(&c);
    CHECK_OK(af_dir_make(case_path(&c, "D"), &err), err);
    write_numbers(&c, "D/part1.jsonl", 0, 2);
    write_numbers(&c, "D/part2.jsonl", 2, 4);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_buf b = {0};
        af_buf_str(&b, "datasets:\n  - ");
        for (const char *at = cases[i].entry; *at; at++) /* D is the folder */
            if (at[0] == 'D' && (at[1] == '/' || at[1] == '\n'))
                af_buf_str(&b, case_path(&c, "D"));
            else
                af_buf_char(&b, *at);
        af_buf_str(&b, "\n    type: text\n");
        case_run(&c, model, b.data);
        if (!case_refused(&c, case_preview(&c), cases[i].why))
            assert_string_equal(records_shown(&c), cases[i].records);
        af_buf_clear(&b);
    }
    case_close(&c);
}

/* A share and a number by chance: the same for the same seed, another for another. */
static void test_records_by_chance(void **state)
{
    data_case c;
    char first[400], more[1600];
    (void)state;
    case_open(&c);
    write_numbers(&c, "data.jsonl", 0, 10);
    for (int seed = 1; seed < 4; seed++) {
        snprintf(more, sizeof more, "datasets: [{path: %s, type: text, weight: 0.5, seed: %d}]\n",
                 case_path(&c, "data.jsonl"), seed == 2 ? 1 : seed);
        case_run(&c, model, more);
        CHECK_OK(case_preview(&c), c.err);
        assert_int_equal(json_array_size(c.rows), 5);
        if (seed == 1)
            snprintf(first, sizeof first, "%s", records_shown(&c));
        assert_int_equal(strcmp(first, records_shown(&c)) == 0, seed < 3);
    }
    snprintf(more, sizeof more, "datasets: [{path: %s, type: text, num_samples: 25}]\n",
             case_path(&c, "data.jsonl"));
    case_run(&c, model, more);
    CHECK_OK(case_preview(&c), c.err);
    assert_int_equal(json_array_size(c.rows), 25);
    int seen[10] = {0};
    for (size_t i = 0; i < 25; i++)
        seen[(int)strtol(json_string_value(json_object_get(json_array_get(c.rows, i), "text")),
                         NULL, 10)]++;
    for (int i = 0; i < 10; i++)
        assert_true(seen[i] == 2 || seen[i] == 3);
    case_close(&c);
}

/* The shards of a dataset have each of its records once. */
static void test_shards(void **state)
{
    data_case c;
    char more[1600];
    int seen[10] = {0};
    (void)state;
    case_open(&c);
    write_numbers(&c, "data.jsonl", 0, 10);
    for (int i = 0; i < 3; i++) {
        snprintf(more, sizeof more,
                 "datasets: [{path: %s, type: text, shards: 3, shards_idx: %d}]\n",
                 case_path(&c, "data.jsonl"), i);
        case_run(&c, model, more);
        CHECK_OK(case_preview(&c), c.err);
        assert_int_equal(json_array_size(c.rows), i == 0 ? 4 : 3);
        assert_string_not_equal(records_shown(&c), i == 0 ? "0 1 2 3" : "");
        for (size_t k = 0; k < json_array_size(c.rows); k++)
            seen[(int)strtol(json_string_value(json_object_get(json_array_get(c.rows, k), "text")),
                             NULL, 10)]++;
    }
    for (int i = 0; i < 10; i++)
        assert_int_equal(seen[i], 1);
    static const char *const wrong[][2] = {
        {"shards: 3, shards_idx: 3", "run.yaml:2: 'shards_idx' must be below 'shards'"},
        {"shards: 3, weight: 0.5", "run.yaml:2: 'shards' goes without 'num_samples', 'weight' and"},
        {"shards: 11, shards_idx: 10", "run.yaml:2: 'shards' leaves none of the 10 records of"}};
    for (size_t i = 0; i < AF_LEN(wrong); i++) {
        snprintf(more, sizeof more, "datasets: [{path: %s, type: text, %s}]\n",
                 case_path(&c, "data.jsonl"), wrong[i][0]);
        case_run(&c, model, more);
        assert_true(case_refused(&c, case_preview(&c), wrong[i][1]));
    }
    case_close(&c);
}

/* `completion` cuts a long text into rows; `text` cuts it off. */
static void test_long_completions_are_cut_into_rows(void **state)
{
    static const char record[] =
        "{\"text\": \"one two three four five six seven eight nine ten\"}\n";
    data_case c;
    af_arena mem = {0};
    (void)state;
    case_open(&c);
    case_write(&c, "data.jsonl", record, strlen(record));
    int64_t whole = 0;
    for (int i = 0; i < 3; i++) {
        char yaml[1200];
        af_token_store s;
        af_data_counts counts;
        af_error err = {0};
        snprintf(yaml, sizeof yaml, "- {path: %s, type: %s}", case_path(&c, "data.jsonl"),
                 i == 2 ? "text" : "completion");
        const af_data_opts o = case_training(model, &mem, yaml, i == 0 ? 4096 : 8);
        CHECK_OK(af_dataset_open(&s, &counts, &o, &err), err);
        if (i == 0)
            whole = s.tokens;
        if (i == 1) {
            assert_int_equal(s.records, (whole + 7) / 8 - (whole % 8 == 1));
            assert_int_equal(s.tokens, whole - (whole % 8 == 1));
            assert_int_equal(counts.truncated, 0);
        }
        if (i == 2)
            assert_int_equal(s.tokens, 8);
        af_token_store_close(&s);
    }
    assert_true(whole > 16);
    af_arena_clear(&mem);
    case_close(&c);
}

/* Records that are too short, or came before. */
static void test_short_and_repeated_records(void **state)
{
    static const char records[] = "{\"text\": \"one two three\"}\n{\"text\": \"x\"}\n"
                                  "{\"text\": \"one two three\"}\n{\"text\": \"y\"}\n";
    data_case c;
    af_arena mem = {0};
    int64_t longest = 0;
    (void)state;
    case_open(&c);
    case_write(&c, "data.jsonl", records, strlen(records));
    for (int i = 0; i < 4; i++) {
        char yaml[1200];
        af_token_store s;
        af_data_counts counts;
        af_error err = {0};
        snprintf(yaml, sizeof yaml, "- {path: %s, type: text}", case_path(&c, "data.jsonl"));
        af_data_opts o = case_training(model, &mem, yaml, 64);
        o.min_sample_len = i & 1 ? longest : 0;
        o.deduplicate = i & 2;
        CHECK_OK(af_dataset_open(&s, &counts, &o, &err), err);
        assert_int_equal(s.records, (i & 1 ? 0 : 2) + (i & 2 ? 1 : 2));
        assert_int_equal(counts.left_out, 4 - s.records);
        longest = s.longest;
        af_token_store_close(&s);
    }
    af_arena_clear(&mem);
    case_close(&c);
}

/* Next to files of other names, one whose name ends with a split is not trained. */
static void test_names_that_end_with_a_split(void **state)
{
    static const char *const held_out[] = {"all_test.jsonl", "all.validation.jsonl",
                                           "my-val.jsonl"};
    static const char *const trained[] = {"contest.jsonl", "all_tests.jsonl", "revival.jsonl"};
    (void)state;
    for (size_t i = 0; i < AF_LEN(held_out) + AF_LEN(trained); i++) {
        const bool out = i < AF_LEN(held_out);
        data_case c;
        char name[100], more[400];
        af_error err;
        case_open(&c);
        CHECK_OK(af_dir_make(case_path(&c, "D"), &err), err);
        write_numbers(&c, "D/all.jsonl", 0, 2);
        snprintf(name, sizeof name, "D/%s", out ? held_out[i] : trained[i - AF_LEN(held_out)]);
        write_numbers(&c, name, 5, 7);
        snprintf(more, sizeof more, "datasets: [{path: %s/D, type: text}]\n", c.dir);
        case_run(&c, model, more);
        CHECK_OK(case_preview(&c), c.err);
        const char *shown = records_shown(&c);
        CHECK_MSG((strchr(shown, '5') == NULL) == out, "%s: %s", name, shown);
        assert_int_equal(strstr(c.log.data, "1 of 2 files belong to splits") != NULL, out);
        case_close(&c);
    }
}

/* The same tokens with other labels are another record. */
static void test_records_that_differ_in_labels(void **state)
{
#define SEGMENTS(label)                                                                            \
    "{\"segments\": [{\"label\": " label                                                           \
    ", \"text\": \"one\"}, {\"label\": true, \"text\": \" two\"}]}\n"
    static const char records[] = SEGMENTS("true") SEGMENTS("false") SEGMENTS("true");
#undef SEGMENTS
    data_case c;
    char more[600];
    (void)state;
    case_open(&c);
    case_write(&c, "d.jsonl", records, strlen(records));
    snprintf(more, sizeof more,
             "dataset_exact_deduplication: true\ndatasets: [{path: %s/d.jsonl}]\n", c.dir);
    case_run(&c, model, more);
    CHECK_OK(case_check(&c), c.err);
    assert_int_equal(c.report.records, 2);
    case_close(&c);
}

/* So are the same tokens with another label, margin or class. */
static void test_records_that_differ_in_more(void **state)
{
    static const struct {
        const char *keys, *record, *value[3];
    } cases[] = {
        {"rl: kto\n",
         "{\"prompt\": \"a\", \"completion\": \" b\", \"label\": %s}\n",
         {"true", "false", "true"}},
        {"rl: reward\n",
         "{\"prompt\": \"a\", \"chosen\": \" b\", \"rejected\": \" c\", \"margin\": %s}\n",
         {"1", "2.5", "1"}},
        {"task_type: SEQ_CLS\n", "{\"text\": \"a b\", \"label\": %s}\n", {"0", "1", "0"}},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        data_case c;
        char more[600];
        af_buf b = {0};
        case_open(&c);
        for (int k = 0; k < 3; k++) {
            const char *part = strstr(cases[i].record, "%s");
            af_buf_add(&b, cases[i].record, (uint64_t)(part - cases[i].record));
            af_buf_printf(&b, "%s%s", cases[i].value[k], part + 2);
        }
        case_write(&c, "d.jsonl", b.data, b.len);
        snprintf(more, sizeof more,
                 "%sdataset_exact_deduplication: true\ndatasets: [{path: %s/d.jsonl}]\n",
                 cases[i].keys, c.dir);
        case_run(&c, model, more);
        CHECK_OK(case_check(&c), c.err);
        CHECK_MSG(c.report.records == 2, "%s: %d records", cases[i].keys, (int)c.report.records);
        af_buf_clear(&b);
        case_close(&c);
    }
}

/* `data check` says how many records the settings leave out. */
static void test_left_out_records_are_counted(void **state)
{
    static const char records[] = "{\"text\": \"one\"}\n{\"text\": \"one\"}\n{\"text\": \"one two "
                                  "three four five six\"}\n{\"text\": \"one\"}\n";
    static const struct {
        const char *keys;
        int kept;
    } cases[] = {{"", 4}, {"dataset_exact_deduplication: true\n", 2}, {"min_sample_len: 6\n", 1}};
    data_case c;
    char more[600];
    (void)state;
    case_open(&c);
    case_write(&c, "d.jsonl", records, strlen(records));
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        snprintf(more, sizeof more, "%sdatasets: [{path: %s/d.jsonl}]\n", cases[i].keys, c.dir);
        case_run(&c, model, more);
        CHECK_OK(case_check(&c), c.err);
        assert_int_equal(c.report.records, cases[i].kept);
        assert_int_equal(c.report.left_out, 4 - cases[i].kept);
    }
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_of_a_split),
        cmocka_unit_test(test_fractions_of_a_mixture),
        cmocka_unit_test(test_files_by_pattern_and_name),
        cmocka_unit_test(test_names_that_end_with_a_split),
        cmocka_unit_test(test_records_by_chance),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_short_and_repeated_records),
        cmocka_unit_test(test_records_that_differ_in_labels),
        cmocka_unit_test(test_records_that_differ_in_more),
        cmocka_unit_test(test_long_completions_are_cut_into_rows),
        cmocka_unit_test(test_left_out_records_are_counted),
    };
    return cmocka_run_group_tests(tests, find_model, NULL);
}
