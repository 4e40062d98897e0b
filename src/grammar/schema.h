/* schema.h - JSON schemas to networks, in three steps.
 *
 * A value is described by a list of schemas that must all hold. schema_merge.c turns such a list
 * into flat schemas, one of which must hold: $ref, allOf, anyOf and oneOf are gone, and every
 * keyword is there once. schema_emit.c writes a flat schema as a rule; the lists of the values
 * inside it become rules of their own, once for each list, so that recursion is a call. */
#ifndef AF_SCHEMA_H
#define AF_SCHEMA_H

#include "grammar/pattern.h"
#include "grammar/rtn.h"

#include <jansson.h>

enum {
    AF_SCHEMA_FLATS_MAX = 256, /* alternatives of one value */
    AF_SCHEMA_MERGES_MAX = 1 << 19,
    AF_SCHEMA_DEPTH_MAX = 64,        /* allOf, anyOf, oneOf and $ref inside each other */
    AF_SCHEMA_ALL_MAX = 16,          /* patterns or enums of one value */
    AF_SCHEMA_VALUES_MAX = 1 << 14,  /* of one enum, and properties of one object */
    AF_SCHEMA_MULTIPLE_MAX = 1000,   /* digits of multipleOf: 0.01 is 1, 2.5 is 25 */
    AF_SCHEMA_LENGTH_FREE = 1 << 24, /* no answer is that long: a larger bound is none */
};

enum {
    AF_TYPE_NULL = 1,
    AF_TYPE_BOOL = 2,
    AF_TYPE_INTEGER = 4,
    AF_TYPE_FRACTION = 8, /* numbers that are not integers */
    AF_TYPE_STRING = 16,
    AF_TYPE_ARRAY = 32,
    AF_TYPE_OBJECT = 64,
    AF_TYPE_NUMBER = AF_TYPE_INTEGER | AF_TYPE_FRACTION,
    AF_TYPE_ANY = 127,
};

/* Schemas that must all hold. */
typedef struct af_schemas {
    const json_t **item;
    uint32_t count;
} af_schemas;

typedef struct af_schema_property {
    const char *name;
    af_schemas value;
} af_schema_property;

typedef struct af_number_bound {
    bool set, exclusive;
    const json_t *value;
} af_number_bound;

typedef struct af_value_list { /* an enum, or the value of a const */
    const json_t *value;
    bool is_const;
} af_value_list;

typedef struct af_flat_schema {
    unsigned types, hints;                   /* allowed; those that keywords speak of */
    bool typed;                              /* `type` was there */
    af_value_list values[AF_SCHEMA_ALL_MAX]; /* all of them hold */
    int value_lists;
    af_number_bound least, most;
    int multiple, places; /* value times 10^places is one of it; 0 = free */
    uint64_t min_length, max_length;
    const char *pattern[AF_SCHEMA_ALL_MAX];
    int patterns;
    uint64_t min_items, max_items;
    bool unique; /* no two items are the same */
    af_schemas *prefix;
    uint32_t prefixes;
    af_schemas rest; /* of the items after them */
    af_schema_property *property;
    uint32_t properties;
    const char **required;
    uint32_t requireds;
    bool closed_by_default; /* `properties` was there */
    bool additional_given;
    af_schemas additional;
    af_schemas names; /* of all properties */
    uint64_t min_properties, max_properties;
} af_flat_schema;

typedef struct af_flats {
    af_flat_schema *item[AF_SCHEMA_FLATS_MAX];
    uint32_t count;
} af_flats;

typedef struct af_schema_rule { /* of a list of schemas */
    af_schemas all;
    uint32_t rule;
    bool once; /* inside an array that has each item once: numbers have one spelling */
} af_schema_rule;

typedef struct af_schema {
    af_rtn *r;
    json_t *root;
    af_arena arena;
    af_schema_rule *rule; /* in the order they were asked for */
    uint32_t rules, rules_cap, written;
    uint32_t *bucket; /* rule + 1 */
    uint32_t merges;
    bool comparing; /* alternatives of a oneOf */
    bool once;      /* of the rule that is written */
    struct {        /* the last automaton that values were compared with */
        af_flat_schema of;
        af_dfa dfa;
    } strings;
    uint32_t ws, any_string, any_char; /* rules, UINT32_MAX = not made */
    af_error *err;
} af_schema;

/* schema.c */
void *af_schema_take(af_schema *s, uint64_t bytes); /* NULL: the failure is latched in s->r */
/* The rule for a list of schemas, to be written later when it is new. */
uint32_t af_schema_rule_of(af_schema *s, af_schemas all);
AF_CHECKED af_status af_schema_append(af_schema *s, af_schemas *to, const json_t *node);
/* What a $ref leads to. */
AF_CHECKED af_status af_schema_resolve(af_schema *s, const char *ref, const json_t **out);
/* Reads the schema at `node` (borrowed) as the rule that is returned through *rule, for grammars
 * that contain schemas. */
AF_CHECKED af_status af_schema_compile(af_rtn *r, json_t *root, uint32_t *rule, af_error *err);

/* schema_rewrite.c: says what it can of patternProperties in other words, in place. */
AF_CHECKED af_status af_schema_rewrite(af_schema *s, json_t *root);
/* What `names` say of a key, which is none of those that `f` names. */
AF_CHECKED af_status af_schema_other_names(af_schema *s, const af_flat_schema *f,
                                           const af_flat_schema *names, af_flat_schema *out);

/* schema_format.c: the pattern of a format; NULL: a name that JSON Schema does not know restricts
 * nothing. *kept: false for one that restricts and has no pattern. */
const char *af_schema_format(const char *name, bool *kept);

/* schema_merge.c */
AF_CHECKED af_status af_schema_flatten(af_schema *s, af_schemas all, af_flats *out);
/* The error of an object with more than AF_SCHEMA_VALUES_MAX of them. */
af_status af_schema_many_properties(af_schema *s);
/* schema_apart.c: can no value fit both? */
AF_CHECKED af_status af_schema_apart(af_schema *s, const af_flat_schema *a, const af_flat_schema *b,
                                     bool *yes);
/* Counts steps of patterns and of their automata: AF_EUSAGE when they are too many. */
AF_CHECKED af_status af_schema_count_steps(af_schema *s, uint64_t steps);
/* The values of a's first enum that fit a and, unless it is NULL, b: *count of them, borrowed from
 * the schema; free(*out). */
AF_CHECKED af_status af_schema_fitting(af_schema *s, const af_flat_schema *a,
                                       const af_flat_schema *b, const json_t ***out, size_t *count);
/* Does a value fit a list of schemas? */
AF_CHECKED af_status af_schema_fits(af_schema *s, af_schemas all, const json_t *v, bool *fits);
/* Does the name of a property fit propertyNames? */
AF_CHECKED af_status af_schema_name_fits(af_schema *s, const af_flat_schema *f, const char *name,
                                         bool *fits);
AF_CHECKED af_status af_schema_string_dfa(af_schema *s, const af_flat_schema *f, af_dfa *out);
/* schema_room.c: are there enough different values for the items that an array must have? */
typedef enum af_room {
    AF_ROOM_NONE,  /* no */
    AF_ROOM_TIGHT, /* they may run out where an item takes one that a later one needs, or it is not
                      known how many there are */
    AF_ROOM_MUCH,  /* whatever items are chosen, there is another value */
} af_room;
AF_CHECKED af_status af_schema_room(af_schema *s, const af_flat_schema *f, af_room *out);
/* schema_emit.c */
AF_CHECKED af_status af_schema_emit(af_schema *s, const af_flat_schema *f, uint32_t from,
                                    uint32_t to);
/* schema_number.c */
/* once: each number in one spelling, and no two with one value. */
void af_number_emit(af_rtn *r, uint32_t from, unsigned types, const af_flat_schema *f, bool once,
                    uint32_t to);
/* A value of an enum, in the spelling that `once` gives it where it has one. */
void af_number_text(const json_t *v, char text[48]);
/* multipleOf as digits without its point; false: more than AF_SCHEMA_MULTIPLE_MAX. */
bool af_number_multiple(const json_t *v, int *multiple, int *places);
bool af_number_is_multiple(const json_t *v, int multiple, int places);
/* -1, 0, 1 */
int af_number_compare(const json_t *a, const json_t *b);
#endif
