/* test_turn_tools.c - tools and calls in LLaMA-Factory's templates: the same texts as its
 * tool_utils gives (llamafactory 0.9.5), some here, more in tests/golden/turn_tools. */
#include "data_case.h"

#define TOOLS                                                                                      \
    "[{\\\"name\\\": \\\"f\\\", \\\"description\\\": \\\"d \u00e9 \\\\\\\"q\\\\\\\"\\\", "         \
    "\\\"parameters\\\": {\\\"type\\\": \\\"object\\\", \\\"default\\\": 0.1, \\\"max\\\": 1e16, " \
    "\\\"list\\\": [1, -2.5, true, null]}}, {\\\"type\\\": \\\"function\\\", \\\"function\\\": "   \
    "{\\\"name\\\": \\\"g\\\"}}]"
#define CALL                                                                                       \
    "{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 0.1, \\\"b\\\": [], \\\"c\\\": {}}}"
#define TEN(x)            x x x x x x x x x x
#define DEEP              TEN(TEN("[")) TEN(TEN("]"))
#define TURN(from, value) "{\"from\": \"" from "\", \"value\": \"" value "\"}"
#define TALK(call)                                                                                 \
    TURN("human", "q")                                                                             \
    ", " TURN("function_call", call) ", " TURN("observation", "42") ", " TURN("gpt", "ok")

/* What is said of the tools, the call, the result. */
#define SAID                                                                                       \
    "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are " \
    "provided with function signatures within <tools></tools> XML tags:\n<tools>\n{\"type\": "     \
    "\"function\", \"function\": {\"name\": \"f\", \"description\": \"d \u00e9 \\\"q\\\"\", "      \
    "\"parameters\": {\"type\": \"object\", \"default\": 0.1, \"max\": 1e+16, \"list\": [1, "      \
    "-2.5, true, null]}}}\n{\"type\": \"function\", \"function\": {\"name\": \"g\"}}\n</tools>\n"  \
    "\nFor each function call, return a json object with function name and arguments within "      \
    "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "  \
    "<args-json-object>}\n</tool_call>"
#define CALLED                                                                                     \
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 0.1, \"b\": [], \"c\": "                \
    "{}}}\n</tool_call>"
#define QWEN           "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
#define IM(role, text) "<|im_start|>" role "\n" text "<|im_end|>\n"
#define RESULT         IM("user", "<tool_response>\n42\n</tool_response>")

/* The default format. */
#define PLAIN_TOOLS                                                                                \
    "[{\\\"name\\\": \\\"f\\\", \\\"description\\\": \\\"d\\\", \\\"parameters\\\": "              \
    "{\\\"properties\\\": "                                                                        \
    "{\\\"a\\\": {\\\"type\\\": \\\"string\\\", \\\"description\\\": \\\"x\\\", \\\"enum\\\": "    \
    "[\\\"u\\\", \\\"v\\\"]}, \\\"b\\\": {\\\"type\\\": \\\"array\\\", \\\"items\\\": "            \
    "{\\\"type\\\": "                                                                              \
    "\\\"integer\\\"}}, \\\"c\\\": {}}, \\\"required\\\": [\\\"b\\\"]}}, {\\\"type\\\": "          \
    "\\\"function\\\", \\\"function\\\": {\\\"name\\\": \\\"g\\\", \\\"parameters\\\": "           \
    "{\\\"properties\\\": {}}}}]"
#define PLAIN_SAID                                                                                 \
    "You have access to the following tools:\n> Tool Name: f\nTool Description: d\nTool Args:\n"   \
    "  - a (string): x, should be one of [u, v]\n  - b (array, required): , where each item "      \
    "should be integer\n  - c (): \n\n> Tool Name: g\nTool Description: \nTool Args:\n\nUse the "  \
    "following format if using a tool:\n```\nAction: tool name (one of [f, g])\nAction Input: "    \
    "the "                                                                                         \
    "input to the tool, in a JSON format representing the kwargs (e.g. ```{\"input\": \"hello "    \
    "world\", \"num_beams\": 5}```)\n```\n"
#define PLAIN_CALLED "Action: f\nAction Input: {\"a\": 0.1, \"b\": [], \"c\": {}}"

static char model[1024];

static int find_model(void **state)
{
    (void)state;
    snprintf(model, sizeof model, "%s/models/qwen2", golden_dir());
    return 0;
}

static void make_records(const data_case *c, const char *template, const char *records)
{
    static const char info[] =
        "{\"talk\": {\"file_name\": \"talk.json\", \"formatting\": \"sharegpt\", \"columns\": "
        "{\"messages\": \"conversations\", \"tools\": \"tools\", \"system\": \"system\"}}}";
    char text[3000];
    case_write(c, "dataset_info.json", info, strlen(info));
    case_write(c, "talk.json", records, strlen(records));
    snprintf(text, sizeof text,
             "template: %s\ndataset: talk\ndataset_dir: %s\nenable_thinking: true\n", template,
             c->dir);
    case_run(c, model, text);
}

static void make(const data_case *c, const char *template, const char *turns, const char *more)
{
    char text[3000];
    snprintf(text, sizeof text, "[{\"conversations\": [%s]%s}]", turns, more);
    make_records(c, template, text);
}

/* What LLaMA-Factory writes of the same records. */
static void test_golden_texts(void **state)
{
    char path[1200];
    data_case c;
    (void)state;
    snprintf(path, sizeof path, "%s/turn_tools/texts.json", golden_dir());
    json_t *all = json_load_file(path, 0, NULL);
    assert_true(json_array_size(all) > 30);
    case_open(&c);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i);
        const char *template = json_string_value(json_object_get(one, "template"));
        json_t *records = json_pack("[O]", json_object_get(one, "record"));
        char *text = json_dumps(records, 0);
        make_records(&c, template, text);
        CHECK_OK(case_preview(&c), c.err);
        const char *got = json_string_value(json_object_get(json_array_get(c.rows, 0), "text"));
        const char *want = json_string_value(json_object_get(one, "text"));
        CHECK_MSG(strcmp(got, want) == 0, "%zu, %s:\n%s\n--- and not\n%s", i, template, got, want);
        free(text);
        json_decref(records);
    }
    case_close(&c);
    json_decref(all);
}

static void test_texts(void **state)
{
    static const struct {
        const char *template, *turns, *more, *want;
    } cases[] = {
        {"qwen", TALK(CALL), ", \"tools\": \"" TOOLS "\"",
         IM("system", QWEN SAID) IM("user", "q") IM("assistant", CALLED)
             RESULT IM("assistant", "ok")},
        {"qwen", TALK(CALL), ", \"tools\": \"[]\"",
         IM("system", QWEN) IM("user", "q") IM("assistant", CALLED) RESULT IM("assistant", "ok")},
        {"qwen3_nothink", TALK("[" CALL ", " CALL "]"),
         ", \"system\": \"S\", \"tools\": \"" TOOLS "\"",
         IM("system", "S" SAID) IM("user", "q") IM("assistant", CALLED "\n" CALLED)
             RESULT IM("assistant", "ok")},
        {"qwen3_nothink", TALK(CALL), ", \"tools\": \"" TOOLS "\"",
         IM("system", SAID) IM("user", "q") IM("assistant", CALLED) RESULT IM("assistant", "ok")},
        {"chatml", TALK(CALL), ", \"system\": \"S\", \"tools\": \"" PLAIN_TOOLS "\"",
         IM("system", "S" PLAIN_SAID) IM("user", "q") IM("assistant", PLAIN_CALLED) IM("tool", "42")
             IM("assistant", "ok")},
        {"chatml", TALK("[" CALL ", " CALL "]"), "",
         IM("user", "q") IM("assistant", PLAIN_CALLED "\n" PLAIN_CALLED) IM("tool", "42")
             IM("assistant", "ok")},
        {"chatml", TALK("{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": " DEEP "}}"), "",
         IM("user", "q") IM("assistant", "Action: f\nAction Input: {\"a\": " DEEP "}")
             IM("tool", "42") IM("assistant", "ok")},
    };
    data_case c;
    (void)state;
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        make(&c, cases[i].template, cases[i].turns, cases[i].more);
        CHECK_OK(case_preview(&c), c.err);
        assert_string_equal(json_string_value(json_object_get(json_array_get(c.rows, 0), "text")),
                            cases[i].want);
        CHECK_MSG(!strstr(c.log.data, "never reads"), "%s", c.log.data);
    }
    case_close(&c);
}

/* Calls and last answers carry loss, results do not. */
static void test_loss(void **state)
{
    data_case c;
    int trained = 0;
    (void)state;
    case_open(&c);
    make(&c, "qwen", TALK(CALL), ", \"tools\": \"" TOOLS "\"");
    CHECK_OK(case_preview(&c), c.err);
    const json_t *labels = json_object_get(json_array_get(c.rows, 0), "labels");
    const int all = (int)json_array_size(labels);
    for (int i = 0; i < all; i++)
        trained += json_integer_value(json_array_get(labels, (size_t)i)) != -100;
    make(&c, "qwen", TURN("human", "q") ", " TURN("gpt", "ok"), "");
    CHECK_OK(case_preview(&c), c.err);
    const json_t *short_ones = json_object_get(json_array_get(c.rows, 0), "labels");
    int plain = 0;
    for (size_t i = 0; i < json_array_size(short_ones); i++)
        plain += json_integer_value(json_array_get(short_ones, i)) != -100;
    assert_true(trained > plain + 10 && trained < all / 2);
    case_close(&c);
}

static void test_formats_that_are_not_known(void **state)
{
    data_case c;
    (void)state;
    case_open(&c);
    make(&c, "llama3", TALK(CALL), ", \"tools\": \"" TOOLS "\"");
    case_refused(&c, case_preview(&c), "LLaMA-Factory writes the date of the day");
    make(&c, "lfm2", TALK(CALL), ", \"tools\": \"" TOOLS "\"");
    case_refused(&c, case_preview(&c), "tools are not supported with 'template: lfm2'");
    make(&c, "lfm2", TALK(CALL), "");
    case_refused(&c, case_preview(&c), "tool calls and contents in parts are not supported");
    make(&c, "glm4", TALK("[" CALL ", " CALL "]"), "");
    case_refused(&c, case_preview(&c), "'template: glm4' cannot write the calls");
    make(&c, "chatml", TALK(CALL), ", \"tools\": \"" TOOLS "\"");
    case_refused(&c, case_preview(&c), "no 'parameters' with 'properties'");
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_golden_texts),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_formats_that_are_not_known),
    };
    return cmocka_run_group_tests(tests, find_model, NULL);
}
