/* run_sources.c - datasets that a translation of other trainers' keys makes. */
#include "train/run/run_translation.h"

void af_source_set(af_source *s, const char *key, const char *value)
{
    assert(s->count < AF_SOURCE_FIELDS);
    s->key[s->count] = key;
    s->value[s->count++] = value;
}

void af_source_put(af_source *s, const char *key, const af_yaml *node)
{
    af_source_set(s, key, NULL);
    s->node[s->count - 1] = node;
}

af_yaml *af_source_list(const af_source *s, int n, af_arena *mem, int line)
{
    struct nodes {
        af_yaml entry, value[AF_SOURCE_FIELDS];
        af_yaml *item[AF_SOURCE_FIELDS];
        const char *key[AF_SOURCE_FIELDS];
        int key_line[AF_SOURCE_FIELDS];
    } *nodes = af_arena_take(mem, (uint64_t)n * sizeof *nodes);
    af_yaml *list = af_arena_take(mem, sizeof *list);
    af_yaml **first = af_arena_take(mem, (uint64_t)n * sizeof *first);
    if (!nodes || !list || !first)
        return NULL;
    for (int i = 0; i < n; i++) {
        struct nodes *e = &nodes[i];
        for (int k = 0; k < s[i].count; k++) {
            e->key[k] = s[i].key[k];
            e->key_line[k] = line;
            e->value[k] = (af_yaml){.kind = AF_YAML_SCALAR,
                                    .line = line,
                                    .text = s[i].value[k],
                                    .quoted = strcmp(s[i].key[k], "num_samples") != 0};
            e->item[k] = s[i].node[k] ? (af_yaml *)s[i].node[k] : &e->value[k];
        }
        e->entry = (af_yaml){.kind = AF_YAML_MAP,
                             .line = line,
                             .count = s[i].count,
                             .key = e->key,
                             .key_line = e->key_line,
                             .item = e->item};
        first[i] = &e->entry;
    }
    *list = (af_yaml){.kind = AF_YAML_LIST, .line = line, .count = n, .item = first};
    return list;
}
