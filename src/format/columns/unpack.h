/* unpack.h - the codecs of column files: a block of known size at once.
 *
 * Snappy and LZ4 are decoded here; gzip and zstd by the libraries that are linked, brotli by
 * libbrotlidec when the machine has it. What a block declares is compared with its size before any
 * memory is taken. */
#ifndef AF_UNPACK_H
#define AF_UNPACK_H

#include "base/buf.h"

typedef enum af_codec {
    AF_CODEC_NONE,
    AF_CODEC_SNAPPY,
    AF_CODEC_GZIP,
    AF_CODEC_BROTLI,
    AF_CODEC_ZSTD,
    AF_CODEC_LZ4,       /* a bare block */
    AF_CODEC_LZ4_FRAME, /* blocks with a header */
    AF_CODEC_LZ4_HADOOP /* parquet's codec 5: framed by Hadoop, or a frame, or a bare block */
} af_codec;

/* Of what a block may declare: as much as it likes up to the first, then a multiple of its size. */
#define AF_BLOCK_FREE      ((uint64_t)64 << 20)
#define AF_BLOCK_RATIO_MAX 250

/* Unpacks n bytes to exactly `size` bytes, replacing what is in out. NULL, or the reason why not
 * ("out of memory" included). */
const char *af_unpack(af_buf *out, af_codec codec, const uint8_t *p, uint64_t n, uint64_t size);

/* The decoders by themselves: true when [to, to + size) is filled exactly. */
bool af_unpack_snappy(uint8_t *to, uint64_t size, const uint8_t *p, uint64_t n);
bool af_unpack_lz4(uint8_t *to, uint64_t size, const uint8_t *p, uint64_t n);
bool af_unpack_lz4_frame(uint8_t *to, uint64_t size, const uint8_t *p, uint64_t n);
#endif
