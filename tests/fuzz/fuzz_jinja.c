/* fuzz_jinja.c - template and data in one input: "template" NUL "JSON row". */
#include "afinar/chat.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *source = (const char *)data;
    const char *end = size ? memchr(data, 0, size) : NULL;
    const size_t n = end ? (size_t)(end - source) : size;
    const char *row = end ? end + 1 : "{\"raw\": true}";
    const size_t row_len = end ? size - n - 1 : strlen(row);
    af_template *t = NULL;
    af_spans spans = {0};
    af_error err;
    char *text = NULL;
    uint64_t len = 0;
    if (size && af_template_parse(&t, source, n, &err) != AF_OK)
        return 0;
    if (t && af_template_render_row(t, row, row_len, &text, &len, &spans, &err) == AF_OK)
        free(text);
    af_spans_clear(&spans);
    af_template_close(t);
    return 0;
}
