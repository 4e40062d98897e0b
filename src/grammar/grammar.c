/* grammar.c - grammars, states of answers, and masks of tokens. */
#include "afinar/grammar.h"
#include "grammar/automaton.h"
#include "grammar/compile.h"
#include "grammar/tool_call.h"
#include "grammar/unique.h"
#include "grammar/vocab.h"

#include <pthread.h>

enum { MASK_BYTES_MAX = 48 << 20 }; /* of the masks that a grammar keeps */

struct af_grammar {
    const af_grammar_vocab *vocab;
    af_rtn rtn;
    af_automaton automaton;
    uint32_t start;
    af_unique_ids unique_ids; /* where the network has what is not repeated */
    uint64_t mask_bytes;
    pthread_mutex_t lock; /* guards the automaton, the masks and the list of states */
    af_grammar_state *states;
    uint32_t state_count;
};

struct af_grammar_state {
    af_grammar *grammar;
    uint32_t config;
    af_unique *unique; /* NULL: the network has no such arrays or objects */
    bool ended;        /* an id that ends was accepted */
    af_grammar_state *prev, *next;
};

/* ---- compiling ---- */

static af_status compile(af_rtn *r, af_grammar_kind kind, const char *text, uint64_t len,
                         af_error *err)
{
    if (kind == AF_GRAMMAR_GBNF)
        return af_gbnf_compile(r, text, len, err);
    if (kind == AF_GRAMMAR_JSON_SCHEMA)
        return af_schema_text_compile(r, text, len, err);
    if (kind == AF_GRAMMAR_REGEX)
        return af_regex_compile(r, text, len, err);
    if (kind == AF_GRAMMAR_TOOLS)
        return af_tools_compile(r, text, len, err);
    if (kind == AF_GRAMMAR_JSON_OBJECT)
        return af_json_object_compile(r, err);
    return af_fail(err, AF_EUSAGE, "there is no grammar of kind %d", (int)kind);
}

af_status af_grammar_open(af_grammar **out, af_grammar_kind kind, const char *text, uint64_t len,
                          const af_grammar_vocab *v, af_error *err)
{
    AF_NEED(err, out, text || !len);
    af_status st = AF_OK;
    af_error unread;
    err = af_error_or(err, &unread);
    if (len > AF_GRAMMAR_SOURCE_MAX)
        return af_fail(err, AF_EUSAGE, "the grammar has %" PRIu64 " bytes, more than %d", len,
                       AF_GRAMMAR_SOURCE_MAX);
    af_grammar *g = af_calloc(1, sizeof *g);
    if (!g)
        return af_fail_nomem(err, "a grammar", sizeof *g);
    g->vocab = v;
    pthread_mutex_init(&g->lock, NULL);
    af_rtn_init(&g->rtn, err);
    AF_TRY(compile(&g->rtn, kind, text, len, err));
    AF_TRY(af_rtn_finish(&g->rtn, err));
    AF_TRY(af_automaton_init(&g->automaton, &g->rtn, err));
    AF_TRY(af_automaton_start(&g->automaton, &g->start, err));
    if (g->rtn.unique && v && !af_unique_ids_init(&g->unique_ids, v, g->rtn.arrays))
        AF_TRY(af_fail_nomem(err, "a grammar", (uint64_t)v->ids * sizeof(int32_t)));
    *out = g;
    g = NULL;
done:
    af_grammar_close(g);
    return st;
}

void af_grammar_close(af_grammar *g)
{
    if (!g)
        return;
    assert(!g->states);
    af_automaton_clear(&g->automaton);
    af_rtn_clear(&g->rtn);
    af_unique_ids_clear(&g->unique_ids);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* ---- walking ---- */

/* Makes place when the tables have grown large: only what an answer stands on is kept. */
static af_status tidy(af_grammar *g, af_error *err)
{
    uint32_t n = 0;
    if (!af_automaton_full(&g->automaton))
        return AF_OK;
    uint32_t **keep = af_calloc((uint64_t)g->state_count + 1, sizeof(uint32_t *));
    if (!keep)
        return af_fail_nomem(err, "the states of a grammar", g->state_count * sizeof *keep);
    for (af_grammar_state *s = g->states; s; s = s->next)
        keep[n++] = &s->config;
    keep[n++] = &g->start;
    const af_status st = af_automaton_collect(&g->automaton, keep, n, err);
    if (st == AF_OK)
        g->mask_bytes = 0;
    free(keep);
    return st;
}

/* To where the bytes lead from where the answer stands; AF_CONFIG_DEAD: nowhere. */
static af_status walk(af_grammar_state *s, uint32_t *config, const char *bytes, uint64_t n,
                      af_error *err)
{
    af_grammar *g = s->grammar;
    af_status st = AF_OK;
    if (s->unique)
        return af_unique_walk(s->unique, &g->automaton, config, bytes, n, err);
    for (uint64_t i = 0; i < n && *config != AF_CONFIG_DEAD; i++)
        AF_TRY(af_automaton_step(&g->automaton, *config, (uint8_t)bytes[i], config, err));
done:
    return st;
}

af_status af_grammar_matches(af_grammar *g, const char *text, uint64_t len, bool *fits,
                             af_error *err)
{
    AF_NEED(err, g, text || !len, fits);
    af_status st = AF_OK;
    af_grammar_state *s = NULL;
    AF_TRY(af_grammar_state_new(&s, g, err));
    pthread_mutex_lock(&g->lock);
    for (uint64_t i = 0; i < len && st == AF_OK; i += 4096) {
        st = tidy(g, err);
        if (st == AF_OK)
            st = walk(s, &s->config, text + i, AF_MIN(len - i, 4096u), err);
    }
    if (st == AF_OK)
        *fits = s->config != AF_CONFIG_DEAD && g->automaton.config[s->config].can_end;
    pthread_mutex_unlock(&g->lock);
done:
    af_grammar_state_free(s);
    return st;
}

/* ---- states ---- */

af_status af_grammar_state_new(af_grammar_state **out, af_grammar *g, af_error *err)
{
    AF_NEED(err, out, g);
    af_grammar_state *s = af_calloc(1, sizeof *s);
    if (!s)
        return af_fail_nomem(err, "the state of a grammar", sizeof *s);
    s->grammar = g;
    s->unique = g->rtn.unique ? af_unique_new() : NULL;
    if (g->rtn.unique && !s->unique) {
        free(s);
        return af_fail_nomem(err, "the state of a grammar", sizeof *s->unique);
    }
    pthread_mutex_lock(&g->lock);
    s->config = g->start;
    s->next = g->states;
    if (s->next)
        s->next->prev = s;
    g->states = s;
    g->state_count++;
    pthread_mutex_unlock(&g->lock);
    *out = s;
    return AF_OK;
}

void af_grammar_state_free(af_grammar_state *s)
{
    if (!s)
        return;
    af_grammar *g = s->grammar;
    pthread_mutex_lock(&g->lock);
    if (s->prev)
        s->prev->next = s->next;
    else
        g->states = s->next;
    if (s->next)
        s->next->prev = s->prev;
    g->state_count--;
    pthread_mutex_unlock(&g->lock);
    af_unique_free(s->unique);
    free(s);
}

bool af_grammar_state_can_end(const af_grammar_state *s)
{
    if (!s)
        return false;
    af_grammar *g = s->grammar;
    pthread_mutex_lock(&g->lock);
    const bool end = g->automaton.config[s->config].can_end;
    pthread_mutex_unlock(&g->lock);
    return end;
}

bool af_grammar_state_must_end(const af_grammar_state *s)
{
    if (!s)
        return false;
    af_grammar *g = s->grammar;
    pthread_mutex_lock(&g->lock);
    const bool end = s->ended || g->automaton.config[s->config].places == 0;
    pthread_mutex_unlock(&g->lock);
    return end;
}

static af_status accept_locked(af_grammar_state *s, int32_t id, af_error *err)
{
    af_status st = AF_OK;
    af_grammar *g = s->grammar;
    const af_grammar_vocab *v = g->vocab;
    AF_TRY(tidy(g, err));
    uint32_t config = s->config;
    if (af_vocab_is_stop(v, id)) {
        if (!s->ended && !g->automaton.config[config].can_end)
            return af_fail(err, AF_EUSAGE, "the answer cannot end here: the grammar wants more");
        s->ended = true;
        return AF_OK;
    }
    const bool known = id >= 0 && id < v->ids && v->at[id + 1] > v->at[id] && !s->ended;
    if (known)
        AF_TRY(walk(s, &config, v->bytes + v->at[id], v->at[id + 1] - v->at[id], err));
    if (!known || config == AF_CONFIG_DEAD)
        return af_fail(err, AF_EUSAGE, "the grammar does not allow token %d here", (int)id);
    s->config = config;
done:
    return st;
}

af_status af_grammar_state_accept(af_grammar_state *s, int32_t id, af_error *err)
{
    AF_NEED(err, s);
    pthread_mutex_lock(&s->grammar->lock);
    const af_status st = accept_locked(s, id, err);
    pthread_mutex_unlock(&s->grammar->lock);
    return st;
}

/* ---- masks ---- */

static void allow(uint32_t *mask, int32_t id) { mask[id / 32] |= UINT32_C(1) << (id % 32); }

/* Which tokens fit: one pass over the trie, with the configuration at each depth. */
static af_status fill_mask(af_grammar *g, uint32_t config, uint32_t *mask, af_error *err)
{
    const af_grammar_vocab *v = g->vocab;
    uint32_t at[AF_VOCAB_TOKEN_MAX + 2];
    at[0] = config;
    for (uint32_t i = 0; i < v->nodes;) {
        const af_vocab_node n = v->node[i];
        const af_status st =
            af_automaton_step(&g->automaton, at[n.depth], n.byte, &at[n.depth + 1], err);
        if (st != AF_OK)
            return st;
        if (at[n.depth + 1] == AF_CONFIG_DEAD) {
            i = n.skip;
            continue;
        }
        for (int32_t id = n.id; id >= 0; id = v->same[id])
            allow(mask, id);
        i++;
    }
    return AF_OK;
}

static void drop_masks(af_grammar *g)
{
    for (uint32_t i = 1; i < g->automaton.configs; i++) {
        free(g->automaton.config[i].mask);
        g->automaton.config[i].mask = NULL;
    }
    g->mask_bytes = 0;
}

/* The mask of a configuration without the ids that end; kept by it. */
static af_status mask_of(af_grammar *g, uint32_t config, const uint32_t **out, af_error *err)
{
    af_status st = AF_OK;
    const uint64_t words = ((uint64_t)g->vocab->ids + 31) / 32;
    uint32_t *mask = NULL;
    AF_TRY(af_automaton_alike(&g->automaton, config, g->vocab->longest, &config, err));
    if (!g->automaton.config[config].mask) {
        if (g->mask_bytes + words * sizeof *mask > MASK_BYTES_MAX)
            drop_masks(g);
        mask = af_calloc(words + 1, sizeof *mask);
        if (!mask)
            return af_fail_nomem(err, "a mask of tokens", words * sizeof *mask);
        AF_TRY(fill_mask(g, config, mask, err));
        g->automaton.config[config].mask = mask;
        g->mask_bytes += words * sizeof *mask;
        mask = NULL;
    }
    *out = g->automaton.config[config].mask;
done:
    free(mask);
    return st;
}

static af_status mask_locked(af_grammar_state *s, uint32_t *allowed, int64_t ids, af_error *err)
{
    af_status st = AF_OK;
    af_grammar *g = s->grammar;
    const af_grammar_vocab *v = g->vocab;
    const uint64_t words = ((uint64_t)ids + 31) / 32, own = ((uint64_t)v->ids + 31) / 32;
    const uint32_t *mask = NULL;
    AF_TRY(tidy(g, err));
    memset(allowed, 0, words * sizeof *allowed);
    if (!s->ended) {
        AF_TRY(mask_of(g, s->config, &mask, err));
        memcpy(allowed, mask, AF_MIN(words, own) * sizeof *allowed);
        if (s->unique)
            AF_TRY(af_unique_mask(s->unique, &g->automaton, s->config, v, &g->unique_ids, allowed,
                                  ids, err));
    }
    if (ids % 32 && words)
        allowed[words - 1] &= (UINT32_C(1) << (ids % 32)) - 1;
    for (int i = 0; i < v->stops && (s->ended || g->automaton.config[s->config].can_end); i++)
        if (v->stop[i] < ids)
            allow(allowed, v->stop[i]);
    for (uint64_t i = 0; i < words; i++)
        if (allowed[i])
            return AF_OK;
    st = af_fail(err, AF_EUSAGE, "no token of the vocabulary can continue the text");
done:
    return st;
}

af_status af_grammar_state_mask(af_grammar_state *s, uint32_t *allowed, int64_t ids, af_error *err)
{
    AF_NEED(err, s, allowed);
    if (ids < 1)
        return af_fail(err, AF_EUSAGE, "a mask of %" PRId64 " ids is not possible", ids);
    pthread_mutex_lock(&s->grammar->lock);
    const af_status st = mask_locked(s, allowed, ids, err);
    pthread_mutex_unlock(&s->grammar->lock);
    return st;
}
