/* json_edit.c - see json_edit.h. */
#include "format/text/json_edit.h"

#include "base/buf.h"
#include "format/text/json_text.h"

/* After the string that begins at text[i]. */
static uint64_t skip_string(const char *text, uint64_t len, uint64_t i)
{
    for (i++; i < len && text[i] != '"'; i++)
        i += text[i] == '\\';
    return i + 1;
}

bool af_json_find(const char *text, uint64_t len, const char *key, uint64_t *from, uint64_t *to)
{
    const size_t n = strlen(key);
    int depth = 0;
    bool found = false;
    for (uint64_t i = 0; i < len; i++) {
        const char c = text[i];
        if (c == '"') {
            const uint64_t end = skip_string(text, len, i);
            const bool match = depth == 1 && end - i == n + 2 && !memcmp(text + i + 1, key, n);
            i = end - 1;
            uint64_t next = end;
            while (next < len && strchr(" \t\r\n", text[next]))
                next++;
            if (match && !found && next < len && text[next] == ':') {
                found = true;
                *from = i = next;
                ++*from;
            }
            continue;
        }
        const bool closes = c == ']' || c == '}';
        if (found && depth == 1 && (c == ',' || closes)) {
            *to = i;
            return true;
        }
        depth += (c == '[' || c == '{') - closes;
    }
    return false;
}

json_t *af_json_text_get(const af_json_text *d, const char *key)
{
    uint64_t from = 0, to = 0;
    return af_json_find(d->text, d->len, key, &from, &to)
               ? af_json_load(d->text + from, to - from, JSON_DECODE_ANY, NULL)
               : NULL;
}

static bool is_empty(const char *inside, uint64_t len)
{
    uint64_t i = 0;
    while (i < len && strchr(" \t\r\n", inside[i]))
        i++;
    return i < len && inside[i] == '}';
}

void af_json_text_set(af_json_text *d, const char *key, json_t *value)
{
    uint64_t from = 0, to = 0;
    const bool has = af_json_find(d->text, d->len, key, &from, &to);
    const char *brace = memchr(d->text, '{', d->len);
    char *made = value ? af_json_dump(value, JSON_ENCODE_ANY | JSON_INDENT(2)) : NULL;
    af_buf b = {0};
    if (!has)
        from = to = brace ? (uint64_t)(brace - d->text) + 1 : 0;
    af_buf_add(&b, d->text, from);
    if (has)
        af_buf_printf(&b, " %s", made ? made : "");
    else
        af_buf_printf(&b, "\n  \"%s\": %s%s", key, made ? made : "",
                      is_empty(d->text + from, d->len - from) ? "" : ",");
    /* the space before the next key or the end of the object */
    while (has && to > from && strchr(" \t\r\n", d->text[to - 1]))
        to--;
    af_buf_add(&b, d->text + to, d->len - to);
    d->bad |= !brace || !made || b.bad;
    if (!d->bad) {
        free(d->text);
        d->text = b.data;
        d->len = b.len;
        b = (af_buf){0};
    }
    af_buf_clear(&b);
    free(made);
    json_decref(value);
}
