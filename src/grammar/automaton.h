/* automaton.h - a network made deterministic step by step.
 *
 * A place in the network is a state and a stack of states to return to. Stacks are linked lists
 * whose elements are shared: equal stacks have one number. A configuration is the set of places
 * that the text so far can have led to, also numbered, with its successor for each class of bytes
 * once that has been asked for: so what was seen before costs one table look-up per byte.
 *
 * Numbers are valid until af_automaton_collect, which keeps only what is passed to it. */
#ifndef AF_AUTOMATON_H
#define AF_AUTOMATON_H

#include "grammar/rtn.h"

enum {
    AF_PLACES_MAX = 1 << 14,       /* of one configuration, and of the search for it */
    AF_CONFIG_DEAD = 0,            /* the configuration without places */
    AF_AUTOMATON_SOFT = 64 << 20,  /* bytes; af_automaton_full */
    AF_AUTOMATON_HARD = 256 << 20, /* bytes; then an error */
};

typedef struct af_place {
    uint32_t state, stack;
} af_place;

typedef struct af_stack {
    uint32_t state, below; /* where to return, and then; below 0 = the bottom */
    uint32_t next;         /* in its bucket */
} af_stack;

typedef struct af_config {
    af_place *place; /* sorted; each reads at least one byte */
    uint32_t places;
    bool can_end;
    uint32_t next;  /* in its bucket */
    uint32_t *step; /* by class: successor + 1, 0 = not asked yet; then those without marks */
    uint32_t *mask; /* of tokens; NULL = not asked yet */
} af_config;

typedef struct af_automaton {
    const af_rtn *rtn;
    af_stack *stack; /* [0] is the bottom */
    uint32_t stacks, stacks_cap;
    uint32_t *stack_bucket, stack_buckets; /* a power of two */
    af_config *config;                     /* [0] is dead */
    uint32_t configs, configs_cap;
    uint32_t *config_bucket, config_buckets;
    uint64_t bytes;           /* of all this */
    af_place *todo, *found;   /* of one search, AF_PLACES_MAX */
    uint32_t *seen, *seen_at; /* hash of places in todo; the search that put it there */
    uint32_t todos, founds, search;
    bool ends;
} af_automaton;

AF_CHECKED af_status af_automaton_init(af_automaton *a, const af_rtn *r, af_error *err);
void af_automaton_clear(af_automaton *a);
AF_CHECKED af_status af_automaton_start(af_automaton *a, uint32_t *config, af_error *err);
/* The configuration after one byte; AF_CONFIG_DEAD when the grammar does not allow it. */
AF_CHECKED af_status af_automaton_step(af_automaton *a, uint32_t config, uint8_t byte, uint32_t *to,
                                       af_error *err);
/* The same by edges without a mark: in readings where no array that has each item once ends one. */
AF_CHECKED af_status af_automaton_step_plain(af_automaton *a, uint32_t config, uint8_t byte,
                                             uint32_t *to, af_error *err);
/* A configuration that the same texts of `reach` bytes can follow, one for many where the text is
 * inside a long bounded repetition. */
AF_CHECKED af_status af_automaton_alike(af_automaton *a, uint32_t config, uint64_t reach,
                                        uint32_t *out, af_error *err);
/* Is it time to collect? */
bool af_automaton_full(const af_automaton *a);
/* Forgets all configurations but *keep[0 .. n), which get their new numbers. */
AF_CHECKED af_status af_automaton_collect(af_automaton *a, uint32_t **keep, uint32_t n,
                                          af_error *err);
#endif
