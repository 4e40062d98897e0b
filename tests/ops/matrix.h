/* matrix.h - a matrix of normal values as a type stores it, and those values in double. */
#ifndef AF_TEST_MATRIX_H
#define AF_TEST_MATRIX_H

#include "normal.h"
#include "test.h"

#include "tensor/codec.h"

typedef struct matrix {
    void *data;
    double *exact; /* [rows][cols] as stored */
    int64_t rows, cols;
    af_dtype type;
} matrix;

static inline matrix new_matrix(int64_t rows, int64_t cols, af_dtype type, uint64_t stream)
{
    const int64_t n = rows * cols;
    matrix m = {calloc((size_t)n + 1, 8), calloc((size_t)n + 1, sizeof(double)), rows, cols, type};
    for (int64_t i = 0; i < n; i++) {
        af_store_f64(m.data, type, (uint64_t)i, normal(stream, (uint64_t)i));
        m.exact[i] = af_load_f64(m.data, type, (uint64_t)i);
    }
    return m;
}

static inline void free_matrix(matrix *m)
{
    free(m->data);
    free(m->exact);
}
#endif
