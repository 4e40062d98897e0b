/* test_prompts.c - records in the prompts and templates of Axolotl and LLaMA-Factory give the ids
 * and labels that those programs make. */
#include "data_case.h"

#include "data/store/dataset_reader.h"
#include "format/chat/chat_template.h"
#include "format/chat/named_template.h"
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
    const json_t *run = json_object_get(row, "run"), *length = json_object_get(run, "cutoff_len");
    af_buf_printf(&b, "output_dir: out\ndatasets: [%s]\n%s", text,
                  length ? "" : "sequence_len: 4096\n");
    free(text);
    json_object_foreach((json_t *)run, key, value)
    {
        text = json_dumps(value, JSON_ENCODE_ANY);
        af_buf_printf(&b, "%s: %s\n", key, text);
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

/* What the reader emits is compared with the rows of the golden, in order. */
typedef struct expected {
    const json_t *rows;
    size_t next;
    const char *what; /* the golden's own words about itself */
} expected;

static af_status compare(void *user, const af_example *e, af_error *err)
{
    expected *x = user;
    (void)err;
    while (x->next < json_array_size(x->rows) && !learns(json_array_get(x->rows, x->next)))
        x->next++;
    const json_t *want = json_array_get(x->rows, x->next++);
    const json_t *ids = json_object_get(want, "ids"), *labels = json_object_get(want, "labels");
    const af_row *row = e->row;
    if (row->count != (int64_t)json_array_size(ids))
        fail_msg("%s, record %zu: %lld tokens, not %zu", x->what, x->next, (long long)row->count,
                 json_array_size(ids));
    for (int64_t i = 0; i < row->count; i++) {
        const json_int_t id = json_integer_value(json_array_get(ids, (size_t)i));
        const json_int_t label = json_integer_value(json_array_get(labels, (size_t)i));
        /* a label that is another token (eos after an answer in the middle) is not there */
        if (row->ids[i] != id || row->labels[i] != (label == id ? label : -100))
            fail_msg("%s, record %zu, token %lld: %d with label %d, not %lld with %lld", x->what,
                     x->next, (long long)i, row->ids[i], row->labels[i], id, label);
    }
    return AF_OK;
}

static void check_row(data_case *c, const json_t *row, const char *what)
{
    af_run_config run = {0};
    af_data_pipeline pipeline;
    af_data_counts counts;
    af_error err = {0};
    expected x = {.rows = json_object_get(row, "rows"), .what = what};
    const char *model = model_of(c, json_string_value(json_object_get(row, "model")));
    write_records(c, json_object_get(row, "records"));
    write_run(c, row, model);
    CHECK_OK(af_run_config_read(&run, case_path(c, "run.yaml"), NULL, 0, &err), err);
    const af_data_opts o = af_run_data_opts(&run, model);
    CHECK_OK(af_data_pipeline_open(&pipeline, &o, &err), err);
    if (af_dataset_read(&pipeline, AF_READ_TRAIN, compare, &x, &counts, NULL, &err) != AF_OK)
        fail_msg("%s: %s", what, err.msg);
    while (x.next < json_array_size(x.rows) && !learns(json_array_get(x.rows, x.next)))
        x.next++;
    if (x.next != json_array_size(x.rows))
        fail_msg("%s: record %zu is not there", what, x.next + 1);
    af_data_pipeline_close(&pipeline);
    af_run_config_clear(&run);
}

static void check_file(const char *name, size_t least)
{
    data_case c;
    char path[1024];
    case_open(&c);
    snprintf(path, sizeof path, "%s/prompts/%s.jsonl.gz", golden_dir(), name);
    json_t *rows = case_lines(path);
    assert_true(json_array_size(rows) >= least);
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
    check_file("axolotl", 50);
}

static void test_templates_are_those_of_llama_factory(void **state)
{
    (void)state;
    check_file("llamafactory", 50);
}

/* Questions and answers as texts, and as turns where there is a chat template. */
static void test_prompts_are_those_of_automodel(void **state)
{
    (void)state;
    check_file("automodel", 7);
}

static const char *role_text(const json_t *row, const af_template *t, char **text)
{
    af_error err = {0};
    uint64_t len = 0;
    json_t *tokens = json_pack("{s:s,s:s}", "bos_token", "<s>", "eos_token", "</s>");
    const af_render_opts o = {.messages = json_object_get(row, "messages"),
                              .extra = tokens,
                              .now = "2025-03-14T09:26:53"};
    *text = NULL;
    const af_status st = af_template_render(t, text, &len, &o, NULL, &err);
    json_decref(tokens);
    return st == AF_OK ? *text : NULL;
}

/* Every row of the table renders what Axolotl's template of that name does. */
static void test_named_templates_are_those_of_axolotl(void **state)
{
    char path[1024];
    int found = 0;
    (void)state;
    snprintf(path, sizeof path, "%s/prompts/chat_templates.jsonl.gz", golden_dir());
    json_t *all = case_lines(path);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *golden = json_array_get(all, i), *rows = json_object_get(golden, "rows");
        const char *name = json_string_value(json_object_get(golden, "template"));
        const af_named_template *named = af_named_template_find(name);
        af_template *t = NULL;
        af_error err = {0};
        if (!named) { /* a page of system text */
            assert_non_null(strstr(name, "command_a"));
            continue;
        }
        found++;
        CHECK_OK(af_template_parse(&t, named->jinja, strlen(named->jinja), &err), err);
        for (size_t k = 0; k < json_array_size(rows); k++) {
            const json_t *want = json_object_get(json_array_get(rows, k), "text");
            char *text;
            const char *got = role_text(json_array_get(rows, k), t, &text);
            if (!got != json_is_null(want) || (got && strcmp(got, json_string_value(want)) != 0))
                fail_msg("%s, talk %zu: '%s', not '%s'", name, k + 1, got ? got : "(refused)",
                         json_is_null(want) ? "(refused)" : json_string_value(want));
            free(text);
        }
        af_template_close(t);
    }
    assert_int_equal(found, 33);
    json_decref(all);
}

static af_status count_supervised(void *user, const af_example *e, af_error *err)
{
    (void)err;
    for (int64_t i = 0; i < e->row->count; i++)
        *(int64_t *)user += e->row->labels[i] != -100;
    return AF_OK;
}

/* A model that has none of their marks can be trained with each: the marks are text then. */
static void test_every_named_template_finds_the_answers(void **state)
{
    static const char talk[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"one\"}, {\"role\": \"assistant\", "
        "\"content\": \"two\"}, {\"role\": \"user\", \"content\": \"three\"}, {\"role\": "
        "\"assistant\", \"content\": \"four\"}]}\n";
    data_case c;
    const af_named_template *t;
    (void)state;
    case_open(&c);
    const char *model = model_of(&c, "bytes");
    case_write(&c, "data.jsonl", talk, strlen(talk));
    for (int i = 0; (t = af_named_template_at(i)); i++) {
        af_run_config run = {0};
        af_data_pipeline pipeline;
        af_data_counts counts;
        af_error err = {0};
        char more[1600];
        int64_t supervised = 0;
        snprintf(more, sizeof more,
                 "output_dir: out\nchat_template: %.*s\ndatasets: [{path: %s}]\n",
                 (int)strcspn(t->names, " "), t->names, case_path(&c, "data.jsonl"));
        case_run(&c, model, more);
        CHECK_OK(af_run_config_read(&run, case_path(&c, "run.yaml"), NULL, 0, &err), err);
        const af_data_opts o = af_run_data_opts(&run, model);
        CHECK_OK(af_data_pipeline_open(&pipeline, &o, &err), err);
        if (af_dataset_read(&pipeline, AF_READ_TRAIN, count_supervised, &supervised, &counts, NULL,
                            &err) != AF_OK)
            fail_msg("%s: %s", t->names, err.msg);
        assert_true(supervised >= 4);
        af_data_pipeline_close(&pipeline);
        af_run_config_clear(&run);
    }
    case_close(&c);
}

/* The bos before an answer goes, also where it is token 0. */
static void test_a_bos_that_is_token_0(void **state)
{
    static const char tokenizer[] =
        "{\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true},{\"id\":1,\"content\":"
        "\"</"
        "s>\",\"special\":true}],\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":"
        "[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_"
        "id\":0}}"
        "],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[0],\"tokens\":[\"<s>\"]"
        "}}},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"<s>\":0,\"</"
        "s>\":1,\"q\":2,\"z\":3},\"merges\":[]}}";
    static const char config[] = "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}";
    static const char record[] = "{\"instruction\": \"q\", \"output\": \"zz\"}\n";
    data_case c;
    af_error err;
    char model[1200], keys[2400];
    (void)state;
    case_open(&c);
    snprintf(model, sizeof model, "%s/model", c.dir);
    CHECK_OK(af_dir_make(model, &err), err);
    case_write(&c, "model/tokenizer.json", tokenizer, strlen(tokenizer));
    case_write(&c, "model/tokenizer_config.json", config, strlen(config));
    case_write(&c, "d.jsonl", record, strlen(record));
    snprintf(keys, sizeof keys, "datasets:\n  - path: %s\n    type: alpaca\n",
             case_path(&c, "d.jsonl"));
    case_run(&c, model, keys);
    CHECK_OK(case_preview(&c), c.err);
    const json_t *ids = json_object_get(json_array_get(c.rows, 0), "ids");
    const size_t n = json_array_size(ids);
    assert_true(n > 4 && json_integer_value(json_array_get(ids, 0)) == 0);
    for (size_t i = 1; i < n; i++)
        assert_true(json_integer_value(json_array_get(ids, i)) != 0);
    assert_int_equal(json_integer_value(json_array_get(ids, n - 3)), 3);
    assert_int_equal(json_integer_value(json_array_get(ids, n - 1)), 1);
    case_close(&c);
}

/* LLaMA-Factory ends a text with what its template makes eos, with llama3's with another token. */
static void test_ends_of_texts(void **state)
{
    static const char tokenizer[] =
        "{\"added_tokens\":[{\"id\":0,\"content\":\"<|end_of_text|>\",\"special\":true},{\"id\":1,"
        "\"content\":\"<|eot_id|>\",\"special\":true},{\"id\":2,\"content\":\"<|im_end|>\","
        "\"special\":true}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"<|end_of_text|>\":0,"
        "\"<|eot_id|>\":1,\"<|im_end|>\":2,\"q\":3,\"z\":4},\"merges\":[]}}";
    static const char config[] = "{\"eos_token\": \"<|eot_id|>\"}";
    static const char record[] = "{\"text\": \"qz\"}\n";
    static const struct {
        const char *keys;
        json_int_t end;
    } cases[] = {{"", 1},
                 {"template: llama3\n", 0},
                 {"template: chatml\n", 2},
                 {"template: vicuna\n", 1},
                 {"chat_template: chatml\n", 1}};
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        data_case c;
        af_error err;
        char model[600], keys[1200];
        case_open(&c);
        snprintf(model, sizeof model, "%s/model", c.dir);
        CHECK_OK(af_dir_make(model, &err), err);
        case_write(&c, "model/tokenizer.json", tokenizer, strlen(tokenizer));
        case_write(&c, "model/tokenizer_config.json", config, strlen(config));
        case_write(&c, "d.jsonl", record, strlen(record));
        snprintf(keys, sizeof keys, "stage: pt\ndatasets: [{path: %s, type: text}]\n%s",
                 case_path(&c, "d.jsonl"), cases[i].keys);
        case_run(&c, model, keys);
        CHECK_OK(case_preview(&c), c.err);
        const json_t *ids = json_object_get(json_array_get(c.rows, 0), "ids");
        assert_int_equal(json_array_size(ids), 3);
        CHECK_MSG(json_integer_value(json_array_get(ids, 2)) == cases[i].end, "%s", cases[i].keys);
        case_close(&c);
    }
}

/* The Alpaca prompt of torchtune, one text or a turn of the user, and of Oumi. */
static void test_prompts_of_torchtune_and_oumi(void **state)
{
    static const char record[] = "{\"instruction\": \"q\", \"input\": \"\", \"output\": \"zz\"}\n";
    static const struct {
        const char *model, *type, *begin, *end;
    } cases[] = {
        {"bytes", "alpaca:text", "Below is an instruction that", "### Response:\nzz"},
        {"qwen2", "alpaca:chat_template\n    chat_template: chatml",
         "<|im_start|>user\nBelow is an instruction",
         "### Response:\n<|im_end|>\n<|im_start|>assistant\nzz<|im_end|>\n"},
        {"qwen2", "alpaca:oumi\n    chat_template: chatml",
         "<|im_start|>system\nBelow is an instruction that describes a task. Write",
         "the request.<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nzz"
         "<|im_end|>\n"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        data_case c;
        char keys[1400];
        case_open(&c);
        case_write(&c, "d.jsonl", record, strlen(record));
        snprintf(keys, sizeof keys,
                 "datasets:\n  - path: %s\n    type: %s\n    train_on_inputs: true\n",
                 case_path(&c, "d.jsonl"), cases[i].type);
        case_run(&c, model_of(&c, cases[i].model), keys);
        CHECK_OK(case_preview(&c), c.err);
        const json_t *row = json_array_get(c.rows, 0);
        const char *text = json_string_value(json_object_get(row, "text"));
        const char *end = text + strlen(text) - AF_MIN(strlen(text), strlen(cases[i].end));
        CHECK_MSG(!strncmp(text, cases[i].begin, strlen(cases[i].begin)), "%s", text);
        CHECK_MSG(!strcmp(end, cases[i].end), "%s", text);
        assert_true(json_equal(json_array_get(json_object_get(row, "ids"), 4),
                               json_array_get(json_object_get(row, "labels"), 4)));
        case_close(&c);
    }
}

static void test_answers_that_are_not_there(void **state)
{
    static const char *const cases[][3] = {
        {"squad", "{\"context\": \"c\", \"question\": \"q\", \"answers\": \"a\"}",
         "\"answers\" should be an object with a list \"text\""},
        {"squad", "{\"context\": \"c\", \"question\": \"q\", \"answers\": {\"text\": [1]}}",
         "field \"answers\" has no text"},
        {"hellaswag", "{\"ctx\": \"c\", \"endings\": [\"a\"], \"label\": \"1\"}",
         "\"label\" names none of \"endings\""},
        {"hellaswag", "{\"ctx\": \"c\", \"endings\": [\"a\"]}", "\"label\" names none"},
        {"hellaswag", "{\"ctx\": \"c\", \"endings\": \"a\", \"label\": 0}", "should be a list"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        data_case c;
        char keys[1400];
        case_open(&c);
        case_write(&c, "d.jsonl", cases[i][1], strlen(cases[i][1]));
        snprintf(keys, sizeof keys, "datasets:\n  - path: %s\n    type: automodel:%s\n",
                 case_path(&c, "d.jsonl"), cases[i][0]);
        case_run(&c, model_of(&c, "splits"), keys);
        assert_int_not_equal(case_preview(&c), AF_OK);
        CHECK_MSG(strstr(c.err.msg, cases[i][2]), "'%s' lacks '%s'", c.err.msg, cases[i][2]);
        case_close(&c);
    }
}

/* With train_on_inputs, prompts of messages carry loss, too, apart from what is flagged off. */
static void test_loss_of_prompts_of_messages(void **state)
{
#define ASKED(more)                                                                                \
    "{\"prompt\": [{\"role\": \"user\", \"content\": \"Q\"" more                                   \
    "}], \"completion\": [{\"role\": \"assistant\", \"content\": \"A\"}]}\n"
    static const struct {
        const char *record, *keys;
        size_t without; /* tokens without loss */
    } cases[] = {
        {ASKED(""), "train_on_inputs: true\n", 0},
        {ASKED(", \"train\": false"), "train_on_inputs: true\n", 2},
        {ASKED(""), "train_on_inputs: auto\n", 13},
        {ASKED(""), "", 13},
    };
#undef ASKED
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        data_case c;
        size_t without = 0;
        case_open(&c);
        case_write(&c, "d.jsonl", cases[i].record, strlen(cases[i].record));
        case_dataset(&c, model_of(&c, "qwen2"), case_path(&c, "d.jsonl"), cases[i].keys);
        CHECK_OK(case_preview(&c), c.err);
        const json_t *labels = json_object_get(json_array_get(c.rows, 0), "labels");
        for (size_t k = 0; k < json_array_size(labels); k++)
            without += json_integer_value(json_array_get(labels, k)) == -100;
        CHECK_MSG(without == cases[i].without, "case %zu: %zu tokens without loss", i, without);
        case_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts_are_those_of_axolotl),
        cmocka_unit_test(test_prompts_are_those_of_automodel),
        cmocka_unit_test(test_named_templates_are_those_of_axolotl),
        cmocka_unit_test(test_every_named_template_finds_the_answers),
        cmocka_unit_test(test_templates_are_those_of_llama_factory),
        cmocka_unit_test(test_a_bos_that_is_token_0),
        cmocka_unit_test(test_ends_of_texts),
        cmocka_unit_test(test_prompts_of_torchtune_and_oumi),
        cmocka_unit_test(test_answers_that_are_not_there),
        cmocka_unit_test(test_loss_of_prompts_of_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
