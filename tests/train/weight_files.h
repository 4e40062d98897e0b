/* weight_files.h - safetensors files of runs and models, opened and compared. */
#ifndef AF_WEIGHT_FILES_H
#define AF_WEIGHT_FILES_H

#include "test.h"

#include "format/weights/safetensors.h"
#include "worse.h"

#include <math.h>

static inline af_safetensors *open_weights(const char *path)
{
    af_safetensors *f;
    af_error err = {0};
    CHECK_OK(af_safetensors_open(&f, path, &err), err);
    return f;
}

static inline af_safetensors *open_model_weights(const char *folder)
{
    char path[700];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    return open_weights(path);
}

/* What a walk over the tensors of two files finds. */
typedef struct weight_gap {
    int tensors, same; /* of the first file; those with the same bytes in the other */
    double most;       /* the largest difference of a value, of files in f32 */
} weight_gap;

/* Both files have the same tensors: names, types and shapes. */
static inline weight_gap compare_weights(const char *a, const char *b)
{
    af_safetensors *x = open_weights(a), *y = open_weights(b);
    weight_gap gap = {.tensors = af_safetensors_count(x)};
    assert_int_equal(gap.tensors, af_safetensors_count(y));
    for (int i = 0; i < gap.tensors; i++) {
        const af_stored *s = af_safetensors_at(x, i), *t = af_safetensors_find(y, s->name);
        CHECK_MSG(t && t->dtype == s->dtype && t->ndim == s->ndim &&
                      memcmp(t->dim, s->dim, sizeof s->dim) == 0,
                  "'%s' of %s: %s has none of this type and shape", s->name, a, b);
        gap.same += memcmp(s->data, t->data, s->bytes) == 0;
        const float *p = (const void *)s->data, *q = (const void *)t->data;
        for (uint64_t k = 0; s->dtype == AF_DTYPE_F32 && k < s->bytes / sizeof *p; k++)
            gap.most = worse(gap.most, fabs((double)p[k] - (double)q[k]));
    }
    af_safetensors_close(x);
    af_safetensors_close(y);
    return gap;
}

/* Of two model folders: the same tensors, whatever their values. */
static inline void same_names(const char *a, const char *b)
{
    char x[700], y[700];
    snprintf(x, sizeof x, "%s/model.safetensors", a);
    snprintf(y, sizeof y, "%s/model.safetensors", b);
    compare_weights(x, y);
}

static inline void same_weights(const char *a, const char *b)
{
    const weight_gap gap = compare_weights(a, b);
    CHECK_MSG(gap.same == gap.tensors, "%s: %d of %d tensors have the bytes of %s", a, gap.same,
              gap.tensors, b);
}
#endif
