/* automaton.c - configurations, their successors, and the collection of old ones. */
#include "grammar/automaton.h"
#include "base/hash.h"

enum { SEEN = AF_PLACES_MAX * 4 };

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint64_t h = ((uint64_t)a << 32 | b) * UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 29;
    return (uint32_t)(h * UINT64_C(0xbf58476d1ce4e5b9) >> 32);
}

static af_status too_large(af_error *err)
{
    return af_fail(err, AF_EUSAGE,
                   "the grammar is too ambiguous: more than %d readings of one text",
                   AF_PLACES_MAX);
}

/* Counts memory before it is taken. */
static bool charge(af_automaton *a, uint64_t bytes)
{
    a->bytes += bytes;
    return a->bytes <= AF_AUTOMATON_HARD;
}

static af_status no_memory(const af_automaton *a, af_error *err)
{
    if (a->bytes > AF_AUTOMATON_HARD)
        return af_fail(err, AF_EUSAGE, "the grammar has too many states: more than %d MiB",
                       AF_AUTOMATON_HARD >> 20);
    return af_fail_nomem(err, "the states of a grammar", a->bytes);
}

/* ---- stacks ---- */

static bool grow_stacks(af_automaton *a)
{
    const uint32_t cap = a->stacks_cap * 2 + 64;
    if (!charge(a, (uint64_t)(cap - a->stacks_cap) * (sizeof *a->stack + 8)))
        return false;
    af_stack *grown = af_realloc(a->stack, cap, sizeof *grown);
    if (!grown)
        return false;
    a->stack = grown;
    a->stacks_cap = cap;
    uint32_t buckets = AF_MAX(a->stack_buckets, 128u);
    while (buckets < cap)
        buckets *= 2;
    if (buckets == a->stack_buckets)
        return true;
    uint32_t *table = af_calloc(buckets, sizeof *table);
    if (!table)
        return false;
    for (uint32_t i = 1; i < a->stacks; i++) {
        uint32_t *head = &table[mix(a->stack[i].state, a->stack[i].below) & (buckets - 1)];
        a->stack[i].next = *head;
        *head = i;
    }
    free(a->stack_bucket);
    a->stack_bucket = table;
    a->stack_buckets = buckets;
    return true;
}

/* The number of the stack with `state` on top of `below`; 0 when there is no memory. */
static uint32_t push(af_automaton *a, uint32_t state, uint32_t below)
{
    if (a->stacks >= a->stacks_cap && !grow_stacks(a))
        return 0;
    uint32_t *head = &a->stack_bucket[mix(state, below) & (a->stack_buckets - 1)];
    for (uint32_t i = *head; i; i = a->stack[i].next)
        if (a->stack[i].state == state && a->stack[i].below == below)
            return i;
    a->stack[a->stacks] = (af_stack){state, below, *head};
    *head = a->stacks;
    return a->stacks++;
}

/* ---- the search for places that read a byte ---- */

static void search_begin(af_automaton *a)
{
    a->todos = a->founds = 0;
    a->ends = false;
    a->search++;
    if (a->search == 0) { /* wrapped: old marks would look new */
        memset(a->seen_at, 0, SEEN * sizeof *a->seen_at);
        a->search = 1;
    }
}

/* Adds a place to the search, once. False when there are too many. */
static bool visit(af_automaton *a, uint32_t state, uint32_t stack)
{
    uint32_t h = mix(state, stack) & (SEEN - 1);
    for (; a->seen_at[h] == a->search; h = (h + 1) & (SEEN - 1)) {
        const af_place *p = &a->todo[a->seen[h]];
        if (p->state == state && p->stack == stack)
            return true;
    }
    if (a->todos == AF_PLACES_MAX)
        return false;
    a->seen_at[h] = a->search;
    a->seen[h] = a->todos;
    a->todo[a->todos++] = (af_place){state, stack};
    return true;
}

static af_status follow(af_automaton *a, af_place p, af_error *err)
{
    const af_rtn *r = a->rtn;
    bool reads = false;
    if (r->accepting[p.state]) {
        if (!p.stack)
            a->ends = true;
        else if (!visit(a, a->stack[p.stack].state, a->stack[p.stack].below))
            return too_large(err);
        return AF_OK;
    }
    for (uint32_t k = r->first[p.state]; k < r->first[p.state + 1]; k++) {
        const af_rtn_edge *e = &r->edge[k];
        uint32_t to = e->to, stack = p.stack;
        if (e->kind == AF_EDGE_BYTES) {
            reads = true;
            continue;
        }
        if (e->kind == AF_EDGE_CALL) {
            to = r->rule[e->rule].start;
            if (!r->accepting[e->to]) { /* else the caller is done too: no need to return there */
                stack = push(a, e->to, p.stack);
                if (!stack)
                    return no_memory(a, err);
            }
        }
        if (!visit(a, to, stack))
            return too_large(err);
    }
    if (reads)
        a->found[a->founds++] = p;
    return AF_OK;
}

static int by_place(const void *x, const void *y)
{
    const af_place *a = x, *b = y;
    if (a->state != b->state)
        return a->state < b->state ? -1 : 1;
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

/* ---- configurations ---- */

static uint32_t config_hash(const af_place *p, uint32_t n, bool ends)
{
    uint32_t h = ends;
    for (uint32_t i = 0; i < n; i++)
        h = mix(h ^ p[i].state, p[i].stack + 0x51ed270bu * i);
    return h;
}

static bool grow_configs(af_automaton *a)
{
    const uint32_t cap = a->configs_cap * 2 + 64;
    if (!charge(a, (uint64_t)(cap - a->configs_cap) * (sizeof *a->config + 8)))
        return false;
    af_config *grown = af_realloc(a->config, cap, sizeof *grown);
    if (!grown)
        return false;
    a->config = grown;
    a->configs_cap = cap;
    uint32_t buckets = AF_MAX(a->config_buckets, 128u);
    while (buckets < cap)
        buckets *= 2;
    uint32_t *table = af_calloc(buckets, sizeof *table);
    if (!table)
        return false;
    for (uint32_t i = 1; i < a->configs; i++) {
        af_config *c = &a->config[i];
        uint32_t *head = &table[config_hash(c->place, c->places, c->can_end) & (buckets - 1)];
        c->next = *head;
        *head = i;
    }
    free(a->config_bucket);
    a->config_bucket = table;
    a->config_buckets = buckets;
    return true;
}

/* The configuration of the places found, new or known. */
static af_status intern(af_automaton *a, uint32_t *out, af_error *err)
{
    const uint64_t bytes = a->founds * sizeof *a->found;
    if (!a->founds && !a->ends) {
        *out = AF_CONFIG_DEAD;
        return AF_OK;
    }
    qsort(a->found, a->founds, sizeof *a->found, by_place);
    if (a->configs >= a->configs_cap && !grow_configs(a))
        return no_memory(a, err);
    uint32_t *head =
        &a->config_bucket[config_hash(a->found, a->founds, a->ends) & (a->config_buckets - 1)];
    for (uint32_t i = *head; i; i = a->config[i].next) {
        const af_config *c = &a->config[i];
        if (c->places == a->founds && c->can_end == a->ends &&
            (!bytes || memcmp(c->place, a->found, bytes) == 0)) {
            *out = i;
            return AF_OK;
        }
    }
    const uint64_t steps = a->rtn->classes * sizeof(uint32_t) * (a->rtn->unique ? 2 : 1);
    af_config c = {.places = a->founds, .can_end = a->ends, .next = *head};
    if (!charge(a, bytes + steps))
        return no_memory(a, err);
    c.place = af_calloc(1, bytes + steps); /* one block: places, then steps */
    if (!c.place)
        return no_memory(a, err);
    c.step = (uint32_t *)(c.place + a->founds);
    if (bytes)
        memcpy(c.place, a->found, bytes);
    a->config[a->configs] = c;
    *head = *out = a->configs++;
    return AF_OK;
}

/* Everything that can be reached from the places put in so far. */
static af_status search_end(af_automaton *a, uint32_t *out, af_error *err)
{
    af_status st = AF_OK;
    for (uint32_t i = 0; i < a->todos; i++)
        AF_TRY(follow(a, a->todo[i], err));
    AF_TRY(intern(a, out, err));
done:
    return st;
}

/* ---- what others call ---- */

static void forget(af_automaton *a)
{
    for (uint32_t i = 1; i < a->configs; i++) {
        free(a->config[i].place);
        free(a->config[i].mask);
    }
    free(a->stack);
    free(a->stack_bucket);
    free(a->config);
    free(a->config_bucket);
    a->stack = NULL;
    a->stack_bucket = a->config_bucket = NULL;
    a->config = NULL;
    a->stacks = a->configs = 1;
    a->stacks_cap = a->stack_buckets = a->configs_cap = a->config_buckets = 0;
    a->bytes = 0;
}

af_status af_automaton_init(af_automaton *a, const af_rtn *r, af_error *err)
{
    *a = (af_automaton){.rtn = r, .stacks = 1, .configs = 1};
    a->todo = af_calloc(AF_PLACES_MAX, sizeof *a->todo);
    a->found = af_calloc(AF_PLACES_MAX, sizeof *a->found);
    a->seen = af_calloc(SEEN, sizeof *a->seen);
    a->seen_at = af_calloc(SEEN, sizeof *a->seen_at);
    if (!a->todo || !a->found || !a->seen || !a->seen_at) {
        af_automaton_clear(a);
        return af_fail_nomem(err, "the states of a grammar", SEEN * sizeof *a->seen);
    }
    return AF_OK;
}

void af_automaton_clear(af_automaton *a)
{
    forget(a);
    free(a->todo);
    free(a->found);
    free(a->seen);
    free(a->seen_at);
    *a = (af_automaton){0};
}

af_status af_automaton_start(af_automaton *a, uint32_t *config, af_error *err)
{
    search_begin(a);
    visit(a, a->rtn->rule[a->rtn->root].start, 0);
    return search_end(a, config, err);
}

/* plain: not by edges with a mark. */
static af_status step(af_automaton *a, uint32_t config, uint8_t byte, bool plain, uint32_t *to,
                      af_error *err)
{
    af_status st = AF_OK;
    const af_rtn *r = a->rtn;
    const uint32_t class = r->class_of[byte] + (plain ? r->classes : 0);
    uint32_t next;
    if (config == AF_CONFIG_DEAD) {
        *to = AF_CONFIG_DEAD;
        return AF_OK;
    }
    if (a->config[config].step[class]) {
        *to = a->config[config].step[class] - 1;
        return AF_OK;
    }
    search_begin(a);
    const af_config *c = &a->config[config];
    for (uint32_t i = 0; i < c->places; i++) {
        const af_place p = c->place[i];
        for (uint32_t k = r->first[p.state]; k < r->first[p.state + 1]; k++) {
            const af_rtn_edge *e = &r->edge[k];
            if (e->kind == AF_EDGE_BYTES && byte >= e->lo && byte <= e->hi && !(plain && e->rule) &&
                !visit(a, e->to, p.stack))
                return too_large(err);
        }
    }
    AF_TRY(search_end(a, &next, err));
    a->config[config].step[class] = next + 1;
    *to = next;
done:
    return st;
}

af_status af_automaton_step(af_automaton *a, uint32_t config, uint8_t byte, uint32_t *to,
                            af_error *err)
{
    return step(a, config, byte, false, to, err);
}

af_status af_automaton_step_plain(af_automaton *a, uint32_t config, uint8_t byte, uint32_t *to,
                                  af_error *err)
{
    return a->rtn->unique ? step(a, config, byte, true, to, err)
                          : step(a, config, byte, false, to, err);
}

af_status af_automaton_alike(af_automaton *a, uint32_t config, uint64_t reach, uint32_t *out,
                             af_error *err)
{
    bool moved = false;
    a->founds = 0;
    a->ends = a->config[config].can_end;
    for (uint32_t i = 0; i < a->config[config].places; i++) {
        af_place p = a->config[config].place[i];
        if (p.stack) {
            const af_stack top = a->stack[p.stack];
            const uint32_t other = af_rtn_alike(a->rtn, top.state, reach);
            p.stack = other == top.state ? p.stack : push(a, other, top.below);
            if (!p.stack)
                return no_memory(a, err);
            moved |= other != top.state;
        }
        a->found[a->founds++] = p;
    }
    *out = config;
    return moved ? intern(a, out, err) : AF_OK;
}

bool af_automaton_full(const af_automaton *a) { return a->bytes > AF_AUTOMATON_SOFT; }

/* Puts a stack of the old tables into the new ones: from the bottom up. */
static uint32_t copy_stack(af_automaton *to, const af_stack *old, uint32_t stack, uint32_t *path)
{
    uint32_t n = 0, below = 0;
    for (; stack; stack = old[stack].below)
        path[n++] = stack;
    while (n) {
        below = push(to, old[path[--n]].state, below);
        if (!below)
            return 0;
    }
    return below;
}

/* The same configuration in new tables. */
static af_status copy_config(af_automaton *to, const af_automaton *old, uint32_t config,
                             uint32_t *path, uint32_t *out, af_error *err)
{
    const af_config *c = &old->config[config];
    to->founds = 0;
    to->ends = c->can_end;
    for (uint32_t i = 0; i < c->places; i++) {
        af_place p = c->place[i];
        if (p.stack) {
            p.stack = copy_stack(to, old->stack, p.stack, path);
            if (!p.stack)
                return no_memory(to, err);
        }
        to->found[to->founds++] = p;
    }
    return intern(to, out, err);
}

af_status af_automaton_collect(af_automaton *a, uint32_t **keep, uint32_t n, af_error *err)
{
    af_status st = AF_OK;
    af_automaton old = *a, fresh = {.rtn = a->rtn, .stacks = 1, .configs = 1};
    uint32_t *path = af_calloc(old.stacks, sizeof *path);
    uint32_t *number = af_calloc((uint64_t)n + 1, sizeof *number);
    fresh.todo = a->todo;
    fresh.found = a->found;
    fresh.seen = a->seen;
    fresh.seen_at = a->seen_at;
    fresh.search = a->search;
    if (!path || !number) {
        st = af_fail_nomem(err, "the states of a grammar", old.stacks * sizeof *path);
        goto done;
    }
    for (uint32_t i = 0; i < n; i++)
        if (*keep[i] != AF_CONFIG_DEAD)
            AF_TRY(copy_config(&fresh, &old, *keep[i], path, &number[i], err));
    for (uint32_t i = 0; i < n; i++)
        *keep[i] = number[i];
    *a = fresh; /* the search buffers are in both */
    fresh = old;
done:
    forget(&fresh);
    free(path);
    free(number);
    return st;
}
