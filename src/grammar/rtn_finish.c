/* rtn_finish.c - the checks of a complete network, and its final layout. */
#include "grammar/rtn.h"

typedef struct finish {
    af_rtn *r;
    uint32_t *from;             /* by edge */
    uint32_t *into, *into_at;   /* edges by the state they lead to */
    uint32_t *calls, *calls_at; /* call edges by rule */
    uint32_t *todo;             /* work list of states */
    uint32_t *rules_at;         /* rules by their first state */
    uint32_t *rules_of;
    bool *ends;  /* state: the end of its rule can be reached */
    bool *empty; /* state: without reading a byte */
} finish;

static void finish_clear(finish *f)
{
    free(f->from);
    free(f->into);
    free(f->into_at);
    free(f->calls);
    free(f->calls_at);
    free(f->todo);
    free(f->rules_at);
    free(f->rules_of);
    free(f->ends);
    free(f->empty);
}

/* List by key: at[k] .. at[k+1] are places in `list` of the elements with that key. */
static bool bucket(uint32_t **list, uint32_t **at, const uint32_t *key, uint32_t first,
                   uint32_t count, uint32_t keys)
{
    *at = af_calloc((uint64_t)keys + 2, sizeof **at);
    *list = af_calloc((uint64_t)count + 1, sizeof **list);
    if (!*at || !*list)
        return false;
    for (uint32_t i = first; i < count; i++)
        if (key[i] < keys)
            (*at)[key[i] + 2]++;
    for (uint32_t k = 2; k < keys + 2; k++)
        (*at)[k] += (*at)[k - 1];
    for (uint32_t i = first; i < count; i++)
        if (key[i] < keys)
            (*list)[(*at)[key[i] + 1]++] = i;
    return true;
}

static bool prepare(finish *f)
{
    af_rtn *r = f->r;
    uint32_t *key = af_calloc((uint64_t)AF_MAX(r->edges, r->rules) + 1, sizeof *key);
    f->from = af_calloc(r->edges, sizeof *f->from);
    f->todo = af_calloc((uint64_t)AF_MAX(r->states, r->rules) + 1, sizeof *f->todo);
    f->ends = af_calloc(r->states, sizeof *f->ends);
    f->empty = af_calloc(r->states, sizeof *f->empty);
    bool ok = key && f->from && f->todo && f->ends && f->empty;
    for (uint32_t s = 0; ok && s < r->states; s++)
        for (uint32_t e = r->first[s]; e; e = r->edge[e].next)
            f->from[e] = s;
    for (uint32_t e = 1; ok && e < r->edges; e++)
        key[e] = r->edge[e].to;
    ok = ok && bucket(&f->into, &f->into_at, key, 1, r->edges, r->states);
    for (uint32_t e = 1; ok && e < r->edges; e++)
        key[e] = r->edge[e].kind == AF_EDGE_CALL ? r->edge[e].rule : UINT32_MAX;
    ok = ok && bucket(&f->calls, &f->calls_at, key, 1, r->edges, r->rules);
    for (uint32_t i = 0; ok && i < r->rules; i++)
        key[i] = r->rule[i].start;
    ok = ok && bucket(&f->rules_of, &f->rules_at, key, 0, r->rules, r->states);
    free(key);
    return ok;
}

/* Marks the states from which the accepting state of their rule can be reached, by a backward
 * search: an edge counts when its target is marked and, for a call, the rule's first state. */
static void mark(finish *f, bool *on, bool bytes)
{
    const af_rtn *r = f->r;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->rules; i++)
        if (!on[r->rule[i].accept]) {
            on[r->rule[i].accept] = true;
            f->todo[n++] = r->rule[i].accept;
        }
    while (n) {
        const uint32_t s = f->todo[--n];
        for (uint32_t k = f->into_at[s]; k < f->into_at[s + 1]; k++) {
            const af_rtn_edge *e = &r->edge[f->into[k]];
            const uint32_t from = f->from[f->into[k]];
            if (on[from] || (e->kind == AF_EDGE_BYTES && !bytes) ||
                (e->kind == AF_EDGE_CALL && !on[r->rule[e->rule].start]))
                continue;
            on[from] = true;
            f->todo[n++] = from;
        }
        for (uint32_t i = f->rules_at[s]; i < f->rules_at[s + 1]; i++) {
            const uint32_t rule = f->rules_of[i];
            for (uint32_t k = f->calls_at[rule]; k < f->calls_at[rule + 1]; k++) {
                const uint32_t from = f->from[f->calls[k]];
                if (on[from] || !on[r->edge[f->calls[k]].to])
                    continue;
                on[from] = true;
                f->todo[n++] = from;
            }
        }
    }
}

/* The rules that `rule` can call before it reads a byte, appended to *list; a state belongs to one
 * rule, so that all rules together take one pass. */
static bool first_calls(finish *f, uint32_t rule, bool *seen, uint32_t **list, uint32_t *count,
                        uint32_t *cap)
{
    const af_rtn *r = f->r;
    uint32_t n = 0;
    if (!seen[r->rule[rule].start])
        f->todo[n++] = r->rule[rule].start;
    seen[r->rule[rule].start] = true;
    while (n) {
        const uint32_t s = f->todo[--n];
        for (uint32_t k = r->first[s]; k; k = r->edge[k].next) {
            const af_rtn_edge *e = &r->edge[k];
            if (e->kind == AF_EDGE_BYTES)
                continue;
            if (e->kind == AF_EDGE_CALL) {
                if (*count == *cap) {
                    uint32_t *grown = af_realloc(*list, (uint64_t)*cap * 2 + 64, sizeof *grown);
                    if (!grown)
                        return false;
                    *list = grown;
                    *cap = *cap * 2 + 64;
                }
                (*list)[(*count)++] = e->rule;
                if (!f->empty[r->rule[e->rule].start])
                    continue;
            }
            if (!seen[e->to]) {
                seen[e->to] = true;
                f->todo[n++] = e->to;
            }
        }
    }
    return true;
}

/* Rules in an order where each comes after those that call it first (Kahn); what is left over calls
 * itself. *bad: one of these, UINT32_MAX when there are none. */
static bool find_left(finish *f, uint32_t *bad)
{
    const uint32_t rules = f->r->rules;
    uint32_t *list = NULL, count = 0, cap = 0, done = 0, n = 0;
    uint32_t *at = af_calloc((uint64_t)rules + 1, sizeof *at);
    uint32_t *callers = af_calloc((uint64_t)rules + 1, sizeof *callers);
    bool *seen = af_calloc(f->r->states, sizeof *seen);
    bool ok = at && callers && seen;
    for (uint32_t i = 0; ok && i < rules; i++) {
        at[i] = count;
        ok = first_calls(f, i, seen, &list, &count, &cap);
    }
    if (ok) {
        at[rules] = count;
        for (uint32_t k = 0; k < count; k++)
            callers[list[k]]++;
        for (uint32_t i = 0; i < rules; i++)
            if (!callers[i])
                f->todo[n++] = i;
        while (n) {
            const uint32_t i = f->todo[--n];
            done++;
            for (uint32_t k = at[i]; k < at[i + 1]; k++)
                if (--callers[list[k]] == 0)
                    f->todo[n++] = list[k];
        }
        *bad = UINT32_MAX;
        for (uint32_t i = 0; done < rules && i < rules; i++)
            if (callers[i] && (*bad == UINT32_MAX || !f->r->rule[*bad].name))
                *bad = i;
    }
    free(list);
    free(at);
    free(callers);
    free(seen);
    return ok;
}

static void find_classes(af_rtn *r)
{
    bool cut[257] = {[0] = true};
    for (uint32_t e = 0; e < r->edges; e++)
        if (r->edge[e].kind == AF_EDGE_BYTES)
            cut[r->edge[e].lo] = cut[r->edge[e].hi + 1] = true;
    int c = -1;
    for (int b = 0; b < 256; b++) {
        c += cut[b];
        r->class_of[b] = (uint8_t)c;
    }
    r->classes = (uint32_t)c + 1;
}

/* Keeps the edges that lead to an end, those of one state next to each other in the order they were
 * made. */
static bool lay_out(finish *f)
{
    af_rtn *r = f->r;
    af_rtn_edge *edge = af_calloc(r->edges, sizeof *edge);
    uint32_t *first = af_calloc((uint64_t)r->states + 1, sizeof *first);
    bool *accepting = af_calloc(r->states, sizeof *accepting);
    if (!edge || !first || !accepting) {
        free(edge);
        free(first);
        free(accepting);
        return false;
    }
    uint32_t n = 0;
    for (uint32_t s = 0; s < r->states; s++) {
        first[s] = n;
        for (uint32_t k = r->first[s]; k; k = r->edge[k].next) {
            const af_rtn_edge *e = &r->edge[k];
            if (f->ends[e->to] && (e->kind != AF_EDGE_CALL || f->ends[r->rule[e->rule].start]))
                edge[n++] = *e;
        }
        for (uint32_t a = first[s], b = n; a + 1 < b; a++) { /* lists are made back to front */
            const af_rtn_edge e = edge[a];
            edge[a] = edge[--b];
            edge[b] = e;
        }
    }
    first[r->states] = n;
    for (uint32_t i = 0; i < r->rules; i++)
        accepting[r->rule[i].accept] = true;
    free(r->edge);
    free(r->first);
    r->edge = edge;
    r->edges = n;
    r->first = first;
    r->accepting = accepting;
    return true;
}

af_status af_rtn_finish(af_rtn *r, af_error *err)
{
    af_status st = r->st;
    finish f = {.r = r};
    uint32_t bad = UINT32_MAX;
    if (st != AF_OK)
        goto done;
    assert(r->rules && r->states);
    if (!prepare(&f)) {
        st = af_fail_nomem(err, "a grammar", (uint64_t)r->edges * sizeof *r->edge);
        goto done;
    }
    mark(&f, f.ends, true);
    mark(&f, f.empty, false);
    if (!f.ends[r->rule[r->root].start]) {
        st = af_fail(err, AF_EUSAGE, "no text fits the grammar");
        goto done;
    }
    if (!find_left(&f, &bad) || !lay_out(&f)) {
        st = af_fail_nomem(err, "a grammar", (uint64_t)r->edges * sizeof *r->edge);
        goto done;
    }
    if (bad != UINT32_MAX) {
        const char *name = r->rule[bad].name;
        st = af_fail(err, AF_EUSAGE,
                     "rule '%s' of the grammar refers to itself before it reads a character",
                     name ? name : "?");
        goto done;
    }
    find_classes(r);
    r->err = NULL;
done:
    finish_clear(&f);
    return st;
}
