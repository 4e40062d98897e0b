/* test_json_fields.c - records as public datasets have them: turns and calls as JSON text,
 * functions of OpenAI's first API, its pairs, and what is advised about fields of other names. */
#include "data_case.h"

static char model[1024];

static int find_model(void **state)
{
    (void)state;
    snprintf(model, sizeof model, "%s/models/qwen2", golden_dir());
    return 0;
}

#define SHOWS                                                                                      \
    "chat_template: \"{% for t in tools or [] %}({{ t.function.name }}){% endfor %}"               \
    "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content or '' }}"                        \
    "{% for c in m.tool_calls or [] %}!{{ c.id | length }}{{ c.function.name }}"                   \
    "{{ c.function.arguments.a }}{% endfor %}<|im_end|>{% endfor %}"                               \
    "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}\"\n"
#define U(text)    "<|im_start|>user:" text "<|im_end|>"
#define A(text)    "<|im_start|>assistant:" text "<|im_end|>"
#define TOOL(text) "<|im_start|>tool:" text "<|im_end|>"

static af_status preview(data_case *c, const char *record, const char *keys)
{
    char more[2000];
    case_write(c, "d.jsonl", record, strlen(record));
    snprintf(more, sizeof more, "%s%sdatasets: [{path: %s/d.jsonl}]\n", SHOWS, keys, c->dir);
    case_run(c, model, more);
    return case_preview(c);
}

static void test_records_of_public_datasets(void **state)
{
    static const struct {
        const char *record, *text;
    } cases[] = {
        {"{\"messages\": \"[{\\\"role\\\": \\\"user\\\", \\\"content\\\": \\\"Q\\\"}, "
         "{\\\"role\\\": "
         "\\\"assistant\\\", \\\"content\\\": \\\"A\\\"}]\"}",
         U("Q") A("A")},
        {"{\"conversations\": \" [{\\\"from\\\": \\\"human\\\", \\\"value\\\": \\\"Q\\\"}, "
         "{\\\"from\\\": \\\"gpt\\\", \\\"value\\\": \\\"A\\\"}]\"}",
         U("Q") A("A")},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Q\", \"tool_calls\": \"\"}, "
         "{\"role\": "
         "\"assistant\", \"content\": \"\", \"tool_calls\": \"[{\\\"id\\\": \\\"i\\\", "
         "\\\"function\\\": "
         "{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 1}}}]\"}]}",
         U("Q") A("!1f1")},
        {"{\"functions\": [{\"name\": \"f\"}], \"messages\": [{\"role\": \"user\", \"content\": "
         "\"Q\"}, {\"role\": \"assistant\", \"content\": null, \"function_call\": {\"name\": "
         "\"f\", "
         "\"arguments\": \"{\\\"a\\\": 1}\"}}, {\"role\": \"function\", \"name\": \"f\", "
         "\"content\": "
         "\"R\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}",
         "(f)" U("Q") A("!9f1") TOOL("R") A("A")},
        {"{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\"}, {\"from\": "
         "\"function_call\", "
         "\"value\": \"[{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 1}}, "
         "{\\\"name\\\": "
         "\\\"g\\\", \\\"arguments\\\": {\\\"a\\\": 2}}]\"}]}",
         U("Q") A("!9f1!9g2")},
    };
    data_case c;
    (void)state;
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        CHECK_OK(preview(&c, cases[i].record, ""), c.err);
        const json_t *row = json_array_get(c.rows, 0);
        assert_string_equal(json_string_value(json_object_get(row, "text")), cases[i].text);
        assert_int_equal(c.log.len, 0);
    }
    CHECK_OK(preview(&c,
                     "{\"input\": {\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}], "
                     "\"tools\": [{\"function\": {\"name\": \"f\"}}]}, \"preferred_output\": "
                     "[{\"role\": \"assistant\", \"content\": \"A\"}], \"non_preferred_output\": "
                     "[{\"role\": \"assistant\", \"content\": \"B\"}]}",
                     "rl: dpo\n"),
             c.err);
    const json_t *pair = json_array_get(c.rows, 0);
    const json_t *good = json_object_get(pair, "chosen"), *bad = json_object_get(pair, "rejected");
    assert_string_equal(json_string_value(json_object_get(good, "text")), "(f)" U("Q") A("A"));
    assert_string_equal(json_string_value(json_object_get(bad, "text")), "(f)" U("Q") A("B"));
    case_close(&c);
}

static void test_what_is_advised(void **state)
{
    static const struct {
        const char *record, *why;
    } cases[] = {
        {"{\"messages\": \"[{]\"}", "\"messages\" should be a list, got a string"},
        {"{\"messages\": \"[1]\"}", "message 1 should be an object, got a number"},
        {"{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\"}, {\"from\": "
         "\"function_call\", "
         "\"value\": \"[]\"}]}",
         "message 2: \"value\" of a function_call is not a JSON object"},
        {"{\"messages\": [{\"role\": \"model\", \"content\": \"A\"}]}",
         "unknown role \"model\" (known: system, user, assistant, tool; the dataset may map it: "
         "roles: {assistant: [model]})"},
        {"{\"id\": 1, \"conversation\": [{\"role\": \"user\", \"content\": \"Q\"}]}",
         "{path: ..., type: messages, field_messages: conversation}"},
        {"{\"chat\": [{\"from\": \"human\", \"value\": \"Q\"}]}",
         "{path: ..., type: sharegpt, field_messages: chat}"},
        {"{\"INSTRUCTION\": \"Q\", \"RESPONSE\": \"A\"}",
         "{path: ..., field_instruction: INSTRUCTION, field_output: RESPONSE}"},
        {"{\"inputs\": \"Q\", \"targets\": \"A\"}", "field_instruction: inputs"},
    };
    data_case c;
    (void)state;
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(cases); i++)
        case_refused(&c, preview(&c, cases[i].record, ""), cases[i].why);
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_of_public_datasets),
        cmocka_unit_test(test_what_is_advised),
    };
    return cmocka_run_group_tests(tests, find_model, NULL);
}
