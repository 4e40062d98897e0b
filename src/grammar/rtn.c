/* rtn.c - building a network: states, edges, rules, characters. */
#include "grammar/rtn.h"
#include "base/hash.h"

/* ---- sets of code points ---- */

void af_cpset_add(af_cpset *s, uint32_t lo, uint32_t hi)
{
    if (s->bad || lo > hi)
        return;
    if (s->count == s->cap) {
        const uint32_t cap = s->cap * 2 + 8;
        af_cp_range *grown = af_realloc(s->item, cap, sizeof *grown);
        if (!grown) {
            s->bad = true;
            return;
        }
        s->item = grown;
        s->cap = cap;
    }
    s->item[s->count++] = (af_cp_range){lo, AF_MIN(hi, 0x10ffffu)};
}

static int by_lo(const void *a, const void *b)
{
    const af_cp_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

void af_cpset_tidy(af_cpset *s)
{
    uint32_t n = 0;
    if (s->count > 1)
        qsort(s->item, s->count, sizeof *s->item, by_lo);
    for (uint32_t i = 0; i < s->count; i++) {
        if (n && s->item[i].lo <= s->item[n - 1].hi + 1)
            s->item[n - 1].hi = AF_MAX(s->item[n - 1].hi, s->item[i].hi);
        else
            s->item[n++] = s->item[i];
    }
    s->count = n;
}

void af_cpset_negate(af_cpset *s)
{
    af_cpset to = {.bad = s->bad};
    uint32_t at = 0;
    af_cpset_tidy(s);
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->item[i].lo > at)
            af_cpset_add(&to, at, s->item[i].lo - 1);
        at = s->item[i].hi + 1;
    }
    af_cpset_add(&to, at, 0x10ffff);
    af_cpset_clear(s);
    *s = to;
}

void af_cpset_clear(af_cpset *s)
{
    free(s->item);
    *s = (af_cpset){0};
}

bool af_cpset_has(const af_cpset *s, uint32_t cp)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (cp >= s->item[i].lo && cp <= s->item[i].hi)
            return true;
    return false;
}

/* ---- the network ---- */

void af_rtn_init(af_rtn *r, af_error *err) { *r = (af_rtn){.err = err, .edges = 1}; }

void af_rtn_clear(af_rtn *r)
{
    free(r->first);
    free(r->accepting);
    free(r->edge);
    free(r->rule);
    free(r->set);
    free(r->chain);
    free(r->scarce);
    af_arena_clear(&r->arena);
    *r = (af_rtn){0};
}

void af_rtn_fail(af_rtn *r, af_status st)
{
    if (r->st == AF_OK)
        r->st = st;
}

/* Place for one more of `size` bytes in *p, at most `max` in all. */
static bool grow(af_rtn *r, void *p, uint32_t count, uint32_t *cap, uint64_t size, uint32_t max)
{
    void *old;
    if (r->st != AF_OK)
        return false;
    if (count >= max) {
        af_rtn_fail(r, af_fail(r->err, AF_EUSAGE,
                               "the grammar is too large: more than %u states or edges", max));
        return false;
    }
    if (count < *cap)
        return true;
    memcpy(&old, p, sizeof old);
    const uint32_t more = *cap * 2 + 64;
    void *grown = af_realloc(old, more, size);
    if (!grown) {
        af_rtn_fail(r, af_fail_nomem(r->err, "a grammar", more * size));
        return false;
    }
    memcpy(p, &grown, sizeof grown);
    *cap = more;
    return true;
}

uint32_t af_rtn_state(af_rtn *r)
{
    if (!grow(r, &r->first, r->states, &r->states_cap, sizeof *r->first, AF_RTN_STATES_MAX))
        return 0;
    r->first[r->states] = 0;
    return r->states++;
}

static void add_edge(af_rtn *r, uint32_t from, af_rtn_edge e)
{
    if (!grow(r, &r->edge, r->edges, &r->edges_cap, sizeof *r->edge, AF_RTN_EDGES_MAX))
        return;
    e.next = r->first[from];
    r->edge[r->edges] = e;
    r->first[from] = r->edges++;
}

void af_rtn_free_edge(af_rtn *r, uint32_t from, uint32_t to)
{
    add_edge(r, from, (af_rtn_edge){.kind = AF_EDGE_FREE, .to = to});
}

void af_rtn_bytes(af_rtn *r, uint32_t from, int lo, int hi, uint32_t to)
{
    add_edge(r, from,
             (af_rtn_edge){.kind = AF_EDGE_BYTES, .lo = (uint8_t)lo, .hi = (uint8_t)hi, .to = to});
}

void af_rtn_marked(af_rtn *r, uint32_t from, char byte, uint32_t mark, uint32_t to)
{
    const uint8_t b = (uint8_t)byte;
    r->unique |= mark != 0;
    r->arrays |= mark != 0 && byte == '[';
    add_edge(r, from,
             (af_rtn_edge){.kind = AF_EDGE_BYTES, .lo = b, .hi = b, .rule = mark, .to = to});
}

void af_rtn_scarce(af_rtn *r, const char *value)
{
    const size_t n = strlen(value);
    if (r->scarces == AF_RTN_SCARCE_MAX)
        af_rtn_fail(r, af_fail(r->err, AF_EUSAGE,
                               "the schema has arrays of different items that could run out of "
                               "more than %d values",
                               AF_RTN_SCARCE_MAX));
    char *copy = r->st == AF_OK ? af_arena_take(&r->arena, n + 2) : NULL;
    if (!grow(r, &r->scarce, r->scarces, &r->scarces_cap, sizeof *r->scarce, AF_RTN_SCARCE_MAX))
        return;
    if (!copy) {
        af_rtn_fail(r, af_fail_nomem(r->err, "a grammar", n));
        return;
    }
    memcpy(copy, value, n);
    memcpy(copy + n, ",", 2);
    r->scarce[r->scarces++] = copy;
}

void af_rtn_call(af_rtn *r, uint32_t from, uint32_t rule, uint32_t to)
{
    add_edge(r, from, (af_rtn_edge){.kind = AF_EDGE_CALL, .rule = rule, .to = to});
}

uint32_t af_rtn_rule_of(af_rtn *r, uint32_t start, uint32_t accept)
{
    if (!grow(r, &r->rule, r->rules, &r->rules_cap, sizeof *r->rule, AF_RTN_RULES_MAX))
        return 0;
    r->rule[r->rules] = (af_rtn_rule){.start = start, .accept = accept};
    return r->rules++;
}

uint32_t af_rtn_rule_new(af_rtn *r, const char *name)
{
    const uint32_t start = af_rtn_state(r), accept = af_rtn_state(r);
    const uint32_t rule = af_rtn_rule_of(r, start, accept);
    if (r->st == AF_OK && name)
        r->rule[rule].name = af_arena_strdup(&r->arena, name);
    return rule;
}

uint32_t af_rtn_text(af_rtn *r, uint32_t from, const char *text, uint64_t n)
{
    for (uint64_t i = 0; i < n && r->st == AF_OK; i++) {
        const uint32_t to = af_rtn_state(r);
        af_rtn_bytes(r, from, (uint8_t)text[i], (uint8_t)text[i], to);
        from = to;
    }
    return from;
}

/* ---- characters ---- */

static int utf8_of(uint32_t cp, uint8_t b[4])
{
    if (cp < 0x80) {
        b[0] = (uint8_t)cp;
        return 1;
    }
    const int n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, cp >>= 6)
        b[i] = (uint8_t)(0x80 | (cp & 0x3f));
    b[0] = (uint8_t)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | cp);
    return n;
}

static bool all(const uint8_t *b, int n, uint8_t x)
{
    for (int i = 0; i < n; i++)
        if (b[i] != x)
            return false;
    return true;
}

/* Byte strings of length n between a and b, each byte after the first 80 to BF. */
static void sequences(af_rtn *r, uint32_t from, const uint8_t *a, const uint8_t *b, int n,
                      uint32_t to)
{
    static const uint8_t least[4] = {0x80, 0x80, 0x80, 0x80}, most[4] = {0xbf, 0xbf, 0xbf, 0xbf};
    int lo = a[0], hi = b[0];
    if (n == 1 || r->st != AF_OK) {
        af_rtn_bytes(r, from, lo, hi, to);
        return;
    }
    if (lo == hi) {
        const uint32_t mid = af_rtn_state(r);
        af_rtn_bytes(r, from, lo, lo, mid);
        sequences(r, mid, a + 1, b + 1, n - 1, to);
        return;
    }
    if (!all(a + 1, n - 1, 0x80)) {
        const uint32_t mid = af_rtn_state(r);
        af_rtn_bytes(r, from, lo, lo, mid);
        sequences(r, mid, a + 1, most, n - 1, to);
        lo++;
    }
    if (!all(b + 1, n - 1, 0xbf)) {
        const uint32_t mid = af_rtn_state(r);
        af_rtn_bytes(r, from, hi, hi, mid);
        sequences(r, mid, least, b + 1, n - 1, to);
        hi--;
    }
    if (lo <= hi) {
        const uint32_t mid = af_rtn_state(r);
        af_rtn_bytes(r, from, lo, hi, mid);
        sequences(r, mid, least, most, n - 1, to);
    }
}

void af_rtn_utf8(af_rtn *r, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to)
{
    static const af_cp_range part[] = {
        {0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, 0x10ffff}};
    for (size_t i = 0; i < AF_LEN(part); i++) {
        const uint32_t l = AF_MAX(lo, part[i].lo), h = AF_MIN(hi, part[i].hi);
        uint8_t a[4], b[4];
        if (l > h)
            continue;
        const int n = utf8_of(l, a);
        utf8_of(h, b);
        sequences(r, from, a, b, n, to);
    }
}

/* One hexadecimal digit between lo and hi, upper or lower case. */
static void hex(af_rtn *r, uint32_t from, int lo, int hi, uint32_t to)
{
    if (lo < 10)
        af_rtn_bytes(r, from, '0' + lo, '0' + AF_MIN(hi, 9), to);
    if (hi >= 10) {
        const int l = AF_MAX(lo, 10) - 10;
        af_rtn_bytes(r, from, 'a' + l, 'a' + hi - 10, to);
        af_rtn_bytes(r, from, 'A' + l, 'A' + hi - 10, to);
    }
}

static uint32_t any_hex(af_rtn *r, uint32_t from, int n, uint32_t to)
{
    for (int i = 0; i < n; i++) {
        const uint32_t next = i + 1 < n ? af_rtn_state(r) : to;
        hex(r, from, 0, 15, next);
        from = next;
    }
    return from;
}

/* \uXXXX of everything beyond ASCII, surrogates in pairs; from after the u. */
static void wide_escapes(af_rtn *r, uint32_t from, uint32_t to)
{
    const uint32_t zero = af_rtn_state(r), zero2 = af_rtn_state(r), d = af_rtn_state(r);
    const uint32_t other = af_rtn_state(r), high = af_rtn_state(r), low = af_rtn_state(r);
    hex(r, from, 0, 0, zero); /* 0080 .. 0fff */
    hex(r, zero, 0, 0, zero2);
    uint32_t last = af_rtn_state(r);
    hex(r, zero2, 8, 15, last);
    hex(r, last, 0, 15, to);
    const uint32_t two = af_rtn_state(r);
    hex(r, zero, 1, 15, two);
    any_hex(r, two, 2, to);
    hex(r, from, 1, 12, other);
    hex(r, from, 14, 15, other);
    any_hex(r, other, 3, to);
    hex(r, from, 13, 13, d);
    hex(r, d, 0, 7, two);
    hex(r, d, 8, 11, high);
    const uint32_t after = af_rtn_state(r);
    any_hex(r, high, 2, after);
    const uint32_t u = af_rtn_text(r, after, "\\u", 2), d2 = af_rtn_state(r);
    hex(r, u, 13, 13, d2);
    hex(r, d2, 12, 15, low);
    any_hex(r, low, 2, to);
}

/* A character of s inside a JSON string. Each has one spelling, except that '/' may be escaped and
 * that sets with all of what is beyond ASCII also take \u for that part. */
static void json_chars(af_rtn *r, uint32_t from, const af_cp_range *item, uint32_t count,
                       uint32_t to)
{
    static const char named[] = "\"\"\\\\//\bb\ff\nn\rr\tt";
    const af_cpset s = {.item = (af_cp_range *)(uintptr_t)item, .count = count};
    const uint32_t slash = af_rtn_state(r), u = af_rtn_state(r);
    bool escaped = false, numbered = false;
    for (size_t i = 0; i + 1 < sizeof named; i += 2) {
        if (!af_cpset_has(&s, (uint8_t)named[i]))
            continue;
        af_rtn_bytes(r, slash, named[i + 1], named[i + 1], to);
        escaped = true;
    }
    for (uint32_t c = 0; c < 0x20; c++) {
        if (!af_cpset_has(&s, c) || (c && memchr("\b\f\n\r\t", (int)c, 5)))
            continue;
        const uint32_t z = af_rtn_text(r, u, c < 16 ? "000" : "001", 3);
        hex(r, z, (int)c & 15, (int)c & 15, to);
        numbered = true;
    }
    if (count && item[count - 1].lo <= 0x80 && item[count - 1].hi == 0x10ffff) {
        wide_escapes(r, u, to);
        numbered = true;
    }
    if (numbered)
        af_rtn_bytes(r, slash, 'u', 'u', u);
    if (numbered || escaped)
        af_rtn_bytes(r, from, '\\', '\\', slash);
    static const af_cp_range plain[] = {{0x20, '!'}, {'#', '['}, {']', 0x10ffff}};
    for (uint32_t i = 0; i < count; i++)
        for (size_t k = 0; k < AF_LEN(plain); k++)
            if (AF_MAX(item[i].lo, plain[k].lo) <= AF_MIN(item[i].hi, plain[k].hi))
                af_rtn_utf8(r, from, AF_MAX(item[i].lo, plain[k].lo),
                            AF_MIN(item[i].hi, plain[k].hi), to);
}

/* The rule for a set, made at its first use. */
static uint32_t set_rule(af_rtn *r, const af_cpset *s, bool json)
{
    const uint64_t bytes = (uint64_t)s->count * sizeof *s->item;
    const uint64_t hash = af_fnv1a(AF_FNV_START, s->item, bytes);
    for (uint32_t i = 0; i < r->sets; i++)
        if (r->set[i].hash == hash && r->set[i].json == json && r->set[i].count == s->count &&
            memcmp(r->set[i].item, s->item, bytes) == 0)
            return r->set[i].rule;
    af_cp_range *copy = af_arena_take(&r->arena, bytes);
    if (!copy) {
        af_rtn_fail(r, af_fail_nomem(r->err, "a grammar", bytes));
        return 0;
    }
    memcpy(copy, s->item, bytes);
    const uint32_t rule = af_rtn_rule_new(r, NULL);
    if (!grow(r, &r->set, r->sets, &r->sets_cap, sizeof *r->set, AF_RTN_RULES_MAX))
        return 0;
    r->set[r->sets++] = (af_rtn_set){hash, copy, s->count, rule, json};
    const uint32_t from = r->rule[rule].start, to = r->rule[rule].accept;
    if (json)
        json_chars(r, from, copy, s->count, to);
    else
        for (uint32_t i = 0; i < s->count; i++)
            af_rtn_utf8(r, from, copy[i].lo, copy[i].hi, to);
    return rule;
}

void af_rtn_chars(af_rtn *r, uint32_t from, const af_cpset *s, bool json, uint32_t to)
{
    if (s->bad)
        af_rtn_fail(r, af_fail_nomem(r->err, "a set of characters", 0));
    if (r->st != AF_OK || s->count == 0)
        return;
    bool plain = true; /* bytes that stand for themselves: no rule needed */
    for (uint32_t i = 0; i < s->count; i++)
        plain &=
            s->item[i].hi < 0x80 &&
            (!json || (s->item[i].lo >= 0x20 && !(s->item[i].lo <= '"' && s->item[i].hi >= '"') &&
                       !(s->item[i].lo <= '/' && s->item[i].hi >= '/') &&
                       !(s->item[i].lo <= '\\' && s->item[i].hi >= '\\')));
    for (uint32_t i = 0; plain && i < s->count; i++)
        af_rtn_bytes(r, from, (int)s->item[i].lo, (int)s->item[i].hi, to);
    if (!plain)
        af_rtn_call(r, from, set_rule(r, s, json), to);
}

uint32_t af_rtn_alike(const af_rtn *r, uint32_t state, uint64_t reach)
{
    uint32_t low = 0, high = r->chains;
    while (low < high) { /* the last chain that begins at or before the state */
        const uint32_t mid = low + (high - low) / 2;
        if (r->chain[mid].first <= state)
            low = mid + 1;
        else
            high = mid;
    }
    if (!low)
        return state;
    const af_rtn_chain *c = &r->chain[low - 1];
    const uint64_t done = (uint64_t)(state - c->first) + 1, least = AF_MAX(c->min, 1);
    /* far from both ends: it may end here, and more can follow than one token has */
    if (done < least || done > c->max || c->max - done < reach)
        return state;
    return c->first + (uint32_t)least - 1;
}

/* Remembers a repetition whose states are worth taking for each other. */
static void keep_chain(af_rtn *r, uint64_t min, uint64_t max)
{
    if (max - min < 64 ||
        !grow(r, &r->chain, r->chains, &r->chains_cap, sizeof *r->chain, AF_RTN_RULES_MAX))
        return;
    r->chain[r->chains++] = (af_rtn_chain){r->states, min, max};
}

void af_rtn_repeat(af_rtn *r, uint32_t from, uint32_t rule, uint64_t min, uint64_t max, uint32_t to)
{
    const bool open = max == UINT64_MAX;
    if (!open) /* nothing below makes other states in between */
        keep_chain(r, min, max);
    for (uint64_t i = 0; i < (open ? min : max) && r->st == AF_OK; i++) {
        const uint32_t next = af_rtn_state(r);
        if (i >= min)
            af_rtn_free_edge(r, from, to);
        af_rtn_call(r, from, rule, next);
        from = next;
    }
    if (open) { /* a loop of its own, so that nothing enters it after its start */
        const uint32_t loop = af_rtn_state(r);
        af_rtn_free_edge(r, from, loop);
        af_rtn_call(r, loop, rule, loop);
        from = loop;
    }
    af_rtn_free_edge(r, from, to);
}
