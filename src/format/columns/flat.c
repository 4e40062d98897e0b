/* flat.c - see flat.h. */
#include "format/columns/flat.h"

static bool fits(af_flat *f, uint64_t at, uint64_t n)
{
    f->bad |= at > f->size || n > f->size - at;
    return !f->bad;
}

int64_t af_flat_at(const af_flat *f, uint64_t at, int width)
{
    uint64_t v = 0;
    const int shift = 64 - 8 * width;
    memcpy(&v, f->data + at, (size_t)width);
    return (int64_t)(v << shift) >> shift;
}

static uint64_t unsigned_at(const af_flat *f, uint64_t at, int width)
{
    uint64_t v = 0;
    memcpy(&v, f->data + at, (size_t)width);
    return v;
}

static af_flat_table table_at(af_flat *f, uint64_t at)
{
    af_flat_table t = {.at = at};
    if (!fits(f, at, 4))
        return (af_flat_table){0};
    const int64_t vtable = (int64_t)at - af_flat_at(f, at, 4);
    f->bad |= vtable < 0;
    if (f->bad || !fits(f, (uint64_t)vtable, 4))
        return (af_flat_table){0};
    t.vtable = (uint64_t)vtable;
    t.vtable_size = unsigned_at(f, t.vtable, 2);
    f->bad |= t.vtable_size < 4;
    return fits(f, t.vtable, t.vtable_size) ? t : (af_flat_table){0};
}

/* The position of an offset, followed. */
static uint64_t follow(af_flat *f, uint64_t at)
{
    if (!fits(f, at, 4))
        return 0;
    const uint64_t to = at + unsigned_at(f, at, 4);
    return fits(f, to, 4) ? to : 0;
}

af_flat_table af_flat_root(af_flat *f)
{
    const uint64_t at = follow(f, 0);
    if (f->bad)
        return (af_flat_table){0};
    return table_at(f, at);
}

/* Where a field is; 0 = absent. */
static uint64_t field_at(af_flat *f, const af_flat_table *t, int field, uint64_t size)
{
    const uint64_t slot = 4 + 2 * (uint64_t)field;
    if (f->bad || t->at == 0 || slot + 2 > t->vtable_size)
        return 0;
    const uint64_t offset = unsigned_at(f, t->vtable + slot, 2);
    if (offset == 0 || !fits(f, t->at + offset, size))
        return 0;
    return t->at + offset;
}

int64_t af_flat_int(af_flat *f, const af_flat_table *t, int field, int width, int64_t otherwise)
{
    const uint64_t at = field_at(f, t, field, (uint64_t)width);
    return at ? af_flat_at(f, at, width) : otherwise;
}

af_flat_table af_flat_sub(af_flat *f, const af_flat_table *t, int field)
{
    const uint64_t at = field_at(f, t, field, 4), to = at ? follow(f, at) : 0;
    return to ? table_at(f, to) : (af_flat_table){0};
}

af_flat_vector af_flat_list(af_flat *f, const af_flat_table *t, int field, uint64_t size)
{
    const uint64_t at = field_at(f, t, field, 4), to = at ? follow(f, at) : 0;
    if (!to)
        return (af_flat_vector){0};
    const af_flat_vector v = {to + 4, unsigned_at(f, to, 4)};
    return fits(f, v.at, v.count * size) ? v : (af_flat_vector){0};
}

af_flat_table af_flat_item(af_flat *f, const af_flat_vector *v, uint64_t i)
{
    const uint64_t to = i < v->count ? follow(f, v->at + 4 * i) : 0;
    return to ? table_at(f, to) : (af_flat_table){0};
}

const char *af_flat_text(af_flat *f, const af_flat_table *t, int field, uint64_t *len)
{
    const af_flat_vector v = af_flat_list(f, t, field, 1);
    *len = v.count;
    return v.at ? (const char *)f->data + v.at : NULL;
}
