/* adapter_apply.c - see adapter_apply.h. */
#include "convert/input/adapter_apply.h"

#include <math.h>

enum { STRIP = 256 }; /* columns summed at a time */

static void add_strip(const af_adapter_module *m, float *row, int64_t o, int64_t at, int64_t end,
                      int64_t cols)
{
    float sum[STRIP] = {0};
    for (int r = 0; r < m->rank; r++) {
        const float b = m->b[o * m->rank + r];
        const float *a = m->a + r * cols + at;
        for (int64_t c = 0; c < end - at; c++)
            sum[c] = (float)((double)b * a[c] + sum[c]); /* a fused step, on any machine */
    }
    for (int64_t c = 0; c < end - at; c++)
        row[at + c] += m->scale * sum[c];
}

void af_adapter_apply_rows(const af_adapter_module *m, float *rows, int64_t from, int64_t n,
                           int64_t cols)
{
    for (int64_t i = 0; i < n; i++) {
        float *row = rows + i * cols;
        for (int64_t at = 0; at < cols; at += STRIP)
            add_strip(m, row, from + i, at, AF_MIN(at + STRIP, cols), cols);
        if (!m->magnitude)
            continue;
        double norm = 0;
        for (int64_t c = 0; c < cols; c++)
            norm += (double)row[c] * row[c];
        const float factor = m->magnitude[from + i] / (float)sqrt(norm);
        for (int64_t c = 0; c < cols; c++)
            row[c] *= factor;
    }
}

void af_adapter_apply_embedding(const af_adapter_module *m, float *rows, int64_t from, int64_t n,
                                int64_t cols, int64_t tokens)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < cols; c++) {
            float sum = 0;
            for (int r = 0; r < m->rank; r++)
                sum = (float)((double)m->b[c * m->rank + r] * m->a[r * tokens + from + i] + sum);
            rows[i * cols + c] += m->scale * sum;
        }
}
