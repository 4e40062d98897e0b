/* test_tool_call.c - calls of tools in answers: texts with what they say, whole and in pieces; and
 * answers that are held to calls. */
#include "grammar_walk.h"

#include "format/text/json_text.h"
#include "grammar/tool_call.h"

static walk_vocab vocab;

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":"
    "\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":6},\"days\":{\"type\":"
    "\"integer\",\"minimum\":1,\"maximum\":9}},\"required\":[\"city\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";

typedef struct heard {
    af_buf content, calls;
} heard;

static void on_content(void *user, const char *text, uint64_t n)
{
    af_buf_add(&((heard *)user)->content, text, n);
}

static void on_call(void *user, const af_tool_call *c)
{
    heard *h = user;
    const bool made = strlen(c->id) == 9 || strncmp(c->id, "call_", 5) == 0;
    af_buf_printf(&h->calls, "%d:%s%s%s(%s)", c->index, made ? "" : c->id, made ? "" : "=", c->name,
                  c->arguments);
}

typedef struct tool_case {
    const char *text, *content, *calls;
} tool_case;

static const tool_case cases[] = {
    {"just text", "just text", ""},
    {"  text with blanks \n", "  text with blanks \n", ""},
    {"<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>", "", "0:now({})"},
    {"Let me see.\n<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"city\": \"Rome\"}}"
     "</tool_call>",
     "Let me see.", "0:get_weather({\"city\": \"Rome\"})"},
    {"<tool_call>{\"name\":\"a\",\"arguments\":{\"x\":\"</tool_call>}\\\"{\"}}</tool_call>\n"
     "<tool_call>{\"arguments\":{\"y\":1.10},\"name\":\"b\"}</tool_call> done",
     " done", "0:a({\"x\":\"</tool_call>}\\\"{\"})1:b({\"y\":1.10})"},
    {"<tool_call>{\"name\":\"a\"}</tool_call>", "", "0:a({})"},
    {"<tool_call>{\"name\":\"a\",\"arguments\":\"{\\\"q\\\":2}\"}</tool_call>", "",
     "0:a({\"q\":2})"},
    {"<tool_call>{\"name\":\"a\",\"arguments\":{}}", "", "0:a({})"},
    {"<tool_call>{\"name\":\"a\",\"argum", "<tool_call>{\"name\":\"a\",\"argum", ""},
    {"<tool_call>nonsense</tool_call>", "<tool_call>nonsense</tool_call>", ""},
    {"<tool_call>{\"nme\":1}</tool_call> x", "<tool_call>{\"nme\":1}</tool_call> x", ""},
    {"a < b <tool", "a < b <tool", ""},
    {"{\"name\": \"now\", \"parameters\": {}}", "", "0:now({})"},
    {" {\"name\": \"get_weather\", \"parameters\": {\"city\": \"x\"}}; {\"name\": \"now\", "
     "\"parameters\": {}}",
     "", "0:get_weather({\"city\": \"x\"})1:now({})"},
    {"{\"type\": \"function\", \"function\": {\"name\": \"now\", \"parameters\": {\"a\": [1]}}}",
     "", "0:now({\"a\": [1]})"},
    {"<|python_tag|>{\"name\": \"now\", \"parameters\": {\"z\": null}}", "",
     "0:now({\"z\": null})"},
    {"<|python_tag|>print(1)", "<|python_tag|>print(1)", ""},
    {"{\"name\": \"unknown\", \"parameters\": {}}", "{\"name\": \"unknown\", \"parameters\": {}}",
     ""},
    {"{\"answer\": 42}", "{\"answer\": 42}", ""},
    {"See: {\"name\": \"now\", \"parameters\": {}}", "See: {\"name\": \"now\", \"parameters\": {}}",
     ""},
    {"{\"unfinished\": [1, 2", "{\"unfinished\": [1, 2", ""},
    {"[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"b\", \"arguments\": "
     "{\"k\": "
     "[1, {}]}}]",
     "", "0:now({})1:b({\"k\": [1, {}]})"},
    {"Hm. [TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {\"\\u00e9\": \"\xc3\xa9\"}, \"id\": "
     "\"123456789\"}]",
     "Hm.", "0:now({\"\\u00e9\": \"\xc3\xa9\"})"},
    {"[TOOL_CALLS][1]", "[TOOL_CALLS][1]", ""},
    {"[TOOL", "[TOOL", ""},
    /* an answer that ended in the mark after a call */
    {"<tool_call>{\"name\": \"now\", \"arguments\": {}}\n</tool_", "", "0:now({})"},
    {"Hm. <tool_call>{\"name\": \"now\", \"arguments\": {}}<", "Hm.", "0:now({})"},
    {"<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call> <b", " <b", "0:now({})"},
    {"", "", ""},
    /* Qwen3-Coder, Qwen 3.5 */
    {"I look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n"
     "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
     "I look.", "0:get_weather({\"city\": \"Rome\", \"days\": 3})"},
    {"<function=get_weather>\n<parameter=city>\n12\n</parameter>\n</function>\n</tool_call>\n"
     "<tool_call>\n<function=now>\n</function>\n</tool_call>",
     "", "0:get_weather({\"city\": \"12\"})1:now({})"},
    {"<tool_call><function=now><parameter=a>{'k': [True, None]}</parameter><parameter=b>\n a\n\n"
     "</parameter></function></tool_call>",
     "", "0:now({\"a\": {\"k\": [true, null]}, \"b\": \" a\\n\"})"},
    {"<tool_call>\n<function=now>\n<parameter=a>\nx",
     "<tool_call>\n<function=now>\n<parameter=a>\nx", ""},
    {"<function=now>{\"a\": \"b\"}</function>", "", "0:now({\"a\": \"b\"})"},
    {"use <function=f(x)> here", "use <function=f(x)> here", ""},
    {"<seed:tool_call>\n<function=get_weather>\n<parameter=city>Oslo</parameter>\n</function>\n"
     "</seed:tool_call>",
     "", "0:get_weather({\"city\": \"Oslo\"})"},
    {"<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
     "name=\"city\">Oslo</parameter>\n"
     "<parameter name=\"days\">2</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n"
     "</minimax:tool_call>",
     "", "0:get_weather({\"city\": \"Oslo\", \"days\": 2})1:now({})"},
    /* GLM, Hunyuan */
    {"<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n"
     "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>now</tool_call>",
     "", "0:get_weather({\"city\": \"Rome\", \"days\": 3})1:now({})"},
    {"<tool_calls><tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>x</"
     "arg_value>"
     "\n</tool_call></tool_calls> end",
     " end", "0:get_weather({\"city\": \"x\"})"},
    /* Mistral since 2025, DeepSeek, Kimi */
    {"[TOOL_CALLS]now[ARGS]{\"a\": 1}[TOOL_CALLS]now[CALL_ID]abc123[ARGS]{}", "",
     "0:now({\"a\": 1})1:now({})"},
    {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
     "function<｜tool▁sep｜>now\n```json\n{\"a\": \"`\"}\n```<｜tool▁call▁end｜>\n"
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```"
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "", "0:now({\"a\": \"`\"})1:now({})"},
    {"Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
     "now<｜tool▁sep｜>{\"a\":1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "Hm.", "0:now({\"a\":1})"},
    {"<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_call_begin|>functions.b:1<|tool_call_argument_begin|>{\"k\": 1}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "", "0:functions.now:0=now({})1:functions.b:1=b({\"k\": 1})"},
    /* Gemma */
    {"<|tool_call>call:get_weather{city:<|\"|>Ro\"me, {x<|\"|>,days:2,o:{a:[1,true],<|\"|>b "
     "c<|\"|>:null}}"
     "<tool_call|><|tool_call>call:now{}<tool_call|>",
     "",
     "0:get_weather({\"city\": \"Ro\\\"me, {x\", \"days\": 2, \"o\": {\"a\": [1, true], \"b c\": "
     "null}})1:now({})"},
    {"<start_function_call>call:now{a:<escape>b<escape>}<end_function_call>", "",
     "0:now({\"a\": \"b\"})"},
    /* Python: Llama 4, LFM2, OLMo 3 */
    {"[get_weather(city=\"O'slo\", days=3), now()]", "",
     "0:get_weather({\"city\": \"O'slo\", \"days\": 3})1:now({})"},
    {"<|tool_call_start|>[now(a='it\\'s', b=[1, 2.5], c={'d': False})]<|tool_call_end|>Wait.",
     "Wait.", "0:now({\"a\": \"it's\", \"b\": [1, 2.5], \"c\": {\"d\": false}})"},
    {"<function_calls>now()\nget_weather(city='x')</function_calls> ok", " ok",
     "0:now({})1:get_weather({\"city\": \"x\"})"},
    {"[now(1)]", "[now(1)]", ""},
    {"[see(a=1)] is text", "[see(a=1)] is text", ""},
    {"[1] is a note", "[1] is a note", ""},
    {"[now(a=1) and more", "[now(a=1) and more", ""},
    /* lists in other marks */
    {"<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]", "", "0:now({})"},
    {"<|tool_call|>{\"name\": \"now\", \"arguments\": {}}<|/tool_call|>", "", "0:now({})"},
    {"<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}]</TOOLCALL>", "", "0:now({})"},
    {"<|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"now\", \"parameters\": "
     "{\"a\": 1}}\n]"
     "<|END_ACTION|>",
     "", "0:now({\"a\": 1})"},
    {"[{\"name\": \"now\", \"parameters\": {}}]", "", "0:now({})"},
    {"[{\"name\": \"Bob\"}]", "[{\"name\": \"Bob\"}]", ""},
};

/* The text in pieces of `size` bytes, 0 = random ones. */
static void check_case(const tool_case *c, uint64_t size, const json_t *tools)
{
    af_error err;
    af_tool_parser *p = NULL;
    heard h = {0};
    uint64_t seed = 99 + size;
    const uint64_t len = strlen(c->text);
    const af_tool_sink sink = {on_content, on_call, &h};
    CHECK_OK(af_tool_parser_new(&p, AF_TOOL_TAGS, tools, 7, &sink, &err), err);
    for (uint64_t at = 0; at < len;) {
        uint64_t n = size ? size : 1 + walk_next(&seed) % 9;
        n = n < len - at ? n : len - at;
        CHECK_OK(af_tool_parser_add(p, c->text + at, n, &err), err);
        at += n;
    }
    CHECK_OK(af_tool_parser_finish(p, &err), err);
    CHECK_MSG(strcmp(h.content.len ? h.content.data : "", c->content) == 0, "%s\n  content '%s'",
              c->text, h.content.len ? h.content.data : "");
    CHECK_MSG(strcmp(h.calls.len ? h.calls.data : "", c->calls) == 0, "%s\n  calls '%s'", c->text,
              h.calls.len ? h.calls.data : "");
    af_buf_clear(&h.content);
    af_buf_clear(&h.calls);
    af_tool_parser_free(p);
}

static void test_texts(void **state)
{
    (void)state;
    json_t *tools = af_json_load(tools_text, sizeof tools_text - 1, 0, NULL);
    assert_non_null(tools);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint64_t size = 0; size < 12; size++)
            check_case(&cases[i], size == 11 ? 1 << 20 : size, tools);
    json_decref(tools);
}

/* A stream hears of a call when it is complete, and not at the end of the answer. */
static void test_calls_come_when_they_are_complete(void **state)
{
    (void)state;
    af_error err;
    af_tool_parser *p = NULL;
    heard h = {0};
    const af_tool_sink sink = {on_content, on_call, &h};
    const char *text = "<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>";
    json_t *tools = af_json_load(tools_text, sizeof tools_text - 1, 0, NULL);
    assert_non_null(tools);
    CHECK_OK(af_tool_parser_new(&p, AF_TOOL_TAGS, tools, 7, &sink, &err), err);
    CHECK_OK(af_tool_parser_add(p, text, strlen(text), &err), err);
    assert_int_equal(af_tool_parser_calls(p), 1);
    CHECK_OK(af_tool_parser_finish(p, &err), err);
    assert_string_equal(h.calls.data, "0:now({})");
    af_buf_clear(&h.content);
    af_buf_clear(&h.calls);
    af_tool_parser_free(p);
    json_decref(tools);
}

static void say_nothing(void *user, const char *text, uint64_t n)
{
    (void)user, (void)text, (void)n;
}

static void keep_id(void *user, const af_tool_call *c) { af_buf_printf(user, "%s ", c->id); }

static void test_ids(void **state)
{
    (void)state;
    af_error err;
    af_buf ids = {0};
    const char text[] = "[TOOL_CALLS][{\"name\":\"a\"},{\"name\":\"b\"}]";
    const af_tool_sink sink = {say_nothing, keep_id, &ids};
    for (uint64_t seed = 1; seed < 3; seed++) {
        af_tool_parser *p = NULL;
        CHECK_OK(af_tool_parser_new(&p, AF_TOOL_MISTRAL, NULL, seed, &sink, &err), err);
        CHECK_OK(af_tool_parser_add(p, text, sizeof text - 1, &err), err);
        CHECK_OK(af_tool_parser_finish(p, &err), err);
        assert_int_equal(af_tool_parser_calls(p), 2);
        af_tool_parser_free(p);
    }
    assert_int_equal(ids.len, 40); /* nine letters each, and all are different */
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++)
            assert_true(memcmp(ids.data + 10 * i, ids.data + 10 * k, 9) != 0);
    af_buf_clear(&ids);
}

static void test_formats(void **state)
{
    (void)state;
    assert_int_equal(af_tool_format_of("... <tool_call>\\n{\"name\": ..."), AF_TOOL_TAGS);
    assert_int_equal(af_tool_format_of("x [TOOL_CALLS] y"), AF_TOOL_MISTRAL);
    assert_int_equal(af_tool_format_of("[TOOL_CALLS] + name + [ARGS]"), AF_TOOL_ARGS);
    assert_int_equal(af_tool_format_of("<|channel|> <|message|>"), AF_TOOL_CHANNELS);
    assert_int_equal(af_tool_format_of("{{ '<|python_tag|>' }}"), AF_TOOL_LLAMA);
    assert_int_equal(af_tool_format_of(NULL), AF_TOOL_TAGS);
    assert_true(af_tool_marker("[TOOL_CALLS]") && af_tool_marker("</tool_call>"));
    assert_false(af_tool_marker("<|im_end|>") || af_tool_marker(NULL));
}

static af_status open_tools(af_grammar **g, const char *format, const char *choice, af_error *err)
{
    char text[2048];
    snprintf(text, sizeof text, "{\"format\":\"%s\",\"tools\":%s,\"tool_choice\":%s}", format,
             tools_text, choice);
    return af_grammar_open(g, AF_GRAMMAR_TOOLS, text, strlen(text), vocab.vocab, err);
}

/* Answers under the mask are calls of the tools, with arguments that fit. */
static void test_held_to_calls(void **state)
{
    (void)state;
    static const char *const formats[] = {"tags", "llama", "mistral", "args"};
    static const char *const choices[] = {
        "\"required\"", "{\"type\":\"function\",\"function\":{\"name\":\"get_weather\"}}"};
    json_t *tools = af_json_load(tools_text, sizeof tools_text - 1, 0, NULL);
    af_buf text = {0};
    for (int f = 0; f < 4; f++)
        for (int c = 0; c < 2; c++) {
            af_error err;
            af_grammar *g = NULL;
            int ended = 0;
            uint64_t seed = 5;
            CHECK_OK(open_tools(&g, formats[f], choices[c], &err), err);
            for (int i = 0; i < 20; i++) {
                if (!walk_answer(&vocab, g, &seed, 600, &text))
                    continue;
                ended++;
                heard h = {0};
                af_tool_parser *p = NULL;
                const af_tool_sink sink = {on_content, on_call, &h};
                CHECK_OK(af_tool_parser_new(&p, (af_tool_format)f, tools, 1, &sink, &err), err);
                CHECK_OK(af_tool_parser_add(p, text.data, text.len, &err), err);
                CHECK_OK(af_tool_parser_finish(p, &err), err);
                CHECK_MSG(af_tool_parser_calls(p) >= 1 && h.content.len == 0, "%s", text.data);
                CHECK_MSG(c == 0 || (af_tool_parser_calls(p) == 1 &&
                                     strncmp(h.calls.data, "0:get_weather({", 15) == 0),
                          "%s", text.data);
                af_tool_parser_free(p);
                af_buf_clear(&h.content);
                af_buf_clear(&h.calls);
            }
            CHECK_MSG(ended > 5, "%s: %d answers ended", formats[f], ended);
            af_grammar_close(g);
        }
    af_buf_clear(&text);
    json_decref(tools);
}

static bool begins_call(const char *text)
{
    for (size_t i = 0; af_tool_opener(i); i++)
        if (strncmp(text, af_tool_opener(i), strlen(af_tool_opener(i))) == 0)
            return true;
    return strncmp(text, "<|channel|>", 11) == 0;
}

/* A schema for texts leaves calls possible. */
static void test_call_or_answer(void **state)
{
    (void)state;
    static const char *const formats[] = {"tags", "llama", "args", "channels"};
    af_buf text = {0};
    for (int f = 0; f < 4; f++) {
        char source[2048];
        af_error err;
        af_grammar *g = NULL;
        uint64_t seed = 5;
        int calls = 0, answers = 0;
        snprintf(source, sizeof source,
                 "{\"format\":\"%s\",\"tools\":%s,\"answer\":{\"type\":\"object\",\"properties\":"
                 "{\"a\":{\"enum\":[7]}},\"required\":[\"a\"]}}",
                 formats[f], tools_text);
        CHECK_OK(af_grammar_open(&g, AF_GRAMMAR_TOOLS, source, strlen(source), vocab.vocab, &err),
                 err);
        for (int i = 0; i < 60; i++) {
            if (!walk_answer(&vocab, g, &seed, 200, &text))
                continue;
            json_t *tree = af_json_load(text.data, text.len, 0, NULL);
            const bool fits = json_integer_value(json_object_get(tree, "a")) == 7;
            const bool llama = json_is_string(json_object_get(tree, "name"));
            answers += fits;
            calls += !fits;
            CHECK_MSG(fits || (f == 1 && llama) || begins_call(text.data), "%s", text.data);
            json_decref(tree);
        }
        CHECK_MSG(calls > 2 && (answers > 2 || f == 3), "%s: %d and %d", formats[f], calls,
                  answers);
        af_grammar_close(g);
    }
    af_buf_clear(&text);
}

static void test_refused(void **state)
{
    (void)state;
    af_error err = {0};
    af_grammar *g = NULL;
    assert_int_equal(
        open_tools(&g, "tags", "{\"type\":\"function\",\"function\":{\"name\":\"x\"}}", &err),
        AF_EUSAGE);
    assert_string_equal(err.subject, "tool_choice");
    assert_int_equal(open_tools(&g, "tags", "{\"type\":\"function\"}", &err), AF_EFORMAT);
    static const char bad[] =
        "{\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":{\"not\":{}}}}]}";
    assert_int_equal(af_grammar_open(&g, AF_GRAMMAR_TOOLS, bad, sizeof bad - 1, vocab.vocab, &err),
                     AF_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "parameters of tool 'f': schema keyword 'not'"));
    assert_int_equal(af_grammar_open(&g, AF_GRAMMAR_TOOLS, "{\"tools\":[]}", 12, vocab.vocab, &err),
                     AF_EUSAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_come_when_they_are_complete),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_held_to_calls),
        cmocka_unit_test(test_call_or_answer),
        cmocka_unit_test(test_refused),
    };
    walk_open(&vocab);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    walk_close(&vocab);
    return failed;
}
