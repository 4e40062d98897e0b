/* jsonpull.h - a bounded JSON reader for files with very long lists (tokenizer.json).
 *
 * af_jval is a small tree in an arena. A member whose key is on the caller's `raw` list is not
 * built: its text is kept, and read element by element with the af_jpull_* calls, which allocate
 * nothing. Text must be UTF-8; NUL bytes inside strings are allowed. */
#ifndef AF_JSONPULL_H
#define AF_JSONPULL_H

#include "base/arena.h"
#include "base/buf.h"

enum { AF_JSON_DEPTH_MAX = 64 };

typedef enum af_jtype {
    AF_JSON_NONE, /* absent */
    AF_JSON_NULL,
    AF_JSON_BOOL,
    AF_JSON_NUMBER,
    AF_JSON_STRING,
    AF_JSON_ARRAY,
    AF_JSON_OBJECT,
    AF_JSON_RAW,
} af_jtype;

typedef struct af_jval {
    af_jtype type;
    bool flag;        /* AF_JSON_BOOL */
    double number;    /* AF_JSON_NUMBER */
    const char *text; /* string (NUL-terminated), or the text of AF_JSON_RAW */
    uint64_t len;     /* bytes of text, or how many items */
    const char *key;  /* inside an object */
    uint64_t key_len;
    struct af_jval *item, *next; /* first item of this; next item beside this */
} af_jval;

AF_CHECKED af_status af_jval_parse(af_jval *out, af_arena *arena, const char *json, uint64_t len,
                                   const char *const *raw, af_error *err);
/* The last member of that name; never NULL: an absent one has type AF_JSON_NONE. */
const af_jval *af_jval_get(const af_jval *object, const char *key);
/* True for JSON true; `absent` when missing or null. */
bool af_jval_bool(const af_jval *object, const char *key, bool absent);
bool af_jval_is(const af_jval *v, const char *string);

typedef struct af_jpull {
    const char *at, *end, *start;
    af_buf scratch; /* unescaped string */
    bool bad;
    const char *why;
} af_jpull;

void af_jpull_init(af_jpull *j, const char *text, uint64_t len);
void af_jpull_clear(af_jpull *j);
/* Consumes '{' or '['; false and bad when it is not there. */
bool af_jpull_open(af_jpull *j, char bracket);
/* True when another element follows (the comma is consumed), false at the closing bracket, which
 * is consumed, or when bad. `first` starts true. */
bool af_jpull_more(af_jpull *j, char closing, bool *first);
/* A string; borrowed until the next call. */
bool af_jpull_string(af_jpull *j, const char **s, uint64_t *n);
bool af_jpull_colon(af_jpull *j);
bool af_jpull_number(af_jpull *j, double *x);
char af_jpull_peek(af_jpull *j); /* the next character that is not blank; 0 at the end */
/* AF_EFORMAT with the place, when bad. */
AF_CHECKED af_status af_jpull_check(const af_jpull *j, const char *what, af_error *err);
#endif
