/* unique.c - the items of arrays that have each once. */
#include "grammar/unique.h"

enum {
    LOOK_MAX = 1024,     /* bytes to look ahead: what is longer is taken for possible */
    LOOK_WORK = 1 << 23, /* and what takes more comparisons */
    WORK_PER_PLACE = 256,
};

af_unique *af_unique_new(void)
{
    af_unique *u = af_calloc(1, sizeof *u);
    if (u)
        u->now.items = u->now.frames = u->indexed = 1; /* 0: none */
    return u;
}

void af_unique_free(af_unique *u)
{
    if (!u)
        return;
    af_buf_clear(&u->text);
    free(u->item);
    free(u->frame);
    free(u->sorted);
    free(u);
}

/* Does the text of a token have these bytes, in their order? */
static bool has_bytes(const af_grammar_vocab *v, int32_t id, const char *bytes)
{
    for (uint64_t k = v->at[id]; k < v->at[id + 1] && *bytes; k++)
        bytes += v->bytes[k] == (uint8_t)*bytes;
    return !*bytes;
}

/* Does it go on after a string? */
static bool has_end(const af_grammar_vocab *v, int32_t id)
{
    return has_bytes(v, id, "\",") || has_bytes(v, id, "\"]") || has_bytes(v, id, "\"}") ||
           has_bytes(v, id, "\":");
}

bool af_unique_ids_init(af_unique_ids *ids, const af_grammar_vocab *v, bool arrays)
{
    ids->begin = af_calloc((uint64_t)v->ids + 1, sizeof *ids->begin);
    ids->end = af_calloc((uint64_t)v->ids + 1, sizeof *ids->end);
    ids->again = af_calloc((uint64_t)v->ids + 1, sizeof *ids->again);
    for (int32_t i = 0; ids->begin && ids->end && ids->again && i < v->ids; i++) {
        if ((arrays && has_bytes(v, i, "[")) || has_bytes(v, i, "{,"))
            ids->begin[ids->begins++] = i;
        if (has_end(v, i))
            ids->end[ids->ends++] = i;
        if (has_bytes(v, i, ",\"\""))
            ids->again[ids->agains++] = i;
    }
    return ids->begin && ids->end && ids->again;
}

void af_unique_ids_clear(af_unique_ids *ids)
{
    free(ids->begin);
    free(ids->end);
    free(ids->again);
    *ids = (af_unique_ids){0};
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
    f.array = f.array ? f.array : u->now.frames;
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

/* The present item or key of a frame, if it ended here. */
static af_unique_item item_of(const af_unique *u, af_unique_frame f)
{
    return (af_unique_item){.at = f.at, .end = u->now.text, .before = f.last, .array = f.array};
}

/* The place in the index of the first item of an array that is not below a text. */
static uint32_t first_not_below(const af_unique *u, uint32_t array, const char *text, uint64_t n)
{
    uint32_t lo = 0, hi = u->indexed - 1;
    while (lo < hi) {
        const uint32_t mid = lo + (hi - lo) / 2;
        const af_unique_item i = u->item[u->sorted[mid]];
        const uint64_t size = i.end - i.at;
        const int order = i.array == array ? memcmp(u->text.data + i.at, text, AF_MIN(size, n))
                                           : (i.array > array) - (i.array < array);
        if (order < 0 || (order == 0 && size < n))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Puts the items so far into the index: where the answer stands, they stay. */
static bool index_items(af_unique *u)
{
    if (u->now.items > u->sorted_cap) {
        const uint32_t cap = u->now.items * 2 + 64;
        uint32_t *grown = af_realloc(u->sorted, cap, sizeof *grown);
        if (!grown)
            return false;
        u->sorted = grown;
        u->sorted_cap = cap;
    }
    for (; u->indexed < u->now.items; u->indexed++) {
        const af_unique_item i = u->item[u->indexed];
        const uint32_t at = first_not_below(u, i.array, u->text.data + i.at, i.end - i.at);
        const uint32_t after = u->indexed - 1 - at;
        if (after)
            memmove(u->sorted + at + 1, u->sorted + at, after * sizeof *u->sorted);
        u->sorted[at] = u->indexed;
    }
    return true;
}

/* Is an item the n bytes at `text` (part: or begins so)? */
static bool is_like(const af_unique *u, af_unique_item i, const char *text, uint64_t n, bool part)
{
    const uint64_t size = i.end - i.at;
    const char *item = u->text.data + i.at;
    if (part ? size < n : size != n)
        return false;
    return memcmp(item, text, n) == 0 ||
           (memchr("[{", text[0], 2) && af_unique_compare(item, text, n) != AF_UNIQUE_OTHER);
}

/* Was there an item or a key like the present one? `part`: one that begins like it. */
static bool has_twin(af_unique *u, af_unique_frame f, bool part)
{
    const char *now = u->text.data + f.at;
    const uint64_t n = u->now.text - f.at;
    uint32_t i = f.last;
    if (n == 0)
        return i != 0;
    for (; i && (i >= u->indexed || memchr("[{", now[0], 2)); i = u->item[i].before, u->looked++)
        if (is_like(u, u->item[i], now, n, part))
            return true;
    if (!i)
        return false;
    const uint32_t at = first_not_below(u, f.array, now, n);
    return at < u->indexed - 1 && u->item[u->sorted[at]].array == f.array &&
           is_like(u, u->item[u->sorted[at]], now, n, part);
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

/* A comma or a bracket that closes; `unique`: in a reading at least the items are. */
static bool end_item(af_unique *u, uint8_t b, bool unique)
{
    af_unique_place *p = &u->now;
    const af_unique_frame f = u->frame[p->frame];
    const af_unique_item item = item_of(u, f);
    add_text(u, (char *)&b, 1);
    if (b != ',') {
        p->frame = f.up;
        return true;
    }
    if (!unique && !f.unique && !f.object)
        return true; /* nothing of it is asked */
    const af_unique_frame next = {.at = p->text,
                                  .up = f.up,
                                  .last = f.last,
                                  .array = f.array,
                                  .unique = unique,
                                  .tight = f.tight && unique,
                                  .few = f.few,
                                  .object = f.object,
                                  .key = f.object};
    return unique ? add_item(u, item, next) : add_frame(u, next);
}

/* The colon after a key. */
static bool end_key(af_unique *u)
{
    af_unique_frame f = u->frame[u->now.frame];
    const af_unique_item key = item_of(u, f);
    add_text(u, ":", 1);
    f.at = u->now.text;
    f.key = false;
    return add_item(u, key, f);
}

/* Moves over a byte; `mark` of a [ or {; `unique`: the items of the array that it is in are, in a
 * reading at least. */
static af_status put_byte(af_unique *u, uint8_t b, uint32_t mark, bool unique, af_error *err)
{
    af_unique_place *p = &u->now;
    bool ok = true;
    if (p->frame == 0 && !mark)
        return AF_OK;
    if (p->string) {
        string_byte(u, b);
    } else if (b == '[' || b == '{') {
        add_text(u, (char *)&b, 1);
        ok = add_frame(u, (af_unique_frame){.at = p->text,
                                            .up = p->frame,
                                            .unique = mark != 0 && b == '[',
                                            .tight = mark == AF_RTN_TIGHT && b == '[',
                                            .few = mark == AF_RTN_TIGHT && b == '{',
                                            .object = b == '{',
                                            .key = b == '{'});
    } else if (b == ',' || b == ']' || b == '}') {
        ok = end_item(u, b, unique);
    } else if (b == ':') {
        ok = end_key(u);
    } else if (!is_blank(b)) {
        p->string = b == '"';
        add_text(u, (char *)&b, 1);
    }
    return ok && !u->text.bad ? AF_OK
                              : af_fail_nomem(err, "the items of an array", p->text + p->frames);
}

/* The mark of a [ or { here: the largest of all readings. */
static uint32_t mark_of(const af_automaton *a, uint32_t config, uint8_t b)
{
    const af_rtn *r = a->rtn;
    const af_config *c = &a->config[config];
    uint32_t mark = 0;
    for (uint32_t i = 0; i < c->places && (b == '[' || b == '{'); i++)
        for (uint32_t k = r->first[c->place[i].state]; k < r->first[c->place[i].state + 1]; k++)
            if (r->edge[k].kind == AF_EDGE_BYTES && r->edge[k].lo == b && r->edge[k].hi == b)
                mark = AF_MAX(mark, r->edge[k].rule);
    return mark;
}

/* Moves over a byte in both; AF_CONFIG_DEAD when it does not fit. A repeated item ends the readings
 * in which the array has each once, a repeated key those in which it is a key. */
static af_status step(af_unique *u, af_automaton *a, uint32_t *config, uint8_t b, af_error *err)
{
    af_status st = AF_OK;
    const af_unique_frame *f = u->now.frame ? &u->frame[u->now.frame] : NULL;
    uint32_t next, plain;
    bool unique = false;
    AF_TRY(af_automaton_step(a, *config, b, &next, err));
    if (next != AF_CONFIG_DEAD && f && f->key && !u->now.string && b == ':' &&
        has_twin(u, *f, false))
        AF_TRY(af_automaton_step_plain(a, *config, b, &next, err));
    if (next != AF_CONFIG_DEAD && f && f->unique && !u->now.string && (b == ',' || b == ']')) {
        AF_TRY(af_automaton_step_plain(a, *config, b, &plain, err));
        if (u->now.text > f->at && has_twin(u, *f, false))
            next = plain;
        unique = next != plain;
    }
    if (next != AF_CONFIG_DEAD)
        AF_TRY(put_byte(u, b, u->now.string ? 0 : mark_of(a, *config, b), unique, err));
    *config = next;
done:
    return st;
}

/* ---- what can follow ---- */

/* Can the present item become a value that another place in a tight array needs? */
static bool is_scarce(af_unique *u, const af_rtn *r, af_unique_frame f)
{
    const char *text = u->text.data + f.at;
    const uint64_t n = u->now.text - f.at;
    if (n == 0 || r->tight_any || (r->tight_lists && memchr("[{", text[0], 2)))
        return true;
    for (uint32_t i = 0; i < r->scarces; i++, u->looked++)
        if (af_unique_compare(r->scarce[i], text, n) != AF_UNIQUE_OTHER)
            return true;
    return false;
}

/* Does an item that was there, or a key, begin as the present one does? In a tight array, too,
 * nothing says that it can go on, unless the item is one of the first `known` frames', where it
 * could, and takes nothing that others need. */
static bool needs_look(af_unique *u, const af_automaton *a, uint32_t known)
{
    for (uint32_t k = u->now.frame; k; k = u->frame[k].up) {
        const af_unique_frame f = u->frame[k];
        if ((f.tight && (k >= known || is_scarce(u, a->rtn, f))) ||
            ((f.unique || f.key) && has_twin(u, f, true)))
            return true;
    }
    return false;
}

/* A byte that what follows can be written without: blanks, and in an escape that began `depth`
 * bytes ago at most those of characters that have no other spelling. */
static bool is_needless(const af_unique_place *p, int depth, int b)
{
    if (!p->string)
        return is_blank((uint8_t)b);
    if (p->escape == 0 || depth < p->escape)
        return false;
    if (p->escape == 1)
        return b == '/';
    if (p->escape < 5) /* \u00 and then 0 or 1 */
        return b > (p->escape == 4 ? '1' : '0');
    return b >= 'A' && b <= 'F';
}

static bool is_tight(const af_unique *u)
{
    for (uint32_t k = u->now.frame; k; k = u->frame[k].up)
        if (u->frame[k].tight)
            return true;
    return false;
}

/* Has an item of a tight array begun that takes nothing that others need? */
static bool is_free(af_unique *u, const af_automaton *a)
{
    return is_tight(u) && u->now.text > u->frame[u->now.frame].at && !needs_look(u, a, UINT32_MAX);
}

/* Can what is here go on without an item or key that was there, in a tight array to its end? Bytes
 * that no earlier item has here say so; only where there are none are those looked at that one
 * has. What closes comes first: it is the shortest way. After an item that takes nothing that
 * others need the rest is the same for all such items: one that fails is enough. What takes too
 * long is possible, but in a tight array it is not: there a way was found that is shorter. */
static af_status is_possible(af_unique *u, af_automaton *a, uint32_t config, int depth, bool *yes,
                             af_error *err)
{
    static const char closing[] = "\"]},:";
    enum { CLOSING = sizeof closing - 1 };
    af_status st = AF_OK;
    const af_unique_place was = u->now;
    const bool over = depth == LOOK_MAX || (u->looked += WORK_PER_PLACE) > LOOK_WORK;
    *yes = over ? !is_tight(u) : !needs_look(u, a, 0);
    if (over || *yes)
        return AF_OK;
    const bool own = is_free(u, a);
    bool failed = false;          /* a way after an item that is free */
    uint8_t live[AF_RTN_SPECIAL]; /* the bytes that can follow */
    int lives = 0;
    for (int i = 0; i < CLOSING + AF_RTN_SPECIAL && !*yes; i++) {
        const int b = i < CLOSING ? closing[i] : i - CLOSING;
        uint32_t next = config;
        if ((i >= CLOSING && memchr(closing, b, CLOSING)) || is_needless(&was, depth, b))
            continue;
        AF_TRY(step(u, a, &next, (uint8_t)b, err));
        if (next != AF_CONFIG_DEAD) {
            live[lives++] = (uint8_t)b;
            *yes = !needs_look(u, a, 0);
        }
        u->now = was;
    }
    for (int i = 0; i < lives && !*yes; i++) {
        uint32_t next = config;
        AF_TRY(step(u, a, &next, live[i], err));
        const bool goes_on =
            u->now.frame == was.frame && was.text > u->frame[was.frame].at && is_free(u, a);
        if (!failed || !goes_on) {
            AF_TRY(is_possible(u, a, next, depth + 1, yes, err));
            failed |= own || goes_on;
        }
        u->now = was;
    }
done:
    u->now = was;
    return st;
}

/* known: the frames there were where the answer stands. */
static af_status can_differ(af_unique *u, af_automaton *a, uint32_t config, uint32_t known,
                            bool *yes, af_error *err)
{
    u->looked = 0;
    *yes = !needs_look(u, a, known);
    return *yes ? AF_OK : is_possible(u, a, config, 0, yes, err);
}

static af_status walk(af_unique *u, af_automaton *a, uint32_t *config, const char *bytes,
                      uint64_t n, af_error *err)
{
    af_status st = AF_OK;
    bool possible = true;
    const af_unique_place was = u->now;
    for (uint64_t i = 0; i < n && *config != AF_CONFIG_DEAD; i++)
        AF_TRY(step(u, a, config, (uint8_t)bytes[i], err));
    if (*config != AF_CONFIG_DEAD)
        AF_TRY(can_differ(u, a, *config, was.frames, &possible, err));
    if (!possible)
        *config = AF_CONFIG_DEAD;
done:
    if (*config == AF_CONFIG_DEAD || st != AF_OK)
        u->now = was;
    return st;
}

af_status af_unique_walk(af_unique *u, af_automaton *a, uint32_t *config, const char *bytes,
                         uint64_t n, af_error *err)
{
    if (!index_items(u))
        return af_fail_nomem(err, "the items of an array", u->now.items);
    const af_status st = walk(u, a, config, bytes, n, err);
    if (u->now.frame == 0) { /* nothing is needed any more */
        u->now = (af_unique_place){.items = 1, .frames = 1};
        u->indexed = 1;
    }
    return st;
}

/* ---- masks ---- */

static bool has(const uint32_t *mask, int32_t id) { return mask[id / 32] >> (id % 32) & 1; }
static void drop(uint32_t *mask, int32_t id) { mask[id / 32] &= ~(UINT32_C(1) << (id % 32)); }

static af_status mask_token(af_unique *u, af_automaton *a, uint32_t config,
                            const af_grammar_vocab *v, int32_t id, uint32_t *mask, af_error *err)
{
    const af_unique_place was = u->now;
    const af_status st = walk(u, a, &config, v->bytes + v->at[id], v->at[id + 1] - v->at[id], err);
    if (config == AF_CONFIG_DEAD)
        drop(mask, id);
    u->now = was;
    return st;
}

static af_status mask_list(af_unique *u, af_automaton *a, uint32_t config,
                           const af_grammar_vocab *v, const int32_t *list, uint32_t count,
                           uint32_t *mask, int64_t bits, af_error *err)
{
    af_status st = AF_OK;
    for (uint32_t i = 0; i < count; i++)
        if (list[i] < bits && has(mask, list[i]))
            AF_TRY(mask_token(u, a, config, v, list[i], mask, err));
done:
    return st;
}

/* Is all that must not be repeated here the keys of objects that can always have another? Then a
 * token repeats one when the present key, or one that begins and ends in the token, was there. */
static bool is_simple(const af_unique *u)
{
    for (uint32_t k = u->now.frame; k; k = u->frame[k].up)
        if (u->frame[k].unique || u->frame[k].few)
            return false;
    return u->now.frame != 0;
}

/* Outside of strings, where few tokens fit: all of them. Else those that go on after the string;
 * outside of such arrays and objects those that begin one and may repeat something in it. */
static af_status mask_ends(af_unique *u, af_automaton *a, uint32_t config,
                           const af_grammar_vocab *v, const af_unique_ids *ids, uint32_t *mask,
                           int64_t bits, af_error *err)
{
    af_status st = AF_OK;
    if (is_simple(u))
        return mask_list(u, a, config, v, ids->again, ids->agains, mask, bits, err);
    if (!u->now.frame)
        return mask_list(u, a, config, v, ids->begin, ids->begins, mask, bits, err);
    if (u->now.string)
        return mask_list(u, a, config, v, ids->end, ids->ends, mask, bits, err);
    for (int32_t id = 0; id < AF_MIN(bits, v->ids); id++) {
        if (id % 32 == 0 && !mask[id / 32])
            id += 31;
        else if (has(mask, id))
            AF_TRY(mask_token(u, a, config, v, id, mask, err));
    }
done:
    return st;
}

/* Takes the tokens of a part of the trie out of the mask. */
static void drop_all(const af_grammar_vocab *v, uint32_t from, uint32_t to, uint32_t *mask,
                     int64_t bits)
{
    for (; from < to; from++)
        for (int32_t id = v->node[from].id; id >= 0; id = v->same[id])
            if (id < bits)
                drop(mask, id);
}

/* Tokens inside a string after which nothing but an earlier item could follow, and those that end
 * a repeated key: one pass over the part of the trie that is like one. */
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
        if (at[n.depth + 1] == AF_CONFIG_DEAD || !needs_look(u, a, was.frames)) {
            if (at[n.depth + 1] == AF_CONFIG_DEAD && n.byte == ':')
                drop_all(v, i, n.skip, mask, bits);
            i = n.skip;
            continue;
        }
        if (n.id >= 0 && n.id < bits && has(mask, n.id)) {
            AF_TRY(can_differ(u, a, at[n.depth + 1], was.frames, &possible, err));
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
    if (!index_items(u))
        return af_fail_nomem(err, "a mask of tokens", u->now.items);
    const af_status st = mask_ends(u, a, config, v, ids, mask, bits, err);
    return st == AF_OK && (u->now.string || is_simple(u)) && needs_look(u, a, u->now.frames)
               ? mask_starts(u, a, config, v, mask, bits, err)
               : st;
}
