/* test_json_fields.c - records as public datasets have them: turns and calls as JSON text,
 * functions of OpenAI's first API, its pairs, queries with calls, two answers with a verdict, and
 * what is advised about fields of other names. */
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

typedef struct text_case {
    const char *record, *text;
} text_case;

/* Records and the texts that they become, without a word of warning. */
static void check_texts(data_case *c, const text_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        CHECK_OK(preview(c, cases[i].record, ""), c->err);
        const json_t *row = json_array_get(c->rows, 0);
        assert_string_equal(json_string_value(json_object_get(row, "text")), cases[i].text);
        assert_int_equal(c->log.len, 0);
    }
}

static void test_records_of_public_datasets(void **state)
{
    static const text_case cases[] = {
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
        {"{\"conversations\": {\"from\": [\"human\", \"gpt\"], \"value\": [\"Q\", \"A\"]}}",
         U("Q") A("A")},
        {"{\"messages\": {\"role\": [\"user\", \"assistant\"], \"content\": [\"Q\", \"A\"], "
         "\"weight\": [null, 1]}}",
         U("Q") A("A")},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"function_call\", "
         "\"content\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}]}",
         U("Q") A("!9f1")},
        {"{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\"}, {\"from\": "
         "\"function_call\", "
         "\"value\": \"[{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 1}}, "
         "{\\\"name\\\": "
         "\\\"g\\\", \\\"arguments\\\": {\\\"a\\\": 2}}]\"}]}",
         U("Q") A("!9f1!9g2")},
        {"{\"messages\": \"[{\\\"role\\\": \\\"user\\\", \\\"content\\\": \\\"Q"
         "\\\"}, {\\\"role\\\": \\\"tool_call\\\", \\\"content\\\": \\\"{'name':"
         " 'f', 'arguments': '{\\\\\\\"a\\\\\\\": \\\\\\\"It\\\\\\\\'s\\\\\\\"}'"
         "}\\\"}, {\\\"role\\\": \\\"tool_response\\\", \\\"content\\\": \\\"R\\\""
         "}, {\\\"role\\\": \\\"assistant\\\", \\\"content\\\": \\\"A\\\"}]\"}",
         U("Q") A("!9fIt's") TOOL("R") A("A")},
        {"{\"messages\": \"[{'role': 'user', 'content': \\\"It's\\\"}, {'role':"
         " 'assistant', 'content': 'A', 'weight': None}]\"}",
         U("It's") A("A")},
        {"{\"system\": \"SYSTEM: You are a helpful assistant with access to the"
         " following functions. Use them if required -\\n{\\n    \\\"name\\\": \\\""
         "f\\\",\\n    \\\"parameters\\\": {\\\"type\\\": \\\"object\\\"}\\n}\\n"
         "\\n{\\\"name\\\": \\\"g\\\"}\\n\", \"chat\": \"USER: Q\\n\\nUSER is a "
         "word.\\n\\n\\nASSISTANT: First. <functioncall> {\\\"name\\\": \\\"f\\\""
         ", \\\"arguments\\\": '{\\\"a\\\": \\\"It's\\\"}'} <|endoftext|>\\n\\n\\n"
         "FUNCTION RESPONSE: {\\\"r\\\": 1}\\n\\n\\nASSISTANT: A <|endoftext|>\\n"
         "\\n\\nUSER: More\\n\\n\\nASSISTANT: <functioncall> {\\\"name\\\": \\\""
         "g\\\", \\\"arguments\\\": '{\\\"a\\\": 2}'} <|endoftext|>\\n\\n\\n\"}",
         "(f)(g)" U("Q\n\nUSER is a word.") A("First.!9fIt's") TOOL("{\"r\": 1}") A("A") U("More")
             A("!9g2")},
        {"{\"system\": \"SYSTEM: You are a helpful assistant, with no access to"
         " external functions.\\n\\n\", \"chat\": \"USER: Q\\n\\n\\nASSISTANT: A"
         " <|endoftext|>\\n\\n\\n\\n\"}",
         "<|im_start|>system:You are a helpful assistant, with no access to external "
         "functions.<|im_end|>" U("Q") A("A")},
        {"{\"system\": \"SYSTEM: Use these -\\n{\\\"name\\\": \\\"f\\\"}\\n\\n{\\\"g\\\": }"
         "\\n\", \"chat\": \"USER: Q\\n\\n\\nASSISTANT: A <|endoftext|>\\n\"}",
         "<|im_start|>system:Use these -\n{\"name\": \"f\"}\n\n{\"g\": }<|im_end|>" U("Q") A("A")},
    };
    data_case c;
    (void)state;
    case_open(&c);
    check_texts(&c, cases, AF_LEN(cases));
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

#define TURN(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"
#define XLAM(answers)                                                                              \
    "{\"id\": 0, \"query\": \"Q\", \"answers\": " answers                                          \
    ", \"tools\": \"[{\\\"name\\\": \\\"f\\\", \\\"parameters\\\": {\\\"a\\\": "                   \
    "{\\\"description\\\": \\\"d\\\", \\\"type\\\": \\\"int\\\"}, \\\"b\\\": {\\\"type\\\": "      \
    "\\\"List[str], optional\\\"}, \\\"type\\\": {\\\"type\\\": \\\"Dict[str, int]\\\", "          \
    "\\\"default\\\": 1}, \\\"c\\\": {\\\"type\\\": \\\"Tuple[float, int]\\\"}, \\\"e\\\": "       \
    "{\\\"type\\\": \\\"Optional[int]\\\"}}}]\"}"

/* Fields of their own for calls and answers. */
static void test_records_with_fields_of_their_own(void **state)
{
    static const text_case cases[] = {
        {XLAM("\"[{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 1}}, {\\\"name\\\": "
              "\\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 2}}]\""),
         "(f)" U("Q") A("!9f1!9f2")},
        {XLAM("[{\"name\": \"f\", \"arguments\": {\"a\": 3}}]"), "(f)" U("Q") A("!9f3")},
        {"{\"input\": [" TURN("user", "Q") "], \"output\": \"A\", \"system_prompt\": \"s\"}",
         "<|im_start|>system:s<|im_end|>" U("Q") A("A")},
        {"{\"input\": [" TURN("user", "Q") "], \"output\": \"A\", \"system_prompt\": \"s\", "
                                           "\"system\": \"own\"}",
         "<|im_start|>system:own<|im_end|>" U("Q") A("A")},
        {"{\"messages\": [" TURN("user", "Q") ", " TURN(
             "assistant",
             "so") ", {\"role\": "
                   "\"tool_call\", \"content\": \"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": "
                   "{\\\"a\\\": 1}}\"}, {\"role\": \"tool_call\", \"content\": \"{\\\"name\\\": "
                   "\\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 2}}\"}, " TURN(
                       "tool_response",
                       "R") ", " TURN("assistant",
                                      "A") "], \"tools\": [\"{\\\"function\\\": {\\\"name\\\": "
                                           "\\\"f\\\"}}\"]}",
         "(f)" U("Q") A("so!9f1!9f2") TOOL("R") A("A")},
    };
    data_case c;
    (void)state;
    case_open(&c);
    check_texts(&c, cases, AF_LEN(cases));
    case_refused(&c, preview(&c, XLAM("\"f(a=1)\""), ""),
                 "d.jsonl:1: message 2: \"content\" of a function_call is not a JSON object");
    case_refused(&c, preview(&c, "{\"tools\": [\"{\"], \"messages\": [" TURN("user", "Q") "]}", ""),
                 "field \"tools\": tool 1 is not valid JSON");
    case_close(&c);
}

/* Calls without a "function", and pairs of texts after a prompt of messages. */
static void test_calls_and_answers_in_short(void **state)
{
    data_case c;
    (void)state;
    case_open(&c);
    CHECK_OK(
        preview(
            &c,
            "{\"messages\": [" TURN(
                "user", "Q") ", {\"role\": \"assistant\", "
                             "\"content\": \"\", \"tool_calls\": [{\"id\": \"i\", \"name\": \"f\", "
                             "\"arguments\": \"{\\\"a\\\": 1}\"}]}]}",
            ""),
        c.err);
    const json_t *row = json_array_get(c.rows, 0);
    assert_string_equal(json_string_value(json_object_get(row, "text")), U("Q") A("!1f1"));
    CHECK_OK(preview(&c,
                     "{\"prompt\": [" TURN("user", "Q") "], \"chosen\": \"A\", \"rejected\": "
                                                        "\"B\"}",
                     "rl: dpo\n"),
             c.err);
    row = json_object_get(json_array_get(c.rows, 0), "rejected");
    assert_string_equal(json_string_value(json_object_get(row, "text")), U("Q") A("B"));
    case_close(&c);
}

#define BLOCKS(role, blocks) "{\"role\": \"" role "\", \"content\": [" blocks "]}"
#define PARTS(role, parts)   "{\"role\": \"" role "\", \"parts\": [" parts "]}"
#define TYPED(text)          "{\"type\": \"text\", \"text\": \"" text "\"}"
#define PLAIN(text)          "{\"text\": \"" text "\"}"

/* clang-format off */
static const char claude[] =
    "{\"system\": [" TYPED("s") "], \"tools\": [{\"name\": \"f\", \"input_schema\": {}}], "
    "\"messages\": [" TURN("user", "Q") ", "
    BLOCKS("assistant", "{\"type\": \"thinking\", \"thinking\": \"x\"}, " TYPED("so")
           ", {\"type\": \"tool_use\", \"id\": \"i\", \"name\": \"f\", \"input\": {\"a\": 1}}") ", "
    BLOCKS("user", "{\"type\": \"tool_result\", \"tool_use_id\": \"i\", \"content\": \"R\"}, "
           TYPED("P")) ", " BLOCKS("assistant", TYPED("A")) "]}";
static const char bedrock[] =
    "{\"system\": [" PLAIN("s") "], \"messages\": [" BLOCKS("user", PLAIN("Q")) ", "
    BLOCKS("assistant",
           "{\"toolUse\": {\"toolUseId\": \"i\", \"name\": \"f\", \"input\": {\"a\": 1}}}") ", "
    BLOCKS("user",
           "{\"toolResult\": {\"toolUseId\": \"i\", \"content\": [{\"json\": {\"r\": 2}}]}}") ", "
    BLOCKS("assistant", PLAIN("A")) "], "
    "\"toolConfig\": {\"tools\": [{\"toolSpec\": {\"name\": \"f\"}}]}}";
static const char gemini[] =
    "{\"systemInstruction\": {\"parts\": [" PLAIN("s") "]}, "
    "\"contents\": [" PARTS("user", PLAIN("Q")) ", "
    PARTS("model", "{\"functionCall\": {\"name\": \"f\", \"args\": {\"a\": 1}}}") ", "
    PARTS("user", "{\"functionResponse\": {\"name\": \"f\", \"response\": {\"r\": 2}}}") ", "
    PARTS("model", PLAIN("A")) "], "
    "\"tools\": [{\"functionDeclarations\": [{\"name\": \"f\"}]}]}";
/* clang-format on */

#define GLAIVE(system, chat) "{\"system\": \"" system "\", \"chat\": \"" chat "\"}"
#define FUNCTIONS            "\\n{\\\"name\\\": \\\"f\\\"}\\n"
#define NAMED                "{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": "
#define CALL(arguments)      "<functioncall> " NAMED arguments "}"
#define ASKS                 "USER: Q\\n\\n\\nASSISTANT: "
#define SAY(s)               "<|im_start|>system:" s "<|im_end|>"

/* Glaive: what the system says besides the functions, and text after and between calls. */
static void test_text_next_to_calls(void **state)
{
    static const text_case cases[] = {
        {GLAIVE("SYSTEM: You are a pirate named Joe. Never say no. You have access to the "
                "following functions -" FUNCTIONS,
                ASKS "A"),
         "(f)" SAY("You are a pirate named Joe. Never say no.") U("Q") A("A")},
        {GLAIVE("SYSTEM: You have access to the following functions -" FUNCTIONS, ASKS "A"),
         "(f)" U("Q") A("A")},
        {GLAIVE("SYSTEM: You are Joe with access to the following functions -" FUNCTIONS, ASKS "A"),
         "(f)" SAY("You are Joe with access to the following functions -") U("Q") A("A")},
        {GLAIVE("SYSTEM: Be brief. You are a helpful assistant with access to the following "
                "functions. Use them if required -" FUNCTIONS,
                ASKS "A"),
         "(f)" SAY("Be brief.") U("Q") A("A")},
        {GLAIVE("SYSTEM: Be brief." FUNCTIONS, ASKS "A"), "(f)" SAY("Be brief.") U("Q") A("A")},
        {GLAIVE("SYSTEM:" FUNCTIONS,
                ASKS CALL("'{\\\"a\\\": 1}'") "\\n\\nI called it. <|endoftext|>"),
         "(f)" U("Q") A("I called it.!9f1")},
        {GLAIVE("SYSTEM:" FUNCTIONS,
                ASKS "So. " CALL("'{\\\"a\\\": \\\"It's\\\"}'") "\\n\\nI'll wait. <|endoftext|>"),
         "(f)" U("Q") A("So.\n\nI'll wait.!9fIt's")},
        {GLAIVE("SYSTEM:" FUNCTIONS,
                ASKS CALL("'{\\\"a\\\": 1}' ") " <|endoftext|>\\n" CALL("{\\\"a\\\": true}")
                    CALL("'{\\\"a\\\": 3}'") " <|endoftext|>"),
         "(f)" U("Q") A("!9f1!9fTrue!9f3")},
        {GLAIVE("SYSTEM:" FUNCTIONS, ASKS CALL("'{\\\"a\\\": \\\"x \\\\\\\"y\\\\\\\"'}\\\"}'")),
         "(f)" U("Q") A("!9fx \"y\"'}")},
    };
    static const struct {
        const char *chat, *why;
    } bad[] = {
        {ASKS "<functioncall>", "d.jsonl:1: message 2: \"content\" of a function_call is not"},
        {ASKS "<functioncall> f(a=1)", "is not a JSON object: f(a=1)"},
        {ASKS CALL("'{'") " I'll wait", "message 3: tool_calls[0].function.arguments is not valid"},
        {ASKS CALL("'{\\\"a\\\": It's}'"),
         "is not a JSON object: {\"name\": \"f\", \"arguments\": "},
    };
    data_case c;
    (void)state;
    case_open(&c);
    check_texts(&c, cases, AF_LEN(cases));
    for (size_t i = 0; i < AF_LEN(bad); i++) {
        char record[600];
        snprintf(record, sizeof record, GLAIVE("SYSTEM:" FUNCTIONS, "%s"), bad[i].chat);
        case_refused(&c, preview(&c, record, ""), bad[i].why);
    }
    case_close(&c);
}

/* Messages of Anthropic's API, of Bedrock, and Gemini's contents. */
static void test_messages_of_vendors(void **state)
{
#define SYSTEM "(f)<|im_start|>system:s<|im_end|>"
    static const struct {
        const char *record, *text;
    } cases[] = {
        {claude, SYSTEM U("Q") A("so!1f1") TOOL("R") U("P") A("A")},
        {bedrock, SYSTEM U("Q") A("!1f1") TOOL("{\"r\":2}") A("A")},
        {gemini, SYSTEM U("Q") A("!9f1") TOOL("{\"r\":2}") A("A")},
    };
    data_case c;
    (void)state;
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        CHECK_OK(preview(&c, cases[i].record, ""), c.err);
        const json_t *row = json_array_get(c.rows, 0);
        assert_string_equal(json_string_value(json_object_get(row, "text")), cases[i].text);
        if (i) /* the first has a thought, which the template leaves out */
            assert_int_equal(c.log.len, 0);
    }
    case_refused(&c,
                 preview(&c,
                         "{\"messages\": [" TURN("user", "Q") "," BLOCKS(
                             "assistant", "{\"type\": \"tool_use\", \"input\": {}}") "]}",
                         ""),
                 "a part of message 2 is not text");
    case_refused(&c, preview(&c, "{\"contents\": [" PARTS("user", PLAIN("Q")) ", [1]]}", ""),
                 "message 2 should be an object, got a list");
    case_refused(&c, preview(&c, "{\"system\": [1], \"messages\": [" TURN("user", "Q") "]}", ""),
                 "field \"system\" should be a string, got a list");
    case_close(&c);
}

/* The parameters of a tool as JSON Schema has them. Columns of such tables are read. */
static void test_tools_of_queries(void **state)
{
    const af_data_source s = {.shape = AF_SHAPE_MESSAGES,
                              .field = {.messages = "messages",
                                        .conversations = "conversations",
                                        .system = "system",
                                        .tools = "tools"}};
    static const char schema[] = "{\"query\": \"Q\", \"answers\": [], \"tools\": [{\"function\": "
                                 "{\"name\": \"f\"}}]}";
    data_case c;
    char more[600];
    (void)state;
    assert_true(af_shape_reads(&s, "query") && af_shape_reads(&s, "answers"));
    assert_true(af_shape_reads(&s, "input") && af_shape_reads(&s, "system_prompt"));
    assert_false(af_shape_reads(&s, "id"));
    case_open(&c);
    case_write(&c, "d.jsonl", XLAM("[]"), strlen(XLAM("[]")));
    snprintf(more, sizeof more,
             "chat_template: \"{{ tools | tojson }}{%% for m in messages %%}{{ m.content }}"
             "<|im_end|>{%% endfor %%}\"\ntrain_on_inputs: true\ndatasets: [{path: %s/d.jsonl}]\n",
             c.dir);
    case_run(&c, model, more);
    CHECK_OK(case_preview(&c), c.err);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(c.rows, 0), "text")),
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
        "\"object\", \"properties\": {\"a\": {\"description\": \"d\", \"type\": \"integer\"}, "
        "\"b\": {\"type\": \"array\", \"items\": {\"type\": \"string\"}}, \"type\": {\"type\": "
        "\"object\", \"default\": 1}, \"c\": {\"type\": \"array\"}, \"e\": {\"type\": "
        "\"integer\"}}, \"required\": [\"a\", "
        "\"c\"]}}}]Q<|im_end|><|im_end|>");
    case_write(&c, "d.jsonl", schema, strlen(schema)); /* as it is */
    CHECK_OK(case_preview(&c), c.err);
    assert_string_equal(json_string_value(json_object_get(json_array_get(c.rows, 0), "text")),
                        "[{\"function\": {\"name\": \"f\"}}]Q<|im_end|><|im_end|>");
    case_close(&c);
}

#define DOLCI(calls)                                                                               \
    "{\"messages\": [{\"role\": \"system\", \"content\": \"S\", \"function_calls\": null, "        \
    "\"functions\": \"[{\\\"name\\\": \\\"f\\\"}]\"}, " TURN(                                      \
        "user", "Q") ", {\"role\": \"assistant\", \"content\": \"\", \"functions\": null, "        \
                     "\"function_calls\": \"" calls                                                \
                     "\"}, " TURN("environment", "R") ", " TURN("assistant", "A") "]}"

/* Calls in lines of Python: as they are for a template that reads them, else as any others. */
static void test_calls_in_lines(void **state)
{
    static const char record[] = DOLCI("f(a=1)\\ng(a='x, (y)', b=True)"), system[] = "<|im_start|>";
    data_case c;
    char more[1000];
    (void)state;
    case_open(&c);
    CHECK_OK(preview(&c, record, ""), c.err);
    assert_string_equal(json_string_value(json_object_get(json_array_get(c.rows, 0), "text")),
                        "(f)<|im_start|>system:S<|im_end|>" U("Q") A("!9f1!9gx, (y)") TOOL("R")
                            A("A"));
    assert_int_equal(c.log.len, 0);
    snprintf(more, sizeof more,
             "chat_template: \"{%% for m in messages %%}%s{{ m.role }}:{{ m.functions or '' }}"
             "{{ m.content }}{{ m.function_calls or '' }}<|im_end|>{%% endfor %%}\"\n"
             "datasets: [{path: %s/d.jsonl}]\n",
             system, c.dir);
    case_run(&c, model, more);
    CHECK_OK(case_preview(&c), c.err);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(c.rows, 0), "text")),
        "<|im_start|>system:[{\"name\": \"f\"}]S<|im_end|>" U("Q")
            A("f(a=1)\ng(a='x, (y)', b=True)") "<|im_start|>environment:R<|im_end|>" A("A"));
    assert_int_equal(c.log.len, 0);
    CHECK_OK(preview(&c,
                     "{\"chosen\": [" TURN(
                         "user", "Q") ", {\"role\": \"assistant\", \"content\": \"\", "
                                      "\"function_calls\": \"f(a=1)\"}], \"rejected\": [" TURN(
                                          "user", "Q") ", " TURN("assistant", "B") "]}",
                     "rl: dpo\n"),
             c.err);
    const json_t *chosen = json_object_get(json_array_get(c.rows, 0), "chosen");
    assert_string_equal(json_string_value(json_object_get(chosen, "text")), U("Q") A("!9f1"));
    case_refused(&c, preview(&c, DOLCI("I call f"), ""),
                 "message 3: \"function_calls\" are not calls as Python has them");
    case_refused(&c, preview(&c, DOLCI("f(a=1) and g"), ""), "message 3: \"function_calls\"");
    case_close(&c);
}

#define ANSWER(text) "[" TURN("user", "Q") ", " TURN("assistant", text) "]"
#define ARENA(winner)                                                                              \
    "{\"winner\": \"" winner                                                                       \
    "\", \"conversation_a\": " ANSWER("bad") ", \"conversation_b\": " ANSWER("good") "}"

/* Two answers and which is preferred: the chosen one is "good". */
static void test_judged_answers(void **state)
{
    static const char *const records[] = {
        "{\"context\": [" TURN(
            "user", "Q") "], \"response1\": \"bad\", \"response2\": \"good\", "
                         "\"overall_preference\": 1}\n"
                         "{\"context\": [" TURN(
                             "user", "Q") "], \"response1\": \"good\", \"response2\": \"bad\", "
                                          "\"overall_preference\": -3}\n"
                                          "{\"context\": [" TURN(
                                              "user",
                                              "Q") "], \"response1\": \"x\", \"response2\": \"y\", "
                                                   "\"overall_preference\": 0}",
        "{\"prompt\": \"Q\", \"response_0\": \"good\", \"response_1\": \"bad\", "
        "\"better_response_id\": 0}",
        "{\"prompt\": \"Q\", \"response_1\": \"good\", \"response_2\": \"bad\", "
        "\"preference_strength\": -2}",
        "{\"history\": \"Q\", \"human_ref_A\": \"good\", \"human_ref_B\": \"bad\", \"labels\": "
        "1}",
        ARENA("model_b") "\n" ARENA("tie"),
        "{\"messages\": [" TURN("user", "Q") "], \"chosen_response\": " TURN(
            "assistant", "good") ", \"rejected_response\": " TURN("assistant", "bad") "}",
    };
    static const size_t pairs[] = {2, 1, 1, 1, 1, 1};
    data_case c;
    (void)state;
    case_open(&c);
    for (size_t i = 0; i < AF_LEN(records); i++) {
        CHECK_OK(preview(&c, records[i], "rl: dpo\n"), c.err);
        assert_int_equal(json_array_size(c.rows), pairs[i]);
        for (size_t k = 0; k < pairs[i]; k++) {
            const json_t *row = json_array_get(c.rows, k);
            const json_t *good = json_object_get(row, "chosen"),
                         *bad = json_object_get(row, "rejected");
            assert_string_equal(json_string_value(json_object_get(good, "text")), U("Q") A("good"));
            assert_string_equal(json_string_value(json_object_get(bad, "text")), U("Q") A("bad"));
        }
        assert_int_equal(strstr(c.log.data, "no answer is preferred") != NULL, i == 0 || i == 4);
    }
    CHECK_OK(preview(&c,
                     "{\"prompt\": \"Q\", \"chosen_response\": \"good\", "
                     "\"rejected_response\": \"bad\"}",
                     "rl: dpo\n"),
             c.err); /* texts stay texts */
    const json_t *text = json_object_get(json_array_get(c.rows, 0), "chosen");
    assert_string_equal(json_string_value(json_object_get(text, "text")), "Qgood<|im_end|>");
    case_close(&c);
}

/* A field that the run file calls text is text, whatever it begins with. */
static void test_text_in_a_field_of_turns(void **state)
{
    static const char text[] = "{\"messages\": \"[1, 2]\"}";
    data_case c;
    char more[600];
    (void)state;
    case_open(&c);
    case_write(&c, "d.jsonl", text, strlen(text));
    snprintf(more, sizeof more,
             "datasets: [{path: %s/d.jsonl, type: text, field_text: messages}]\n", c.dir);
    case_run(&c, model, more);
    CHECK_OK(case_preview(&c), c.err);
    assert_string_equal(json_string_value(json_object_get(json_array_get(c.rows, 0), "text")),
                        "[1, 2]");
    case_close(&c);
}

/* Numbers that cannot be read do not matter where nobody looks. */
static void test_numbers_of_other_fields(void **state)
{
    static const char turns[] =
        "[{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
        "\"content\": \"A\", \"x\": [%s]}]";
    static const char why[] =
        "d.jsonl:1: field \"messages\" has a number that cannot be read: NaN, "
        "an infinity, or one above 64 bits";
    data_case c;
    char list[300], record[600];
    (void)state;
    case_open(&c);
    for (int i = 0; i < 2; i++) {
        snprintf(list, sizeof list, turns, i ? "NaN" : "1");
        snprintf(record, sizeof record,
                 "{\"meta\": {\"id\": 123456789012345678901234567890, \"s\": [\"}\", -Infinity]}, "
                 "\"messages\": %s}",
                 list);
        if (i) {
            case_refused(&c, preview(&c, record, ""), why);
        } else {
            CHECK_OK(preview(&c, record, ""), c.err);
            assert_string_equal(
                json_string_value(json_object_get(json_array_get(c.rows, 0), "text")),
                U("Q") A("A"));
        }
    }
    case_close(&c);
}

static void test_what_is_advised(void **state)
{
    static const struct {
        const char *record, *why;
    } cases[] = {
        {"{\"messages\": \"[{]\"}", "\"messages\" should be a list, got a string"},
        {"{\"messages\": \"[{'role': 'user', 'content': 'Q'}\\n {'role': 'user'}]\"}",
         "field \"messages\" is a list as Python prints it, not JSON; write it with json.dumps"},
        {"{\"messages\": \"[1]\"}", "message 1 should be an object, got a number"},
        {"{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\"}, {\"from\": "
         "\"function_call\", "
         "\"value\": \"[]\"}]}",
         "message 2: \"value\" of a function_call is not a JSON object"},
        {"{\"messages\": [{\"role\": \"model\", \"content\": \"A\"}]}",
         "unknown role \"model\" (known: system, user, assistant, tool; the dataset may map it: "
         "roles: {assistant: [model]})"},
        {"{\"messages\": [{\"role\": \"Human\", \"content\": \"Q\"}]}", "roles: {user: [Human]}"},
        {"{\"id\": 1, \"conversation\": [{\"role\": \"user\", \"content\": \"Q\"}]}",
         "{path: ..., type: messages, field_messages: conversation}"},
        {"{\"chat\": [{\"from\": \"human\", \"value\": \"Q\"}]}",
         "{path: ..., type: sharegpt, field_messages: chat}"},
        {"{\"INSTRUCTION\": \"Q\", \"RESPONSE\": \"A\"}",
         "{path: ..., field_instruction: INSTRUCTION, field_output: RESPONSE}"},
        {"{\"inputs\": \"Q\", \"targets\": \"A\"}", "field_instruction: inputs"},
        {"{\"message_id\": \"1\", \"parent_id\": null, \"text\": \"Q\", \"role\": \"prompter\"}",
         "the record is one message of a tree (its keys: [message_id, parent_id, text, role]); "
         "write conversations as records, or 'type: text'"},
        {"{\"problem\": \"Q\", \"answer\": \"4\", \"solution\": \"2 + 2 = 4\"}",
         "{path: ..., field_instruction: problem, field_output: solution}"},
        {"{\"problem\": \"Q\", \"generated_solution\": \"A\"}", "field_output: generated_solution"},
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
        cmocka_unit_test(test_records_with_fields_of_their_own),
        cmocka_unit_test(test_calls_and_answers_in_short),
        cmocka_unit_test(test_text_next_to_calls),
        cmocka_unit_test(test_messages_of_vendors),
        cmocka_unit_test(test_tools_of_queries),
        cmocka_unit_test(test_calls_in_lines),
        cmocka_unit_test(test_judged_answers),
        cmocka_unit_test(test_text_in_a_field_of_turns),
        cmocka_unit_test(test_numbers_of_other_fields),
        cmocka_unit_test(test_what_is_advised),
    };
    return cmocka_run_group_tests(tests, find_model, NULL);
}
