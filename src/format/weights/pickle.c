/* pickle.c - the stack machine of Python's pickle module, without its calls; see pickle.h. */
#include "format/weights/pickle.h"

typedef struct pickle_machine {
    af_reader *r;
    af_arena *arena;
    af_pickle_ids *ids;
    af_pickle **stack; /* NULL is a mark */
    uint64_t depth, cap;
    af_pickle **memo;
    uint64_t memo_cap, memo_next, memo_max;
    bool stopped;
} pickle_machine;

static af_status fail_odd(af_error *err)
{
    return af_fail(err, AF_EFORMAT, "the pickle is damaged");
}

static af_status grow(af_pickle ***items, uint64_t *cap, uint64_t need, af_error *err)
{
    if (need <= *cap)
        return AF_OK;
    const uint64_t more = AF_MAX(need, *cap ? *cap * 2 : 64);
    af_pickle **p = af_realloc(*items, more, sizeof *p);
    if (!p)
        return af_fail_nomem(err, "a pickle", more * sizeof *p);
    memset(p + *cap, 0, (more - *cap) * sizeof *p);
    *items = p;
    *cap = more;
    return AF_OK;
}

static af_status push(pickle_machine *m, af_pickle *v, af_error *err)
{
    const af_status st = grow(&m->stack, &m->cap, m->depth + 1, err);
    if (st == AF_OK)
        m->stack[m->depth++] = v;
    return st;
}

static af_status push_new(pickle_machine *m, af_pickle value, af_error *err)
{
    af_pickle *v = af_arena_take(m->arena, sizeof *v);
    if (!v)
        return af_fail_nomem(err, "a pickle", sizeof *v);
    *v = value;
    return push(m, v, err);
}

/* The top value; NULL when there is none. */
static af_pickle *top(const pickle_machine *m) { return m->depth ? m->stack[m->depth - 1] : NULL; }

static af_pickle *pop(pickle_machine *m) { return m->depth ? m->stack[--m->depth] : NULL; }

/* Where the values above the last mark begin; the mark is right before. 0 = no mark. */
static uint64_t marked(const pickle_machine *m)
{
    uint64_t at = m->depth;
    while (at > 0 && m->stack[at - 1])
        at--;
    return at;
}

static af_status append(const pickle_machine *m, af_pickle *to, af_pickle **from, uint64_t n,
                        af_error *err)
{
    if (!to || to->kind == AF_PICKLE_TEXT || to->kind == AF_PICKLE_NAME)
        return fail_odd(err);
    if (to->count + n > to->cap) {
        const uint64_t cap = AF_MAX(to->count + n, to->cap * 2);
        af_pickle **more = af_arena_take(m->arena, cap * sizeof(af_pickle *));
        if (!more)
            return af_fail_nomem(err, "a pickle", cap * sizeof(af_pickle *));
        if (to->count)
            memcpy(more, to->item, to->count * sizeof(af_pickle *));
        to->item = more;
        to->cap = cap;
    }
    if (n)
        memcpy(to->item + to->count, from, n * sizeof(af_pickle *));
    to->count += n;
    return AF_OK;
}

/* The values above the last mark go into the one below it. */
static af_status append_marked(pickle_machine *m, bool pairs, af_error *err)
{
    const uint64_t from = marked(m), n = m->depth - from;
    if (from < 2 || (pairs && n % 2))
        return fail_odd(err);
    m->depth = from - 1;
    return append(m, top(m), m->stack + from, n, err);
}

static af_status push_tuple(pickle_machine *m, uint64_t from, uint64_t below, af_pickle_kind kind,
                            af_error *err)
{
    af_pickle v = {.kind = kind};
    for (uint64_t i = from; i < m->depth; i++)
        if (!m->stack[i])
            return fail_odd(err);
    const af_status st = append(m, &v, m->stack + from, m->depth - from, err);
    if (st != AF_OK)
        return st;
    m->depth = below;
    return push_new(m, v, err);
}

static af_status push_marked(pickle_machine *m, af_pickle_kind kind, af_error *err)
{
    const uint64_t from = marked(m);
    return from ? push_tuple(m, from, from - 1, kind, err) : fail_odd(err);
}

static af_status push_last(pickle_machine *m, uint64_t n, af_error *err)
{
    return m->depth < n ? fail_odd(err)
                        : push_tuple(m, m->depth - n, m->depth - n, AF_PICKLE_TUPLE, err);
}

static af_status push_text(pickle_machine *m, uint64_t n, af_pickle_kind kind, af_error *err)
{
    const uint8_t *p = af_read_bytes(m->r, n);
    if (!p)
        return fail_odd(err);
    const char *copy = af_arena_strndup(m->arena, (const char *)p, n);
    if (!copy)
        return af_fail_nomem(err, "a pickle", n);
    return push_new(m, (af_pickle){.kind = kind, .text = copy, .text_len = n}, err);
}

static af_status push_int(pickle_machine *m, int64_t n, af_error *err)
{
    return push_new(m, (af_pickle){.kind = AF_PICKLE_INT, .number = n}, err);
}

/* An integer of n bytes in two's complement. */
static af_status push_long(pickle_machine *m, uint64_t n, af_error *err)
{
    if (n > 8)
        return push_text(m, n, AF_PICKLE_OTHER, err);
    uint64_t v = af_read_uint(m->r, (int)n);
    if (n > 0 && n < 8 && v >> (8 * n - 1))
        v |= ~UINT64_C(0) << (8 * n);
    return push_int(m, (int64_t)v, err);
}

static af_status push_name(pickle_machine *m, const char *module, uint64_t module_len,
                           const char *name, uint64_t name_len, af_error *err)
{
    const char *text = af_arena_printf(m->arena, "%.*s.%.*s", (int)AF_MIN(module_len, 500), module,
                                       (int)AF_MIN(name_len, 500), name);
    if (!text)
        return af_fail_nomem(err, "a pickle", name_len);
    return push_new(m, (af_pickle){.kind = AF_PICKLE_NAME, .text = text, .text_len = strlen(text)},
                    err);
}

/* "module\nname\n" */
static af_status read_name(pickle_machine *m, af_error *err)
{
    const uint8_t *line[3] = {m->r->at};
    for (int i = 0; i < 2; i++) {
        const uint8_t *end = memchr(line[i], '\n', (size_t)(m->r->end - line[i]));
        if (!end)
            return fail_odd(err);
        line[i + 1] = end + 1;
    }
    m->r->at = line[2];
    return push_name(m, (const char *)line[0], (uint64_t)(line[1] - line[0]) - 1,
                     (const char *)line[1], (uint64_t)(line[2] - line[1]) - 1, err);
}

static af_status stack_name(pickle_machine *m, af_error *err)
{
    const af_pickle *name = pop(m), *module = pop(m);
    if (!name || !module || name->kind != AF_PICKLE_TEXT || module->kind != AF_PICKLE_TEXT)
        return fail_odd(err);
    return push_name(m, module->text, module->text_len, name->text, name->text_len, err);
}

static af_status call(pickle_machine *m, af_error *err)
{
    const af_pickle *arg = pop(m), *fn = pop(m);
    if (!arg || !fn)
        return fail_odd(err);
    return push_new(m, (af_pickle){.kind = AF_PICKLE_CALL, .fn = fn, .arg = arg}, err);
}

static af_status push_id(pickle_machine *m, af_error *err)
{
    const af_pickle *arg = pop(m);
    af_status st =
        arg ? push_new(m, (af_pickle){.kind = AF_PICKLE_ID, .arg = arg}, err) : fail_odd(err);
    if (st == AF_OK && m->ids)
        st = grow(&m->ids->item, &m->ids->cap, m->ids->count + 1, err);
    if (st == AF_OK && m->ids)
        m->ids->item[m->ids->count++] = top(m);
    return st;
}

static af_status put(pickle_machine *m, uint64_t at, af_error *err)
{
    if (at > m->memo_max || !top(m))
        return fail_odd(err);
    const af_status st = grow(&m->memo, &m->memo_cap, at + 1, err);
    if (st != AF_OK)
        return st;
    m->memo[at] = top(m);
    m->memo_next = AF_MAX(m->memo_next, at + 1);
    return AF_OK;
}

static af_status get(pickle_machine *m, uint64_t at, af_error *err)
{
    return at < m->memo_cap && m->memo[at] ? push(m, m->memo[at], err) : fail_odd(err);
}

static af_status drop(pickle_machine *m, uint64_t to, af_error *err)
{
    if (m->depth == 0 || to > m->depth)
        return fail_odd(err);
    m->depth = to;
    return AF_OK;
}

static af_status step_scalar(pickle_machine *m, uint8_t op, af_error *err)
{
    af_reader *r = m->r;
    switch (op) {
    case 'N':
        return push_new(m, (af_pickle){.kind = AF_PICKLE_NONE}, err);
    case 0x88: /* true, false */
    case 0x89:
        return push_int(m, op == 0x88, err);
    case 'K':
        return push_int(m, af_read_u8(r), err);
    case 'M':
        return push_int(m, af_read_u16(r), err);
    case 'J':
        return push_int(m, (int32_t)af_read_u32(r), err);
    case 0x8a: /* long */
        return push_long(m, af_read_u8(r), err);
    case 0x8b:
        return push_long(m, af_read_u32(r), err);
    case 'G':
        return push_text(m, 8, AF_PICKLE_OTHER, err);
    case 'X': /* text, by the size of its length */
        return push_text(m, af_read_u32(r), AF_PICKLE_TEXT, err);
    case 0x8c:
        return push_text(m, af_read_u8(r), AF_PICKLE_TEXT, err);
    case 0x8d:
        return push_text(m, af_read_u64(r), AF_PICKLE_TEXT, err);
    case 'U': /* str of Python 2 */
        return push_text(m, af_read_u8(r), AF_PICKLE_TEXT, err);
    case 'T':
        return push_text(m, af_read_u32(r), AF_PICKLE_TEXT, err);
    case 'C': /* bytes */
        return push_text(m, af_read_u8(r), AF_PICKLE_OTHER, err);
    case 'B':
        return push_text(m, af_read_u32(r), AF_PICKLE_OTHER, err);
    default:
        return af_fail(err, AF_EUNSUPPORTED, "the pickle has the unknown opcode 0x%02x", op);
    }
}

static af_status step_object(pickle_machine *m, uint8_t op, af_error *err)
{
    switch (op) {
    case 'c':
        return read_name(m, err);
    case 0x93:
        return stack_name(m, err);
    case 'R': /* fn(*arg), and cls.__new__(cls, *arg) */
    case 0x81:
        return call(m, err);
    case 'b': /* attributes: not of use here (_metadata of a state_dict) */
        return drop(m, m->depth - 1, err);
    case 'Q':
        return push_id(m, err);
    case 'q':
        return put(m, af_read_u8(m->r), err);
    case 'r':
        return put(m, af_read_u32(m->r), err);
    case 0x94:
        return put(m, m->memo_next, err);
    case 'h':
        return get(m, af_read_u8(m->r), err);
    case 'j':
        return get(m, af_read_u32(m->r), err);
    default:
        return step_scalar(m, op, err);
    }
}

static af_status step(pickle_machine *m, uint8_t op, af_error *err)
{
    switch (op) {
    case 0x80: /* protocol, length of a frame */
        af_read_u8(m->r);
        return AF_OK;
    case 0x95:
        af_read_u64(m->r);
        return AF_OK;
    case '.':
        m->stopped = true;
        return AF_OK;
    case '(':
        return push(m, NULL, err);
    case '0':
        return drop(m, m->depth - 1, err);
    case '1':
        return drop(m, marked(m) - 1, err);
    case '}':
        return push_new(m, (af_pickle){.kind = AF_PICKLE_DICT}, err);
    case ']':
    case ')':
        return push_new(m, (af_pickle){.kind = AF_PICKLE_TUPLE}, err);
    case 0x85: /* tuples of 1, 2 and 3 */
    case 0x86:
    case 0x87:
        return push_last(m, (uint64_t)op - 0x84, err);
    case 't':
    case 'l':
        return push_marked(m, AF_PICKLE_TUPLE, err);
    case 'd':
        return push_marked(m, AF_PICKLE_DICT, err);
    case 'a':
    case 's': {
        const uint64_t n = op == 'a' ? 1 : 2;
        if (m->depth <= n || !m->stack[m->depth - 1] || !m->stack[m->depth - n])
            return fail_odd(err);
        m->depth -= n;
        return append(m, top(m), m->stack + m->depth, n, err);
    }
    case 'e':
    case 'u':
        return append_marked(m, op == 'u', err);
    default:
        return step_object(m, op, err);
    }
}

af_status af_pickle_read(const af_pickle **out, af_pickle_ids *ids, af_arena *arena, af_reader *r,
                         af_error *err)
{
    pickle_machine m = {.r = r, .arena = arena, .ids = ids};
    const uint8_t *from = r->at;
    af_status st = AF_OK;
    m.memo_max = AF_MIN(af_read_left(r), AF_PICKLE_MAX);
    while (st == AF_OK && !m.stopped) {
        const uint8_t op = af_read_u8(r);
        st = r->bad || (uint64_t)(r->at - from) > AF_PICKLE_MAX ? fail_odd(err) : step(&m, op, err);
        if (st == AF_OK && r->bad)
            st = fail_odd(err);
    }
    if (st == AF_OK && !top(&m))
        st = fail_odd(err);
    if (st == AF_OK)
        *out = top(&m);
    free(m.stack);
    free(m.memo);
    return st;
}

const af_pickle *af_pickle_at(const af_pickle *v, uint64_t i)
{
    static const af_pickle none = {.kind = AF_PICKLE_NONE};
    return v->kind == AF_PICKLE_TUPLE && i < v->count ? v->item[i] : &none;
}

bool af_pickle_is(const af_pickle *v, af_pickle_kind kind, const char *text)
{
    return v->kind == kind && strcmp(v->text, text) == 0;
}
