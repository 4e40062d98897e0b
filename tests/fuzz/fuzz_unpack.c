/* fuzz_unpack.c - any bytes as snappy and LZ4 data: the first byte chooses, two more are the size
 * that is expected. */
#include "format/columns/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const af_codec codecs[] = {AF_CODEC_SNAPPY,     AF_CODEC_LZ4,  AF_CODEC_LZ4_FRAME,
                                      AF_CODEC_LZ4_HADOOP, AF_CODEC_GZIP, AF_CODEC_ZSTD};
    af_buf out = {0};
    if (size < 3)
        return 0;
    uint8_t *copy = af_calloc(size, 1); /* of exactly this size: reads beyond it are seen */
    if (!copy)
        return 0;
    memcpy(copy, data + 3, size - 3);
    (void)af_unpack(&out, codecs[data[0] % AF_LEN(codecs)], copy, size - 3,
                    (uint64_t)(data[1] | data[2] << 8));
    free(copy);
    af_buf_clear(&out);
    return 0;
}
