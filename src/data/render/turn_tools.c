/* turn_tools.c - tools and calls in turn templates, in tool formats of LLaMA-Factory. Qwen's: the
 * system text tells the tools as lines of JSON, a call is JSON between <tool_call> marks, or since
 * Qwen 3.5 a function with its parameters. The default one: tools and their arguments as text, a
 * call as "Action: ...". GLM-4's: tools as JSON in lines, a call is its name and its arguments.
 * Mistral's and Llama 3's: JSON. It is written as Python's json.dumps(ensure_ascii=False) does. */
#include "data/render/turn_tools.h"

#include "base/word.h"
#include "format/text/json_text.h"
#include "format/text/python_text.h"

#define EOS  "\002" /* AF_TURNS_EOS, AF_TURNS_TEXT */
#define TEXT "\003"

enum { DEPTH_MAX = 2048 }; /* what jansson reads */

/* Mistral's format, before and since its tokenizer without blanks after marks. */
static const char mistral3[] = "llava_next_mistral llava_next_video_mistral mistral";
static const char tekken[] = "ministral ministral3 mistral_small pixtral";

af_turn_tools af_turn_tools_of(const char *template)
{
    static const char qwen[] = "qwen qwen3 qwen3_nothink qwen2_vl qwen3_vl qwen3_vl_nothink "
                               "qwen2_omni qwen3_omni qwen3_omni_nothink keye_vl mimo mimo_v2 "
                               "mimo_vl llava_next_qwen";
    static const char qwen35[] = "qwen3_5 qwen3_5_nothink qwen3_6";
    static const char glm4[] = "chatglm3 glm4 glm4v glm_ocr glmz1";
    static const char llama3[] = "llama3 llama4 mllama llava_next_llama3";
    static const char others[] = "aeva bailing_v2 gemma4 gemma4n glm4_moe glm4_5v glm4_7 lfm2 "
                                 "lfm2_vl minimax1 minimax2 seed_oss";
    return af_word_listed(template, qwen)       ? AF_TURN_TOOLS_QWEN
           : af_word_listed(template, qwen35)   ? AF_TURN_TOOLS_QWEN35
           : af_word_listed(template, glm4)     ? AF_TURN_TOOLS_GLM4
           : af_word_listed(template, llama3)   ? AF_TURN_TOOLS_LLAMA3
           : af_word_listed(template, mistral3) ? AF_TURN_TOOLS_MISTRAL
           : af_word_listed(template, tekken)   ? AF_TURN_TOOLS_MISTRAL
           : af_word_listed(template, others)   ? AF_TURN_TOOLS_NONE
                                                : AF_TURN_TOOLS_DEFAULT;
}

const char *af_turn_calls_piece(const char *template, const char *answer)
{
    if (af_word_listed(template, mistral3))
        return "[TOOL_CALLS] " TEXT EOS;
    if (af_word_listed(template, tekken))
        return "[TOOL_CALLS]" TEXT EOS;
    return af_turn_tools_of(template) == AF_TURN_TOOLS_GLM4 ? TEXT : answer;
}

static void put_scalar(af_buf *b, const json_t *v)
{
    char *text = json_is_real(v) ? NULL : af_json_dump(v, JSON_ENCODE_ANY);
    if (json_is_real(v))
        af_py_float(b, json_real_value(v));
    else if (text)
        af_buf_str(b, text);
    else
        b->bad = true;
    free(text);
}

/* What stands before a value: a comma after others, and in lines of their own a line break. */
static void put_break(af_buf *b, bool lines, size_t before, int depth)
{
    af_buf_str(b, before ? lines ? "," : ", " : "");
    if (lines)
        af_buf_printf(b, "\n%*s", 4 * depth, "");
}

/* lines: as with indent=4. */
static void put_value(af_buf *b, const json_t *v, bool lines, int depth)
{
    const char *key;
    json_t *item;
    size_t i = 0;
    if (depth > DEPTH_MAX || b->bad) {
        b->bad = true;
    } else if (json_object_size(v)) {
        af_buf_char(b, '{');
        json_object_foreach((json_t *)v, key, item)
        {
            json_t *name = json_string(key);
            put_break(b, lines, i++, depth + 1);
            put_scalar(b, name);
            json_decref(name);
            af_buf_str(b, ": ");
            put_value(b, item, lines, depth + 1);
        }
        put_break(b, lines, 0, depth);
        af_buf_char(b, '}');
    } else if (json_array_size(v)) {
        af_buf_char(b, '[');
        json_array_foreach(v, i, item)
        {
            put_break(b, lines, i, depth + 1);
            put_value(b, item, lines, depth + 1);
        }
        put_break(b, lines, 0, depth);
        af_buf_char(b, ']');
    } else if (json_is_object(v) || json_is_array(v)) {
        af_buf_str(b, json_is_object(v) ? "{}" : "[]");
    } else {
        put_scalar(b, v);
    }
}

static void put_json(af_buf *b, const json_t *v) { put_value(b, v, false, 0); }

static bool is_wrapped(const json_t *tool)
{
    const char *type = json_string_value(json_object_get(tool, "type"));
    return type && strcmp(type, "function") == 0;
}

static void put_qwen(af_buf *b, const json_t *tools)
{
    size_t i;
    json_t *tool;
    af_buf_str(b, "\n\n# Tools\n\nYou may call one or more functions to assist with the user "
                  "query.\n\nYou are provided with function signatures within <tools></tools> XML "
                  "tags:\n<tools>");
    json_array_foreach(tools, i, tool)
    {
        const bool wrapped = is_wrapped(tool);
        af_buf_str(b, wrapped ? "\n" : "\n{\"type\": \"function\", \"function\": ");
        put_json(b, tool);
        af_buf_str(b, wrapped ? "" : "}");
    }
    af_buf_str(b, "\n</tools>\n\nFor each function call, return a json object with function name "
                  "and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": "
                  "<function-name>, \"arguments\": <args-json-object>}\n</tool_call>");
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

/* "  - name (type, required): what it is, should be one of [a, b]" */
static bool put_argument(af_buf *b, const char *name, const json_t *p, const json_t *required)
{
    const json_t *values = json_object_get(p, "enum"), *items = json_object_get(p, "items");
    bool must = false;
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *r = json_string_value(json_array_get(required, i));
        must |= r && strcmp(r, name) == 0;
    }
    af_buf_printf(b, "  - %s (%s%s): %s", name, text_of(p, "type"), must ? ", required" : "",
                  text_of(p, "description"));
    for (size_t i = 0; i < json_array_size(values); i++) {
        const char *value = json_string_value(json_array_get(values, i));
        if (!value)
            return false;
        af_buf_printf(b, "%s%s", i ? ", " : ", should be one of [", value);
    }
    af_buf_str(b, json_array_size(values) ? "]" : "");
    if (json_object_size(items))
        af_buf_printf(b, ", where each item should be %s", text_of(items, "type"));
    af_buf_char(b, '\n');
    return json_is_object(p);
}

static bool put_tool(af_buf *b, const json_t *f)
{
    const json_t *parameters = json_object_get(f, "parameters"),
                 *all = json_object_get(parameters, "properties");
    const char *key;
    json_t *p;
    bool ok = json_is_string(json_object_get(f, "name")) && json_is_object(all);
    af_buf_printf(b, "> Tool Name: %s\nTool Description: %s\nTool Args:\n", text_of(f, "name"),
                  text_of(f, "description"));
    json_object_foreach((json_t *)all, key, p)
    {
        ok &= put_argument(b, key, p, json_object_get(parameters, "required"));
    }
    af_buf_char(b, '\n');
    return ok;
}

static bool put_default(af_buf *b, const json_t *tools)
{
    bool ok = true;
    af_buf_str(b, "You have access to the following tools:\n");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        ok &= put_tool(b, is_wrapped(tool) ? json_object_get(tool, "function") : tool);
    }
    af_buf_str(b, "Use the following format if using a tool:\n```\nAction: tool name (one of [");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        af_buf_printf(b, "%s%s", i ? ", " : "",
                      text_of(is_wrapped(tool) ? json_object_get(tool, "function") : tool, "name"));
    }
    af_buf_str(b,
               "])\nAction Input: the input to the tool, in a JSON format representing the kwargs "
               "(e.g. ```{\"input\": \"hello world\", \"num_beams\": 5}```)\n```\n");
    return ok;
}

static const json_t *function_of(const json_t *tool)
{
    const json_t *f = is_wrapped(tool) ? json_object_get(tool, "function") : NULL;
    return f ? f : tool;
}

static void put_qwen35(af_buf *b, const json_t *tools)
{
    size_t i;
    json_t *tool;
    af_buf_str(b, "\n\n# Tools\n\nYou have access to the following functions:\n\n<tools>");
    json_array_foreach(tools, i, tool)
    {
        af_buf_char(b, '\n');
        put_json(b, function_of(tool));
    }
    af_buf_str(
        b,
        "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with "
        "NO suffix:\n\n<tool_call>\n<function=example_function_name>\n"
        "<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
        "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can "
        "span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\n"
        "Reminder:\n- Function calls MUST follow the specified format: an inner "
        "<function=...></function> block must be nested within <tool_call></tool_call> XML tags\n"
        "- Required parameters MUST be specified\n- You may provide optional reasoning for your "
        "function call in natural language BEFORE the function call, but NOT after\n- If there "
        "is no function call available, answer the question like normal with your current "
        "knowledge and do not tell the user about function calls\n</IMPORTANT>");
}

static void put_mistral(af_buf *b, const json_t *tools)
{
    size_t i;
    json_t *tool;
    af_buf_str(b, "[AVAILABLE_TOOLS] [");
    json_array_foreach(tools, i, tool)
    {
        const bool wrapped = is_wrapped(tool);
        af_buf_str(b, i ? ", " : "");
        af_buf_str(b, wrapped ? "" : "{\"type\": \"function\", \"function\": ");
        put_json(b, tool);
        af_buf_str(b, wrapped ? "" : "}");
    }
    af_buf_str(b, "][/AVAILABLE_TOOLS]");
}

static bool put_glm4(af_buf *b, const json_t *tools)
{
    bool ok = true;
    size_t i;
    json_t *tool;
    af_buf_str(b, "你是一个名为 ChatGLM 的人工智能助手。"
                  "你是基于智谱 AI 公司训练的语言模型 GLM-4 "
                  "模型开发的，"
                  "你的任务是针对用户的问题和要求"
                  "提供适当的答复和支持。\n\n# 可用工具");
    json_array_foreach(tools, i, tool)
    {
        const json_t *f = function_of(tool);
        ok &= json_is_string(json_object_get(f, "name"));
        af_buf_printf(b, "\n\n## %s\n\n", text_of(f, "name"));
        put_value(b, f, true, 0);
        af_buf_str(b, "\n在调用上述函数时，请使用 Json 格式表示调用的参数。");
    }
    return ok;
}

bool af_turn_tools_put(af_buf *b, af_turn_tools format, const json_t *tools)
{
    switch (format) {
    case AF_TURN_TOOLS_DEFAULT:
        return put_default(b, tools);
    case AF_TURN_TOOLS_GLM4:
        return put_glm4(b, tools);
    case AF_TURN_TOOLS_MISTRAL:
        put_mistral(b, tools);
        return true;
    case AF_TURN_TOOLS_QWEN35:
        put_qwen35(b, tools);
        return true;
    default:
        put_qwen(b, tools);
        return true;
    }
}

/* Before the name, between it and the arguments, after them. */
static const char *const around[][3] = {
    [AF_TURN_TOOLS_QWEN] = {"<tool_call>\n{\"name\": ", ", \"arguments\": ", "}\n</tool_call>"},
    [AF_TURN_TOOLS_DEFAULT] = {"Action: ", "\nAction Input: ", ""},
    [AF_TURN_TOOLS_GLM4] = {"", "\n", ""},
    [AF_TURN_TOOLS_LLAMA3] = {"{\"name\": ", ", \"parameters\": ", "}"},
    [AF_TURN_TOOLS_MISTRAL] = {"{\"name\": ", ", \"arguments\": ", "}"},
    [AF_TURN_TOOLS_QWEN35] = {"<tool_call>\n<function=", ">", "\n</function>\n</tool_call>"},
};

/* The parameters of a function, one by one; texts as they are. */
static bool put_parameters(af_buf *b, const json_t *arguments)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)arguments, key, v)
    {
        af_buf_printf(b, "\n<parameter=%s>\n", key);
        if (json_is_string(v))
            af_buf_add(b, json_string_value(v), json_string_length(v));
        else
            put_json(b, v);
        af_buf_str(b, "\n</parameter>");
    }
    return json_is_object(arguments);
}

bool af_turn_calls_put(af_buf *b, af_turn_tools format, const json_t *calls)
{
    const bool json = format == AF_TURN_TOOLS_LLAMA3 || format == AF_TURN_TOOLS_MISTRAL;
    const bool list = format == AF_TURN_TOOLS_MISTRAL || (json && json_array_size(calls) > 1);
    bool ok = true;
    size_t i;
    json_t *call;
    af_buf_str(b, list ? "[" : "");
    json_array_foreach(calls, i, call)
    {
        const json_t *f = json_object_get(call, "function");
        const json_t *name = json_object_get(f ? f : call, "name");
        const json_t *arguments = json_object_get(f ? f : call, "arguments");
        if (!json_is_string(name) || !arguments)
            return false;
        af_buf_str(b, i ? json ? ", " : "\n" : "");
        af_buf_str(b, around[format][0]);
        if (json || format == AF_TURN_TOOLS_QWEN)
            put_json(b, name);
        else
            af_buf_str(b, json_string_value(name));
        af_buf_str(b, around[format][1]);
        if (format == AF_TURN_TOOLS_QWEN35)
            ok &= put_parameters(b, arguments);
        else
            put_json(b, arguments);
        af_buf_str(b, around[format][2]);
    }
    af_buf_str(b, list ? "]" : "");
    return ok && !(format == AF_TURN_TOOLS_GLM4 && json_array_size(calls) > 1);
}
