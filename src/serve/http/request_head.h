/* request_head.h - the head of an HTTP/1.x request, read strictly.
 *
 * A pure function of its bytes: no connection, no time. Whatever two servers in a row could
 * understand differently (lines that end in LF alone, folded lines, a space before a colon, two
 * lengths) is refused. */
#ifndef AF_REQUEST_HEAD_H
#define AF_REQUEST_HEAD_H

#include "base/base.h"

enum {
    AF_HEAD_BYTES_MAX = 16 << 10, /* of a request head, the empty line included */
    AF_HEAD_FIELDS_MAX = 100,
};

typedef struct af_head_field {
    const char *name, *value; /* value without spaces around it; both end with NUL */
} af_head_field;

typedef struct af_request_head {
    const char *method, *path; /* path without its query, as it was sent */
    const char *query;         /* after the '?', or "" */
    int minor;                 /* HTTP/1.minor */
    af_head_field field[AF_HEAD_FIELDS_MAX];
    int fields;
    uint64_t body; /* Content-Length, 0 without one */
    bool has_body; /* a length above 0, or chunked */
    bool chunked;
    bool keep_alive, expects_continue;
} af_request_head;

/* The bytes of the head at the beginning of `text`, its empty line included; 0: not complete. */
uint64_t af_request_head_end(const char *text, uint64_t n);
/* Reads a complete head of n bytes, in place: `text` is changed, and pointed to by *out. Returns 0,
 * or the status of the answer (400, 411, 431, 501, 505) with the reason in *why. */
int af_request_head_parse(af_request_head *out, char *text, uint64_t n, const char **why);
/* The value of a field, any case; NULL when absent. */
const char *af_request_field(const af_request_head *h, const char *name);
/* n bytes of a path or query with %XX as the byte it stands for, cut at size - 1 bytes. */
void af_request_unescape(const char *s, size_t n, char *out, size_t size);
/* The value of NAME=VALUE in the query, unescaped, cut at size - 1 bytes; NULL when absent. */
const char *af_request_query(const af_request_head *h, const char *name, char *out, size_t size);
#endif
