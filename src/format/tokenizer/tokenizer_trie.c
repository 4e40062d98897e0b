/* tokenizer_trie.c - a static trie over bytes, laid out breadth first so that the children of a
 * node lie side by side. Built from sorted strings in one pass. */
#include "format/tokenizer/tokenizer.h"

static int by_bytes(const void *a, const void *b)
{
    const af_trie_key *x = a, *y = b;
    const int c = memcmp(x->s, y->s, AF_MIN(x->n, y->n));
    if (c)
        return c;
    if (x->n != y->n)
        return x->n < y->n ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

typedef struct todo {
    uint32_t lo, hi, depth; /* keys of a node */
} todo;

typedef struct growing {
    af_trie *t;
    todo *todo;
    uint32_t node_cap, todo_cap;
} growing;

static bool add_child(growing *g, uint32_t parent, uint8_t label, todo keys)
{
    af_trie *t = g->t;
    if (!af_grow(&t->node, &g->node_cap, (uint64_t)t->count + 1, sizeof *t->node) ||
        !af_grow(&g->todo, &g->todo_cap, (uint64_t)t->count + 1, sizeof *g->todo))
        return false;
    g->todo[t->count] = keys;
    t->node[t->count] = (struct af_trie_node){.label = label, .value = -1};
    if (t->count) {
        if (t->node[parent].count++ == 0)
            t->node[parent].first = t->count;
        if (parent == 0)
            t->root[label] = t->count;
    }
    t->count++;
    return true;
}

af_status af_trie_build(af_trie *t, af_trie_key *keys, uint32_t n, af_error *err)
{
    growing g = {.t = t};
    *t = (af_trie){0};
    qsort(keys, n, sizeof *keys, by_bytes);
    bool ok = add_child(&g, 0, 0, (todo){0, n, 0});
    for (uint32_t at = 0; ok && at < t->count; at++) {
        const todo k = g.todo[at];
        uint32_t i = k.lo;
        for (; i < k.hi && keys[i].n == k.depth; i++)
            if (at && t->node[at].value < 0)
                t->node[at].value = keys[i].value;
        while (ok && i < k.hi) {
            const uint8_t label = (uint8_t)keys[i].s[k.depth];
            uint32_t j = i + 1;
            while (j < k.hi && (uint8_t)keys[j].s[k.depth] == label)
                j++;
            ok = add_child(&g, at, label, (todo){i, j, k.depth + 1});
            i = j;
        }
    }
    free(g.todo);
    if (ok)
        return AF_OK;
    af_trie_clear(t);
    return af_fail_nomem(err, "a trie of tokens", (uint64_t)n * sizeof *t->node);
}

uint32_t af_trie_step(const af_trie *t, uint32_t node, uint8_t byte)
{
    if (node == 0)
        return t->root[byte];
    const struct af_trie_node *at = &t->node[node];
    uint32_t lo = at->first, hi = at->first + at->count;
    while (hi - lo > 4) {
        const uint32_t mid = (lo + hi) / 2;
        if (t->node[mid].label <= byte)
            lo = mid;
        else
            hi = mid;
    }
    for (; lo < hi; lo++)
        if (t->node[lo].label == byte)
            return lo;
    return 0;
}

uint32_t af_trie_longest(const af_trie *t, const char *s, uint32_t n, int32_t *value)
{
    uint32_t len = 0, node = 0;
    for (uint32_t i = 0; i < n && (node = af_trie_step(t, node, (uint8_t)s[i])); i++)
        if (t->node[node].value >= 0) {
            *value = t->node[node].value;
            len = i + 1;
        }
    return len;
}

void af_trie_clear(af_trie *t)
{
    free(t->node);
    *t = (af_trie){0};
}
