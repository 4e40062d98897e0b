/* jsonpull.h - a bounded JSON reader for files with very long lists (tokenizer.json).
 *
 * af_json_value is a small tree in an arena. A list or object whose key is among the caller's raw
 * keys is not built: its text is kept, and read element by element with the af_json_pull_* calls,
 * which allocate nothing. Text must be UTF-8; NUL bytes inside strings are allowed. */
#ifndef AF_JSONPULL_H
#define AF_JSONPULL_H

#include "base/arena.h"
#include "base/buf.h"

enum { AF_JSON_DEPTH_MAX = 64 };

typedef enum af_json_type {
    AF_JSON_NONE, /* absent */
    AF_JSON_NULL,
    AF_JSON_BOOL,
    AF_JSON_NUMBER,
    AF_JSON_STRING,
    AF_JSON_ARRAY,
    AF_JSON_OBJECT,
    AF_JSON_RAW,
} af_json_type;

typedef struct af_json_value {
    af_json_type type;
    bool flag;        /* AF_JSON_BOOL */
    double number;    /* AF_JSON_NUMBER */
    const char *text; /* string (NUL-terminated), or the text of AF_JSON_RAW */
    uint64_t len;     /* bytes of text, or how many items */
    uint64_t items;   /* AF_JSON_RAW: at most so many; 0 = not known */
    const char *key;  /* inside an object */
    uint64_t key_len;
    struct af_json_value *item, *next; /* first item of this; next item of the same parent */
} af_json_value;

typedef struct af_json_raw {
    const char *const *keys; /* ends with NULL */
    /* Optional: may read a raw member where it stands, which saves a pass over it. item has its key
     * and its text, up to the end of the file; object the members before it. Returns how long it
     * is, or 0 when it was not read: it is then skipped. */
    uint64_t (*read)(void *ctx, const af_json_value *object, const af_json_value *item);
    void *ctx;
} af_json_raw;

/* `raw` may be NULL. */
AF_CHECKED af_status af_json_tree_parse(af_json_value *out, af_arena *arena, const char *json,
                                        uint64_t len, const af_json_raw *raw, af_error *err);
/* The last member of that name; never NULL: an absent one has type AF_JSON_NONE. */
const af_json_value *af_json_get(const af_json_value *object, const char *key);
/* True for JSON true; `absent` when missing or null. */
bool af_json_bool(const af_json_value *object, const char *key, bool absent);
bool af_json_is(const af_json_value *v, const char *string);

typedef struct af_json_pull {
    const char *at, *end, *start;
    af_buf scratch; /* unescaped string */
    bool bad;
    const char *why;
} af_json_pull;

void af_json_pull_init(af_json_pull *j, const char *text, uint64_t len);
void af_json_pull_clear(af_json_pull *j);
/* Consumes '{' or '['; false and bad when it is not there. */
bool af_json_pull_open(af_json_pull *j, char bracket);
/* True when another element follows (the comma is consumed), false at the closing bracket, which
 * is consumed, or when bad. `first` starts true. */
bool af_json_pull_more(af_json_pull *j, char closing, bool *first);
/* A string; borrowed until the next call. */
bool af_json_pull_string(af_json_pull *j, const char **s, uint64_t *n);
bool af_json_pull_colon(af_json_pull *j);
bool af_json_pull_number(af_json_pull *j, double *x);
char af_json_pull_peek(af_json_pull *j); /* the next character that is not blank; 0 at the end */
/* AF_EFORMAT with the place, when bad. */
AF_CHECKED af_status af_json_pull_check(const af_json_pull *j, const char *what, af_error *err);
#endif
