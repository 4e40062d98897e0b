/* convert_case.h - what the tests of conversions share: a temporary folder, comparing files. */
#ifndef AF_CONVERT_CASE_H
#define AF_CONVERT_CASE_H

#include "afinar/convert.h"
#include "base/file.h"
#include "format/weights/weights.h"
#include "test.h"

#include <math.h>
#include <unistd.h>

typedef struct scratch_dir {
    char path[512];
} scratch_dir;

static inline scratch_dir scratch_new(void)
{
    scratch_dir d;
    const char *base = getenv("TMPDIR");
    snprintf(d.path, sizeof d.path, "%s/af-convert-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(d.path));
    return d;
}

static inline void scratch_free(scratch_dir *d)
{
    af_error err = {0};
    CHECK_OK(af_path_remove(d->path, &err), err);
}

static inline const char *join(char *buf, size_t size, const char *a, const char *b)
{
    const int n = snprintf(buf, size, "%s/%s", a, b);
    assert_true(n > 0 && (size_t)n < size);
    return buf;
}

/* How two tensors differ. */
typedef struct tensor_gap {
    double worst;
    int64_t off, count; /* entries further apart than the tolerance */
} tensor_gap;

static inline void add_gap(tensor_gap *g, const af_stored *a, const af_stored *b, double tol)
{
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->ndim, b->ndim);
    for (int i = 0; i < a->ndim; i++)
        assert_int_equal(a->dim[i], b->dim[i]);
    for (int64_t i = 0; i < af_weight_count(a); i++) {
        const double d = fabs(af_load_f64(a->data, a->dtype, (uint64_t)i) -
                              af_load_f64(b->data, b->dtype, (uint64_t)i));
        g->worst = !(d <= g->worst) ? d : g->worst;
        g->off += !(d <= tol);
        g->count++;
    }
}

/* Every tensor of `golden` (whose name may have a prefix) against our file. */
static inline tensor_gap compare_files(const char *ours, const char *golden, const char *prefix,
                                       double tol)
{
    af_error err = {0};
    af_weights *a = NULL, *b = NULL;
    tensor_gap g = {0};
    const size_t skip = strlen(prefix);
    CHECK_OK(af_weights_open(&a, ours, &err), err);
    CHECK_OK(af_weights_open(&b, golden, &err), err);
    for (int i = 0; i < af_weights_count(b); i++) {
        const af_stored *want = af_weights_at(b, i);
        if (strncmp(want->name, prefix, skip) != 0)
            continue;
        const af_stored *have = af_weights_find(a, want->name + skip);
        CHECK_MSG(have != NULL, "%s: no tensor %s", ours, want->name + skip);
        add_gap(&g, have, want, tol);
    }
    assert_true(g.count > 0);
    af_weights_close(a);
    af_weights_close(b);
    return g;
}

/* The same bytes for every tensor of both files. */
static inline bool same_tensors(const char *x, const char *y)
{
    af_error err = {0};
    af_weights *a = NULL, *b = NULL;
    CHECK_OK(af_weights_open(&a, x, &err), err);
    CHECK_OK(af_weights_open(&b, y, &err), err);
    bool same = af_weights_count(a) == af_weights_count(b);
    for (int i = 0; same && i < af_weights_count(a); i++) {
        const af_stored *s = af_weights_at(a, i), *t = af_weights_find(b, s->name);
        same = t && s->dtype == t->dtype && s->bytes == t->bytes &&
               memcmp(s->data, t->data, s->bytes) == 0;
        if (!same)
            printf("%s differs\n", s->name);
    }
    af_weights_close(a);
    af_weights_close(b);
    return same;
}

/* A tied model has no separate head: one that is stored would be used. */
static inline void copy_without_head(const char *from, const char *to)
{
    af_error err = {0};
    af_weights *w = NULL;
    af_safetensors_writer *out = NULL;
    CHECK_OK(af_weights_open(&w, from, &err), err);
    CHECK_OK(af_safetensors_writer_new(&out, to, 0, &err), err);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < af_weights_count(w); i++) {
            const af_stored *t = af_weights_at(w, i);
            if (strcmp(t->name, "lm_head.weight") == 0)
                continue;
            if (pass)
                CHECK_OK(af_safetensors_writer_data(out, t->data, t->bytes, &err), err);
            else
                CHECK_OK(af_safetensors_writer_add(out, t->name, t->dtype, t->dim, t->ndim, &err),
                         err);
        }
        if (!pass)
            CHECK_OK(af_safetensors_writer_begin(out, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(out, &err), err);
    af_weights_close(w);
}

/* No output and no temporary file next to it. */
static inline void check_nothing_left(const char *dir, int files)
{
    af_error err = {0};
    char **names = NULL;
    int n = 0;
    CHECK_OK(af_dir_list(&names, &n, dir, &err), err);
    for (int i = 0; i < n && n != files; i++)
        printf("left: %s\n", names[i]);
    assert_int_equal(n, files);
    af_names_free(names, n);
}
#endif
