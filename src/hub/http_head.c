/* http_head.c - heads of HTTP answers and addresses: pure functions on untrusted text. */
#define _GNU_SOURCE /* strptime, timegm */
#include "hub/http.h"

#include <ctype.h>
#include <strings.h>
#include <time.h>

void af_http_head_init(af_http_head *h)
{
    *h = (af_http_head){.content_length = -1, .range_total = -1, .linked_size = -1};
}

/* A number that fits and ends where the text does. */
static bool number(const char *s, const char *end, int64_t *out)
{
    int64_t v = 0;
    if (s == end)
        return false;
    for (; s < end; s++)
        if (*s < '0' || *s > '9' || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, *s - '0', &v))
            return false;
    *out = v;
    return true;
}

static void take(char *out, size_t size, const char *s, const char *end)
{
    const size_t n = (size_t)(end - s);
    out[0] = '\0';
    if (n >= size || memchr(s, '\0', n))
        return;
    memcpy(out, s, n);
    out[n] = '\0';
}

/* W/"abc" is abc. */
static void take_etag(char *out, size_t size, const char *s, const char *end)
{
    if (end - s > 2 && s[0] == 'W' && s[1] == '/')
        s += 2;
    if (end - s >= 2 && s[0] == '"' && end[-1] == '"') {
        s++;
        end--;
    }
    take(out, size, s, end);
}

/* "bytes 0-9/100"; "bytes * / 100" of a 416 gives only the total. */
static void take_range(af_http_head *h, const char *s, const char *end)
{
    int64_t from = 0, to = 0, total = -1;
    if (end - s < 6 || strncasecmp(s, "bytes ", 6) != 0)
        return;
    s += 6;
    const char *slash = memchr(s, '/', (size_t)(end - s));
    const char *dash = slash ? memchr(s, '-', (size_t)(slash - s)) : NULL;
    if (!slash || (slash[1] != '*' && !number(slash + 1, end, &total)))
        return;
    h->range_total = total;
    if (!dash || !number(s, dash, &from) || !number(dash + 1, slash, &to) || to < from)
        return;
    h->has_range = true;
    h->range_from = (uint64_t)from;
    h->range_to = (uint64_t)to;
}

/* <https://...>; rel="next" among others. */
static void take_next(af_http_head *h, const char *s, const char *end)
{
    while (s < end) {
        const char *open = memchr(s, '<', (size_t)(end - s));
        const char *close = open ? memchr(open, '>', (size_t)(end - open)) : NULL;
        if (!close)
            return;
        const char *stop = memchr(close, ',', (size_t)(end - close));
        stop = stop ? stop : end;
        for (const char *p = close; p + 8 <= stop; p++)
            if (strncasecmp(p, "rel=next", 8) == 0 ||
                (p + 10 <= stop && strncasecmp(p, "rel=\"next\"", 10) == 0)) {
                take(h->next, sizeof h->next, open + 1, close);
                return;
            }
        s = stop + (stop < end);
    }
}

static void take_field(af_http_head *h, const char *name, size_t n, const char *s, const char *end)
{
#define IS(text) (n == sizeof(text) - 1 && strncasecmp(name, text, n) == 0)
    if (IS("etag")) {
        take(h->etag_text, sizeof h->etag_text, s, end);
        take_etag(h->etag, sizeof h->etag, s, end);
    } else if (IS("x-linked-etag"))
        take_etag(h->linked_etag, sizeof h->linked_etag, s, end);
    else if (IS("x-linked-size"))
        (void)number(s, end, &h->linked_size);
    else if (IS("content-length"))
        (void)number(s, end, &h->content_length);
    else if (IS("content-range"))
        take_range(h, s, end);
    else if (IS("location"))
        take(h->location, sizeof h->location, s, end);
    else if (IS("link"))
        take_next(h, s, end);
    else if (IS("retry-after"))
        take(h->retry_after, sizeof h->retry_after, s, end);
    else if (IS("ratelimit"))
        take(h->rate_limit, sizeof h->rate_limit, s, end);
    else if (IS("x-error-code"))
        take(h->error_code, sizeof h->error_code, s, end);
    else if (IS("x-error-message"))
        take(h->error_message, sizeof h->error_message, s, end);
#undef IS
}

bool af_http_head_add(af_http_head *h, const char *line, uint64_t n)
{
    const char *end = line + n;
    const uint64_t bytes = h->bytes + n;
    const int lines = h->lines + 1;
    if (bytes > AF_HTTP_HEAD_BYTES || lines > AF_HTTP_HEAD_LINES) {
        h->bad = true;
        return false;
    }
    while (end > line && (end[-1] == '\r' || end[-1] == '\n'))
        end--;
    if (end - line > 8 && strncasecmp(line, "HTTP/", 5) == 0) {
        const char *code = memchr(line, ' ', (size_t)(end - line));
        int64_t status = 0;
        af_http_head_init(h);
        if (code && end - code >= 4 && number(code + 1, code + 4, &status))
            h->status = (int)status;
    }
    h->bytes = bytes; /* of all heads: 100 Continue without end is not one either */
    h->lines = lines;
    const char *colon = memchr(line, ':', (size_t)(end - line));
    if (!colon)
        return true;
    const char *value = colon + 1;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    take_field(h, line, (size_t)(colon - line), value, end);
    return true;
}

/* The number of ";NAME=NUMBER" in a list of parameters; -1: there is none. */
static int64_t parameter(const char *s, char name)
{
    int64_t value = 0;
    for (s = strchr(s, ';'); s; s = strchr(s, ';')) {
        s += 1 + strspn(s + 1, " \t");
        if (s[0] == name && s[1] == '=' &&
            number(s + 2, s + 2 + strspn(s + 2, "0123456789"), &value))
            return value;
    }
    return -1;
}

double af_http_retry_after(const af_http_head *h, int64_t now)
{
    int64_t seconds = 0;
    struct tm tm = {0};
    const int64_t reset =
        h->status == 429 && parameter(h->rate_limit, 'r') == 0 ? parameter(h->rate_limit, 't') : -1;
    if (reset >= 0)
        return (double)reset + 1; /* it is rounded */
    if (number(h->retry_after, h->retry_after + strlen(h->retry_after), &seconds))
        return (double)seconds;
    if (!*h->retry_after || !strptime(h->retry_after, "%a, %d %b %Y %H:%M:%S GMT", &tm))
        return -1;
    const int64_t at = (int64_t)timegm(&tm);
    return at > now ? (double)(at - now) : 0;
}

/* ---- addresses ---- */

static bool is_plain(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s <= ' ' || *s == 0x7f)
            return false;
    return true;
}

bool af_url_origin(char out[300], const char *url)
{
    const bool tls = strncasecmp(url, "https://", 8) == 0;
    if (!tls && strncasecmp(url, "http://", 7) != 0)
        return false;
    const char *host = url + (tls ? 8 : 7);
    const size_t n = strcspn(host, "/?#");
    if (n == 0 || n > 250 || !is_plain(url) || memchr(host, '@', n) || memchr(host, '\\', n))
        return false;
    const char *port = n && host[n - 1] != ']' ? memrchr(host, ':', n) : NULL;
    int len = snprintf(out, 300, "%s://%.*s%s", tls ? "https" : "http", (int)n, host,
                       port  ? ""
                       : tls ? ":443"
                             : ":80");
    for (int i = 0; i < len; i++)
        out[i] = (char)tolower((unsigned char)out[i]);
    return true;
}

bool af_url_join(char out[AF_HTTP_URL_MAX], const char *base, const char *location)
{
    char origin[300];
    const char *path = strstr(base, "://");
    int n;
    if (!*location || !path || !af_url_origin(origin, base))
        return false;
    path = path + 3 + strcspn(path + 3, "/?#");
    if (strncasecmp(location, "http://", 7) == 0 || strncasecmp(location, "https://", 8) == 0)
        n = snprintf(out, AF_HTTP_URL_MAX, "%s", location);
    else if (strncmp(location, "//", 2) == 0)
        n = snprintf(out, AF_HTTP_URL_MAX, "%.*s%s", (int)(strstr(base, "://") + 1 - base), base,
                     location);
    else if (*location == '/')
        n = snprintf(out, AF_HTTP_URL_MAX, "%.*s%s", (int)(path - base), base, location);
    else
        return false; /* no hub sends one */
    out[strcspn(out, "#")] = '\0';
    return n > 0 && n < AF_HTTP_URL_MAX && af_url_origin(origin, out);
}

void af_url_quote(af_buf *b, const char *text, bool slash)
{
    for (const char *s = text; *s; s++)
        if (isalnum((unsigned char)*s) || strchr("-._~", *s) || (slash && *s == '/'))
            af_buf_char(b, *s);
        else
            af_buf_printf(b, "%%%02X", (unsigned)(unsigned char)*s);
}
