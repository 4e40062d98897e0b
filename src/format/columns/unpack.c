/* unpack.c - see unpack.h. */
#include "format/columns/unpack.h"

#include <dlfcn.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

static bool unpack_gzip(uint8_t *to, uint64_t size, const uint8_t *p, uint64_t n)
{
    z_stream z = {0};
    if (n > UINT32_MAX || size > UINT32_MAX)
        return false;
    if (inflateInit2(&z, 15 + 32) != Z_OK) {
        af_memory_note();
        return false;
    }
    z.next_in = (Bytef *)p;
    z.avail_in = (uInt)n;
    z.next_out = to;
    z.avail_out = (uInt)size;
    int rc = inflate(&z, Z_FINISH);
    while (rc == Z_STREAM_END && z.avail_in > 0 && inflateReset(&z) == Z_OK)
        rc = inflate(&z, Z_FINISH); /* members follow each other */
    if (rc == Z_MEM_ERROR)
        af_memory_note();
    const bool good = rc == Z_STREAM_END && z.avail_in == 0 && z.avail_out == 0;
    inflateEnd(&z);
    return good;
}

static bool unpack_zstd(uint8_t *to, uint64_t size, const uint8_t *p, uint64_t n)
{
    const size_t made = ZSTD_decompress(to, size, p, n);
    if (ZSTD_isError(made) && ZSTD_getErrorCode(made) == ZSTD_error_memory_allocation)
        af_memory_note();
    return !ZSTD_isError(made) && made == size;
}

/* brotli's own declaration; 1 is success. */
typedef int brotli_fn(size_t packed, const uint8_t *from, size_t *size, uint8_t *to);

static brotli_fn *load_brotli(void)
{
    void *lib = dlopen("libbrotlidec.so.1", RTLD_NOW | RTLD_LOCAL); /* stays loaded */
    union {
        void *found;
        brotli_fn *call;
    } u = {lib ? dlsym(lib, "BrotliDecoderDecompress") : NULL};
    return u.call;
}

static const char *unpack_brotli(uint8_t *to, uint64_t size, const uint8_t *p, uint64_t n)
{
    brotli_fn *decode = load_brotli();
    size_t made = size;
    if (!decode)
        return "its codec is BROTLI, and libbrotlidec.so.1 is not there (Debian: libbrotli1)";
    return decode(n, p, &made, to) == 1 && made == size ? NULL : "the brotli data is damaged";
}

/* Hadoop's framing: the unpacked and the packed length of each block, both big-endian. */
static bool unpack_hadoop(uint8_t *to, uint64_t size, const uint8_t *p, uint64_t n)
{
    uint64_t at = 0, made = 0;
    while (n - at >= 8) {
        const uint8_t *h = p + at;
        const uint64_t full =
            (uint64_t)h[0] << 24 | (uint64_t)h[1] << 16 | (uint64_t)h[2] << 8 | h[3];
        const uint64_t packed =
            (uint64_t)h[4] << 24 | (uint64_t)h[5] << 16 | (uint64_t)h[6] << 8 | h[7];
        at += 8;
        if (packed > n - at || full > size - made ||
            !af_unpack_lz4(to + made, full, p + at, packed))
            return false;
        at += packed;
        made += full;
    }
    return at == n && made == size;
}

static const char *unpack_to(uint8_t *to, uint64_t size, af_codec codec, const uint8_t *p,
                             uint64_t n)
{
    switch (codec) {
    case AF_CODEC_NONE:
        break;
    case AF_CODEC_SNAPPY:
        return af_unpack_snappy(to, size, p, n) ? NULL : "the snappy data is damaged";
    case AF_CODEC_GZIP:
        return unpack_gzip(to, size, p, n) ? NULL : "the gzip data is damaged";
    case AF_CODEC_BROTLI:
        return unpack_brotli(to, size, p, n);
    case AF_CODEC_ZSTD:
        return unpack_zstd(to, size, p, n) ? NULL : "the zstd data is damaged";
    case AF_CODEC_LZ4_HADOOP:
        if (unpack_hadoop(to, size, p, n) || af_unpack_lz4_frame(to, size, p, n))
            return NULL; /* fall through: some writers put a bare block there */
        return af_unpack_lz4(to, size, p, n) ? NULL : "the lz4 data is damaged";
    case AF_CODEC_LZ4:
        return af_unpack_lz4(to, size, p, n) ? NULL : "the lz4 data is damaged";
    case AF_CODEC_LZ4_FRAME:
        return af_unpack_lz4_frame(to, size, p, n) ? NULL : "the lz4 data is damaged";
    }
    return "it is not packed";
}

const char *af_unpack(af_buf *out, af_codec codec, const uint8_t *p, uint64_t n, uint64_t size)
{
    if (size > AF_BLOCK_FREE && size / AF_BLOCK_RATIO_MAX > n)
        return "it declares far more bytes than its packed size allows";
    out->len = 0;
    char *to = af_buf_reserve(out, AF_MAX(size, 1));
    if (!to)
        return "out of memory";
    const char *why = unpack_to((uint8_t *)to, size, codec, p, n);
    out->len = why ? 0 : size;
    return why;
}
