/* test_names.c - datasets by their names: dataset_info.json, mixtures, files of datasets. */
#include "data_case.h"

#include "data/store/dataset.h"

static char model[1024];

static int find_model(void **state)
{
    (void)state;
    snprintf(model, sizeof model, "%s/models/qwen2", golden_dir());
    return 0;
}

static void put_file(const data_case *c, const char *name, const char *text)
{
    case_write(c, name, text, strlen(text));
}

/* The texts of the preview, joined by "|". */
static const char *texts(const data_case *c)
{
    static char out[4000];
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < json_array_size(c->rows) && used < sizeof out; i++) {
        const json_t *row = json_array_get(c->rows, i), *pair = json_object_get(row, "chosen");
        used += (size_t)snprintf(out + used, sizeof out - used, "%s%s", i ? "|" : "",
                                 json_string_value(json_object_get(pair ? pair : row, "text")));
    }
    return out;
}

static void make_info(data_case *c)
{
    af_error err;
    CHECK_OK(af_dir_make(case_path(c, "data"), &err), err);
    put_file(
        c, "data/dataset_info.json",
        "{\"one\": {\"file_name\": \"one.json\"},\n"
        " \"two\": {\"file_name\": \"two.json\", \"formatting\": \"sharegpt\",\n"
        "  \"columns\": {\"messages\": \"talk\", \"system\": \"s\"},\n"
        "  \"tags\": {\"role_tag\": \"who\", \"content_tag\": \"what\", \"user_tag\": \"q\",\n"
        "   \"assistant_tag\": \"a\"}},\n"
        " \"half\": {\"file_name\": \"one.json\", \"columns\": {\"prompt\": \"instruction\",\n"
        "  \"response\": \"output\"}},\n"
        " \"plain\": {\"file_name\": \"plain.json\", \"columns\": {\"prompt\": \"t\"}},\n"
        " \"pairs\": {\"file_name\": \"pairs.json\", \"ranking\": true, \"formatting\": "
        "\"sharegpt\",\n  \"columns\": {\"messages\": \"conversations\", \"chosen\": \"good\", "
        "\"rejected\": \"bad\"}},\n"
        " \"tagged\": {\"file_name\": \"tagged.json\", \"formatting\": \"sharegpt\",\n"
        "  \"columns\": {\"messages\": \"messages\", \"kto_tag\": \"label\"},\n"
        "  \"tags\": {\"role_tag\": \"role\", \"content_tag\": \"content\", \"user_tag\": "
        "\"user\", \"assistant_tag\": \"assistant\"}},\n"
        " \"ranked\": {\"file_name\": \"ranked.json\", \"ranking\": true, \"columns\": "
        "{\"prompt\": \"instruction\", \"query\": \"input\", \"response\": \"output\"}},\n"
        " \"program\": {\"script_url\": \"belle\"},\n"
        " \"scope\": {\"ms_hub_url\": \"org/name\"},\n"
        " \"far\": {\"hf_hub_url\": \"org/name\"}}\n");
    put_file(c, "data/ranked.json",
             "[{\"instruction\": \"I\", \"input\": \"\", \"output\": [\"good\", \"bad\"]}]");
    put_file(c, "data/one.json", "[{\"instruction\": \"I\", \"input\": \"J\", \"output\": \"O\"}]");
    put_file(c, "data/two.json",
             "[{\"talk\": [{\"who\": \"q\", \"what\": \"Q\"}, {\"who\": \"a\", \"what\": \"A\"}], "
             "\"s\": \"S\"}]");
    put_file(c, "data/plain.json", "[{\"t\": \"plain\"}]");
    put_file(c, "data/pairs.json",
             "[{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\"}], \"good\": {\"from\": "
             "\"gpt\", \"value\": \"yes\"}, \"bad\": {\"from\": \"gpt\", \"value\": \"no\"}}]");
    put_file(c, "data/tagged.json",
             "[{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
             "\"content\": \"A\"}], \"label\": false}]");
}

#define TURN(q, a) "<|im_start|>user\n" q "<|im_end|>\n<|im_start|>assistant\n" a "<|im_end|>\n"

static void test_names_of_dataset_info(void **state)
{
    static const struct {
        const char *keys, *texts, *why;
    } cases[] = {
        {"dataset: one", TURN("I\nJ", "O"), NULL},
        {"dataset: one , two",
         TURN("I\nJ", "O") "|<|im_start|>system\nS<|im_end|>\n" TURN("Q", "A"), NULL},
        {"dataset: [half, one]", TURN("I", "O") "|" TURN("I\nJ", "O"), NULL},
        {"dataset: one\ntemplate: qwen3_nothink", TURN("I\nJ", "O"), NULL},
        {"dataset: plain", "plain", NULL},
        {"dataset: pairs", TURN("Q", "yes"), NULL},
        {"dataset: tagged", TURN("Q", "A"), NULL},
        {"dataset: ranked\nrl: dpo", TURN("I", "good"), NULL},
        {"dataset: one\nmix_strategy: interleave_under\ninterleave_probs: 0.5,0.5",
         TURN("I\nJ", "O"), NULL}, /* one dataset does not take turns */
        {"dataset: program", NULL, "dataset 'program' has a script_url, a program"},
        {"dataset: scope", NULL, "dataset 'scope' is of a hub that is not supported"},
        {"dataset: three", NULL, "run.yaml:4: dataset 'three' is neither a file here nor in"},
        {"dataset: far", NULL, "no dataset 'org/name': there is no such folder or file"},
    };
    data_case c;
    (void)state;
    case_open(&c);
    make_info(&c);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char more[1600];
        snprintf(more, sizeof more, "output_dir: out\ndataset_dir: %s\n%s\n", case_path(&c, "data"),
                 cases[i].keys);
        case_run(&c, model, more);
        if (!case_refused(&c, case_preview(&c), cases[i].why))
            assert_string_equal(texts(&c), cases[i].texts);
    }
    case_close(&c);
}

/* Evaluation data by name; it is read whole, whatever mixes the training data. */
static void test_names_of_test_datasets(void **state)
{
    static const struct {
        const char *keys;
        int records, test_records;
    } cases[] = {
        {"dataset: one\ntest_datasets: two", 1, 1},
        {"dataset: one\neval_dataset: one, two", 1, 2},
        {"dataset: one, two\neval_dataset: [half]\nmix_strategy: interleave_under\n"
         "interleave_probs: 0.5,0.5",
         2, 1},
    };
    data_case c;
    (void)state;
    case_open(&c);
    make_info(&c);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char more[1600];
        snprintf(more, sizeof more, "output_dir: out\ndataset_dir: %s\n%s\n", case_path(&c, "data"),
                 cases[i].keys);
        case_run(&c, model, more);
        CHECK_OK(case_check(&c), c.err);
        assert_int_equal(c.report.records, cases[i].records);
        assert_int_equal(c.report.test_records, cases[i].test_records);
    }
    case_close(&c);
}

/* stage: pt: the texts of a dataset follow each other in whole rows, each ended by eos. */
static void test_texts_of_pretraining_are_joined(void **state)
{
    data_case c;
    int64_t whole = 0;
    (void)state;
    case_open(&c);
    make_info(&c);
    put_file(&c, "data/plain.json",
             "[{\"t\": \"one two three four five\"}, {\"t\": \"six seven\"}, {\"t\": \"eight\"}]");
    char dir[1100];
    snprintf(dir, sizeof dir, "%s", case_path(&c, "data"));
    for (int i = 0; i < 3; i++) {
        const af_yaml list = {.kind = AF_YAML_SCALAR, .text = "plain", .line = 1};
        const af_data_opts o = {.datasets = &list,
                                .dataset_dir = dir,
                                .run_path = "run.yaml",
                                .model = model,
                                .pretraining = true,
                                .join_texts = i > 0,
                                .sequence_len = i == 1 ? 8 : 4096};
        af_token_store s;
        af_data_counts counts;
        af_error err = {0};
        CHECK_OK(af_dataset_open(&s, &counts, &o, &err), err);
        if (i == 0) {
            whole = (int64_t)s.tokens;
            assert_int_equal(s.records, 3);
        } else if (i == 1) { /* rows of 8, the rest is left out */
            assert_int_equal(s.records, whole / 8);
            assert_int_equal(s.tokens, whole / 8 * 8);
            assert_int_equal(s.shortest, 8);
        } else { /* less than one row */
            assert_int_equal(s.records, 1);
            assert_int_equal(s.tokens, whole);
        }
        assert_int_equal(counts.records, 3);
        af_token_store_close(&s);
    }
    assert_true(whole > 8 && whole % 8 > 0);
    case_close(&c);
}

static void test_other_names_for_datasets(void **state)
{
    static const struct {
        const char *keys, *texts, *why;
    } cases[] = {
        {"dataset_mixture: {datasets: [{id: D, config: c, split: train, columns: [text]}]}", "a|b",
         NULL},
        {"dataset_mixture: {datasets: [{id: D, config: c, split: 'train[:1]', weight: 1.0},\n"
         "  {id: D, config: c, split: test}], seed: 3}",
         "a|z", NULL},
        {"dataset_name: D\ndataset_config: c", "a|b", NULL},
        {"dataset_mixer: {D/c: 1.0}\ndataset_splits: [test_x, train]", "a|b", NULL},
        {"dataset_mixer: {D: 1.0}\ndataset_configs: [c]\ndataset_splits: [train, more]", "a|b|m",
         NULL},
        {"dataset_name: D/x.jsonl\ndataset_text_field: body", "t", NULL},
        {"dataset_name: D/c/train.jsonl\ndataset_text_field: text", "a|b", NULL},
        {"dataset_text_field: body\ndatasets: [{path: D/x.jsonl}]", NULL,
         ":3: dataset_text_field goes with 'dataset_name'"},
        {"dataset_mixer: {D: 1.0}\ndataset_configs: [c, d]", NULL,
         ":4: dataset_configs has 2 entries for 1 datasets"},
        {"pretraining_dataset: D/c/train.jsonl", "a|b", NULL},
        {"pretraining_dataset: [{path: D, name: c, split: train, text_column: text}]", "a|b", NULL},
        {"train_dataset: D/list.yaml", "a|b", NULL},
        {"pretraining_dataset: [{path: D, name: c, split: train, skip: 1}]", "b", NULL},
        {"pretraining_dataset: [{path: D, name: c, split: 'train[:1]', skip: 1}]", NULL,
         "skip of a dataset and a slice in 'split': give one"},
        {"pretraining_dataset: [{path: D, name: c, skip: x}]", NULL, "wants a number of records"},
        {"dataset_mixture: {datasets: [{id: D, nane: c}]}", NULL,
         ":3: unknown key 'nane' of dataset_mixture"},
        {"dataset_mixture: [D]", NULL, ":3: dataset_mixture must be a map"},
        {"dataset_name: D\ndatasets: [{path: D}]", NULL, "contradict each other"},
        {"train_dataset: D/far.yaml", NULL, "no dataset 'org/name': there is no such folder"},
        {"train_dataset: D/ms.yaml", NULL, "'source: ms_hub' is not supported"},
        {"train_dataset: D/odd.yaml", NULL, "odd.yaml:1: 'converter' of dataset 'x' is not supp"},
    };
    data_case c;
    af_error err;
    (void)state;
    case_open(&c);
    CHECK_OK(af_dir_make(case_path(&c, "D"), &err), err);
    CHECK_OK(af_dir_make(case_path(&c, "D/c"), &err), err);
    put_file(&c, "D/c/train.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    put_file(&c, "D/c/test.jsonl", "{\"text\": \"z\"}\n");
    put_file(&c, "D/x.jsonl", "{\"body\": \"t\", \"id\": 3}\n");
    put_file(&c, "D/c/more.jsonl", "{\"text\": \"m\"}\n");
    put_file(&c, "D/far.yaml", "x: {path: org/name, source: hf_hub}\n");
    put_file(&c, "D/ms.yaml", "x: {path: org/name, source: ms_hub}\n");
    put_file(&c, "D/odd.yaml", "x: {path: D, converter: [alpaca]}\n");
    char list[1400];
    snprintf(list, sizeof list, "x:\n  path: %s\n  source: local\n",
             case_path(&c, "D/c/train.jsonl"));
    put_file(&c, "D/list.yaml", list);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_buf b = {0};
        af_buf_str(&b, "output_dir: out\n");
        for (const char *at = cases[i].keys; *at; at++) /* D is the folder */
            if (at[0] == 'D' && strchr("/,:]}\n", at[1]))
                af_buf_str(&b, case_path(&c, "D"));
            else
                af_buf_char(&b, *at);
        af_buf_char(&b, '\n');
        case_run(&c, model, b.data);
        if (!case_refused(&c, case_preview(&c), cases[i].why))
            assert_string_equal(texts(&c), cases[i].texts);
        af_buf_clear(&b);
    }
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_dataset_info),
        cmocka_unit_test(test_names_of_test_datasets),
        cmocka_unit_test(test_texts_of_pretraining_are_joined),
        cmocka_unit_test(test_other_names_for_datasets),
    };
    return cmocka_run_group_tests(tests, find_model, NULL);
}
