/* http.h - one HTTP request and its answer, and what carries them.
 *
 * A transport only moves bytes: it follows no redirect, repeats nothing, and knows no token. All
 * decisions are made above it (hub_ask.h), so that tests may put another one in its place. */
#ifndef AF_HTTP_H
#define AF_HTTP_H

#include "base/buf.h"

enum {
    AF_HTTP_HEAD_BYTES = 64 << 10, /* of all headers of an answer */
    AF_HTTP_HEAD_LINES = 256,
    AF_HTTP_URL_MAX = 8192,
    AF_HTTP_HEADERS = 8 /* of a request */
};

/* What we read of an answer's head. Texts that are absent, or too long to be meant, are "". */
typedef struct af_http_head {
    int status;
    int64_t content_length; /* -1 = absent */
    bool has_range;         /* Content-Range: bytes FROM-TO/TOTAL */
    uint64_t range_from, range_to;
    int64_t range_total; /* -1 = "*" */
    int64_t linked_size; /* -1 = absent */
    char etag_text[130]; /* with its quotes */
    char etag[130], linked_etag[130], error_code[64], error_message[400], retry_after[64];
    char rate_limit[100];
    char location[AF_HTTP_URL_MAX], next[AF_HTTP_URL_MAX]; /* Link: <next>; rel="next" */
    uint64_t bytes;
    int lines;
    bool bad; /* too large */
} af_http_head;

void af_http_head_init(af_http_head *h);
/* Takes one line of a head; a status line begins a new one (after 100 Continue). False when the
 * head is larger than any answer of a hub. */
bool af_http_head_add(af_http_head *h, const char *line, uint64_t n);
/* Seconds to wait by RateLimit (of the Hugging Face hub: "api";r=0;t=SECONDS) or by Retry-After (a
 * number, or a date; now = seconds since 1970), or -1. */
double af_http_retry_after(const af_http_head *h, int64_t now);

/* ---- addresses ---- */

/* "https://host:port" of an http or https address, in lower case; false for anything else. */
bool af_url_origin(char out[300], const char *url);
/* The address that a Location of `base` means; false when it is not one. */
bool af_url_join(char out[AF_HTTP_URL_MAX], const char *base, const char *location);
/* Percent-encodes all but letters, digits and "-._~" (and '/', with `slash`). */
void af_url_quote(af_buf *b, const char *text, bool slash);

/* ---- requests ---- */

typedef enum af_http_result { AF_HTTP_PENDING, AF_HTTP_ANSWERED, AF_HTTP_FAILED } af_http_result;

typedef struct af_http_call {
    const char *method, *url;
    const char *header[AF_HTTP_HEADERS + 1]; /* ends with NULL */
    const void *body; /* or, without it, `size` bytes of the file `fd` from `from` on */
    uint64_t size;
    int fd; /* -1 = none */
    uint64_t from;
    int stall_s; /* so many seconds without a byte end it */
    /* Called in af_transport.wait: once when the head is whole, then with the body. False ends the
     * call as failed. */
    bool (*on_head)(void *user);
    bool (*on_body)(void *user, const uint8_t *bytes, uint64_t n);
    void *user;
    /* the answer */
    af_http_head head;
    af_http_result result;
    char failure[256]; /* why it failed, in the transport's words */
    bool unreachable;  /* it failed before there was a connection */
    void *carrier;     /* the transport's own; NULL when it does not run */
} af_http_call;

typedef struct af_transport af_transport;
struct af_transport {
    /* Begins a call; it stays the caller's and must outlive it. */
    af_status (*start)(af_transport *t, af_http_call *c, af_error *err);
    /* Ends a call that runs. Not from inside a callback. */
    void (*stop)(af_transport *t, af_http_call *c);
    /* Moves bytes until a call ends or `seconds` have passed. */
    af_status (*wait)(af_transport *t, double seconds, af_error *err);
    double (*now)(af_transport *t); /* seconds of a clock that never goes back */
    void (*close)(af_transport *t);
};

/* The transport of libcurl, loaded now; AF_EUNSUPPORTED where it is not installed. */
AF_CHECKED af_status af_curl_open(af_transport **out, const char *agent, af_error *err);
/* "libcurl/7.88.1 OpenSSL/3.0.17 ...", or "" when there is none. */
void af_curl_version(char *text, size_t size);
#endif
