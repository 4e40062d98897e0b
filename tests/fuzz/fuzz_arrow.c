/* fuzz_arrow.c - any bytes as an Arrow file or stream. */
#include "format/columns/columns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_columns *c = NULL;
    af_buf text = {.limit = 1 << 16};
    af_error err;
    bool got = true;
    if (af_columns_of(&c, "f", data, size, AF_COLUMNS_ARROW, &err) != AF_OK)
        return 0;
    for (int i = 0; i < 300 && got; i++) {
        text.len = 0;
        if (af_columns_next(c, &text, &got, &err) != AF_OK)
            break;
    }
    af_buf_clear(&text);
    af_columns_close(c);
    return 0;
}
