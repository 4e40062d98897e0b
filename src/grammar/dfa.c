/* dfa.c - deterministic automata of strings: the subset construction over all patterns at once,
 * with the number of characters so far. */
#include "base/buf.h"
#include "base/hash.h"
#include "format/text/unicode.h"
#include "grammar/compile.h"
#include "grammar/pattern.h"

enum { REGEX_ASSERTIONS_MAX = 15, WORK_PER_CUT = 16 /* they are sorted */ };

/* A state while it is made: states of the patterns, numbered through, and how many characters. */
typedef struct subset {
    uint32_t *item;
    uint32_t count, next;
    uint64_t chars;
} subset;

typedef struct subsets {
    af_pattern *const *p;
    int patterns;
    uint32_t base[33]; /* the first number of each pattern's states */
    uint64_t min, max;
    uint32_t *cut; /* code points at which some set begins or ends */
    uint32_t cuts;
    subset *set;
    uint32_t sets, sets_cap;
    uint32_t *bucket; /* AF_DFA_STATES_MAX * 2 */
    uint32_t *mark, round;
    uint32_t *todo, todos;
    uint64_t work;
    af_dfa *out;
    af_error *err;
} subsets;

static af_status no_memory(subsets *s) { return af_fail_nomem(s->err, "a pattern", 0); }

static af_status too_large(subsets *s)
{
    return af_fail_subject(s->err, AF_EUSAGE, "pattern",
                           "a pattern with its length is too large: more than %d states",
                           AF_DFA_STATES_MAX);
}

static int of_pattern(const subsets *s, uint32_t item)
{
    int k = 0;
    while (item >= s->base[k + 1])
        k++;
    return k;
}

static void put(subsets *s, uint32_t item)
{
    if (s->mark[item] == s->round)
        return;
    s->mark[item] = s->round;
    s->todo[s->todos++] = item;
}

/* Follows free edges from what was put; `begin`, `end`: those of that place too. */
static void close_over(subsets *s, bool begin, bool end)
{
    for (uint32_t i = 0; i < s->todos; i++) {
        const int k = of_pattern(s, s->todo[i]);
        const af_pattern *p = s->p[k];
        for (uint32_t e = p->first[s->todo[i] - s->base[k]]; e; e = p->edge[e].next) {
            const af_pattern_edge_kind kind = p->edge[e].kind;
            s->work++;
            if (kind == AF_PATTERN_FREE || (begin && kind == AF_PATTERN_BEGIN) ||
                (end && kind == AF_PATTERN_END))
                put(s, s->base[k] + p->edge[e].to);
        }
    }
}

static void begin_round(subsets *s)
{
    s->todos = 0;
    s->round++;
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Does every pattern end here? */
static bool accepts(subsets *s, uint32_t state)
{
    const subset *at = &s->set[state];
    if (at->chars < s->min)
        return false;
    begin_round(s);
    for (uint32_t i = 0; i < at->count; i++)
        put(s, at->item[i]);
    close_over(s, state == 0, true);
    for (int k = 0; k < s->patterns; k++)
        if ((s->mark[s->base[k] + s->p[k]->accept] == s->round) == s->p[k]->negative)
            return false;
    return true;
}

static bool every_pattern_lives(const subsets *s)
{
    bool seen[32] = {false};
    for (uint32_t i = 0; i < s->todos; i++)
        seen[of_pattern(s, s->todo[i])] = true;
    for (int k = 0; k < s->patterns; k++)
        if (!seen[k] && !s->p[k]->negative)
            return false;
    return true;
}

/* The state of what was put, sorted; new or known. */
static af_status intern(subsets *s, uint64_t chars, uint32_t *out)
{
    const uint64_t bytes = (uint64_t)s->todos * sizeof *s->todo;
    const uint32_t mask = AF_DFA_STATES_MAX * 2 - 1;
    uint32_t h = (uint32_t)(af_fnv1a(AF_FNV_START ^ chars, s->todo, bytes) >> 20) & mask;
    for (; s->bucket[h]; h = (h + 1) & mask) {
        const subset *x = &s->set[s->bucket[h] - 1];
        if (s->bucket[h] - 1 != 0 && x->chars == chars && x->count == s->todos &&
            memcmp(x->item, s->todo, bytes) == 0) {
            *out = s->bucket[h] - 1;
            return AF_OK;
        }
    }
    if (s->sets == AF_DFA_STATES_MAX)
        return too_large(s);
    if (s->sets == s->sets_cap) {
        subset *grown = af_realloc(s->set, (uint64_t)s->sets_cap * 2 + 64, sizeof *grown);
        if (!grown)
            return no_memory(s);
        s->set = grown;
        s->sets_cap = s->sets_cap * 2 + 64;
    }
    uint32_t *item = af_calloc((uint64_t)s->todos + 1, sizeof *item);
    if (!item)
        return no_memory(s);
    if (bytes)
        memcpy(item, s->todo, bytes);
    s->work += s->todos;
    s->set[s->sets] = (subset){.item = item, .count = s->todos, .chars = chars};
    s->bucket[h] = ++s->sets;
    *out = s->sets - 1;
    return AF_OK;
}

static af_status add_edge(af_dfa *d, af_dfa_edge e, af_error *err)
{
    if (d->edges && d->edge[d->edges - 1].from == e.from && d->edge[d->edges - 1].to == e.to &&
        d->edge[d->edges - 1].hi + 1 == e.lo) {
        d->edge[d->edges - 1].hi = e.hi;
        return AF_OK;
    }
    if (d->edges == d->edges_cap) {
        const uint64_t cap = (uint64_t)d->edges_cap * 2 + 64;
        af_dfa_edge *grown = cap > AF_RTN_EDGES_MAX * 2 ? NULL : af_realloc(d->edge, cap, sizeof e);
        if (!grown)
            return af_fail_nomem(err, "a pattern", cap * sizeof e);
        d->edge = grown;
        d->edges_cap = (uint32_t)cap;
    }
    d->edge[d->edges++] = e;
    return AF_OK;
}

/* All successors of a state, one for each interval between two cuts. */
static af_status expand(subsets *s, uint32_t state)
{
    af_status st = AF_OK;
    const uint64_t chars = s->set[state].chars;
    const uint64_t top = s->max == UINT64_MAX ? s->min : s->max;
    if (s->max != UINT64_MAX && chars >= s->max)
        return AF_OK;
    for (uint32_t c = 0; c + 1 < s->cuts; c++) {
        const uint32_t cp = s->cut[c];
        uint32_t to;
        begin_round(s);
        for (uint32_t i = 0; i < s->set[state].count; i++) {
            const uint32_t item = s->set[state].item[i];
            const int k = of_pattern(s, item);
            const af_pattern *p = s->p[k];
            for (uint32_t e = p->first[item - s->base[k]]; e; e = p->edge[e].next) {
                s->work += 1 + (p->edge[e].set ? p->edge[e].set->count / 4 : 0);
                if (p->edge[e].kind == AF_PATTERN_SET && af_cpset_has(p->edge[e].set, cp))
                    put(s, s->base[k] + p->edge[e].to);
            }
        }
        close_over(s, false, false);
        qsort(s->todo, s->todos, sizeof *s->todo, by_number);
        if (s->work > AF_DFA_WORK_MAX)
            return too_large(s);
        if (!every_pattern_lives(s))
            continue;
        AF_TRY(intern(s, AF_MIN(chars + 1, top), &to));
        AF_TRY(add_edge(s->out, (af_dfa_edge){state, cp, s->cut[c + 1] - 1, to}, s->err));
    }
done:
    return st;
}

static af_status find_cuts(subsets *s)
{
    uint64_t n = 2;
    for (int k = 0; k < s->patterns; k++)
        for (uint32_t i = 0; i < s->p[k]->sets; i++)
            n += 2 * (uint64_t)s->p[k]->set[i]->count;
    s->cut = af_calloc(n, sizeof *s->cut);
    if (!s->cut)
        return no_memory(s);
    s->cut[s->cuts++] = 0;
    s->cut[s->cuts++] = 0x110000;
    for (int k = 0; k < s->patterns; k++)
        for (uint32_t i = 0; i < s->p[k]->sets; i++)
            for (uint32_t r = 0; r < s->p[k]->set[i]->count; r++) {
                s->cut[s->cuts++] = s->p[k]->set[i]->item[r].lo;
                s->cut[s->cuts++] = s->p[k]->set[i]->item[r].hi + 1;
            }
    s->work += (uint64_t)s->cuts * WORK_PER_CUT;
    qsort(s->cut, s->cuts, sizeof *s->cut, by_number);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->cuts; i++)
        if (!kept || s->cut[kept - 1] != s->cut[i])
            s->cut[kept++] = s->cut[i];
    s->cuts = kept;
    return AF_OK;
}

static af_status build(subsets *s)
{
    af_status st = AF_OK;
    uint32_t first;
    AF_TRY(find_cuts(s));
    begin_round(s);
    for (int k = 0; k < s->patterns; k++)
        put(s, s->base[k] + s->p[k]->start);
    close_over(s, true, false);
    qsort(s->todo, s->todos, sizeof *s->todo, by_number);
    AF_TRY(intern(s, 0, &first)); /* state 0: nothing leads back to it */
    for (uint32_t i = 0; i < s->sets; i++)
        AF_TRY(expand(s, i));
    s->out->accepting = af_calloc(s->sets, sizeof *s->out->accepting);
    if (!s->out->accepting) {
        st = no_memory(s);
        goto done;
    }
    s->out->states = s->sets;
    s->out->work = s->work;
    for (uint32_t i = 0; i < s->sets; i++)
        s->out->accepting[i] = accepts(s, i);
done:
    return st;
}

af_status af_dfa_build(af_dfa *out, af_pattern *const *p, int n, uint64_t min, uint64_t max,
                       af_error *err)
{
    af_status st = AF_OK;
    af_dfa d = {0};
    subsets s = {.p = p, .patterns = n, .min = min, .max = max, .out = &d, .err = err};
    if (n < 1 || n > 32)
        return af_fail_subject(err, AF_EUSAGE, "pattern", "%d patterns for one string: at most 32",
                               n);
    for (int k = 0; k < n; k++)
        s.base[k + 1] = s.base[k] + p[k]->states;
    s.bucket = af_calloc(AF_DFA_STATES_MAX * 2, sizeof *s.bucket);
    s.mark = af_calloc((uint64_t)s.base[n] + 1, sizeof *s.mark);
    s.todo = af_calloc((uint64_t)s.base[n] + 1, sizeof *s.todo);
    st = s.bucket && s.mark && s.todo ? build(&s) : no_memory(&s);
    for (uint32_t i = 0; i < s.sets; i++)
        free(s.set[i].item);
    free(s.set);
    free(s.bucket);
    free(s.mark);
    free(s.todo);
    free(s.cut);
    if (st == AF_OK)
        *out = d;
    else
        af_dfa_clear(&d);
    return st;
}

/* ---- all strings but some ---- */

static af_status new_state(af_dfa *d, bool accepting, uint32_t *out, af_error *err)
{
    if (d->states >= AF_DFA_STATES_MAX)
        return af_fail(err, AF_EUSAGE, "the names of properties are too many or too long");
    if (d->states == d->states_cap) {
        bool *grown = af_realloc(d->accepting, (uint64_t)d->states_cap * 2 + 64, sizeof *grown);
        if (!grown)
            return af_fail_nomem(err, "names of properties", d->states);
        d->accepting = grown;
        d->states_cap = d->states_cap * 2 + 64;
    }
    d->accepting[d->states] = accepting;
    *out = d->states++;
    return AF_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* State `at` stands after `skip` bytes, which name[lo .. hi) share: an edge for each next character
 * of one of them, and to `other` for the rest. */
static af_status branch(af_dfa *d, uint32_t at, const char **name, uint32_t lo, uint32_t hi,
                        size_t skip, uint32_t *range, af_error *err)
{
    af_status st = AF_OK;
    uint32_t from = 0, cp, next;
    while (lo < hi && !name[lo][skip]) { /* names that end here do not fit */
        d->accepting[at] = false;
        lo++;
    }
    while (lo < hi) {
        uint32_t end = lo + 1;
        const uint32_t n = af_utf8_get(name[lo] + skip, &cp);
        while (end < hi && memcmp(name[end] + skip, name[lo] + skip, n) == 0)
            end++;
        if (cp > from)
            AF_TRY(add_edge(d, (af_dfa_edge){at, from, cp - 1, 1}, err));
        AF_TRY(new_state(d, true, &next, err));
        range[3 * next] = lo;
        range[3 * next + 1] = end;
        range[3 * next + 2] = (uint32_t)(skip + n);
        AF_TRY(add_edge(d, (af_dfa_edge){at, cp, cp, next}, err));
        from = cp + 1;
        lo = end;
    }
    AF_TRY(add_edge(d, (af_dfa_edge){at, from, 0x10ffff, 1}, err));
done:
    return st;
}

af_status af_dfa_other(af_dfa *out, const char *const *name, uint32_t n, af_error *err)
{
    af_status st = AF_OK;
    af_dfa d = {0};
    uint32_t first, other;
    const char **sorted = af_calloc((uint64_t)n + 1, sizeof(char *));
    uint32_t *range = af_calloc((uint64_t)AF_DFA_STATES_MAX * 3 + 3, sizeof *range);
    if (!sorted || !range) {
        st = af_fail_nomem(err, "names of properties", n);
        goto done;
    }
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = name[i];
    qsort(sorted, n, sizeof *sorted, by_name); /* bytes of UTF-8 sort as code points */
    AF_TRY(new_state(&d, true, &first, err));
    AF_TRY(new_state(&d, true, &other, err));
    range[1] = n;
    for (uint32_t i = 0; i < d.states; i++) {
        if (i == other)
            AF_TRY(add_edge(&d, (af_dfa_edge){other, 0, 0x10ffff, other}, err));
        else
            AF_TRY(branch(&d, i, sorted, range[3 * i], range[3 * i + 1], range[3 * i + 2], range,
                          err));
    }
    *out = d;
    d = (af_dfa){0};
done:
    af_dfa_clear(&d);
    free(sorted);
    free(range);
    return st;
}

/* ---- using them ---- */

void af_dfa_clear(af_dfa *d)
{
    free(d->edge);
    free(d->accepting);
    *d = (af_dfa){0};
}

bool af_dfa_is_empty(const af_dfa *d)
{
    for (uint32_t i = 0; i < d->states; i++)
        if (d->accepting[i])
            return false;
    return true;
}

bool af_dfa_matches(const af_dfa *d, const char *text, uint64_t len)
{
    uint32_t at = 0, cp;
    for (uint64_t i = 0; i < len;) {
        i += af_utf8_get(text + i, &cp);
        uint32_t lo = 0, hi = d->edges; /* the last edge that does not come after (at, cp) */
        while (hi - lo > 1) {
            const uint32_t mid = lo + (hi - lo) / 2;
            const af_dfa_edge *e = &d->edge[mid];
            if (e->from < at || (e->from == at && e->lo <= cp))
                lo = mid;
            else
                hi = mid;
        }
        if (lo == hi || d->edge[lo].from != at || cp < d->edge[lo].lo || cp > d->edge[lo].hi)
            return false;
        at = d->edge[lo].to;
    }
    return d->states && d->accepting[at];
}

void af_dfa_emit(const af_dfa *d, af_rtn *r, uint32_t from, bool json, uint32_t to)
{
    uint32_t *state = af_calloc((uint64_t)d->states + 1, sizeof *state);
    af_cpset set = {0};
    if (!state) {
        af_rtn_fail(r, af_fail_nomem(r->err, "a pattern", d->states));
        return;
    }
    for (uint32_t i = 0; i < d->states; i++)
        state[i] = af_rtn_state(r);
    if (d->states)
        af_rtn_free_edge(r, from, state[0]);
    for (uint32_t i = 0; i < d->states; i++)
        if (d->accepting[i])
            af_rtn_free_edge(r, state[i], to);
    for (uint32_t e = 0; e < d->edges && r->st == AF_OK;) {
        const uint32_t source = d->edge[e].from;
        uint32_t end = e;
        while (end < d->edges && d->edge[end].from == source)
            end++;
        for (uint32_t i = e; i < end; i++) { /* all ranges with one target, at its first */
            bool known = false;
            for (uint32_t k = e; k < i && !known; k++)
                known = d->edge[k].to == d->edge[i].to;
            set.count = 0;
            for (uint32_t k = i; k < end && !known; k++)
                if (d->edge[k].to == d->edge[i].to)
                    af_cpset_add(&set, d->edge[k].lo, d->edge[k].hi);
            if (!known)
                af_rtn_chars(r, state[source], &set, json, state[d->edge[i].to]);
        }
        e = end;
    }
    af_cpset_clear(&set);
    free(state);
}

/* ---- a regular expression as a grammar ---- */

af_status af_regex_compile(af_rtn *r, const char *text, uint64_t len, af_error *err)
{
    af_pattern p[REGEX_ASSERTIONS_MAX + 1] = {0}, *list[REGEX_ASSERTIONS_MAX + 1];
    af_dfa d = {0};
    af_buf rest = {0};
    af_status st = AF_OK;
    int n = 0;
    af_buf_add(&rest, text, len);
    for (uint64_t end; !rest.bad && n < REGEX_ASSERTIONS_MAX; n++) { /* "^" stays */
        end = af_lookahead(rest.data, rest.len);
        if (!end)
            break;
        list[n] = &p[n];
        AF_TRY(af_lookahead_parse(&p[n], rest.data, end, err));
        memmove(rest.data + 1, rest.data + end, rest.len - end);
        rest.len -= end - 1;
    }
    if (rest.bad)
        AF_TRY(af_fail_nomem(err, "a pattern", len));
    list[n] = &p[n];
    AF_TRY(af_pattern_parse(&p[n], rest.data ? rest.data : "", rest.len, AF_PATTERN_WHOLE, err));
    AF_TRY(af_dfa_build(&d, list, n + 1, 0, UINT64_MAX, err));
    if (af_dfa_is_empty(&d))
        AF_TRY(af_fail(err, AF_EUSAGE, "no text fits the regular expression"));
    r->root = af_rtn_rule_new(r, "root");
    if (r->st == AF_OK)
        af_dfa_emit(&d, r, r->rule[r->root].start, false, r->rule[r->root].accept);
done:
    af_buf_clear(&rest);
    af_dfa_clear(&d);
    for (int i = 0; i <= n; i++)
        af_pattern_clear(&p[i]);
    return st;
}
