/* request_head.c - reads the head of a request; see request_head.h. */
#include "serve/http/request_head.h"

#include <strings.h>

uint64_t af_request_head_end(const char *text, uint64_t n)
{
    uint64_t at = 0;
    while (at < n) {
        const char *lf = memchr(text + at, '\n', n - at);
        if (!lf)
            return 0;
        at = (uint64_t)(lf - text) + 1;
        if (at < n && text[at] == '\n')
            return at + 1;
        if (at + 1 < n && text[at] == '\r' && text[at + 1] == '\n')
            return at + 2;
    }
    return 0;
}

static bool is_token(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool all_token(const char *s)
{
    if (!*s)
        return false;
    for (; *s; s++)
        if (!is_token(*s))
            return false;
    return true;
}

/* The line at *at, cut at its CRLF; NULL when it does not end in one or has control characters. */
static char *take_line(char **at, char *end)
{
    char *line = *at, *lf = memchr(line, '\n', (size_t)(end - line));
    if (!lf || lf == line || lf[-1] != '\r')
        return NULL;
    lf[-1] = '\0';
    *at = lf + 1;
    for (const char *c = line; c < lf - 1; c++)
        if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7f)
            return NULL;
    return line;
}

static int parse_request_line(af_request_head *h, char *line, const char **why)
{
    char *target = strchr(line, ' ');
    char *version = target ? strchr(target + 1, ' ') : NULL;
    *why = "the request line is not METHOD PATH HTTP/1.1";
    if (!version || strchr(version + 1, ' '))
        return 400;
    *target++ = '\0';
    *version++ = '\0';
    if (!all_token(line) || *target != '/')
        return 400;
    for (const char *c = target; *c; c++)
        if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7f)
            return 400;
    if (strncmp(version, "HTTP/", 5) != 0)
        return 400;
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0) {
        *why = "the version is not HTTP/1.1 or HTTP/1.0";
        return 505;
    }
    h->minor = version[7] - '0';
    h->method = line;
    h->path = target;
    char *query = strchr(target, '?');
    h->query = query ? query + 1 : "";
    if (query)
        *query = '\0';
    return 0;
}

static int parse_field(af_request_head *h, char *line, const char **why)
{
    char *colon = strchr(line, ':');
    *why = "a header line is not NAME: VALUE";
    if (!colon)
        return 400;
    *colon++ = '\0';
    if (!all_token(line))
        return 400;
    while (*colon == ' ' || *colon == '\t')
        colon++;
    char *end = colon + strlen(colon);
    while (end > colon && (end[-1] == ' ' || end[-1] == '\t'))
        *--end = '\0';
    if (h->fields == AF_HEAD_FIELDS_MAX) {
        *why = "the request has too many headers";
        return 431;
    }
    h->field[h->fields++] = (af_head_field){line, colon};
    return 0;
}

const char *af_request_field(const af_request_head *h, const char *name)
{
    for (int i = 0; i < h->fields; i++)
        if (strcasecmp(h->field[i].name, name) == 0)
            return h->field[i].value;
    return NULL;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

void af_request_unescape(const char *s, size_t n, char *out, size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < n && at + 1 < size; i++) {
        const int hi = s[i] == '%' && n - i > 2 ? hex_digit(s[i + 1]) : -1,
                  lo = hi >= 0 ? hex_digit(s[i + 2]) : -1;
        out[at++] = lo >= 0 ? (char)(hi * 16 + lo) : s[i];
        i += lo >= 0 ? 2 : 0;
    }
    out[at] = '\0';
}

const char *af_request_query(const af_request_head *h, const char *name, char *out, size_t size)
{
    const size_t n = strlen(name);
    for (const char *at = h->query; *at; at += strspn(at, "&")) {
        const size_t len = strcspn(at, "&");
        if (len > n && strncmp(at, name, n) == 0 && at[n] == '=') {
            af_request_unescape(at + n + 1, len - n - 1, out, size);
            return out;
        }
        at += len;
    }
    return NULL;
}

static int count_of(const af_request_head *h, const char *name)
{
    int n = 0;
    for (int i = 0; i < h->fields; i++)
        n += strcasecmp(h->field[i].name, name) == 0;
    return n;
}

/* One of the words of a comma-separated list. */
static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    while (list && *list) {
        list += strspn(list, " \t,");
        const size_t k = strcspn(list, " \t,;");
        if (k == n && strncasecmp(list, word, n) == 0)
            return true;
        list += strcspn(list, ",");
    }
    return false;
}

static int parse_length(af_request_head *h, const char **why)
{
    const char *length = af_request_field(h, "Content-Length");
    const char *coding = af_request_field(h, "Transfer-Encoding");
    if (count_of(h, "Content-Length") > 1 || count_of(h, "Transfer-Encoding") > 1 ||
        (length && coding)) {
        *why = "the request has more than one length";
        return 400;
    }
    if (coding && (strcasecmp(coding, "chunked") != 0 || h->minor == 0)) {
        *why = "the only transfer coding is chunked";
        return 501;
    }
    h->chunked = coding != NULL;
    h->has_body = h->chunked;
    if (!length)
        return 0;
    *why = "Content-Length is not a number";
    if (!*length || strlen(length) > 18)
        return 400;
    for (const char *c = length; *c; c++) {
        if (*c < '0' || *c > '9')
            return 400;
        h->body = h->body * 10 + (uint64_t)(*c - '0');
    }
    h->has_body = h->body > 0;
    return 0;
}

int af_request_head_parse(af_request_head *out, char *text, uint64_t n, const char **why)
{
    char *at = text, *end = text + n;
    int status;
    *out = (af_request_head){0};
    if (n > AF_HEAD_BYTES_MAX) {
        *why = "the request head is larger than 16 KiB";
        return 431;
    }
    char *line = take_line(&at, end);
    *why = "the request line has control characters or does not end in CRLF";
    if (!line)
        return 400;
    status = parse_request_line(out, line, why);
    while (status == 0 && at < end) {
        line = take_line(&at, end);
        if (!line) {
            *why = "a header has control characters or does not end in CRLF";
            return 400;
        }
        if (!*line)
            break;
        status = parse_field(out, line, why);
    }
    if (status == 0)
        status = parse_length(out, why);
    if (status == 0 &&
        (count_of(out, "Host") > 1 || (out->minor == 1 && count_of(out, "Host") == 0))) {
        *why = "the request has not exactly one Host";
        status = 400;
    }
    const char *connection = af_request_field(out, "Connection");
    out->keep_alive =
        out->minor == 1 ? !has_word(connection, "close") : has_word(connection, "keep-alive");
    out->expects_continue =
        out->minor == 1 && has_word(af_request_field(out, "Expect"), "100-continue");
    return status;
}
