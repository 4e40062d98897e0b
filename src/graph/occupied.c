/* occupied.c - see occupied.h.
 *
 * Positions [first, last] are the disjoint union of few vertices: at most two of each level, the
 * "cover". An entry is in `whole` of its cover, and in `any` of its cover and of all that contain
 * its first position. What begins in [first, last] is then in `any` of the cover of [first, last],
 * or in `whole` of a vertex that contains `first` or `last`; what began before is in `whole` of one
 * that contains `first`. */
#include "graph/occupied.h"

#include <stdlib.h>

enum { LEVELS = 32 };

void af_occupied_init(af_occupied *o, int n)
{
    *o = (af_occupied){.leaves = 1};
    while (o->leaves < n)
        o->leaves *= 2;
    o->whole = af_calloc(2 * (uint64_t)o->leaves, sizeof *o->whole);
    o->any = af_calloc(2 * (uint64_t)o->leaves, sizeof *o->any);
    o->failed = !o->whole || !o->any;
}

void af_occupied_clear(af_occupied *o)
{
    for (int i = 0; i < 2 * o->leaves; i++) {
        if (o->whole)
            free(o->whole[i].at);
        if (o->any)
            free(o->any[i].at);
    }
    free(o->whole);
    free(o->any);
    *o = (af_occupied){0};
}

/* Ranges that touch become one. */
static bool unite(af_occupied_ranges *r, uint64_t from, uint64_t to)
{
    int low = 0, high = r->n; /* the first that ends at `from` or later */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (r->at[middle].to < from)
            low = middle + 1;
        else
            high = middle;
    }
    while (high < r->n && r->at[high].from <= to)
        high++;
    if (low == high && r->n == r->cap) {
        const int cap = r->cap ? r->cap * 2 : 2;
        af_occupied_range *p = af_realloc(r->at, (uint64_t)cap, sizeof *p);
        if (!p)
            return false;
        r->at = p;
        r->cap = cap;
    }
    if (low < high) {
        from = AF_MIN(from, r->at[low].from);
        to = AF_MAX(to, r->at[high - 1].to);
    }
    memmove(r->at + low + 1, r->at + high, (size_t)(r->n - high) * sizeof *r->at);
    r->at[low] = (af_occupied_range){from, to};
    r->n += 1 - (high - low);
    return true;
}

/* The cover of [first, last]; returns how many vertices it has. */
static int cover(const af_occupied *o, int first, int last, int v[2 * LEVELS])
{
    assert(0 <= first && first <= last && last < o->leaves);
    int n = 0;
    for (int a = o->leaves + first, b = o->leaves + last + 1; a < b; a /= 2, b /= 2) {
        if (a % 2)
            v[n++] = a++;
        if (b % 2)
            v[n++] = --b;
    }
    return n;
}

void af_occupied_add(af_occupied *o, int first, int last, uint64_t from, uint64_t to)
{
    int v[2 * LEVELS];
    bool ok = !o->failed;
    const int n = ok && from < to ? cover(o, first, last, v) : 0;
    for (int i = 0; i < n && ok; i++)
        ok = unite(&o->whole[v[i]], from, to) && unite(&o->any[v[i]], from, to);
    for (int a = (o->leaves + first) / 2; n && a && ok; a /= 2)
        ok = unite(&o->any[a], from, to);
    o->failed = !ok;
}

uint64_t af_occupied_gap(const af_occupied *o, int first, int last, uint64_t size)
{
    const af_occupied_ranges *set[4 * LEVELS];
    int v[2 * LEVELS], next[4 * LEVELS] = {0}, n = 0;
    uint64_t at = 0;
    const int covered = o->failed ? 0 : cover(o, first, last, v);
    for (int i = 0; i < covered; i++)
        if (o->any[v[i]].n)
            set[n++] = &o->any[v[i]];
    for (int a = o->leaves + first, b = o->leaves + last; a && covered; a /= 2, b /= 2) {
        if (o->whole[a].n)
            set[n++] = &o->whole[a];
        if (a != b && o->whole[b].n)
            set[n++] = &o->whole[b];
    }
    for (int i = 0, same = 0; same < n; i = (i + 1) % n, same++)
        for (; next[i] < set[i]->n && set[i]->at[next[i]].from < at + size; next[i]++)
            if (set[i]->at[next[i]].to > at) {
                at = set[i]->at[next[i]].to;
                same = 0;
            }
    return at;
}
