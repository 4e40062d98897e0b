/* pattern.h - regular expressions (ECMA 262 without back references and, but for the beginning,
 * assertions) and the automata of strings that several of them and a length describe.
 *
 * A pattern of a JSON schema fits a string when it matches somewhere in it; one that is a grammar
 * of its own, when it matches the whole. */
#ifndef AF_PATTERN_H
#define AF_PATTERN_H

#include "grammar/rtn.h"

enum {
    AF_PATTERN_STATES_MAX = 1 << 15,
    AF_PATTERN_DEPTH_MAX = 200,
    AF_PATTERN_WORK_MAX = 1 << 25, /* steps of reading the classes of a pattern */
    AF_DFA_STATES_MAX = 1 << 15,
    AF_DFA_WORK_MAX = 1 << 26, /* edges looked at */
};

typedef enum af_pattern_edge_kind {
    AF_PATTERN_SET,
    AF_PATTERN_FREE,
    AF_PATTERN_BEGIN, /* free at the beginning of the string */
    AF_PATTERN_END,   /* free at its end */
} af_pattern_edge_kind;

typedef struct af_pattern_edge {
    uint32_t to;
    uint32_t next; /* of the same state; 0 = none */
    af_pattern_edge_kind kind;
    const af_cpset *set;
} af_pattern_edge;

typedef struct af_pattern {
    af_arena arena;
    af_cpset **set; /* all that were made */
    uint32_t sets, sets_cap;
    uint32_t *first;
    uint32_t states, states_cap;
    af_pattern_edge *edge; /* [0] is unused */
    uint32_t edges, edges_cap;
    uint32_t start, accept;
    bool negative; /* strings that it fits are left out */
    uint64_t work; /* steps that its classes took */
} af_pattern;

typedef enum af_pattern_use {
    AF_PATTERN_FIND,    /* it matches somewhere in the string */
    AF_PATTERN_WHOLE,   /* it matches the whole */
    AF_PATTERN_EXCLUDE, /* it matches nowhere */
} af_pattern_use;

AF_CHECKED af_status af_pattern_parse(af_pattern *out, const char *text, uint64_t len,
                                      af_pattern_use use, af_error *err);
/* pattern_class.c: adds the class that `text` begins with, after its backslash: what every engine
 * takes, or (wide) what some engine takes. Its length; 0: it is not known. *work: the steps that it
 * took are added. */
uint64_t af_class_add(af_cpset *to, const char *text, uint64_t n, bool wide, uint64_t *work);
void af_pattern_clear(af_pattern *p);

/* lookahead.c */

/* The length of an assertion that the pattern begins with, its "^" included; 0: none, or one that
 * cannot be taken off. */
uint64_t af_lookahead(const char *text, uint64_t len);
/* Parses an assertion of that length. */
AF_CHECKED af_status af_lookahead_parse(af_pattern *out, const char *text, uint64_t len,
                                        af_error *err);

typedef struct af_dfa_edge {
    uint32_t from, lo, hi, to;
} af_dfa_edge;

/* A deterministic automaton over code points. State 0 is the first. */
typedef struct af_dfa {
    af_dfa_edge *edge; /* by from, then lo */
    uint32_t edges, edges_cap;
    bool *accepting;
    uint32_t states, states_cap;
    uint64_t work; /* steps that af_dfa_build took */
} af_dfa;

/* The strings of min to max characters that all n patterns fit, those that are negative not. */
AF_CHECKED af_status af_dfa_build(af_dfa *out, af_pattern *const *p, int n, uint64_t min,
                                  uint64_t max, af_error *err);
/* The strings that are none of these. */
AF_CHECKED af_status af_dfa_other(af_dfa *out, const char *const *name, uint32_t n, af_error *err);
void af_dfa_clear(af_dfa *d);
bool af_dfa_is_empty(const af_dfa *d);
bool af_dfa_matches(const af_dfa *d, const char *text, uint64_t len);
/* `json`: as the inside of a JSON string. */
void af_dfa_emit(const af_dfa *d, af_rtn *r, uint32_t from, bool json, uint32_t to);
#endif
