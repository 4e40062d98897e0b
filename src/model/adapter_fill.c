/* adapter_fill.c - the values that a new adapter begins with. */
#include "base/pool.h"
#include "base/rng.h"
#include "model/adapter.h"
#include "model/adapter_config.h"
#include "model/loader.h"

#include <math.h>

/* Fewer numbers than this are drawn by one thread. */
enum { UNIFORM_STEP = 256, DRAW_TOGETHER = 1 << 20 };

static void init_module(af_adapter *a, int i, uint64_t seed)
{
    af_adapter_module *m = &a->module[i];
    const int64_t in = a->spec->module[i].in;
    const char *kind = a->config.init_weights ? a->config.init_weights : "true";
    const bool xavier = strcmp(kind, "xavier") == 0;
    const bool normal = xavier || strcmp(kind, "gaussian") == 0;
    const double precision = xavier ? sqrt((double)(in + m->rank) / 2) : (double)m->rank;
    const double bound = 1 / sqrt((double)in);        /* kaiming-uniform with a = sqrt 5 */
    if (a->spec->module[i].group == AF_GROUP_EMBED) { /* the reverse: A zeros, B normal */
        for (int64_t k = 0; k < m->rank * a->spec->module[i].out; k++)
            m->b[k] = (float)af_rng_normal(seed, (uint64_t)i, (uint64_t)k);
        return;
    }
    const int64_t count = af_adapter_a_count(&a->spec->module[i], m->rank);
    for (int64_t k = 0; k < count && normal; k++)
        m->a[k] = (float)(af_rng_normal(seed, (uint64_t)i, (uint64_t)k) / precision);
    for (int64_t k = 0; k < count && !normal; k += UNIFORM_STEP) {
        double u[UNIFORM_STEP];
        af_rng_f64_row(u, seed, (uint64_t)i, (uint64_t)k, UNIFORM_STEP);
        for (int64_t e = 0; e < AF_MIN(count - k, UNIFORM_STEP); e++)
            m->a[k + e] = (float)((2 * u[e] - 1) * bound);
    }
}

typedef struct init_job {
    af_adapter *a;
    uint64_t seed;
} init_job;

static void init_modules(void *arg, int64_t from, int64_t to, int share)
{
    const init_job *j = arg;
    (void)share;
    for (int64_t i = from; i < to; i++)
        if (j->a->module[i].a)
            init_module(j->a, (int)i, j->seed);
}

/* DoRA starts from the row norms of the base. */
static af_status init_magnitude(af_adapter *a, int i, af_loader *base, af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &a->spec->module[i];
    float *row = af_calloc((uint64_t)m->in, sizeof *row);
    if (!row)
        return af_fail_nomem(err, "a row", (uint64_t)m->in * sizeof *row);
    for (int64_t r = 0; r < m->out; r++) {
        double sum = 0;
        AF_TRY(af_loader_rows(base, m->weight, r, 1, row, err));
        for (int64_t k = 0; k < m->in; k++)
            sum += (double)row[k] * row[k];
        if (sum == 0) /* often of a token that pads; it has no direction, and 0 / 0 is NaN */
            AF_TRY(af_fail(err, AF_EUNSUPPORTED,
                           "DoRA on '%s' is not possible, as row %" PRId64 " of its weights is "
                           "zero: leave it out, or give plain LoRA",
                           m->path, r));
        a->module[i].magnitude[r] = (float)sqrt(sum);
    }
done:
    free(row);
    return st;
}

af_status af_adapter_fill(af_adapter *a, af_loader *base, uint64_t seed, af_error *err)
{
    af_status st = AF_OK;
    af_pool *pool = NULL;
    int64_t count = 0;
    const af_model_spec *s = a->spec;
    for (int i = 0; i < s->modules; i++) {
        const af_module_spec *m = &s->module[i];
        af_adapter_module *am = &a->module[i];
        if (!am->rank)
            continue;
        if (am->triangles) { /* zeros: rotations by nothing */
            AF_TRY(
                af_adapter_alloc(a, &am->triangle, am->triangles * af_adapter_triangle(am), err));
            continue;
        }
        AF_TRY(af_adapter_alloc(a, &am->a, af_adapter_a_count(m, am->rank), err));
        AF_TRY(af_adapter_alloc(a, &am->b, af_adapter_b_count(m, am->rank), err));
        if (a->config.dora) {
            AF_TRY(af_adapter_alloc(a, &am->magnitude, m->out, err));
            AF_TRY(init_magnitude(a, i, base, err));
        }
        if (a->config.lora_bias)
            AF_TRY(af_adapter_alloc(a, &am->bias, m->out, err));
        count += af_adapter_a_count(m, am->rank);
    }
    if (count >= DRAW_TOGETHER)
        AF_TRY(af_pool_new(&pool, 0, err));
    af_pool_run(pool, s->modules, init_modules, &(init_job){a, seed});
    for (int i = 0; i < s->tensors; i++) {
        const af_tensor_spec *t = &s->tensor[i];
        if (a->saved[i])
            AF_TRY(af_loader_rows(base, i, 0, t->ndim > 1 ? t->dim[0] : 1, a->saved[i], err));
    }
done:
    af_pool_free(pool);
    return st;
}
