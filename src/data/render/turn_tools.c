/* turn_tools.c - tools and calls in turn templates whose tool format is Qwen's: the system text
 * tells the tools as lines of JSON, a call is JSON between <tool_call> marks. JSON is written as
 * Python's json.dumps(ensure_ascii=False) does. */
#include "data/render/turn_tools.h"

#include "base/word.h"
#include "format/text/json_text.h"
#include "format/text/python_text.h"

enum { DEPTH_MAX = 64 };

bool af_turn_tools_known(const char *template)
{
    return af_word_listed(template, "qwen qwen3 qwen3_nothink qwen2_vl qwen3_vl qwen3_vl_nothink "
                                    "qwen2_omni qwen3_omni qwen3_omni_nothink keye_vl mimo mimo_v2 "
                                    "mimo_vl llava_next_qwen");
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

void af_turn_tools_put(af_buf *b, const json_t *tools)
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

bool af_turn_calls_put(af_buf *b, const json_t *calls)
{
    size_t i;
    json_t *call;
    json_array_foreach(calls, i, call)
    {
        const json_t *f = json_object_get(call, "function");
        const json_t *name = json_object_get(f ? f : call, "name");
        const json_t *arguments = json_object_get(f ? f : call, "arguments");
        if (!json_is_string(name) || !arguments)
            return false;
        af_buf_str(b, i ? "\n<tool_call>\n{\"name\": " : "<tool_call>\n{\"name\": ");
        put_json(b, name, 0);
        af_buf_str(b, ", \"arguments\": ");
        put_json(b, arguments, 0);
        af_buf_str(b, "}\n</tool_call>");
    }
    return true;
}
