/* rtn.h - a recursive transition network: rules whose bodies are automata over bytes, with edges
 * that call other rules. What schemas and GBNF are compiled to, and what automaton.h runs.
 *
 * States and edges of all rules are in one table; a rule is its first and its accepting state.
 * Building latches the first failure, so that callers check once (af_rtn_finish). */
#ifndef AF_RTN_H
#define AF_RTN_H

#include "base/arena.h"

enum {
    AF_RTN_STATES_MAX = 1 << 20,
    AF_RTN_EDGES_MAX = 1 << 22,
    AF_RTN_RULES_MAX = 1 << 16,
    AF_RTN_SCARCE_MAX = 1 << 12,
    AF_RTN_SPECIAL = 0xff, /* a byte outside UTF-8: before the text of a special token */
};

/* Marks of the [ , and ] of an array that has each item once, of the { of an object with keys that
 * the schema does not name, and of the : after those. */
enum {
    AF_RTN_UNIQUE = 1,
    AF_RTN_TIGHT = 2, /* of a [: some item may take the last value that a later one has; of a {: the
                         keys may run out */
};

typedef enum af_edge_kind { AF_EDGE_BYTES, AF_EDGE_FREE, AF_EDGE_CALL } af_edge_kind;

typedef struct af_rtn_edge {
    uint32_t to;
    uint32_t rule; /* AF_EDGE_CALL: who is called; `to` is where it returns. Else 0 or a mark */
    uint32_t next; /* while building: the next edge of the same state, 0 = none */
    uint8_t kind, lo, hi;
} af_rtn_edge;

typedef struct af_rtn_rule {
    uint32_t start, accept;
    const char *name; /* for messages; NULL = none */
} af_rtn_rule;

/* Code points, sorted and disjoint after af_cpset_tidy. */
typedef struct af_cp_range {
    uint32_t lo, hi;
} af_cp_range;
typedef struct af_cpset {
    af_cp_range *item;
    uint32_t count, cap;
    bool bad; /* out of memory */
} af_cpset;
void af_cpset_add(af_cpset *s, uint32_t lo, uint32_t hi);
void af_cpset_tidy(af_cpset *s);
void af_cpset_negate(af_cpset *s);
void af_cpset_clear(af_cpset *s);
bool af_cpset_has(const af_cpset *s, uint32_t cp);

typedef struct af_rtn_set { /* a rule that reads one character of a set */
    uint64_t hash;
    af_cp_range *item;
    uint32_t count, rule;
    bool json;
} af_rtn_set;

/* A bounded repetition: state first + i has read i + 1 of at most `max`, and may end from `min`. */
typedef struct af_rtn_chain {
    uint32_t first;
    uint64_t min, max;
} af_rtn_chain;

typedef struct af_rtn {
    af_status st;
    af_error *err;   /* while building */
    af_arena arena;  /* names and sets */
    uint32_t *first; /* of a state: building, its first edge; finished, where its edges begin */
    bool *accepting; /* finished: the state ends its rule */
    uint32_t states, states_cap;
    af_rtn_edge *edge; /* building: [0] is unused */
    uint32_t edges, edges_cap;
    af_rtn_rule *rule;
    uint32_t rules, rules_cap;
    af_rtn_set *set;
    uint32_t sets, sets_cap;
    af_rtn_chain *chain; /* long ones, by their first state */
    uint32_t chains, chains_cap;
    uint32_t root; /* rule */
    bool unique;   /* there are edges with that mark */
    bool arrays;   /* of arrays */
    char **scarce; /* values that places in tight arrays need, each with a comma after it */
    uint32_t scarces, scarces_cap;
    bool tight_any, tight_lists; /* there may be others; there may be other arrays and objects */
    uint8_t class_of[256];       /* finished: bytes that no edge tells apart have one class */
    uint32_t classes;
} af_rtn;

void af_rtn_init(af_rtn *r, af_error *err);
void af_rtn_clear(af_rtn *r);
/* Latches a failure that was reported elsewhere. */
void af_rtn_fail(af_rtn *r, af_status st);

uint32_t af_rtn_state(af_rtn *r);
void af_rtn_free_edge(af_rtn *r, uint32_t from, uint32_t to);
void af_rtn_bytes(af_rtn *r, uint32_t from, int lo, int hi, uint32_t to);
/* Reads a byte with one of the marks. */
void af_rtn_marked(af_rtn *r, uint32_t from, char byte, uint32_t mark, uint32_t to);
/* Keeps a value that a place in a tight array needs. */
void af_rtn_scarce(af_rtn *r, const char *value);
void af_rtn_call(af_rtn *r, uint32_t from, uint32_t rule, uint32_t to);
/* A rule with fresh first and accepting states. `name` is copied. */
uint32_t af_rtn_rule_new(af_rtn *r, const char *name);
/* Makes the states between `start` and `accept`, that nothing else enters, a rule. */
uint32_t af_rtn_rule_of(af_rtn *r, uint32_t start, uint32_t accept);
/* Reads these bytes; the state after them. */
uint32_t af_rtn_text(af_rtn *r, uint32_t from, const char *text, uint64_t n);
/* One character of a tidy set, as UTF-8; `json`: as it stands in a JSON string, escapes included.
 */
void af_rtn_chars(af_rtn *r, uint32_t from, const af_cpset *s, bool json, uint32_t to);
/* UTF-8 of lo .. hi, surrogates left out. */
void af_rtn_utf8(af_rtn *r, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to);
/* Calls `rule` min to max times; max UINT64_MAX = any number. */
void af_rtn_repeat(af_rtn *r, uint32_t from, uint32_t rule, uint64_t min, uint64_t max,
                   uint32_t to);

/* Another state of the same repetition from which the next `reach` bytes can be the same, the same
 * one for all of them; `state` itself where there is none. */
uint32_t af_rtn_alike(const af_rtn *r, uint32_t state, uint64_t reach);

/* Removes what cannot lead to an end, refuses rules that call themselves before they read a byte,
 * and puts the edges in order. The network is constant afterwards. */
AF_CHECKED af_status af_rtn_finish(af_rtn *r, af_error *err);
#endif
