/* fuzz_imatrix.c - importance matrices in llama.cpp's binary format. */
#include "convert/quantize/imatrix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_imatrix m = {0};
    if (af_imatrix_parse(&m, data, size, "fuzz", NULL) == AF_OK)
        af_imatrix_clear(&m);
    return 0;
}
