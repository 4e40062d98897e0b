/* adapter_multiply.c - types of PEFT that multiply a weight, whose change is not of low rank: the
 * weights are changed when they are read, to be merged or used.
 *
 *   IA3  factors of the outputs, bias included (a column), or of the inputs (a row)
 *   OFT  W R^T with a block-diagonal R: each block is the Cayley transform of a skew-symmetric Q,
 * of which the upper triangle is stored, row by row; one block may serve for all */
#include "model/adapter_config.h"
#include "ops/oft/oft.h"

#include <math.h>

af_status af_adapter_check_adds(const af_adapter_config *c, const char *dir, af_error *err)
{
    const af_peft_form *form = &af_peft_forms[c->type];
    return form->multiplies
               ? af_fail(err, AF_EUNSUPPORTED,
                         "'%s' is an adapter of type %s, which is not possible here: merge it into "
                         "its base first (afinar merge)",
                         dir, form->name)
               : AF_OK;
}

static af_status read_ia3(af_adapter *a, const af_module_spec *m, af_adapter_module *am,
                          const af_weights *w, int *used, af_error *err)
{
    char name[AF_ADAPTER_NAME_BYTES];
    snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.ia3_l", m->path);
    const af_stored *t = af_adapter_find(a, w, name);
    if (!t || t->ndim != 2 || t->dim[0] != 1 || (t->dim[1] == 1 && m->in != 1)) /* [out][1] */
        return af_adapter_read_tensor(a, &am->factor, w, name, m->out, 1, used, err);
    am->block = 1;
    return af_adapter_read_tensor(a, &am->rotation, w, name, 1, m->in, used, err);
}

/* ---- OFT ---- */

/* out = x y, all [n][n] */
static void multiply(double *out, const double *x, const double *y, int64_t n)
{
    memset(out, 0, (size_t)(n * n) * sizeof *out);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++)
            for (int64_t j = 0; j < n; j++)
                out[i * n + j] += x[i * n + k] * y[k * n + j];
}

static void add_scaled(double *r, const double *x, double factor, int64_t n)
{
    for (int64_t i = 0; i < n * n; i++)
        r[i] += factor * x[i];
}

/* I + 2 Q + 2 Q^2 + .. + Q^last, as PEFT ends the series of (I + Q) (I - Q)^-1; r is I on entry.
 * Before 0.18 its last term was twice that, too, and three terms had no Q^3. */
static void add_series(double *r, const double *q, double *power, double *next, int64_t n,
                       const af_oft *o)
{
    const int last = o->old_series ? o->terms - 1 : AF_MAX(o->terms - 1, 3);
    if (o->terms < 2)
        return;
    add_scaled(r, q, 2, n);
    memcpy(power, q, (size_t)(n * n) * sizeof *q);
    for (int k = 2; o->terms > 2 && k <= last; k++) {
        multiply(next, power, q, n);
        memcpy(power, next, (size_t)(n * n) * sizeof *q);
        add_scaled(r, power, k == last && !o->old_series ? 1 : 2, n);
    }
}

/* COFT keeps the norm of Q below eps / sqrt(blocks). */
static double limit(const af_oft *o, const float *triangle, int64_t count, int64_t blocks)
{
    const double most = o->eps / sqrt((double)blocks);
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += 2 * (double)triangle[i] * triangle[i];
    return o->constrained && sqrt(sum) > most ? most / sqrt(sum) : 1;
}

/* space: 4 [n][n] */
static void make_block(float *to, const float *triangle, double factor, const af_oft *o, int64_t n,
                       double *space)
{
    double *r = space, *q = space + n * n;
    memset(space, 0, (size_t)(2 * n * n) * sizeof *space);
    for (int64_t i = 0; i < n; i++) {
        r[i * n + i] = 1;
        for (int64_t j = i + 1; j < n; j++) {
            q[i * n + j] = factor * *triangle++;
            q[j * n + i] = -q[i * n + j];
        }
    }
    if (o->exact)
        af_oft_invert(r, q, n);
    else
        add_series(r, q, q + n * n, q + 2 * n * n, n, o);
    for (int64_t i = 0; i < n * n; i++)
        to[i] = (float)r[i];
}

/* What is trained: of today's series alone, in the blocks that the config says. */
static af_status keep_stored(const af_adapter *a, const af_module_spec *m, af_adapter_module *am,
                             float *triangle, int64_t n, int64_t stored, af_error *err)
{
    const af_oft *o = &a->config.oft;
    const char *what = o->constrained                               ? "coft"
                       : o->old_series && !o->exact && o->terms > 2 ? "a PEFT before 0.18"
                                                                    : NULL;
    if (what)
        return af_fail(err, AF_EUNSUPPORTED,
                       "an OFT adapter of %s cannot be trained here: merge it into its base "
                       "(afinar merge), and train a new one",
                       what);
    if (n != am->block || stored != am->triangles)
        return af_fail(err, AF_EFORMAT,
                       "the OFT adapter of '%s' has %" PRId64 " blocks of %" PRId64
                       ", its config says %" PRId64 " of %" PRId64,
                       m->path, stored, n, am->triangles, am->block);
    am->triangle = triangle;
    return AF_OK;
}

static af_status read_oft(af_adapter *a, const af_module_spec *m, af_adapter_module *am,
                          const af_weights *w, int *used, af_error *err)
{
    af_status st = AF_OK;
    const af_oft *o = &a->config.oft;
    char name[AF_ADAPTER_NAME_BYTES];
    snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.oft_R.weight", m->path);
    const af_stored *t = af_adapter_find(a, w, name);
    const int64_t stored = t && t->ndim == 2 ? t->dim[0] : 0, count = stored ? t->dim[1] : 0;
    const int64_t n = llround((1 + sqrt(1 + 8 * (double)count)) / 2), blocks = m->in / n;
    float *triangle = NULL;
    double *space = NULL;
    if (t && (n * (n - 1) / 2 != count || n > AF_OFT_BLOCK_MAX || m->in % n ||
              (stored != blocks && stored != 1)))
        return af_fail(err, AF_EFORMAT,
                       "adapter tensor '%s' of %" PRId64 "x%" PRId64
                       " is not a rotation of %" PRId64 " inputs in blocks of at most %d",
                       t->name, stored, count, m->in, AF_OFT_BLOCK_MAX);
    AF_TRY(af_adapter_read_tensor(a, &triangle, w, name, stored, count, used, err));
    if (a->as_stored)
        return keep_stored(a, m, am, triangle, n, stored, err);
    AF_TRY(af_adapter_alloc(a, &am->rotation, m->in * n, err));
    space = af_calloc((uint64_t)(n * n), 4 * sizeof *space);
    if (!space)
        AF_TRY(af_fail_nomem(err, "a rotation", (uint64_t)(n * n) * 4 * sizeof *space));
    am->block = n;
    for (int64_t b = 0; b < blocks; b++) {
        const float *from = triangle + (stored == 1 ? 0 : b * count);
        make_block(am->rotation + b * n * n, from, limit(o, from, count, stored), o, n, space);
    }
done:
    free(space);
    return st;
}

af_status af_adapter_multiply_read(af_adapter *a, int module, const af_weights *w, int *used,
                                   af_error *err)
{
    const af_module_spec *m = &a->spec->module[module];
    af_adapter_module *am = &a->module[module];
    return a->config.type == AF_PEFT_IA3 ? read_ia3(a, m, am, w, used, err)
                                         : read_oft(a, m, am, w, used, err);
}

static void rotate(const af_adapter_module *m, float *row, int64_t cols)
{
    const int64_t n = m->block;
    for (int64_t at = 0; at < cols; at += n) {
        const float *block = m->rotation + at * n;
        float turned[AF_OFT_BLOCK_MAX];
        for (int64_t k = 0; k < n; k++) {
            double sum = 0;
            for (int64_t c = 0; c < n; c++)
                sum += (double)row[at + c] * block[k * n + c];
            turned[k] = (float)sum;
        }
        memcpy(row + at, turned, (size_t)n * sizeof *row);
    }
}

void af_adapter_multiply(const af_adapter_module *m, float *rows, int64_t from, int64_t n,
                         int64_t cols, bool bias)
{
    for (int64_t r = 0; r < n; r++) {
        float *row = rows + r * cols;
        if (m->rotation && !bias)
            rotate(m, row, cols);
        for (int64_t c = 0; m->factor && c < cols; c++)
            row[c] *= m->factor[bias ? (from + r) * cols + c : from + r];
    }
}
