/* unique.c - the items of arrays that have each once. */
#include "grammar/unique.h"
#include "format/text/json_text.h"

enum {
    LOOK_MAX = 1024,       /* bytes to look ahead: what is longer is taken for possible */
    LOOK_PLACES = 1 << 13, /* and what has more places to look at */
};

af_unique *af_unique_new(void)
{
    af_unique *u = af_calloc(1, sizeof *u);
    if (u)
        u->now.items = u->now.frames = 1; /* 0: none */
    return u;
}

void af_unique_free(af_unique *u)
{
    if (!u)
        return;
    af_buf_clear(&u->text);
    free(u->item);
    free(u->frame);
    free(u);
}

bool af_unique_ids_init(af_unique_ids *ids, const af_grammar_vocab *v)
{
    ids->id = af_calloc((uint64_t)v->ids + 1, sizeof *ids->id);
    for (int32_t i = 0; ids->id && i < v->ids; i++)
        for (uint64_t k = v->at[i]; k < v->at[i + 1]; k++)
            if (memchr(",]}[:", v->bytes[k], 5)) {
                ids->id[ids->count++] = i;
                break;
            }
    return ids->id != NULL;
}

/* ---- one byte ---- */

static void add_text(af_unique *u, const char *bytes, uint64_t n)
{
    u->text.len = u->now.text;
    af_buf_add(&u->text, bytes, n);
    u->now.text = u->text.len;
}

static bool add_frame(af_unique *u, af_unique_frame f)
{
    if (u->now.frames >= u->frames_cap) {
        const uint32_t cap = u->frames_cap * 2 + 64;
        af_unique_frame *grown = af_realloc(u->frame, cap, sizeof *grown);
        if (!grown)
            return false;
        u->frame = grown;
        u->frames_cap = cap;
    }
    u->now.frame = u->now.frames;
    u->frame[u->now.frames++] = f;
    return true;
}

/* The next item of the same array. */
static bool add_item(af_unique *u, af_unique_item item, af_unique_frame f)
{
    if (u->now.items >= u->items_cap) {
        const uint32_t cap = u->items_cap * 2 + 64;
        af_unique_item *grown = af_realloc(u->item, cap, sizeof *grown);
        if (!grown)
            return false;
        u->item = grown;
        u->items_cap = cap;
    }
    f.last = u->now.items;
    u->item[u->now.items++] = item;
    return add_frame(u, f);
}

/* The present item of a frame, if it ended here. 1.50 is 1.5, 1. is 1 and -0 is 0. */
static af_unique_item item_of(const af_unique *u, af_unique_frame f)
{
    const char *text = u->text.data;
    af_unique_item i = {.at = f.at, .end = u->now.text, .before = f.last};
    if (i.at == i.end || !memchr("-0123456789", text[i.at], 11))
        return i;
    if (memchr(text + i.at, '.', i.end - i.at) && !memchr(text + i.at, 'e', i.end - i.at))
        while (text[i.end - 1] == '0')
            i.end--;
    i.end -= text[i.end - 1] == '.';
    i.at += i.end - i.at == 2 && memcmp(text + i.at, "-0", 2) == 0;
    return i;
}

static json_t *value_of(const af_unique *u, af_unique_item i)
{
    return af_json_load(u->text.data + i.at, i.end - i.at, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
                        NULL);
}

/* Objects may have their properties in another order, and 1 is 1.0. */
static bool same_item(const af_unique *u, af_unique_item a, af_unique_item b)
{
    const char *text = u->text.data;
    if (a.end - a.at == b.end - b.at && memcmp(text + a.at, text + b.at, a.end - a.at) == 0)
        return true;
    if (text[a.at] != text[b.at] || !memchr("{[", text[a.at], 2))
        return false;
    json_t *x = value_of(u, a), *y = value_of(u, b);
    const bool same = x && y && json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return same;
}

/* Is the item that ends here one that was there? */
static bool is_twin(const af_unique *u, af_unique_frame f)
{
    const af_unique_item now = item_of(u, f);
    for (uint32_t i = f.last; i; i = u->item[i].before)
        if (same_item(u, u->item[i], now))
            return true;
    return false;
}

/* A byte of a string. Escapes of characters beyond ASCII become these, and \/ is /. */
static void string_byte(af_unique *u, uint8_t b)
{
    af_unique_place *p = &u->now;
    if (!p->escape) {
        p->string = b != '"';
        p->escape = b == '\\';
        if (!p->escape)
            add_text(u, (char *)&b, 1);
        return;
    }
    if (p->escape == 1 && b != 'u') {
        add_text(u, b == '/' ? "" : "\\", b != '/');
        add_text(u, (char *)&b, 1);
        p->escape = 0;
        return;
    }
    const uint32_t digit = b <= '9' ? b : b + 9u; /* its last four bits */
    p->code = p->escape == 1 ? 0 : p->code << 4 | (digit & 15);
    if (p->escape++ < 5)
        return;
    p->escape = 0;
    if (p->code >= 0xd800 && p->code < 0xdc00) {
        p->high = p->code;
        return;
    }
    if (p->code >= 0xdc00 && p->code < 0xe000)
        p->code = 0x10000 + ((p->high & 0x3ff) << 10 | (p->code & 0x3ff));
    u->text.len = p->text;
    if (p->code < 0x20)
        af_buf_printf(&u->text, "\\u%04x", (unsigned)p->code);
    else
        af_buf_utf8(&u->text, p->code);
    p->text = u->text.len;
}

static bool is_blank(uint8_t b) { return b == ' ' || b == '\n' || b == '\t' || b == '\r'; }

/* A comma or a bracket that closes. A list or an object is looked for among the items before it
 * where it ends, not where its array goes on: then it can still become another one. */
static bool end_item(af_unique *u, uint8_t b, bool *fits)
{
    af_unique_place *p = &u->now;
    const af_unique_frame f = u->frame[p->frame];
    const af_unique_item item = item_of(u, f);
    if (f.unique && p->text > f.at && !memchr("[{", u->text.data[f.at], 2))
        *fits = !is_twin(u, f);
    add_text(u, (char *)&b, 1);
    if (b != ',') {
        p->frame = f.up;
        if (f.up && u->frame[f.up].unique)
            *fits = *fits && !is_twin(u, u->frame[f.up]);
        return !af_memory_failed(); /* else is_twin could not tell */
    }
    return !af_memory_failed() &&
           (!f.unique ||
            add_item(u, item, (af_unique_frame){.at = p->text, .up = f.up, .unique = true}));
}

/* Moves over a byte; `opens`: as [ it begins such an array. *fits: it does not end a repeated item.
 */
static af_status put_byte(af_unique *u, uint8_t b, bool opens, bool *fits, af_error *err)
{
    af_unique_place *p = &u->now;
    bool ok = true;
    *fits = true;
    if (p->frame == 0 && !(b == '[' && opens))
        return AF_OK;
    if (p->string) {
        string_byte(u, b);
    } else if (b == '[' || b == '{') {
        add_text(u, (char *)&b, 1);
        ok = add_frame(u, (af_unique_frame){.at = p->text, .up = p->frame, .unique = opens});
    } else if (b == ',' || b == ']' || b == '}') {
        ok = end_item(u, b, fits);
    } else if (!is_blank(b)) {
        p->string = b == '"';
        add_text(u, (char *)&b, 1);
    }
    return ok && !u->text.bad ? AF_OK
                              : af_fail_nomem(err, "the items of an array", p->text + p->frames);
}

/* Does [ begin such an array here, in one reading at least? */
static bool opens_here(const af_automaton *a, uint32_t config, uint8_t b)
{
    const af_rtn *r = a->rtn;
    const af_config *c = &a->config[config];
    for (uint32_t i = 0; i < c->places && b == '['; i++)
        for (uint32_t k = r->first[c->place[i].state]; k < r->first[c->place[i].state + 1]; k++)
            if (r->edge[k].kind == AF_EDGE_BYTES && r->edge[k].rule == AF_RTN_UNIQUE)
                return true;
    return false;
}

/* Does a power of ten begin here? Numbers have one spelling in these arrays; an enum may have a
 * number that is only written so. */
static af_status is_other_spelling(const af_unique *u, af_automaton *a, uint32_t config, uint8_t b,
                                   bool *yes, af_error *err)
{
    static const char ends[] = ",]}";
    af_status st = AF_OK;
    const uint64_t n = u->now.text;
    uint32_t next = AF_CONFIG_DEAD;
    *yes = false;
    if (!u->now.frame || u->now.string || (b != 'e' && b != 'E') || u->text.data[n - 1] < '0' ||
        u->text.data[n - 1] > '9')
        return AF_OK;
    for (int i = 0; i < 3 && !*yes; i++) {
        AF_TRY(af_automaton_step(a, config, (uint8_t)ends[i], &next, err));
        *yes = next != AF_CONFIG_DEAD;
    }
done:
    return st;
}

/* Moves over a byte in both; AF_CONFIG_DEAD when it does not fit. */
static af_status step(af_unique *u, af_automaton *a, uint32_t *config, uint8_t b, af_error *err)
{
    af_status st = AF_OK;
    uint32_t next;
    bool fits = true, other = false;
    AF_TRY(af_automaton_step(a, *config, b, &next, err));
    if (next != AF_CONFIG_DEAD)
        AF_TRY(is_other_spelling(u, a, *config, b, &other, err));
    if (other)
        next = AF_CONFIG_DEAD;
    if (next != AF_CONFIG_DEAD)
        AF_TRY(put_byte(u, b, opens_here(a, *config, b), &fits, err));
    *config = fits ? next : AF_CONFIG_DEAD;
done:
    return st;
}

/* ---- what can follow ---- */

/* Does an item that was there begin as the present one does, or is it the same number? */
static bool is_shadowed(const af_unique *u)
{
    for (uint32_t k = u->now.frame; k; k = u->frame[k].up) {
        const af_unique_frame f = u->frame[k];
        if (!f.unique)
            continue;
        const char *text = u->text.data;
        const uint64_t n = u->now.text - f.at;
        const af_unique_item now = item_of(u, f);
        for (uint32_t i = f.last; i; i = u->item[i].before) {
            const af_unique_item t = u->item[i];
            const uint64_t size = t.end - t.at;
            if ((size >= n && memcmp(text + t.at, text + f.at, n) == 0) ||
                (n == 1 && text[f.at] == '-') ||
                (size == now.end - now.at && memcmp(text + t.at, text + now.at, size) == 0))
                return true;
        }
    }
    return false;
}

/* Can the present item become one that was not there? Bytes that no earlier item has here say so;
 * only where there are none are those looked at that one has. */
static af_status is_possible(af_unique *u, af_automaton *a, uint32_t config, int depth, bool *yes,
                             af_error *err)
{
    af_status st = AF_OK;
    const af_unique_place was = u->now;
    *yes = depth == LOOK_MAX || ++u->looked > LOOK_PLACES || !is_shadowed(u);
    for (int deeper = 0; deeper < 2; deeper++)
        for (int b = 0; b < AF_RTN_SPECIAL && !*yes; b++) {
            uint32_t next = config;
            if (was.string ? depth && was.escape == 1 && b == '/' : is_blank((uint8_t)b))
                continue; /* what can be written without */
            AF_TRY(step(u, a, &next, (uint8_t)b, err));
            if (next != AF_CONFIG_DEAD && !deeper)
                *yes = !is_shadowed(u);
            else if (next != AF_CONFIG_DEAD)
                AF_TRY(is_possible(u, a, next, depth + 1, yes, err));
            u->now = was;
        }
done:
    u->now = was;
    return st;
}

static af_status can_differ(af_unique *u, af_automaton *a, uint32_t config, bool *yes,
                            af_error *err)
{
    u->looked = 0;
    return is_possible(u, a, config, 0, yes, err);
}

af_status af_unique_walk(af_unique *u, af_automaton *a, uint32_t *config, const char *bytes,
                         uint64_t n, af_error *err)
{
    af_status st = AF_OK;
    bool possible = true;
    const af_unique_place was = u->now;
    for (uint64_t i = 0; i < n && *config != AF_CONFIG_DEAD; i++)
        AF_TRY(step(u, a, config, (uint8_t)bytes[i], err));
    if (*config != AF_CONFIG_DEAD)
        AF_TRY(can_differ(u, a, *config, &possible, err));
    if (!possible)
        *config = AF_CONFIG_DEAD;
done:
    if (*config == AF_CONFIG_DEAD || st != AF_OK)
        u->now = was;
    else if (u->now.frame == 0) /* nothing is needed any more */
        u->now = (af_unique_place){.items = 1, .frames = 1};
    return st;
}

/* ---- masks ---- */

static bool has(const uint32_t *mask, int32_t id) { return mask[id / 32] >> (id % 32) & 1; }
static void drop(uint32_t *mask, int32_t id) { mask[id / 32] &= ~(UINT32_C(1) << (id % 32)); }

static af_status mask_token(af_unique *u, af_automaton *a, uint32_t config,
                            const af_grammar_vocab *v, int32_t id, uint32_t *mask, af_error *err)
{
    const af_unique_place was = u->now;
    const af_status st =
        af_unique_walk(u, a, &config, v->bytes + v->at[id], v->at[id + 1] - v->at[id], err);
    if (config == AF_CONFIG_DEAD)
        drop(mask, id);
    u->now = was;
    return st;
}

/* Outside of strings, where few tokens fit: all of them. Else those that go on after the string;
 * outside of such arrays those that begin one. */
static af_status mask_ends(af_unique *u, af_automaton *a, uint32_t config,
                           const af_grammar_vocab *v, const af_unique_ids *ids, uint32_t *mask,
                           int64_t bits, af_error *err)
{
    af_status st = AF_OK;
    const bool all = u->now.frame && !u->now.string;
    const uint32_t count = all ? (uint32_t)AF_MIN(bits, v->ids) : ids->count;
    for (uint32_t i = 0; i < count; i++) {
        const int32_t id = all ? (int32_t)i : ids->id[i];
        if (all && id % 32 == 0 && !mask[id / 32])
            i += 31;
        else if (id < bits && has(mask, id) &&
                 (u->now.frame || memchr(v->bytes + v->at[id], '[', v->at[id + 1] - v->at[id])))
            AF_TRY(mask_token(u, a, config, v, id, mask, err));
    }
done:
    return st;
}

/* Tokens inside a string after which nothing but an earlier item could follow: one pass over the
 * part of the trie that is like one. */
static af_status mask_starts(af_unique *u, af_automaton *a, uint32_t config,
                             const af_grammar_vocab *v, uint32_t *mask, int64_t bits, af_error *err)
{
    af_status st = AF_OK;
    const af_unique_place was = u->now;
    af_unique_place *place = af_calloc(AF_VOCAB_TOKEN_MAX + 2, sizeof *place);
    uint32_t at[AF_VOCAB_TOKEN_MAX + 2];
    bool possible;
    if (!place)
        return af_fail_nomem(err, "a mask of tokens", AF_VOCAB_TOKEN_MAX * sizeof *place);
    place[0] = was;
    at[0] = config;
    for (uint32_t i = 0; i < v->nodes;) {
        const af_vocab_node n = v->node[i];
        u->now = place[n.depth];
        at[n.depth + 1] = at[n.depth];
        AF_TRY(step(u, a, &at[n.depth + 1], n.byte, err));
        place[n.depth + 1] = u->now;
        if (at[n.depth + 1] == AF_CONFIG_DEAD || !is_shadowed(u)) {
            i = n.skip;
            continue;
        }
        if (n.id >= 0 && n.id < bits && has(mask, n.id)) {
            AF_TRY(can_differ(u, a, at[n.depth + 1], &possible, err));
            for (int32_t id = n.id; id >= 0 && !possible; id = v->same[id])
                if (id < bits)
                    drop(mask, id);
        }
        i++;
    }
done:
    u->now = was;
    free(place);
    return st;
}

af_status af_unique_mask(af_unique *u, af_automaton *a, uint32_t config, const af_grammar_vocab *v,
                         const af_unique_ids *ids, uint32_t *mask, int64_t bits, af_error *err)
{
    const af_status st = mask_ends(u, a, config, v, ids, mask, bits, err);
    return st == AF_OK && u->now.string && is_shadowed(u)
               ? mask_starts(u, a, config, v, mask, bits, err)
               : st;
}
