/* json_text.c - see json_text.h. */
#include "format/text/json_text.h"
#include "afinar/text.h"
#include "base/buf.h"
#include "base/file.h"

#include <math.h>

/* ---- jansson's allocator ---- */

/* The parse of a thread. Jansson's lexer collects each token in a buffer that begins with 16 bytes
 * and doubles. When it cannot grow a byte is lost, and an assertion fails or the parse continues
 * without it. So the lexer's requests never fail: after the first failure they are met from a
 * reserve, all others fail, and the parse ends at its next value (each one but true, false and null
 * needs a block of another size). */
typedef struct json_parse {
    bool active, failed;
    void *token, *last;     /* the lexer's buffer; the latest block */
    size_t size, last_size; /* bytes of them */
    char *start, *at, *end; /* the reserve */
} json_parse;

static _Thread_local json_parse parse;
static json_malloc_t take;
static json_free_t release;

static void *take_reserve(size_t n)
{
    if (!parse.active || !parse.token || n != 2 * parse.size || n > (size_t)(parse.end - parse.at))
        return NULL;
    parse.at += n;
    return parse.at - n;
}

static void *take_or_note(size_t n)
{
    void *p = parse.failed ? NULL : take(n);
    if (!p) {
        af_memory_note();
        parse.failed = parse.active;
        p = take_reserve(n);
    }
    if (p && parse.active) {
        if (!parse.token) { /* the first block of a parse is the lexer's */
            parse.token = p;
            parse.size = n;
        }
        parse.last = p;
        parse.last_size = n;
    }
    return p;
}

static void release_any(void *p)
{
    if (parse.active && p && p == parse.token) { /* it has grown into the latest block */
        parse.token = parse.last;
        parse.size = parse.last_size;
    }
    if (!parse.active || (uintptr_t)p < (uintptr_t)parse.start ||
        (uintptr_t)p >= (uintptr_t)parse.end)
        release(p);
}

/* Before main: no tree may exist yet. What a program set before is kept below ours. */
__attribute__((constructor)) static void install_allocator(void)
{
    json_get_alloc_funcs(&take, &release);
    json_set_alloc_funcs(take_or_note, release_any);
}

/* At least as many bytes as the longest token has. */
static uint64_t longest_token(const char *text, uint64_t n)
{
    const char *at = text, *end = text + n, *from = text;
    uint64_t most = 0;
    bool string = false;
    while (at < end) {
        const char *quote = memchr(at, '"', (size_t)(end - at));
        const char *back = quote ? quote : end;
        while (string && back > from && back[-1] == '\\')
            back--;
        at = quote ? quote + 1 : end;
        if (string && quote && (quote - back) % 2 == 1)
            continue; /* escaped */
        most = AF_MAX(most, (uint64_t)(at - from));
        string = !string;
        from = at;
    }
    return most + 2;
}

/* ---- text and trees ---- */

json_t *af_json_load(const char *text, uint64_t n, size_t flags, json_error_t *why)
{
    enum { SHORT = 1 << 14 };
    _Alignas(16) char short_reserve[SHORT];
    const uint64_t bytes = AF_MIN(longest_token(text, n), UINT64_MAX / 16) * 8;
    char *reserve = bytes > SHORT ? af_realloc(NULL, bytes, 1) : short_reserve;
    json_t *tree = NULL;
    if (reserve) {
        const uint64_t size = AF_MAX(bytes, (uint64_t)SHORT);
        parse =
            (json_parse){.active = true, .start = reserve, .at = reserve, .end = reserve + size};
        tree = json_loadb(text, n, flags, why);
        if (af_memory_failed()) {
            json_decref(tree);
            tree = NULL;
        }
        parse = (json_parse){0};
    }
    if (reserve != short_reserve)
        free(reserve);
    if (why && af_memory_failed()) {
        why->line = 1;
        snprintf(why->text, sizeof why->text, "the text could not be parsed");
    }
    return tree;
}

/* Length of the word for a float that JSON lacks at `at`; 0 = none. */
static size_t float_word(const char *at, const char *end)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < AF_LEN(words); i++) {
        const size_t n = strlen(words[i]);
        if ((size_t)(end - at) >= n && memcmp(at, words[i], n) == 0)
            return n;
    }
    return 0;
}

json_t *af_json_load_python(const char *text, uint64_t n, size_t flags, json_error_t *why)
{
    json_t *tree = af_json_load(text, n, flags, why);
    if (tree || af_memory_failed())
        return tree;
    af_buf b = {0};
    bool string = false, any = false;
    for (const char *at = text, *end = text + n; at < end; at++) {
        const size_t word = string ? 0 : float_word(at, end);
        if (word) {
            af_buf_printf(&b, "{\"__float__\": \"%.*s\"}", (int)word, at);
            at += word - 1;
            any = true;
            continue;
        }
        if (string && *at == '\\' && at + 1 < end)
            af_buf_char(&b, *at++);
        else if (*at == '"')
            string = !string;
        af_buf_char(&b, *at);
    }
    if (any && !b.bad)
        tree = af_json_load(b.data, b.len, flags, why);
    af_buf_clear(&b);
    return tree;
}

char *af_json_dump(const json_t *tree, size_t flags)
{
    char *text = json_dumps(tree, flags);
    if (!af_memory_failed())
        return text;
    free(text);
    return NULL;
}

enum { FILE_BYTES_MAX = 1 << 30 };
enum { DEPTH_MAX = 64 }; /* deeper ones keep their numbers as they were read */

/* An integer again, or NULL where the number is none, or as large as those that did not fit. */
static json_t *whole(const json_t *v)
{
    const double x = json_real_value(v);
    return json_is_real(v) && x == floor(x) && fabs(x) < 0x1p53 ? json_integer((json_int_t)x)
                                                                : NULL;
}

static void make_whole(json_t *v, int depth)
{
    const char *key;
    json_t *item, *number;
    size_t i;
    void *next;
    if (depth == DEPTH_MAX)
        return;
    json_object_foreach_safe(v, next, key, item)
    {
        number = whole(item);
        if (number && json_object_set_new(v, key, number) != 0)
            return;
        if (!number)
            make_whole(item, depth + 1);
    }
    json_array_foreach(v, i, item)
    {
        number = whole(item);
        if (number && json_array_set_new(v, i, number) != 0)
            return;
        if (!number)
            make_whole(item, depth + 1);
    }
}

static af_status parse_text(json_t **out, const char *text, uint64_t n, bool python,
                            const char *path, af_error *err)
{
    json_error_t why;
    *out = python ? af_json_load_python(text, n, JSON_ALLOW_NUL, &why)
                  : af_json_load(text, n, JSON_ALLOW_NUL, &why);
    if (!*out && !af_memory_failed() && json_error_code(&why) == json_error_numeric_overflow) {
        *out = af_json_load(text, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
        make_whole(*out, 0);
    }
    const af_status st = af_memory_check(err);
    if (st != AF_OK) {
        json_decref(*out);
        *out = NULL;
        return af_fail_prefix(st, err, "%s", path);
    }
    return *out ? AF_OK : af_fail(err, AF_EFORMAT, "%s:%d: %s", path, why.line, why.text);
}

af_status af_json_parse(json_t **out, const char *text, uint64_t n, const char *path, af_error *err)
{
    return parse_text(out, text, n, false, path, err);
}

af_status af_json_read_file(json_t **out, const char *path, af_error *err)
{
    char *text = NULL;
    uint64_t n = 0;
    af_status st = af_file_read(&text, &n, path, FILE_BYTES_MAX, err);
    if (st == AF_OK)
        st = parse_text(out, text, n, true, path, err);
    free(text);
    return st;
}

af_status af_json_tree(json_t **out, const char *text, uint64_t n, uint64_t flags, af_error *err)
{
    AF_NEED(err, out, text || !n);
    json_error_t why;
    json_t *tree = af_json_load(text, n, flags, &why);
    if (!tree)
        return af_fail(err, AF_EFORMAT, "%s", why.text);
    *out = tree;
    return AF_OK;
}
