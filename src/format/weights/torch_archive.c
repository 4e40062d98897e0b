/* torch_archive.c - the ZIP file of torch.save: NAME/data.pkl and NAME/data/KEY, all stored as they
 * are. See torch_file.h. */
#include "format/weights/torch_file.h"

#include "base/reader.h"

enum {
    END_SIGN = 0x06054b50, /* end of central directory */
    END_BYTES = 22,
    LOCATOR_SIGN = 0x07064b50, /* of the 64-bit end */
    LOCATOR_BYTES = 20,
    END64_SIGN = 0x06064b50,
    ENTRY_SIGN = 0x02014b50,
    ENTRY_BYTES = 46, /* of the smallest entry */
    LOCAL_SIGN = 0x04034b50,
    COMMENT_MAX = 65535,
};

typedef struct zip_entry {
    const char *name; /* not terminated */
    uint64_t name_len, bytes, stored_bytes, at;
    uint16_t method;
} zip_entry;

static af_status fail_zip(af_error *err)
{
    return af_fail(err, AF_EFORMAT, "the archive is damaged or cut off");
}

static af_reader reader_at(const uint8_t *bytes, uint64_t size, uint64_t at)
{
    return (af_reader){bytes + AF_MIN(at, size), bytes + size, at > size};
}

/* Where the central directory is, and how many entries it has. */
static bool find_directory(const uint8_t *bytes, uint64_t size, uint64_t *at, uint64_t *entries)
{
    uint64_t end = size < END_BYTES ? 0 : size - END_BYTES;
    const uint64_t last = end > COMMENT_MAX ? end - COMMENT_MAX : 0;
    af_reader r = reader_at(bytes, size, end);
    while (end > last && af_read_u32(&r) != END_SIGN)
        r = reader_at(bytes, size, --end);
    r = reader_at(bytes, size, end);
    if (af_read_u32(&r) != END_SIGN)
        return false;
    af_read_bytes(&r, 6);
    *entries = af_read_u16(&r);
    af_read_u32(&r);
    *at = af_read_u32(&r);
    r = reader_at(bytes, size, end < LOCATOR_BYTES ? size : end - LOCATOR_BYTES);
    if (af_read_u32(&r) == LOCATOR_SIGN) {
        af_read_u32(&r);
        r = reader_at(bytes, size, af_read_u64(&r));
        if (af_read_u32(&r) != END64_SIGN)
            return false;
        af_read_bytes(&r, 28);
        *entries = af_read_u64(&r);
        af_read_u64(&r);
        *at = af_read_u64(&r);
        return !r.bad;
    }
    return true; /* what is read there is checked */
}

/* The 64-bit values of what did not fit into 32 bits, in their fixed order. */
static void read_extra(zip_entry *e, af_reader extra)
{
    uint64_t *const field[] = {&e->bytes, &e->stored_bytes, &e->at};
    while (af_read_left(&extra) >= 4) {
        const uint16_t id = af_read_u16(&extra), n = af_read_u16(&extra);
        const uint8_t *p = af_read_bytes(&extra, n);
        af_reader r = {p, p ? p + n : p, !p};
        for (size_t i = 0; id == 1 && i < AF_LEN(field); i++)
            if (*field[i] == UINT32_MAX)
                *field[i] = af_read_u64(&r);
    }
}

static bool read_entry(zip_entry *e, af_reader *r)
{
    const uint32_t sign = af_read_u32(r);
    af_read_bytes(r, 6);
    e->method = af_read_u16(r);
    af_read_bytes(r, 8);
    e->stored_bytes = af_read_u32(r);
    e->bytes = af_read_u32(r);
    e->name_len = af_read_u16(r);
    const uint16_t extra_len = af_read_u16(r), comment_len = af_read_u16(r);
    af_read_bytes(r, 8);
    e->at = af_read_u32(r);
    e->name = (const char *)af_read_bytes(r, e->name_len);
    const uint8_t *extra = af_read_bytes(r, extra_len);
    af_read_bytes(r, comment_len);
    if (r->bad || sign != ENTRY_SIGN)
        return false;
    read_extra(e, (af_reader){extra, extra + extra_len, false});
    return true;
}

/* The bytes of an entry; NULL when they are not all there, or compressed. */
static const uint8_t *entry_data(const zip_entry *e, const uint8_t *bytes, uint64_t size)
{
    af_reader r = reader_at(bytes, size, e->at);
    if (e->method != 0 || e->bytes != e->stored_bytes || af_read_u32(&r) != LOCAL_SIGN)
        return NULL;
    af_read_bytes(&r, 22);
    const uint16_t name_len = af_read_u16(&r), extra_len = af_read_u16(&r);
    af_read_bytes(&r, name_len);
    af_read_bytes(&r, extra_len);
    return af_read_bytes(&r, e->bytes);
}

/* The part of the name after the folder that all entries are in. */
static const char *inner_name(const zip_entry *e, uint64_t *len)
{
    const char *slash = memchr(e->name, '/', e->name_len);
    *len = slash ? e->name_len - (uint64_t)(slash + 1 - e->name) : 0;
    return slash ? slash + 1 : NULL;
}

static af_status take_entry(af_torch_archive *a, af_arena *arena, const zip_entry *e,
                            const uint8_t *bytes, uint64_t size, af_error *err)
{
    uint64_t n;
    const char *name = inner_name(e, &n);
    const bool pickle = n == 8 && memcmp(name, "data.pkl", 8) == 0;
    const bool record = n > 5 && memcmp(name, "data/", 5) == 0;
    const bool order = n == 9 && memcmp(name, "byteorder", 9) == 0;
    if (!pickle && !record && !order)
        return AF_OK;
    const uint8_t *data = entry_data(e, bytes, size);
    if (!data)
        return fail_zip(err);
    if (order && (e->bytes != 6 || memcmp(data, "little", 6) != 0))
        return af_fail(err, AF_EUNSUPPORTED, "its values are not little-endian");
    if (pickle) {
        a->pickle = data;
        a->pickle_bytes = e->bytes;
    }
    if (record) {
        const char *key = af_arena_strndup(arena, name + 5, n - 5);
        if (!key)
            return af_fail_nomem(err, "the names of an archive", n);
        a->record[a->count++] = (af_torch_record){key, data, e->bytes};
    }
    return AF_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const af_torch_record *)a)->key, ((const af_torch_record *)b)->key);
}

void af_torch_records_sort(af_torch_record *r, uint64_t n)
{
    if (n)
        qsort(r, n, sizeof *r, by_key);
}

af_status af_torch_archive_read(af_torch_archive *out, af_arena *arena, const uint8_t *bytes,
                                uint64_t size, af_error *err)
{
    af_torch_archive a = {0};
    uint64_t at = 0, entries = 0;
    if (!find_directory(bytes, size, &at, &entries) || entries > size / ENTRY_BYTES)
        return fail_zip(err);
    a.record = af_arena_take(arena, AF_MAX(entries, 1) * sizeof *a.record);
    if (!a.record)
        return af_fail_nomem(err, "the names of an archive", entries * sizeof *a.record);
    af_reader r = reader_at(bytes, size, at);
    for (uint64_t i = 0; i < entries; i++) {
        zip_entry e = {0};
        const af_status st =
            read_entry(&e, &r) ? take_entry(&a, arena, &e, bytes, size, err) : fail_zip(err);
        if (st != AF_OK)
            return st;
    }
    if (!a.pickle)
        return af_fail(err, AF_EFORMAT, "the archive has no data.pkl: torch.save did not write it");
    af_torch_records_sort(a.record, a.count);
    *out = a;
    return AF_OK;
}
