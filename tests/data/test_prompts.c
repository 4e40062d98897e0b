/* test_prompts.c - records in the prompts and templates of Axolotl and LLaMA-Factory give the ids
 * and labels that those programs make. */
#include "data_case.h"

#include "data/store/dataset.h"
#include "train/run/run_data_opts.h"

/* A folder with a tokenizer: one of the goldens, by its name. */
static const char *model_of(data_case *c, const char *name)
{
    static char path[1200];
    static const char config[] = "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}";
    char from[1024], *text;
    uint64_t size;
    af_error err;
    if (strcmp(name, "qwen2") == 0) {
        snprintf(path, sizeof path, "%s/models/qwen2", golden_dir());
        return path;
    }
    snprintf(from, sizeof from, "%s/tokenizer/%s.json", golden_dir(), name);
    CHECK_OK(af_file_read(&text, &size, from, 16 << 20, &err), err);
    snprintf(path, sizeof path, "%s/model", c->dir);
    if (!af_dir_exists(path))
        CHECK_OK(af_dir_make(path, &err), err);
    case_write(c, "model/tokenizer.json", text, size);
    case_write(c, "model/tokenizer_config.json", config, strlen(config));
    free(text);
    return path;
}

static void write_records(const data_case *c, const json_t *records)
{
    af_buf b = {0};
    for (size_t i = 0; i < json_array_size(records); i++) {
        char *line = json_dumps(json_array_get(records, i), JSON_COMPACT);
        af_buf_printf(&b, "%s\n", line);
        free(line);
    }
    case_write(c, "data.jsonl", b.data, b.len);
    af_buf_clear(&b);
}

/* The run file of a golden row: JSON is YAML. */
static void write_run(data_case *c, const json_t *row, const char *model)
{
    json_t *entry = json_deep_copy(json_object_get(row, "entry"));
    const char *key;
    json_t *value;
    af_buf b = {0};
    json_object_set_new(entry, "path", json_string(case_path(c, "data.jsonl")));
    char *text = json_dumps(entry, JSON_COMPACT);
    af_buf_printf(&b, "output_dir: out\ndatasets: [%s]\nsequence_len: 4096\n", text);
    free(text);
    json_object_foreach(json_object_get(row, "run"), key, value)
    {
        text = json_dumps(value, JSON_ENCODE_ANY);
        if (strcmp(key, "cutoff_len") == 0) {
            b.len = (uint64_t)(strstr(b.data, "sequence_len") - b.data);
            af_buf_printf(&b, "sequence_len: %s\n", text);
        } else {
            af_buf_printf(&b, "%s: %s\n", key, text);
        }
        free(text);
    }
    case_run(c, model, b.data);
    af_buf_clear(&b);
    json_decref(entry);
}

static bool learns(const json_t *row)
{
    const json_t *labels = json_object_get(row, "labels");
    for (size_t i = 1; i < json_array_size(labels); i++)
        if (json_integer_value(json_array_get(labels, i)) != -100)
            return true;
    return false;
}

static void compare(const af_token_store *s, int64_t r, const json_t *want, const char *what,
                    size_t number)
{
    const json_t *ids = json_object_get(want, "ids"), *labels = json_object_get(want, "labels");
    const uint32_t *w = af_token_words(s, r);
    if (s->index[r].count != json_array_size(ids))
        fail_msg("%s, record %zu: %u tokens, not %zu", what, number + 1, s->index[r].count,
                 json_array_size(ids));
    for (uint32_t i = 0; i < s->index[r].count; i++) {
        const bool loss = json_integer_value(json_array_get(labels, i)) != -100;
        const int32_t id = (int32_t)(w[i] & ~AF_TOKEN_NO_LOSS);
        if (id != json_integer_value(json_array_get(ids, i)) || !(w[i] & AF_TOKEN_NO_LOSS) != loss)
            fail_msg("%s, record %zu, token %u: %d%s, not %lld%s", what, number + 1, i, id,
                     w[i] & AF_TOKEN_NO_LOSS ? " without loss" : "",
                     json_integer_value(json_array_get(ids, i)), loss ? "" : " without loss");
    }
}

/* `what` is the row's own words about itself. */
static void check_row(data_case *c, const json_t *row, const char *what)
{
    af_run_config run = {0};
    af_token_store store = {0};
    af_data_counts counts;
    af_error err = {0};
    const char *model = model_of(c, json_string_value(json_object_get(row, "model")));
    const json_t *rows = json_object_get(row, "rows");
    write_records(c, json_object_get(row, "records"));
    write_run(c, row, model);
    CHECK_OK(af_run_config_read(&run, case_path(c, "run.yaml"), NULL, 0, &err), err);
    const af_data_opts o = af_run_data_opts(&run, model);
    if (af_dataset_open(&store, &counts, &o, &err) != AF_OK)
        fail_msg("%s: %s", what, err.msg);
    int64_t r = 0;
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (learns(json_array_get(rows, i))) {
            assert_true(r < store.records);
            compare(&store, r++, json_array_get(rows, i), what, i);
        }
    assert_int_equal(store.records, r);
    af_token_store_close(&store);
    af_run_config_clear(&run);
}

static void check_file(const char *name)
{
    data_case c;
    char path[1024];
    case_open(&c);
    snprintf(path, sizeof path, "%s/prompts/%s.jsonl", golden_dir(), name);
    json_t *rows = case_lines(path);
    assert_true(json_array_size(rows) > 50);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        char what[600], *entry = json_dumps(json_object_get(row, "entry"), JSON_COMPACT),
                        *run = json_dumps(json_object_get(row, "run"), JSON_COMPACT);
        snprintf(what, sizeof what, "%s, %.200s %.200s",
                 json_string_value(json_object_get(row, "model")), entry, run);
        check_row(&c, row, what);
        free(entry);
        free(run);
    }
    json_decref(rows);
    case_close(&c);
}

static void test_prompts_are_those_of_axolotl(void **state)
{
    (void)state;
    check_file("axolotl");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts_are_those_of_axolotl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
