/* adapter_start.c - see adapter_start.h.
 *
 * With W [out][in] of a module, s its scale and r its rank:
 *   pissa   W ~ U S V^T (the r largest):  B = U sqrt(S / s),  A = sqrt(S / s) V^T;  W -= s B A
 *   olora   W = Q R:  B = Q[:, :r],  A = R[:r];  W -= s B A
 *   loftq   W - q(W) ~ U S V^T, q the 4-bit or 8-bit base:  B = U sqrt(S),  A = sqrt(S) V^T
 *   orthogonal  the two halves of the rows of a random orthogonal matrix span A and B: B A = 0
 * as PEFT has them (signs of singular vectors and of Q may differ, which changes nothing). */
#include "train/run/adapter_start.h"
#include "base/rng.h"
#include "tensor/svd.h"

#include <math.h>

bool af_start_find(const char *name, af_start_kind *kind, int *steps)
{
    static const struct {
        const char *name;
        af_start_kind kind;
    } names[] = {{"true", AF_START_PLAIN},           {"gaussian", AF_START_PLAIN},
                 {"xavier", AF_START_PLAIN},         {"pissa", AF_START_PISSA},
                 {"olora", AF_START_OLORA},          {"loftq", AF_START_LOFTQ},
                 {"orthogonal", AF_START_ORTHOGONAL}};
    static const char counted[] = "pissa_niter_";
    *steps = 0;
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (strcmp(names[i].name, name) == 0) {
            *kind = names[i].kind;
            return true;
        }
    const char *n = name + strlen(counted);
    if (strncmp(name, counted, strlen(counted)) != 0 || !*n || strlen(n) > 3 ||
        strspn(n, "0123456789") != strlen(n))
        return false;
    *kind = AF_START_PISSA;
    *steps = (int)strtol(n, NULL, 10);
    return true;
}

const char *af_start_names(void)
{
    return "true, gaussian, xavier, orthogonal, pissa, pissa_niter_N, olora, loftq";
}

/* One module at work. */
typedef struct start_job {
    af_adapter *a;
    af_loader *base;
    af_pool *pool;
    af_start_kind kind;
    int steps;
    uint64_t seed;
} start_job;

/* A [r][in], B [out][r] from the r largest singular triples of w, their values divided by `scale`.
 */
static af_status from_svd(const start_job *j, int i, const float *w, double scale, af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &j->a->spec->module[i];
    af_adapter_module *am = &j->a->module[i];
    const int64_t r = am->rank;
    double *s = af_calloc((uint64_t)r, sizeof *s),
           *u = af_calloc((uint64_t)(r * m->out), sizeof *u);
    double *v = af_calloc((uint64_t)(r * m->in), sizeof *v);
    if (!s || !u || !v)
        AF_TRY(af_fail_nomem(err, "a decomposition", (uint64_t)(r * (m->in + m->out)) * 8));
    AF_TRY(af_svd(w, m->out, m->in, r, j->steps, j->seed + (uint64_t)i, j->pool, s, u, v, err));
    for (int64_t k = 0; k < r; k++) {
        const double root = sqrt(s[k] / scale);
        for (int64_t c = 0; c < m->in; c++)
            am->a[k * m->in + c] = (float)(root * v[k * m->in + c]);
        for (int64_t o = 0; o < m->out; o++)
            am->b[o * r + k] = (float)(root * u[k * m->out + o]);
    }
done:
    free(s);
    free(u);
    free(v);
    return st;
}

/* The first r columns of Q come from the first r columns of W alone; R[:r] = Q[:, :r]^T W. */
static af_status from_qr(const start_job *j, int i, const float *w, af_error *err)
{
    const af_module_spec *m = &j->a->spec->module[i];
    af_adapter_module *am = &j->a->module[i];
    const int64_t r = am->rank;
    double *q = af_calloc((uint64_t)(r * m->out), sizeof *q),
           *row = af_calloc((uint64_t)m->in, sizeof *row);
    if (!q || !row) {
        free(q);
        free(row);
        return af_fail_nomem(err, "a decomposition", (uint64_t)(r * m->out) * 8);
    }
    for (int64_t k = 0; k < r; k++)
        for (int64_t o = 0; o < m->out; o++)
            q[k * m->out + o] = w[o * m->in + k];
    af_orthonormal(q, r, m->out);
    for (int64_t k = 0; k < r; k++) {
        memset(row, 0, (size_t)m->in * sizeof *row);
        for (int64_t o = 0; o < m->out; o++) {
            const double x = q[k * m->out + o];
            for (int64_t c = 0; c < m->in; c++)
                row[c] += x * w[o * m->in + c];
            am->b[o * r + k] = (float)x;
        }
        for (int64_t c = 0; c < m->in; c++)
            am->a[k * m->in + c] = (float)row[c];
    }
    free(q);
    free(row);
    return AF_OK;
}

/* sum over k < half of normal(at, k) q[row of k][c] / 10 */
static double span(const start_job *j, uint64_t stream, int64_t at, int64_t half, const double *q,
                   int64_t r, int64_t parity, int64_t c)
{
    double sum = 0;
    for (int64_t k = 0; k < half; k++)
        sum +=
            af_rng_normal(j->seed, stream, (uint64_t)(at * half + k)) * q[(2 * k + parity) * r + c];
    return sum / 10;
}

static af_status orthogonal(const start_job *j, int i, af_error *err)
{
    const af_module_spec *m = &j->a->spec->module[i];
    af_adapter_module *am = &j->a->module[i];
    const int64_t r = am->rank;
    const uint64_t stream = (uint64_t)i * 4;
    double *q = af_calloc((uint64_t)(r * r), sizeof *q);
    if (!q)
        return af_fail_nomem(err, "a decomposition", (uint64_t)(r * r) * 8);
    for (int64_t k = 0; k < r * r; k++)
        q[k] = af_rng_normal(j->seed, stream + 1, (uint64_t)k);
    af_orthonormal(q, r, r);
    for (int64_t c = 0; c < r; c++) {
        for (int64_t x = 0; x < m->in; x++)
            am->a[c * m->in + x] = (float)span(j, stream + 2, x, r / 2, q, r, 0, c);
        for (int64_t o = 0; o < m->out; o++)
            am->b[o * r + c] = (float)span(j, stream + 3, o, r / 2, q, r, 1, c);
    }
    free(q);
    return AF_OK;
}

static af_status start_module(const start_job *j, int i, af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &j->a->spec->module[i];
    const int64_t count = m->out * m->in;
    if (j->kind == AF_START_ORTHOGONAL)
        return orthogonal(j, i, err);
    float *w = af_calloc((uint64_t)count, sizeof *w), *q = NULL;
    if (!w)
        return af_fail_nomem(err, "a matrix", (uint64_t)count * sizeof *w);
    af_loader_plain_rows(j->base, m->weight, 0, m->out, w);
    if (j->kind == AF_START_LOFTQ) {
        q = af_calloc((uint64_t)count, sizeof *q);
        if (!q)
            AF_TRY(af_fail_nomem(err, "a matrix", (uint64_t)count * sizeof *q));
        AF_TRY(af_loader_rows(j->base, m->weight, 0, m->out, q, err));
        for (int64_t k = 0; k < count; k++)
            w[k] -= q[k];
    }
    st = j->kind == AF_START_OLORA
             ? from_qr(j, i, w, err)
             : from_svd(j, i, w, j->kind == AF_START_PISSA ? j->a->module[i].scale : 1, err);
done:
    free(w);
    free(q);
    return st;
}

static af_status keep_start(af_adapter *a, int i, af_error *err)
{
    const af_module_spec *m = &a->spec->module[i];
    af_adapter_module *am = &a->module[i];
    const uint64_t na = (uint64_t)(am->rank * m->in) * sizeof(float),
                   nb = (uint64_t)(am->rank * m->out) * sizeof(float);
    am->a0 = af_arena_take(&a->arena, na);
    am->b0 = af_arena_take(&a->arena, nb);
    if (!am->a0 || !am->b0)
        return af_fail_nomem(err, "an adapter", na + nb);
    memcpy(am->a0, am->a, na);
    memcpy(am->b0, am->b, nb);
    return AF_OK;
}

typedef struct length_job {
    const af_adapter_module *m;
    float *w; /* [out][in], used up */
    int64_t in;
} length_job;

static void lengths(void *arg, int64_t from, int64_t to, int share)
{
    const length_job *j = arg;
    const int64_t r = j->m->rank;
    (void)share;
    for (int64_t o = from; o < to; o++) {
        float *restrict row = j->w + o * j->in;
        double sum = 0;
        for (int64_t k = 0; k < r; k++) {
            const float f = j->m->scale * j->m->b[o * r + k], *restrict a = j->m->a + k * j->in;
            for (int64_t c = 0; c < j->in; c++)
                row[c] += f * a[c];
        }
        for (int64_t c = 0; c < j->in; c++)
            sum += (double)row[c] * (double)row[c];
        j->m->magnitude[o] = (float)sqrt(sum);
    }
}

/* DoRA begins with the lengths of the rows of W + s B A, W as the run has it. */
static af_status set_magnitude(const start_job *j, int i, af_error *err)
{
    const af_module_spec *m = &j->a->spec->module[i];
    const uint64_t count = (uint64_t)(m->out * m->in);
    float *w = af_calloc(count, sizeof *w);
    if (!w)
        return af_fail_nomem(err, "a matrix", count * sizeof *w);
    const af_status st = af_loader_rows(j->base, m->weight, 0, m->out, w, err);
    if (st == AF_OK)
        af_pool_run(j->pool, m->out, lengths, &(length_job){&j->a->module[i], w, m->in});
    free(w);
    return st;
}

/* What these starts cannot be combined with. */
static af_status check(const af_adapter *a, const af_loader *base, af_start_kind kind, int bits,
                       af_error *err)
{
    const char *name = a->config.init_weights;
    const bool reduces = kind == AF_START_PISSA || kind == AF_START_OLORA;
    if (kind == AF_START_LOFTQ && bits == 0)
        return af_fail(err, AF_EUSAGE,
                       "loftq starts from the error of a quantised base: set adapter: qlora or "
                       "load_in_8bit: true");
    for (int i = 0; i < a->spec->modules && kind != AF_START_PLAIN; i++) {
        const af_module_spec *m = &a->spec->module[i];
        if (a->module[i].rank && (m->layer < 0 || m->parameter || af_module_is_shared(a->spec, i)))
            return af_fail(err, AF_EUNSUPPORTED, "'%s' on '%s' is not supported: leave it out",
                           name, m->path);
        if (kind == AF_START_ORTHOGONAL && a->module[i].rank % 2)
            return af_fail(err, AF_EUSAGE, "the orthogonal start needs an even rank, not %d",
                           a->module[i].rank);
        if (kind != AF_START_ORTHOGONAL && a->module[i].rank > AF_MIN(m->in, m->out))
            return af_fail(err, AF_EUSAGE, "rank %d is more than the %lld of '%s' (%lld x %lld)",
                           a->module[i].rank, (long long)AF_MIN(m->in, m->out), m->path,
                           (long long)m->out, (long long)m->in);
        if (a->module[i].rank && (reduces || kind == AF_START_LOFTQ) &&
            af_loader_is_packed(base, m->weight))
            return af_fail(err, AF_EUNSUPPORTED,
                           "'%s' needs the plain weights of '%s', which is stored quantised", name,
                           m->path);
    }
    return AF_OK;
}

af_status af_start_outline(af_adapter *a, af_loader *base, int bits, af_error *err)
{
    af_start_kind kind;
    int steps;
    if (!a->config.init_weights || !af_start_find(a->config.init_weights, &kind, &steps) || !base)
        return AF_OK;
    const af_status st = check(a, base, kind, bits, err);
    if (st == AF_OK && (kind == AF_START_PISSA || kind == AF_START_OLORA))
        af_loader_change(base, a);
    return st;
}

af_status af_start_fill(af_adapter *a, af_loader *base, int bits, uint64_t seed, int threads,
                        af_error *err)
{
    af_status st = AF_OK;
    start_job j = {.a = a, .base = base, .seed = seed};
    if (!a->config.init_weights || !af_start_find(a->config.init_weights, &j.kind, &j.steps) ||
        j.kind == AF_START_PLAIN)
        return AF_OK;
    const bool reduces = j.kind == AF_START_PISSA || j.kind == AF_START_OLORA;
    AF_TRY(check(a, base, j.kind, bits, err));
    AF_TRY(af_pool_new(&j.pool, threads, err));
    for (int i = 0; i < a->spec->modules; i++) {
        if (!a->module[i].rank)
            continue;
        AF_TRY(start_module(&j, i, err));
        if (reduces)
            AF_TRY(keep_start(a, i, err));
    }
    if (reduces)
        af_loader_change(base, a);
    for (int i = 0; a->config.dora && i < a->spec->modules; i++)
        if (a->module[i].rank)
            AF_TRY(set_magnitude(&j, i, err));
    if (j.kind == AF_START_LOFTQ)
        a->config.init_weights = "true"; /* PEFT would quantise again when it loads the adapter */
done:
    af_pool_free(j.pool);
    return st;
}

/* ---- saving ---- */

static af_status double_module(af_adapter *to, const af_adapter *from, int i, af_error *err)
{
    const af_module_spec *m = &from->spec->module[i];
    const af_adapter_module *x = &from->module[i];
    af_adapter_module *y = &to->module[i];
    const int64_t r = x->rank;
    *y = (af_adapter_module){.rank = 2 * x->rank,
                             .alpha = 2 * x->alpha,
                             .scale = x->scale,
                             .magnitude = x->magnitude, /* borrowed, as the bias */
                             .bias = x->bias};
    y->a = af_arena_take(&to->arena, (uint64_t)(2 * r * m->in) * sizeof *y->a);
    y->b = af_arena_take(&to->arena, (uint64_t)(2 * r * m->out) * sizeof *y->b);
    if (!y->a || !y->b)
        return af_fail_nomem(err, "an adapter", (uint64_t)(2 * r * (m->in + m->out)) * 4);
    memcpy(y->a, x->a, (size_t)(r * m->in) * sizeof *y->a);
    memcpy(y->a + r * m->in, x->a0, (size_t)(r * m->in) * sizeof *y->a);
    for (int64_t o = 0; o < m->out; o++)
        for (int64_t k = 0; k < r; k++) {
            y->b[o * 2 * r + k] = x->b[o * r + k];
            y->b[o * 2 * r + r + k] = -x->b0[o * r + k];
        }
    return AF_OK;
}

static bool is_reduced(const af_adapter *a)
{
    bool any = false;
    for (int i = 0; i < a->spec->modules; i++)
        any |= a->module[i].a0 != NULL;
    return any;
}

af_status af_start_convert(af_adapter **out, const af_adapter *a, af_error *err)
{
    af_status st = AF_OK;
    af_adapter *d = NULL;
    *out = NULL;
    if (!is_reduced(a))
        return AF_OK;
    af_adapter_config c = a->config;
    c.r *= 2;
    c.alpha *= c.rslora ? sqrt(2) : 2;
    c.init_weights = "true";
    AF_TRY(af_adapter_outline(&d, &c, a->spec, err));
    for (int i = 0; i < a->spec->modules; i++)
        if (a->module[i].rank)
            AF_TRY(double_module(d, a, i, err));
    for (int i = 0; i < a->spec->tensors; i++)
        d->saved[i] = a->saved[i]; /* borrowed, as all that follows */
    memcpy(d->tokens, a->tokens, sizeof d->tokens);
    memcpy(d->token_values, a->token_values, sizeof d->token_values);
    d->grown = a->grown;
    d->tables = a->tables;
    *out = d;
    d = NULL;
done:
    af_adapter_free(d);
    return st;
}

void af_start_restore(af_adapter *a, const af_adapter *converted)
{
    for (int i = 0; i < a->spec->modules; i++) {
        const af_module_spec *m = &a->spec->module[i];
        const af_adapter_module *x = &converted->module[i];
        af_adapter_module *y = &a->module[i];
        if (!y->rank)
            continue;
        memcpy(y->a, x->a, (size_t)(y->rank * m->in) * sizeof *y->a);
        for (int64_t o = 0; o < m->out; o++)
            memcpy(y->b + o * y->rank, x->b + o * x->rank, (size_t)y->rank * sizeof *y->b);
        if (y->bias && x->bias)
            memcpy(y->bias, x->bias, (size_t)m->out * sizeof *y->bias);
        if (y->magnitude && x->magnitude)
            memcpy(y->magnitude, x->magnitude, (size_t)m->out * sizeof *y->magnitude);
    }
    for (int k = 0; k < AF_TOKEN_TABLES; k++)
        if (a->token_values[k] && converted->token_values[k])
            memcpy(a->token_values[k], converted->token_values[k],
                   (size_t)(a->tokens[k].count * a->spec->embed_width) * sizeof(float));
    for (int i = 0; i < a->spec->tensors; i++) {
        const af_tensor_spec *t = &a->spec->tensor[i];
        if (a->saved[i] && converted->saved[i])
            memcpy(a->saved[i], converted->saved[i],
                   (size_t)(t->dim[0] * (t->ndim > 1 ? t->dim[1] : 1)) * sizeof(float));
    }
}

af_status af_start_write(const af_adapter *a, const char *dir, af_error *err)
{
    af_adapter *plain = NULL;
    af_status st = af_start_convert(&plain, a, err);
    if (st == AF_OK)
        st = af_adapter_write(plain ? plain : a, dir, err);
    af_adapter_free(plain);
    return st;
}
