/* thrift.c - see thrift.h. */
#include "format/columns/thrift.h"

enum {
    TRUE_VALUE = 1,
    FALSE_VALUE,
    BYTE,
    I16,
    I32,
    I64,
    REAL,
    BINARY,
    LIST,
    SET,
    MAP,
    STRUCT,
    UUID,
};

static uint8_t byte(af_thrift *t)
{
    if (t->bad || t->at == t->end) {
        t->bad = true;
        return 0;
    }
    return *t->at++;
}

static uint64_t varint(af_thrift *t)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t b = byte(t);
        if (shift == 63 && b > 1)
            break;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80))
            return t->bad ? 0 : v;
    }
    t->bad = true;
    return 0;
}

static int64_t zigzag(af_thrift *t)
{
    const uint64_t v = varint(t);
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

static void skip_bytes(af_thrift *t, uint64_t n)
{
    if (t->bad || n > (uint64_t)(t->end - t->at))
        t->bad = true;
    else
        t->at += n;
}

/* The header of a list or a set. */
static uint64_t list_header(af_thrift *t, int *type)
{
    const uint8_t h = byte(t);
    const uint64_t n = h >> 4 == 15 ? varint(t) : h >> 4;
    *type = h & 15;
    t->bad |= n > (uint64_t)(t->end - t->at);
    return t->bad ? 0 : n;
}

static void skip_value(af_thrift *t, int type, bool element, int depth);

static bool next_field(af_thrift *t, af_thrift_struct *s)
{
    const uint8_t h = byte(t);
    if (t->bad || h == 0)
        return false;
    const int64_t id = h >> 4 ? s->id + (h >> 4) : zigzag(t);
    t->bad |= id < 0 || id > INT16_MAX;
    *s = (af_thrift_struct){.id = t->bad ? 0 : (int)id, .type = h & 15, .open = true};
    return !t->bad;
}

static void skip_map(af_thrift *t, int depth)
{
    const uint64_t n = varint(t);
    const uint8_t types = n ? byte(t) : 0;
    t->bad |= n > (uint64_t)(t->end - t->at);
    for (uint64_t i = 0; i < n && !t->bad; i++) {
        skip_value(t, types >> 4, true, depth + 1);
        skip_value(t, types & 15, true, depth + 1);
    }
}

static void skip_list(af_thrift *t, int depth)
{
    int type;
    const uint64_t n = list_header(t, &type);
    for (uint64_t i = 0; i < n && !t->bad; i++)
        skip_value(t, type, true, depth + 1);
}

/* A truth value is in the header of a field, but a byte in a list. */
static void skip_value(af_thrift *t, int type, bool element, int depth)
{
    t->bad |= depth > AF_THRIFT_DEPTH_MAX;
    if (t->bad)
        return;
    switch (type) {
    case TRUE_VALUE:
    case FALSE_VALUE:
        skip_bytes(t, element);
        break;
    case BYTE:
        skip_bytes(t, 1);
        break;
    case I16:
    case I32:
    case I64:
        varint(t);
        break;
    case REAL:
        skip_bytes(t, 8);
        break;
    case BINARY:
        skip_bytes(t, varint(t));
        break;
    case LIST:
    case SET:
        skip_list(t, depth);
        break;
    case MAP:
        skip_map(t, depth);
        break;
    case STRUCT:
        for (af_thrift_struct s = {0}; next_field(t, &s);)
            skip_value(t, s.type, false, depth + 1);
        break;
    case UUID:
        skip_bytes(t, 16);
        break;
    default:
        t->bad = true;
    }
}

bool af_thrift_field(af_thrift *t, af_thrift_struct *s)
{
    if (s->open)
        skip_value(t, s->type, false, 0);
    return next_field(t, s);
}

/* False, and bad, when the field has another type. */
static bool take(af_thrift *t, af_thrift_struct *s, int type)
{
    t->bad |= !s->open || s->type != type;
    s->open = false;
    return !t->bad;
}

int64_t af_thrift_int(af_thrift *t, af_thrift_struct *s)
{
    if (s->type == BYTE && take(t, s, BYTE))
        return (int8_t)byte(t);
    const bool is_int = s->type == I16 || s->type == I32 || s->type == I64;
    return take(t, s, is_int ? s->type : I32) ? zigzag(t) : 0;
}

bool af_thrift_bool(af_thrift *t, af_thrift_struct *s)
{
    return take(t, s, s->type == TRUE_VALUE ? TRUE_VALUE : FALSE_VALUE) && s->type == TRUE_VALUE;
}

af_thrift_text af_thrift_string(af_thrift *t, af_thrift_struct *s)
{
    const uint64_t n = take(t, s, BINARY) ? varint(t) : 0;
    const char *at = (const char *)t->at;
    skip_bytes(t, n);
    return t->bad ? (af_thrift_text){"", 0} : (af_thrift_text){at, n};
}

bool af_thrift_enter(af_thrift *t, af_thrift_struct *s) { return take(t, s, STRUCT); }

uint64_t af_thrift_structs(af_thrift *t, af_thrift_struct *s)
{
    int type = STRUCT;
    const uint64_t n = take(t, s, LIST) ? list_header(t, &type) : 0;
    t->bad |= n > 0 && type != STRUCT;
    return t->bad ? 0 : n;
}
