/* read_bytes.c - see read_bytes.h. */
#include "data/read/read_bytes.h"

#include <zlib.h>
#include <zstd.h>

#define PIECE ((uint64_t)1 << 18)

typedef enum packing { PLAIN, GZIP, ZSTD } packing;

struct af_bytes {
    char *name;
    af_map map;
    bool mapped;
    packing kind;
    uint64_t at;      /* read so far */
    uint64_t made;    /* unpacked so far */
    bool open_stream; /* inside a gzip member or a zstd frame */
    uint8_t *buf;     /* [PIECE] */
    z_stream z;
    bool z_ready;
    ZSTD_DStream *zstd;
};

static bool starts(const af_map *m, const char *magic, uint64_t n)
{
    return m->size >= n && memcmp(m->data, magic, n) == 0;
}

static af_status start(af_bytes *b, af_error *err)
{
    if (starts(&b->map, "\x1f\x8b", 2))
        b->kind = GZIP;
    else if (starts(&b->map, "\x28\xb5\x2f\xfd", 4))
        b->kind = ZSTD;
    if (b->kind == PLAIN)
        return AF_OK;
    b->buf = af_calloc(PIECE, 1);
    if (b->kind == GZIP)
        b->z_ready = inflateInit2(&b->z, 15 + 16) == Z_OK;
    else
        b->zstd = ZSTD_createDStream();
    if (!b->buf || (b->kind == GZIP ? !b->z_ready : !b->zstd))
        return af_fail_nomem(err, b->name, PIECE);
    return AF_OK;
}

static af_bytes *new_bytes(const char *name)
{
    af_bytes *b = af_calloc(1, sizeof *b);
    if (b && !(b->name = af_strdup(name))) {
        free(b);
        return NULL;
    }
    return b;
}

af_status af_bytes_of(af_bytes **out, const char *name, const void *data, uint64_t size,
                      af_error *err)
{
    af_bytes *b = new_bytes(name);
    if (!b)
        return af_fail_nomem(err, name, sizeof *b);
    b->map = (af_map){data, size};
    const af_status st = start(b, err);
    if (st != AF_OK)
        af_bytes_close(b);
    else
        *out = b;
    return st;
}

af_status af_bytes_open(af_bytes **out, const char *path, af_error *err)
{
    af_status st = AF_OK;
    af_bytes *b = new_bytes(path);
    if (!b)
        return af_fail_nomem(err, path, sizeof *b);
    AF_TRY(af_map_open(&b->map, path, err));
    b->mapped = true;
    AF_TRY(start(b, err));
    *out = b;
    b = NULL;
done:
    af_bytes_close(b);
    return st;
}

void af_bytes_close(af_bytes *b)
{
    if (!b)
        return;
    if (b->mapped)
        af_map_close(&b->map);
    if (b->z_ready)
        inflateEnd(&b->z);
    ZSTD_freeDStream(b->zstd);
    free(b->buf);
    free(b->name);
    free(b);
}

/* What was read is not needed again: resident memory stays small. */
static void forget(af_bytes *b, uint64_t from, uint64_t to)
{
    const uint64_t step = (uint64_t)8 << 20;
    if (b->mapped && from / step != to / step)
        af_map_forget(&b->map, 0, to & ~(step - 1));
}

static af_status broken(af_bytes *b, const char *what, af_error *err)
{
    return af_fail(err, AF_EFORMAT, "%s: the %s data is damaged (%s)", b->name,
                   b->kind == GZIP ? "gzip" : "zstd", what);
}

static af_status unzip(af_bytes *b, uint64_t *n, af_error *err)
{
    const uint64_t left = b->map.size - b->at;
    b->z.next_in = (Bytef *)(b->map.data + b->at);
    b->z.avail_in = (uInt)AF_MIN(left, (uint64_t)1 << 30);
    const uInt available = b->z.avail_in;
    b->z.next_out = b->buf;
    b->z.avail_out = (uInt)PIECE;
    if (!b->open_stream && inflateReset(&b->z) != Z_OK)
        return broken(b, "cannot start", err);
    const int rc = inflate(&b->z, Z_NO_FLUSH);
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
        return broken(b, b->z.msg ? b->z.msg : "cannot be unpacked", err);
    b->at += available - b->z.avail_in;
    b->open_stream = rc != Z_STREAM_END;
    *n = PIECE - b->z.avail_out;
    return AF_OK;
}

static af_status unzstd(af_bytes *b, uint64_t *n, af_error *err)
{
    ZSTD_inBuffer in = {b->map.data, b->map.size, b->at};
    ZSTD_outBuffer o = {b->buf, PIECE, 0};
    const size_t rc = ZSTD_decompressStream(b->zstd, &o, &in);
    if (ZSTD_isError(rc))
        return broken(b, ZSTD_getErrorName(rc), err);
    b->at = in.pos;
    b->open_stream = rc != 0;
    *n = o.pos;
    return AF_OK;
}

static af_status unpack(af_bytes *b, const uint8_t **p, uint64_t *n, af_error *err)
{
    *p = b->buf;
    for (*n = 0; *n == 0;) {
        const uint64_t from = b->at;
        if (b->at == b->map.size && !b->open_stream)
            return AF_OK;
        const af_status st = b->kind == GZIP ? unzip(b, n, err) : unzstd(b, n, err);
        if (st != AF_OK)
            return st;
        forget(b, from, b->at);
        if (*n == 0 && b->at == from && b->at == b->map.size)
            return b->open_stream ? broken(b, "unexpected end of file; was it cut short?", err)
                                  : AF_OK;
        if (*n == 0 && b->at == from)
            return broken(b, "no progress", err);
    }
    b->made += *n;
    if (b->made > AF_UNPACK_FREE && b->made / AF_UNPACK_RATIO_MAX > b->at)
        return af_fail(err, AF_EFORMAT,
                       "%s: %" PRIu64 " packed bytes unpack to more than %" PRIu64
                       ", over %d times as much: this is not text",
                       b->name, b->at, b->made, AF_UNPACK_RATIO_MAX);
    return AF_OK;
}

af_status af_bytes_next(af_bytes *b, const uint8_t **p, uint64_t *n, af_error *err)
{
    if (b->kind != PLAIN)
        return unpack(b, p, n, err);
    const uint64_t from = b->at;
    *p = b->map.data + from;
    *n = AF_MIN(b->map.size - from, PIECE);
    b->at += *n;
    if (from)
        forget(b, from - AF_MIN(from, PIECE), from);
    return AF_OK;
}
