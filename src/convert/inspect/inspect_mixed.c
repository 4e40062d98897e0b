/* inspect_mixed.c - see inspect_mixed.h. Both sides are read as the converters read models, a few
 * rows at a time. */
#include "convert/inspect/inspect_mixed.h"

#include "base/arena_owner.h"
#include "model/model_reader.h"

#include <math.h>

enum { STEP_VALUES = 1 << 16 };

static const char *type_name(const af_model_reader *in, const af_model_tensor *t)
{
    const af_stored *s = t->stored;
    if (!s)
        s = af_weights_find(in->weights, in->spec.tensor[t->spec].gguf);
    return af_dtype_name(s ? s->dtype : t->dtype);
}

typedef struct gap {
    double a2, b2, dot, diff2, max_abs;
    int64_t changed;
} gap;

static void add_gap(gap *g, const float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)y[i] - x[i];
        g->a2 += (double)x[i] * x[i];
        g->b2 += (double)y[i] * y[i];
        g->dot += (double)x[i] * y[i];
        g->diff2 += d * d;
        g->max_abs = !(fabs(d) <= g->max_abs) ? fabs(d) : g->max_abs;
        g->changed += !(x[i] == y[i]);
    }
}

static af_status compare(af_diff_row *row, af_model_reader *a, const af_model_tensor *ta,
                         af_model_reader *b, const af_model_tensor *tb, af_error *err)
{
    af_status st = AF_OK;
    af_tensor_view va = {0}, vb = {0};
    gap g = {0};
    const int64_t cols = af_model_tensor_cols(ta), rows = af_model_tensor_rows(ta);
    const int64_t step = AF_MIN(AF_MAX(STEP_VALUES / AF_MAX(cols, 1), 1), AF_MAX(rows, 1));
    float *x = af_calloc((uint64_t)(step * cols), 2 * sizeof *x);
    if (!x)
        return af_fail_nomem(err, ta->name, (uint64_t)(step * cols) * 8);
    AF_TRY(af_tensor_view_open(&va, a, ta, err));
    AF_TRY(af_tensor_view_open(&vb, b, tb, err));
    for (int64_t r = 0; r < rows; r += step) {
        const int64_t n = AF_MIN(step, rows - r);
        af_tensor_view_rows(&va, r, n, x);
        af_tensor_view_rows(&vb, r, n, x + step * cols);
        add_gap(&g, x, x + step * cols, n * cols);
    }
    row->changed = g.changed;
    row->max_abs = g.max_abs;
    row->relative = g.diff2 == 0 ? 0 : sqrt(g.diff2) / sqrt(g.a2);
    row->cosine = g.a2 == 0 && g.b2 == 0 ? 1 : g.dot / sqrt(g.a2 * g.b2);
    row->kind = g.changed ? AF_DIFF_CHANGED : AF_DIFF_SAME;
done:
    af_tensor_view_close(&va);
    af_tensor_view_close(&vb);
    free(x);
    return st;
}

static af_status fill(af_diff_report *r, af_model_reader *a, af_model_reader *b, af_error *err)
{
    af_status st = AF_OK;
    af_diff_row *rows =
        af_arena_take(af_arena_of(r), (uint64_t)(a->count + b->count + 1) * sizeof *rows);
    if (!rows)
        return af_fail_nomem(err, "the rows", (uint64_t)(a->count + b->count) * sizeof *rows);
    r->rows = rows;
    for (int i = 0; i < a->count + b->count; i++) {
        const af_model_tensor *ta = i < a->count ? &a->tensor[i] : NULL;
        const af_model_tensor *tb =
            ta ? af_model_reader_find(b, ta->name) : &b->tensor[i - a->count];
        if (!ta && af_model_reader_find(a, tb->name))
            continue;
        const af_model_tensor *t = i < a->count ? ta : tb;
        af_diff_row *row = &rows[r->row_count++];
        row->name = af_arena_strdup(af_arena_of(r), t->name);
        row->dtype_a = ta ? type_name(a, ta) : "";
        row->dtype_b = tb ? type_name(b, tb) : "";
        row->ndim = t->ndim;
        memcpy(row->dim, t->dim, (size_t)t->ndim * sizeof *t->dim);
        row->count = af_model_tensor_values(t);
        row->cosine = 1;
        if (!row->name)
            AF_TRY(af_fail_nomem(err, "a row", strlen(t->name)));
        if (!ta || !tb)
            row->kind = ta ? AF_DIFF_ONLY_A : AF_DIFF_ONLY_B;
        else if (!af_model_tensor_same_shape(ta, tb))
            row->kind = AF_DIFF_SHAPE;
        else
            AF_TRY(compare(row, a, ta, b, tb, err));
        r->same += row->kind == AF_DIFF_SAME;
        r->changed += row->kind == AF_DIFF_CHANGED;
        r->other += row->kind > AF_DIFF_CHANGED;
    }
done:
    return st;
}

af_status af_diff_mixed(af_diff_report *r, const char *a, const char *b, af_error *err)
{
    af_status st = AF_OK;
    af_model_reader *ga = NULL, *gb = NULL;
    AF_TRY(af_model_reader_open_list(&ga, a, err));
    AF_TRY(af_model_reader_open_list(&gb, b, err));
    AF_TRY(fill(r, ga, gb, err));
done:
    af_model_reader_close(ga);
    af_model_reader_close(gb);
    return st;
}
