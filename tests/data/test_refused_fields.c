/* test_refused_fields.c - fields of other tools that change what a record means: they are read, or
 * refused with file, line and field, unless they are empty or the dataset ignores them. */
#include "data_case.h"

#include "data/shape/shape.h"

static char model[1024];

static int find_model(void **state)
{
    (void)state;
    snprintf(model, sizeof model, "%s/models/qwen2", golden_dir());
    return 0;
}

#define SHOWS                                                                                      \
    "chat_template: \"{% for t in tools or [] %}({{ t.function.name }}){% endfor %}"               \
    "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}"        \
    "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}\"\n"
#define TURNS(more)  "{'messages': [{'role': 'user', 'content': 'Q'" more "}, " ANSWER("") "]}"
#define ANSWER(more) "{'role': 'assistant', 'content': 'A'" more "}"
#define WITH(more)   "{'messages': [{'role': 'user', 'content': 'Q'}, " ANSWER("") "], " more "}"
#define ONE(more)    "{'messages': [{'role': 'user', 'content': 'Q'}, " ANSWER(more) "]}"
#define TWO(more)                                                                                  \
    "{'messages': [" ANSWER(more) ", {'role': 'user', 'content': 'Q'}, " ANSWER("") "]}"
#define PART(part)                                                                                 \
    "{'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'Q'}, " part              \
    "]}, " ANSWER("") "]}"
#define FUNCTION "'tools': [{'type': 'function', 'function': {'name': 'f'}}]"

/* The one record of a file; single quotes are double ones. */
static af_status preview(data_case *c, const char *record, const char *entry, const char *keys)
{
    char more[2000], line[2000];
    snprintf(line, sizeof line, "%s\n", record);
    for (char *at = line; *at; at++)
        *at = *at == '\'' ? '"' : *at;
    case_write(c, "d.jsonl", line, strlen(line));
    snprintf(more, sizeof more, "%s%sdatasets: [{path: %s/d.jsonl%s}]\n", SHOWS, keys, c->dir,
             entry);
    case_run(c, model, more);
    return case_preview(c);
}

typedef struct field_case {
    const char *record, *entry, *keys, *why; /* why NULL: it is taken */
} field_case;

static void check(const field_case *cases, size_t n)
{
    data_case c;
    case_open(&c);
    for (size_t i = 0; i < n; i++) {
        const af_status st = preview(&c, cases[i].record, cases[i].entry ? cases[i].entry : "",
                                     cases[i].keys ? cases[i].keys : "");
        if (case_refused(&c, st, cases[i].why) && !strstr(c.err.msg, "d.jsonl:1: "))
            fail_msg("no file and line: %s", c.err.msg);
    }
    case_close(&c);
}

static void test_images_and_sound(void **state)
{
    static const field_case cases[] = {
        {.record = WITH("'images': ['a.png']"), .why = "field \"images\": images"},
        {.record = WITH("'image': 'a.png'"), .why = "'ignore_fields: [image]'"},
        {.record = WITH("'videos': ['a.mp4']"), .why = "field \"videos\""},
        {.record = WITH("'audios': [{'path': 'a.wav'}]"), .why = "field \"audios\""},
        {.record = WITH("'audio': {'bytes': 'UklG', 'path': null}"), .why = "field \"audio\""},
        {.record = WITH("'pixel_values': [[1]]"), .why = "field \"pixel_values\""},
        {.record = WITH("'images': [], 'videos': null, 'audio': '', 'image': {'bytes': null}")},
        {.record = WITH("'images': [null], 'audios': ['']")},
        {.record = WITH("'images': ['a.png'], 'audio': 'a.wav'"),
         .entry = ", ignore_fields: [images, audio]"},
        {.record = WITH("'images': ['a.png'], 'audio': 'a.wav'"),
         .entry = ", ignore_fields: images",
         .why = "field \"audio\""},
        {.record = "{'instruction': 'Q', 'output': 'A', 'image': 'a.png'}",
         .why = "field \"image\""},
        {.record = "{'instruction': 'Q', 'image': '<svg/>'}", .entry = ", field_output: image"},
        {.record = "{'prompt': 'Q', 'completion': 'A', 'images': ['a']}",
         .why = "field \"images\""},
        {.record = "{'text': 'T', 'image': 'a.png'}", .why = "field \"image\""},
        {.record = "{'text': 'T', 'image': 'a.png'}",
         .entry = ", type: completion, ignore_fields: [image]"},
        {.record =
             "{'conversations': [{'from': 'human', 'value': '<image>Q'}, {'from': 'gpt', 'value': "
             "'A'}], 'image': 'a.png'}",
         .why = "field \"image\""},
        {.record = "{'prompt': 'Q', 'chosen': 'A', 'rejected': 'B', 'images': ['a']}",
         .keys = "rl: dpo\n",
         .why = "field \"images\""},
        {.record = TURNS(", 'images': ['a.png']"), .why = "message 1: \"images\": images"},
        {.record = TURNS(", 'images': []")},
        {.record = TURNS(", 'images': ['a.png']"), .entry = ", ignore_fields: [images]"},
        {.record = PART("{'type': 'image'}"), .why = "message 1: a part of type \"image\": images"},
        {.record = PART("{'type': 'image_url', 'image_url': {'url': 'x'}}"),
         .why = "type \"image_url\""},
        {.record = PART("{'type': 'input_audio', 'input_audio': {}}"),
         .why = "type \"input_audio\""},
        {.record = PART("{'video': 'a.mp4'}"), .why = "a part of type \"video\""},
        {.record = PART("{'type': 'file', 'file': {'file_id': 'x'}}"), .why = "type \"file\""},
        {.record = PART("{'inlineData': {'data': 'x'}}"), .why = "a part of type \"inlineData\""},
        {.record = PART("{'type': 'text', 'text': '!', 'image_url': null}")},
    };
    (void)state;
    check(cases, AF_LEN(cases));
}

static void test_weights_and_labels_of_records(void **state)
{
    static const field_case cases[] = {
        {.record = WITH("'weight': 0.5"), .why = "field \"weight\" is 0.5"},
        {.record = WITH("'weight': 0"), .why = "field \"weight\" is 0"},
        {.record = WITH("'weight': 1")},
        {.record = WITH("'weight': null")},
        {.record = WITH("'weight': 2.5"), .entry = ", ignore_fields: [weight]"},
        {.record = WITH("'loss_weight': 2"), .why = "field \"loss_weight\" is 2"},
        {.record = "{'instruction': 'Q', 'output': 'A', 'weight': 2}",
         .why = "field \"weight\" is 2"},
        {.record = "{'text': 'T', 'weight': 70}"}, /* of what the text is about */
        {.record = WITH("'label': false"), .why = "\"label\": false"},
        {.record = WITH("'label': true")},
        {.record = WITH("'label': 'math'")},
        {.record = WITH("'label': false"), .keys = "rl: kto\n"},
    };
    (void)state;
    check(cases, AF_LEN(cases));
}

static void test_fields_that_a_shape_does_not_show(void **state)
{
#define TASK "{'instruction': 'Q', 'output': 'A', "
    static const field_case cases[] = {
        {.record = TASK "'history': [['x', 'y']]}",
         .entry = ", type: alpaca",
         .why = "field \"history\""},
        {.record = TASK "'system': 'S'}", .entry = ", type: alpaca", .why = "field \"system\""},
        {.record = TASK "'system': 'S'}", .entry = ", type: alpaca_w_system"},
        {.record = TASK "'system': '', 'history': []}", .entry = ", type: alpaca"},
        {.record = TASK "'system': 'S'}", .entry = ", type: alpaca, ignore_fields: system"},
        {.record = "{'prompt': 'Q', 'completion': 'A', 'system': 'S'}",
         .why = "field_output: completion"},
        {.record = "{'prompt': 'Q', 'completion': 'A', 'history': [['x', 'y']]}",
         .why = "field \"history\""},
        {.record = "{'prompt': 'Q', 'completion': 'A', " FUNCTION "}", .why = "field \"tools\""},
        {.record =
             "{'prompt': 'Q', 'completion': 'A', 'system': null, 'history': [], 'tools': ''}"},
        {.record = "{'prompt': [{'role': 'user', 'content': 'Q'}], 'completion': [" ANSWER(
             "") "], 'system': 'S'}",
         .why = "field \"system\""},
        {.record =
             "{'prompt': [{'role': 'system', 'content': 'S'}, {'role': 'user', 'content': 'Q'}], "
             "'completion': [" ANSWER("") "], 'system': 'S', " FUNCTION "}"},
        {.record = "{'prompt': 'Q', 'chosen': 'A', 'rejected': 'B', 'history': [['x', 'y']]}",
         .keys = "rl: dpo\n",
         .why = "field \"history\""},
        {.record = "{'prompt': 'Q', 'chosen': 'A', 'rejected': 'B', " FUNCTION "}",
         .keys = "rl: dpo\n",
         .why = "field \"tools\""},
    };
    (void)state;
    check(cases, AF_LEN(cases));
}

static void test_flags_of_messages(void **state)
{
    static const field_case cases[] = {
        {.record = ONE(", 'loss': 0.5"), .why = "message 2: \"loss\" should be true or false"},
        {.record = ONE(", 'loss': 0.5"), .entry = ", ignore_fields: [loss]"},
        {.record = ONE(", 'loss_weight': 0.5"), .why = "message 2: \"loss_weight\" must be 0 or 1"},
        {.record = ONE(", 'loss_scale': 2"), .why = "message 2: \"loss_scale\" must be 0 or 1"},
        {.record = ONE(", 'masked': 'no'"), .why = "message 2: \"masked\" should be true or false"},
        {.record = TURNS(", 'loss': true"),
         .why = "message 1: \"loss\" is only allowed on assistant"},
        {.record = TURNS(", 'loss': false, 'loss_weight': 0, 'masked': false")},
    };
    static const char *const off[] = {
        TWO(", 'loss': false"),
        TWO(", 'loss': 0"),
        TWO(", 'loss_weight': 0.0"),
        TWO(", 'loss_scale': 0"),
        TWO(", 'masked': true"),
        TWO(", 'step_loss_mask': 0"),
        TWO(", 'train': false"),
        TWO(", 'weight': 0, 'loss': true"),
        TWO(", 'weight': 1, 'loss': false"),
    };
    data_case c;
    (void)state;
    check(cases, AF_LEN(cases));
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(off); i++) {
        CHECK_OK(preview(&c, off[i], "", ""), c.err);
        const json_t *row = json_array_get(c.rows, 0), *labels = json_object_get(row, "labels");
        int loss = 0;
        for (size_t k = 0; k < json_array_size(labels); k++)
            loss += json_integer_value(json_array_get(labels, k)) != -100;
        if (loss != 2) /* the second answer and its end */
            fail_msg("%d tokens with loss: %s", loss, off[i]);
    }
    case_close(&c);
}

static void test_tools_of_an_instruction(void **state)
{
    data_case c;
    (void)state;
    case_open(&c);
    CHECK_OK(preview(&c, TASK FUNCTION "}", "", ""), c.err);
    const json_t *row = json_array_get(c.rows, 0);
    assert_string_equal(json_string_value(json_object_get(row, "text")),
                        "(f)<|im_start|>user:Q<|im_end|><|im_start|>assistant:A<|im_end|>");
    case_close(&c);
}

/* A field of verl, as a variable of the template. */
static void test_thinking_of_a_record(void **state)
{
    static const char record[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
        "\"content\": \"A\"}], \"enable_thinking\": false%s}\n";
    static const struct {
        const char *more, *text;
    } cases[] = {
        {"", "no:QA"},
        {", \"chat_template_kwargs\": {\"enable_thinking\": true}", "yes:QA"},
        {", \"chat_template_kwargs\": {\"other\": 1}", "no:QA"},
    };
    data_case c;
    char text[1000];
    (void)state;
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        snprintf(text, sizeof text, record, cases[i].more);
        case_write(&c, "d.jsonl", text, strlen(text));
        snprintf(
            text, sizeof text,
            "chat_template: \"{{ 'yes:' if enable_thinking | default(true) else 'no:' }}{%% for "
            "m in messages %%}{{ m.content }}{%% endfor %%}\"\ntrain_on_eos: none\n"
            "datasets: [{path: %s/d.jsonl}]\n",
            c.dir);
        case_run(&c, model, text);
        CHECK_OK(case_preview(&c), c.err);
        assert_string_equal(json_string_value(json_object_get(json_array_get(c.rows, 0), "text")),
                            cases[i].text);
    }
    case_close(&c);
}

/* Padding and packing of token ids. */
static void test_token_ids(void **state)
{
#define IDS "{'input_ids': [5, 6, 7, 8], "
    static const field_case cases[] = {
        {.record = IDS "'attention_mask': [1, 1, 1, 1], 'position_ids': [0, 1, 2, 3]}"},
        {.record = IDS "'attention_mask': [1, 1, 2, 2]}",
         .why = "attention_mask[2] should be 0 or 1"},
        {.record = IDS "'attention_mask': [1, 1]}",
         .why = "\"attention_mask\" has 2 values for 4 input_ids"},
        {.record = IDS "'position_ids': [0, 1, 0, 1]}",
         .why = "\"position_ids\": the record is packed"},
        {.record = IDS "'attention_mask': [0, 1, 1, 1], 'position_ids': [0, 0, 1, 2]}"},
        {.record = IDS "'seq_lengths': [2, 2]}", .why = "\"seq_lengths\""},
        {.record = IDS "'seq_lengths': [4]}"},
        {.record = IDS "'loss_mask': [0, 1]}", .why = "\"loss_mask\" has 2 values for 4 input_ids"},
    };
    static const char padded[] = IDS "'attention_mask': [0, 1, 1, 0]}";
    static const char masked[] = IDS "'loss_mask': [0, 0, 0, 1]}";
    data_case c;
    (void)state;
    check(cases, AF_LEN(cases));
    case_open(&c);
    CHECK_OK(preview(&c, masked, "", ""), c.err);
    const json_t *labels = json_object_get(json_array_get(c.rows, 0), "labels");
    assert_int_equal(json_integer_value(json_array_get(labels, 2)), -100);
    assert_int_equal(json_integer_value(json_array_get(labels, 3)), 8);
    CHECK_OK(preview(&c, padded, "", ""), c.err);
    labels = json_object_get(json_array_get(c.rows, 0), "labels");
    assert_int_equal(json_array_size(labels), 2);
    assert_int_equal(json_integer_value(json_array_get(labels, 0)), 6);
    case_close(&c);
}

/* A column of a table is read for its values, but not where it is ignored; the key wants names. */
static void test_ignored_columns(void **state)
{
    static const char *const names[] = {"image"};
    const af_data_source s = {
        .shape = AF_SHAPE_TEXT, .field = {.text = "text"}, .ignored = names, .ignored_count = 1};
    data_case c;
    (void)state;
    assert_true(af_shape_reads(&s, "images") && af_shape_reads(&s, "loss_weight"));
    assert_false(af_shape_reads(&s, "image") || af_shape_reads(&s, "id"));
    case_open(&c);
    case_refused(&c, preview(&c, WITH("'id': 1"), ", ignore_fields: {a: b}", ""),
                 "run.yaml:3: ignore_fields of a dataset wants a list of names");
    case_close(&c);
}

/* What dataset_info.json does not list is absent; what it lists is looked at. */
static void test_columns_of_dataset_info(void **state)
{
    static const struct {
        const char *columns, *why;
    } cases[] = {
        {"{\"prompt\": \"instruction\", \"response\": \"output\"}", NULL},
        {"{\"prompt\": \"instruction\", \"response\": \"output\", \"images\": \"pictures\"}",
         "d.jsonl:1: field \"pictures\": images"},
        {"{\"prompt\": \"instruction\", \"response\": \"output\", \"reply\": \"x\"}",
         "dataset 'd' has a column 'reply'"},
    };
    static const char record[] = "{\"instruction\": \"Q\", \"output\": \"A\", \"images\": [\"a\"], "
                                 "\"pictures\": [\"b\"]}\n";
    data_case c;
    char text[2000];
    (void)state;
    case_open(&c);
    case_write(&c, "d.jsonl", record, strlen(record));
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        snprintf(text, sizeof text, "{\"d\": {\"file_name\": \"d.jsonl\", \"columns\": %s}}",
                 cases[i].columns);
        case_write(&c, "dataset_info.json", text, strlen(text));
        snprintf(text, sizeof text, "%sdataset_dir: %s\ndataset: d\n", SHOWS, c.dir);
        case_run(&c, model, text);
        case_refused(&c, case_preview(&c), cases[i].why);
    }
    case_close(&c);
}

/* Tools of an instruction with two answers, and names of roles, as dataset_info.json lists them. */
static void test_tools_and_tags_of_dataset_info(void **state)
{
    static const struct {
        const char *info, *record, *keys, *text;
    } cases[] = {
        {"\"ranking\": true, \"columns\": {\"prompt\": \"instruction\", \"chosen\": \"a\", "
         "\"rejected\": \"b\", \"tools\": \"t\"}",
         "{\"instruction\": \"Q\", \"a\": \"A\", \"b\": \"B\", \"t\": \"[{\\\"function\\\": "
         "{\\\"name\\\": \\\"f\\\"}}]\"}",
         "rl: dpo\n", "(f)<|im_start|>user:Q<|im_end|><|im_start|>assistant:A<|im_end|>"},
        {"\"formatting\": \"sharegpt\", \"columns\": {\"messages\": \"m\"}, \"tags\": "
         "{\"role_tag\": \"r\", \"content_tag\": \"c\", \"user_tag\": \"u\", "
         "\"assistant_tag\": \"a\", \"function_tag\": \"call\"}",
         "{\"m\": [{\"r\": \"u\", \"c\": \"Q\"}, {\"r\": \"call\", \"c\": {\"name\": \"f\", "
         "\"arguments\": {}}}, {\"r\": \"u\", \"c\": \"R\"}, {\"r\": \"a\", \"c\": \"A\"}]}",
         "",
         "<|im_start|>user:Q<|im_end|><|im_start|>assistant:<|im_end|><|im_start|>user:R<|im_end|>"
         "<|im_start|>assistant:A<|im_end|>"},
    };
    data_case c;
    char text[2000];
    (void)state;
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        case_write(&c, "d.jsonl", cases[i].record, strlen(cases[i].record));
        snprintf(text, sizeof text, "{\"d\": {\"file_name\": \"d.jsonl\", %s}}", cases[i].info);
        case_write(&c, "dataset_info.json", text, strlen(text));
        snprintf(text, sizeof text, "%s%sdataset_dir: %s\ndataset: d\n", SHOWS, cases[i].keys,
                 c.dir);
        case_run(&c, model, text);
        CHECK_OK(case_preview(&c), c.err);
        const json_t *row = json_array_get(c.rows, 0), *good = json_object_get(row, "chosen");
        assert_string_equal(json_string_value(json_object_get(good ? good : row, "text")),
                            cases[i].text);
    }
    snprintf(text, sizeof text,
             "{\"d\": {\"file_name\": \"d.jsonl\", \"formatting\": \"sharegpt\", \"tags\": "
             "{\"bot_tag\": \"a\"}}}");
    case_write(&c, "dataset_info.json", text, strlen(text));
    case_refused(&c, case_preview(&c), "dataset 'd' has a tag 'bot_tag', which is not one of");
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images_and_sound),
        cmocka_unit_test(test_weights_and_labels_of_records),
        cmocka_unit_test(test_fields_that_a_shape_does_not_show),
        cmocka_unit_test(test_flags_of_messages),
        cmocka_unit_test(test_tools_of_an_instruction),
        cmocka_unit_test(test_thinking_of_a_record),
        cmocka_unit_test(test_token_ids),
        cmocka_unit_test(test_ignored_columns),
        cmocka_unit_test(test_columns_of_dataset_info),
        cmocka_unit_test(test_tools_and_tags_of_dataset_info),
    };
    return cmocka_run_group_tests(tests, find_model, NULL);
}
