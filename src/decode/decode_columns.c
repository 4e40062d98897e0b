/* decode_columns.c - what DoRA and biases of adapters do to the columns of a projection.
 *
 * DoRA is y = f (W x + s B A x) + bias with f = magnitude / norm of a row of W + s B A. The shared
 * GEMM has made W x + bias, so that
 *     y = f (W x + bias) + (1 - f) bias + s (f B) A x:
 * a factor and a shift per column, and rows of B times f. lora_bias is a shift alone. Both are made
 * once, when the adapter is added. */
#include "decode/decoder.h"

#include <math.h>

void af_adapter_columns_free(af_adapter_columns *c, int modules)
{
    for (int i = 0; c && i < modules; i++) {
        free(c[i].factor);
        free(c[i].shift);
    }
    free(c);
}

/* The norm of row r of W + s B A; row: scratch [in]. */
static af_status row_norm(double *norm, const af_module_spec *m, const af_adapter_module *am,
                          int64_t r, af_loader *base, float *row, af_error *err)
{
    const af_status st = af_loader_rows(base, m->weight, r, 1, row, err);
    double sum = 0;
    if (st != AF_OK)
        return st;
    for (int k = 0; k < am->rank; k++) {
        const float factor = am->scale * am->b[r * am->rank + k], *a = am->a + k * m->in;
        for (int64_t i = 0; i < m->in; i++)
            row[i] += factor * a[i];
    }
    for (int64_t i = 0; i < m->in; i++)
        sum += (double)row[i] * row[i];
    *norm = sqrt(sum);
    return AF_OK;
}

static af_status add_dora(af_adapter_columns *c, const af_module_spec *m,
                          const af_adapter_module *am, af_loader *base, float *row, af_error *err)
{
    af_status st = AF_OK;
    if (m->bias >= 0)
        AF_TRY(af_loader_rows(base, m->bias, 0, 1, c->shift, err));
    for (int64_t r = 0; r < m->out; r++) {
        double norm;
        AF_TRY(row_norm(&norm, m, am, r, base, row, err));
        c->factor[r] = (float)(am->magnitude[r] / norm);
        c->shift[r] *= 1 - c->factor[r];
    }
done:
    return st;
}

/* The columns of one module that has an adapter. */
static af_status make_columns(af_adapter_columns *c, const af_adapter *a, int module,
                              af_loader *base, af_error *err)
{
    const af_module_spec *m = &a->spec->module[module];
    const af_adapter_module *am = &a->module[module];
    float *row = af_calloc((uint64_t)m->in, sizeof *row);
    af_status st = AF_OK;
    c->factor = af_calloc((uint64_t)m->out, sizeof *c->factor);
    c->shift = af_calloc((uint64_t)m->out, sizeof *c->shift);
    if (!c->factor || !c->shift || !row)
        AF_TRY(af_fail_nomem(err, "an adapter", (uint64_t)(m->out + m->in) * sizeof *row));
    if (a->config.dora)
        AF_TRY(add_dora(c, m, am, base, row, err));
    for (int64_t r = 0; !a->config.dora && r < m->out; r++) {
        c->factor[r] = 1;
        c->shift[r] = am->bias ? am->scale * am->bias[r] : 0;
    }
done:
    free(row);
    return st;
}

af_status af_adapter_columns_new(af_adapter_columns **out, const af_adapter *a, af_loader *base,
                                 af_error *err)
{
    const int modules = a->spec->modules;
    af_status st = AF_OK;
    *out = NULL;
    if (!a->config.dora && !a->config.lora_bias)
        return AF_OK;
    af_adapter_columns *c = af_calloc((uint64_t)modules, sizeof *c);
    if (!c)
        return af_fail_nomem(err, "an adapter", (uint64_t)modules * sizeof *c);
    for (int i = 0; i < modules; i++)
        if (a->module[i].rank)
            AF_TRY(make_columns(&c[i], a, i, base, err));
    *out = c;
    c = NULL;
done:
    af_adapter_columns_free(c, modules);
    return st;
}
