/* fuzz_tool_call.c - an answer from anywhere through the reader of tool calls, whole and in pieces:
 * both say the same. */
#include "grammar/tool_call.h"

#include "base/buf.h"
#include "format/text/json_text.h"

static const char tools_text[] =
    "[{\"function\":{\"name\":\"a\",\"parameters\":{\"properties\":{\"x\":{\"type\":"
    "\"string\"},\"n\":{\"type\":[\"integer\",\"null\"]}}}}}]";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_content(void *user, const char *text, uint64_t n) { af_buf_add(user, text, n); }

static void on_call(void *user, const af_tool_call *c)
{
    af_buf_printf(user, "\x01%d %s %s\x02", c->index, c->name, c->arguments);
}

static void feed(af_buf *out, const uint8_t *data, size_t size, size_t piece)
{
    af_error err;
    af_tool_parser *p = NULL;
    const af_tool_sink sink = {on_content, on_call, out};
    json_t *tools = af_json_load(tools_text, sizeof tools_text - 1, 0, NULL);
    if (!tools || af_tool_parser_new(&p, AF_TOOL_LLAMA, tools, 1, &sink, &err) != AF_OK) {
        json_decref(tools);
        return;
    }
    for (size_t at = 0; at < size; at += piece)
        if (af_tool_parser_add(p, (const char *)data + at, AF_MIN(piece, size - at), &err) != AF_OK)
            break;
    if (af_tool_parser_finish(p, &err) != AF_OK)
        out->bad = true;
    af_tool_parser_free(p);
    json_decref(tools);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_buf whole = {0}, pieces = {0};
    feed(&whole, data, size, size ? size : 1);
    feed(&pieces, data, size, 3);
    if (!whole.bad && !pieces.bad &&
        (whole.len != pieces.len || (whole.len && memcmp(whole.data, pieces.data, whole.len) != 0)))
        abort();
    af_buf_clear(&whole);
    af_buf_clear(&pieces);
    return 0;
}
