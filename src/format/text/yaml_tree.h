/* yaml_tree.h - a YAML document as a tree whose every node knows its line. Parsing is libyaml's.
 *
 * Bounded: depth, nodes, bytes. Aliases are expanded within those bounds, and so are merge keys
 * ("<<"); of a duplicate key the last one counts where one of the two is empty; it is an
 * error otherwise, unless both have the same scalar. */
#ifndef AF_YAML_TREE_H
#define AF_YAML_TREE_H

#include "base/arena.h"

typedef enum af_yaml_kind { AF_YAML_SCALAR, AF_YAML_LIST, AF_YAML_MAP } af_yaml_kind;

typedef struct af_yaml af_yaml;
struct af_yaml {
    af_yaml_kind kind;
    int line;         /* from 1; 0 = from the command line */
    const char *text; /* scalars; NUL-terminated */
    bool quoted;      /* 'x' or "x": a string whatever it looks like */
    int count;        /* entries of a list or a map */
    const char **key; /* maps */
    int *key_line;
    af_yaml **item;
};

enum {
    AF_YAML_DEPTH_MAX = 32,
    AF_YAML_NODES_MAX = 200000,
    AF_YAML_ANCHORS_MAX = 1024, /* libyaml compares each with all others */
    AF_YAML_BYTES_MAX = 16 << 20
};

/* Parses one document; nodes live in `mem`. `name` appears in messages ("run.yaml:12: ..."). An
 * empty document is an empty map. */
AF_CHECKED af_status af_yaml_parse(af_yaml **out, af_arena *mem, const char *text, uint64_t size,
                                   const char *name, af_error *err);
/* Sets every line to 0: text of the command line has none. */
void af_yaml_forget_lines(af_yaml *n);
/* The value of a key, or NULL. */
af_yaml *af_yaml_get(const af_yaml *map, const char *key);
/* Plain scalars: null (also ~ and empty), true/false (yes/no/on/off too), numbers. False when it is
 * not one. */
bool af_yaml_is_null(const af_yaml *n);
bool af_yaml_bool(const af_yaml *n, bool *out);
bool af_yaml_i64(const af_yaml *n, int64_t *out);
bool af_yaml_f64(const af_yaml *n, double *out); /* 1e-4 without a dot counts, as people write it */
/* "a map", "a list", "'text'" for messages, into buf. */
const char *af_yaml_show(const af_yaml *n, char *buf, size_t size);
#endif
