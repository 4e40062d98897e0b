/* turn_tools.c - tools and calls in turn templates, in two of LLaMA-Factory's tool formats. Qwen's:
 * the system text tells the tools as lines of JSON, a call is JSON between <tool_call> marks. The
 * default one: tools and their arguments as text, a call as "Action: ...". JSON is written as
 * Python's json.dumps(ensure_ascii=False) does. */
#include "data/render/turn_tools.h"

#include "base/word.h"
#include "format/text/json_text.h"
#include "format/text/python_text.h"

enum { DEPTH_MAX = 2048 }; /* what jansson reads */

af_turn_tools af_turn_tools_of(const char *template)
{
    static const char qwen[] = "qwen qwen3 qwen3_nothink qwen2_vl qwen3_vl qwen3_vl_nothink "
                               "qwen2_omni qwen3_omni qwen3_omni_nothink keye_vl mimo mimo_v2 "
                               "mimo_vl llava_next_qwen";
    static const char others[] =
        "aeva bailing_v2 chatglm3 gemma4 gemma4n glm4 glm4v glm4_moe glm4_5v glm4_7 glm_ocr glmz1 "
        "lfm2 lfm2_vl llama3 llama4 mllama llava_next_llama3 llava_next_mistral "
        "llava_next_video_mistral minimax1 minimax2 ministral ministral3 mistral mistral_small "
        "pixtral qwen3_5 qwen3_5_nothink qwen3_6 seed_oss";
    return af_word_listed(template, qwen)     ? AF_TURN_TOOLS_QWEN
           : af_word_listed(template, others) ? AF_TURN_TOOLS_NONE
                                              : AF_TURN_TOOLS_DEFAULT;
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

static void put_json(af_buf *b, const json_t *v, int depth)
{
    const char *key;
    json_t *item;
    size_t i = 0;
    if (depth > DEPTH_MAX || b->bad) {
        b->bad = true;
    } else if (json_is_object(v)) {
        af_buf_char(b, '{');
        json_object_foreach((json_t *)v, key, item)
        {
            json_t *name = json_string(key);
            af_buf_str(b, i++ ? ", " : "");
            put_scalar(b, name);
            json_decref(name);
            af_buf_str(b, ": ");
            put_json(b, item, depth + 1);
        }
        af_buf_char(b, '}');
    } else if (json_is_array(v)) {
        af_buf_char(b, '[');
        json_array_foreach(v, i, item)
        {
            af_buf_str(b, i ? ", " : "");
            put_json(b, item, depth + 1);
        }
        af_buf_char(b, ']');
    } else {
        put_scalar(b, v);
    }
}

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
        put_json(b, tool, 0);
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

bool af_turn_tools_put(af_buf *b, af_turn_tools format, const json_t *tools)
{
    if (format == AF_TURN_TOOLS_DEFAULT)
        return put_default(b, tools);
    put_qwen(b, tools);
    return true;
}

bool af_turn_calls_put(af_buf *b, af_turn_tools format, const json_t *calls)
{
    const bool qwen = format == AF_TURN_TOOLS_QWEN;
    size_t i;
    json_t *call;
    json_array_foreach(calls, i, call)
    {
        const json_t *f = json_object_get(call, "function");
        const json_t *name = json_object_get(f ? f : call, "name");
        const json_t *arguments = json_object_get(f ? f : call, "arguments");
        if (!json_is_string(name) || !arguments)
            return false;
        af_buf_str(b, i ? "\n" : "");
        af_buf_str(b, qwen ? "<tool_call>\n{\"name\": " : "Action: ");
        if (qwen)
            put_json(b, name, 0);
        else
            af_buf_str(b, json_string_value(name));
        af_buf_str(b, qwen ? ", \"arguments\": " : "\nAction Input: ");
        put_json(b, arguments, 0);
        af_buf_str(b, qwen ? "}\n</tool_call>" : "");
    }
    return true;
}
