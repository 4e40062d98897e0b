/* fuzz_parquet.c - any bytes as a parquet file, or as the footer of one. */
#include "format/columns/columns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const void *data, uint64_t size)
{
    af_columns *c = NULL;
    af_buf text = {.limit = 1 << 16};
    af_error err;
    bool got = true;
    if (af_columns_of(&c, "f", data, size, AF_COLUMNS_PARQUET, &err) != AF_OK)
        return;
    for (int i = 0; i < 300 && got; i++) {
        text.len = 0;
        if (af_columns_next(c, &text, &got, &err) != AF_OK)
            break;
    }
    af_buf_clear(&text);
    af_columns_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_buf whole = {0};
    const uint32_t n = (uint32_t)size;
    read_all(data, size);
    if (size >= 4 && memcmp(data, "PAR1", 4) == 0)
        return 0;
    af_buf_str(&whole, "PAR1");
    af_buf_add(&whole, data, size);
    af_buf_add(&whole, &n, 4);
    af_buf_str(&whole, "PAR1");
    if (!whole.bad)
        read_all(whole.data, whole.len);
    af_buf_clear(&whole);
    return 0;
}
