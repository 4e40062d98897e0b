/* pickle.h - a Python pickle as data: what it would call is recorded and never called.
 *
 * The opcodes are those that protocols 2 to 5 use for dictionaries, lists, numbers, texts and
 * objects that are made by calls. Values may be shared, and may contain themselves. */
#ifndef AF_PICKLE_H
#define AF_PICKLE_H

#include "base/arena.h"
#include "base/reader.h"

#define AF_PICKLE_MAX (UINT64_C(64) << 20) /* bytes of one pickle */

typedef enum af_pickle_kind {
    AF_PICKLE_NONE,
    AF_PICKLE_INT, /* and bool */
    AF_PICKLE_TEXT,
    AF_PICKLE_TUPLE, /* and list */
    AF_PICKLE_DICT,
    AF_PICKLE_NAME,  /* of a class or a function: "module.name" in text */
    AF_PICKLE_CALL,  /* fn(*arg); what is put into the result is in item, as in a dictionary */
    AF_PICKLE_ID,    /* arg stands for something outside of the pickle */
    AF_PICKLE_OTHER, /* bytes, floats, integers of more than 64 bits */
} af_pickle_kind;

typedef struct af_pickle {
    af_pickle_kind kind;
    int64_t number;
    const char *text; /* ends with 0; may contain it */
    uint64_t text_len;
    const struct af_pickle *fn, *arg;
    struct af_pickle **item; /* of a dictionary: key, value, key, value, ... */
    uint64_t count, cap;
} af_pickle;

typedef struct af_pickle_ids { /* the values of kind ID, in their order; free(item) */
    af_pickle **item;
    uint64_t count, cap;
} af_pickle_ids;

/* Reads one pickle from `r`, which is then behind it. Values live in `arena`. `ids` may be NULL. */
AF_CHECKED af_status af_pickle_read(const af_pickle **out, af_pickle_ids *ids, af_arena *arena,
                                    af_reader *r, af_error *err);
/* Item i of a tuple or list; one of kind NONE when there is none. */
const af_pickle *af_pickle_at(const af_pickle *v, uint64_t i);
bool af_pickle_is(const af_pickle *v, af_pickle_kind kind, const char *text);
#endif
