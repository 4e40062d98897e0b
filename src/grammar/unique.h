/* unique.h - arrays whose items are all different (uniqueItems), objects whose keys are.
 *
 * Which items an array has had is more than a network can say, and so are the keys of an object
 * that has others than the schema names. So next to the configuration a state keeps the text of
 * such an array or object and where its items or keys are, and what would repeat one is taken out
 * of the mask: a byte that ends a repeated one, and one after which nothing else could follow. The
 * network says where such arrays begin, go on and end, where such objects begin and which keys may
 * be repeated (AF_RTN_UNIQUE), so that another reading of the same text, in which the array may
 * repeat its items, stays.
 *
 * In such arrays the network writes each number in one way. So two values are the same when their
 * texts are, but for the order of properties. */
#ifndef AF_GRAMMAR_UNIQUE_H
#define AF_GRAMMAR_UNIQUE_H

#include "base/buf.h"
#include "grammar/automaton.h"
#include "grammar/vocab.h"

typedef struct af_unique_item { /* or the key of an object */
    uint64_t at, end;           /* in the text */
    uint32_t before;            /* the item before it, 0 = none */
    uint32_t array;             /* its frame's */
} af_unique_item;

typedef struct af_unique_frame { /* an array or object, at the present item, key or value */
    uint64_t at;
    uint32_t up, last; /* what it is in; its last item or key */
    uint32_t array;    /* the first frame of the same array or object */
    bool unique;       /* its items are, in a reading at least */
    bool tight;        /* AF_RTN_TIGHT, of an array */
    bool few;          /* of an object: its keys may run out */
    bool object, key;  /* key: before its ':' */
} af_unique_frame;

/* Texts, items and frames are only appended, so this is all that one byte changes. */
typedef struct af_unique_place {
    uint64_t text;
    uint32_t items, frames, frame; /* frame 0: outside of all such arrays */
    uint32_t code, high;           /* of \u, and the first half of a pair */
    uint8_t escape;                /* bytes of an escape so far */
    bool string;
} af_unique_place;

typedef struct af_unique {
    af_buf text; /* without white space, each character of a string in one spelling */
    af_unique_item *item;
    af_unique_frame *frame;
    uint32_t items_cap, frames_cap;
    uint32_t *sorted; /* items below `indexed`, by array and text */
    uint32_t indexed, sorted_cap;
    uint32_t looked; /* comparisons that one look ahead has taken */
    af_unique_place now;
} af_unique;

/* Ids of tokens that can begin an array (`arrays`: there are such), or an object and its second
 * key, of those that can go on after a string, and of those that can have a whole key after a
 * comma. */
typedef struct af_unique_ids {
    int32_t *begin, *end, *again;
    uint32_t begins, ends, agains;
} af_unique_ids;
bool af_unique_ids_init(af_unique_ids *ids, const af_grammar_vocab *v, bool arrays);
void af_unique_ids_clear(af_unique_ids *ids);

/* unique_match.c: are the n bytes at p, which may be cut off, the value at t? A comma or a bracket
 * is after that one. */
typedef enum af_unique_match {
    AF_UNIQUE_OTHER,
    AF_UNIQUE_PART, /* it begins as that one does */
    AF_UNIQUE_SAME, /* a number may go on, though */
} af_unique_match;
af_unique_match af_unique_compare(const char *t, const char *p, uint64_t n);

/* NULL: no memory. */
af_unique *af_unique_new(void);
/* NULL is allowed. */
void af_unique_free(af_unique *u);
/* Moves over bytes. AF_CONFIG_DEAD when they do not fit; then the place in `u` stays. */
AF_CHECKED af_status af_unique_walk(af_unique *u, af_automaton *a, uint32_t *config,
                                    const char *bytes, uint64_t n, af_error *err);
/* Takes out of the mask what does not fit. */
AF_CHECKED af_status af_unique_mask(af_unique *u, af_automaton *a, uint32_t config,
                                    const af_grammar_vocab *v, const af_unique_ids *ids,
                                    uint32_t *mask, int64_t bits, af_error *err);
#endif
