/* moe_cuda.c - launchers of moe.c: list the pairs by expert, then GEMMs over the list. */
#include "ops/common/cuda_ops.h"
#include "ops/moe/moe_in.h"

enum { TILE = 64 };

static af_kernel *kernel(af_cuda *cu, const char *name, af_dtype t)
{
    return af_cuda_kernel(cu, "moe.cu", name, af_cuda_text(cu, "AF_T=%s", af_cuda_ctype(t)));
}

static af_status route_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_moe_inputs in = af_moe_in(n);
    (void)g;
    const af_tensor *z = in.logits;
    const int64_t N = af_rows(z), X = af_last(z);
    if (!af_cuda_float(z))
        return af_fail(err, AF_EUNSUPPORTED, "moe_route of %s on the GPU", af_dtype_name(z->dtype));
    af_launch *l =
        af_cuda_launch(cu, n, kernel(cu, "moe_route", z->dtype), (N + 3) / 4, 1, 1, 128, 0);
    for (int i = 0; i < 3; i++)
        af_arg_ptr(l, n->out[i]->data);
    af_arg_ptr(l, z->data);
    af_arg_i64(l, z->ld);
    af_arg_i64(l, N);
    af_arg_i32(l, X);
    af_arg_i32(l, n->attr.moe.k);
    af_arg_i32(l, n->attr.moe.norm);
    return AF_OK;
}

static af_status route_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *d = n->out[0];
    const int64_t N = af_rows(d), X = af_last(d);
    if (!af_cuda_float(d))
        return af_fail(err, AF_EUNSUPPORTED, "moe_route of %s on the GPU", af_dtype_name(d->dtype));
    af_launch *l =
        af_cuda_launch(cu, n, kernel(cu, "moe_route_bwd", d->dtype), (N + 3) / 4, 1, 1, 128, 0);
    af_arg_ptr(l, d->data);
    af_arg_i64(l, d->ld);
    const af_moe_inputs in = af_moe_in(n);
    af_arg_ptr(l, in.probs->data);
    af_arg_ptr(l, in.index->data);
    af_arg_ptr(l, in.weights->data);
    af_arg_ptr(l, in.dweights->data);
    af_arg_i64(l, N);
    af_arg_i32(l, X);
    af_arg_i32(l, n->attr.moe.k);
    af_arg_i32(l, n->attr.moe.norm);
    return AF_OK;
}

typedef struct moe_launch {
    af_cuda *cu;
    af_node *n;
    const af_tensor *x, *gate_up, *down;
    af_dtype t;
    int64_t N, D, F, X, P, k;
    void *list, *slot, *start;        /* i32 [P], [P], [X+1] */
    void *gu, *hid, *out, *dhid, *dx; /* [P][2F], [P][F], [P][D], [P][F], [P][D] */
    void *gate_up_t, *down_t;         /* params cast to the compute type, or where they lie */
} moe_launch;

static uint64_t layout(moe_launch *m, af_cuda *cu, af_node *n)
{
    const af_moe_inputs in = af_moe_in(n);
    const bool back = n->op == AF_OP_MOE_FFN_BWD;
    *m = (moe_launch){.cu = cu, .n = n, .x = in.x, .gate_up = in.gate_up, .down = in.down};
    m->t = m->x->dtype;
    m->N = af_rows(m->x);
    m->D = af_last(m->x);
    m->F = m->gate_up->dim[1] / 2;
    m->X = m->gate_up->dim[0];
    m->k = n->attr.moe.k;
    m->P = m->N * m->k;
    const int64_t size = af_dtype_get(m->t)->bytes;
    void **const part[] = {&m->list, &m->slot, &m->start, &m->gu,        &m->hid,
                           &m->out,  &m->dhid, &m->dx,    &m->gate_up_t, &m->down_t};
    const int64_t bytes[] = {m->P * 4,
                             m->P * 4,
                             (m->X + 1) * 4,
                             m->P * 2 * m->F * size,
                             m->P * m->F * size,
                             m->P * m->D * size,
                             back ? m->P * m->F * size : 0,
                             back ? m->P * m->D * size : 0,
                             m->gate_up->dtype == m->t ? 0 : af_count(m->gate_up) * size,
                             m->down->dtype == m->t ? 0 : af_count(m->down) * size};
    uint64_t at = 0;
    for (size_t i = 0; i < AF_LEN(part); i++) {
        *part[i] = cu->work ? (uint8_t *)cu->work + at : NULL;
        at += AF_ALIGN_UP((uint64_t)bytes[i], (uint64_t)256);
    }
    return at;
}

static uint64_t ffn_work(const af_cuda *cu, const af_node *n)
{
    moe_launch m;
    return layout(&m, (af_cuda *)cu, (af_node *)n);
}

/* The expert matrices in the compute type. */
static void bring(moe_launch *m, const af_tensor *w, void **to)
{
    if (w->dtype == m->t) {
        *to = w->data;
        return;
    }
    const int64_t n = af_last(w), rows = af_count(w) / n;
    for (int64_t r = 0; r < rows; r += 1 << 18) {
        const int64_t count = AF_MIN(rows - r, (int64_t)1 << 18);
        af_kernel *k = af_cuda_kernel(
            m->cu, "core.cu", "copy_2d",
            af_cuda_text(m->cu, "AF_S=%s AF_D=%s", af_cuda_ctype(w->dtype), af_cuda_ctype(m->t)));
        af_launch *l = af_cuda_launch(m->cu, m->n, k, AF_MIN((n + 31) / 32, (int64_t)64),
                                      (count + 7) / 8, 1, 256, 0);
        af_arg_ptr(l, (uint8_t *)*to + (uint64_t)(r * n * af_dtype_get(m->t)->bytes));
        af_arg_i64(l, n);
        af_arg_ptr(l, (uint8_t *)w->data + (uint64_t)(r * n * af_dtype_get(w->dtype)->bytes));
        af_arg_i64(l, n);
        af_arg_i64(l, count);
        af_arg_i64(l, n);
        af_arg_i64(l, n);
        af_arg_f32(l, 1);
    }
}

static void expert_gemm(moe_launch *m, void *c, const void *a, int64_t lda, bool by_token,
                        const void *b, int64_t N, int64_t K, bool nn)
{
    af_launch *l = af_cuda_launch(m->cu, m->n, kernel(m->cu, "moe_product", m->t),
                                  (N + TILE - 1) / TILE, m->P / TILE + m->X, 1, 256, 0);
    af_arg_ptr(l, c);
    af_arg_ptr(l, a);
    af_arg_i64(l, lda);
    af_arg_ptr(l, by_token ? m->list : NULL);
    af_arg_i32(l, m->k);
    af_arg_ptr(l, b);
    af_arg_ptr(l, m->start);
    af_arg_i32(l, m->X);
    af_arg_i32(l, N);
    af_arg_i32(l, K);
    af_arg_i32(l, nn);
}

static void outer(moe_launch *m, af_tensor *d, const void *a, const void *b, int64_t ldb,
                  bool by_token, int64_t M, int64_t N)
{
    af_launch *l = af_cuda_launch(m->cu, m->n, kernel(m->cu, "moe_outer", m->t),
                                  (N + TILE - 1) / TILE, (M + TILE - 1) / TILE, m->X, 256, 0);
    af_arg_ptr(l, d->data);
    af_arg_ptr(l, a);
    af_arg_ptr(l, b);
    af_arg_i64(l, ldb);
    af_arg_ptr(l, by_token ? m->list : NULL);
    af_arg_i32(l, m->k);
    af_arg_ptr(l, m->start);
    af_arg_i32(l, M);
    af_arg_i32(l, N);
    af_arg_i32(l, 0);
}

static void combine(moe_launch *m, const af_tensor *y, const void *out, const void *w)
{
    af_launch *l =
        af_cuda_launch(m->cu, m->n, kernel(m->cu, "moe_combine", m->t), m->N, 1, 1, 256, 0);
    af_arg_ptr(l, y->data);
    af_arg_i64(l, y->ld);
    af_arg_ptr(l, out);
    af_arg_ptr(l, w);
    af_arg_ptr(l, m->slot);
    af_arg_i32(l, m->D);
    af_arg_i32(l, m->k);
}

/* Everything up to the experts' outputs. */
static af_status experts(moe_launch *m, af_cuda *cu, af_node *n, af_error *err)
{
    const af_moe_inputs in = af_moe_in(n);
    (void)layout(m, cu, n);
    if (!af_cuda_float(m->x) || !af_cuda_float(m->gate_up) || !af_cuda_float(m->down))
        return af_fail(err, AF_EUNSUPPORTED, "experts of %s on the GPU: use bf16, f16 or f32",
                       af_dtype_name(m->gate_up->dtype));
    bring(m, m->gate_up, &m->gate_up_t);
    bring(m, m->down, &m->down_t);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "moe_list", m->t), m->X, 1, 1, 32, 0);
    af_arg_ptr(l, m->list);
    af_arg_ptr(l, m->slot);
    af_arg_ptr(l, m->start);
    af_arg_ptr(l, in.index->data);
    af_arg_i32(l, m->P);
    af_arg_i32(l, m->X);
    expert_gemm(m, m->gu, m->x->data, m->x->ld, true, m->gate_up_t, 2 * m->F, m->D, false);
    l = af_cuda_launch(cu, n, kernel(cu, "moe_act", m->t), m->P, 1, 1, 256, 0);
    af_arg_ptr(l, m->hid);
    af_arg_ptr(l, m->gu);
    af_arg_i32(l, m->F);
    af_arg_i32(l, n->attr.moe.act);
    expert_gemm(m, m->out, m->hid, m->F, false, m->down_t, m->D, m->F, false);
    return AF_OK;
}

static af_status ffn_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_moe_inputs in = af_moe_in(n);
    moe_launch m;
    (void)g;
    const af_status st = experts(&m, cu, n, err);
    if (st == AF_OK)
        combine(&m, n->out[0], m.out, in.weights->data);
    return st;
}

static af_status ffn_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_moe_inputs in = af_moe_in(n);
    moe_launch m;
    (void)g;
    const af_status st = experts(&m, cu, n, err);
    if (st != AF_OK)
        return st;
    const af_tensor *dy = in.dy;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "moe_combine_bwd", m.t), m.P, 1, 1, 256, 0);
    af_arg_ptr(l, m.out);
    af_arg_ptr(l, n->out[1]->data);
    af_arg_ptr(l, dy->data);
    af_arg_i64(l, dy->ld);
    af_arg_ptr(l, in.weights->data);
    af_arg_ptr(l, m.slot);
    af_arg_i32(l, m.D);
    af_arg_i32(l, m.k);
    expert_gemm(&m, m.dhid, m.out, m.D, false, m.down_t, m.F, m.D, true);
    if (n->n_out > 2)
        outer(&m, n->out[3], m.out, m.hid, m.F, false, m.D, m.F);
    l = af_cuda_launch(cu, n, kernel(cu, "moe_act_bwd", m.t), m.P, 1, 1, 256, 0);
    af_arg_ptr(l, m.gu);
    af_arg_ptr(l, m.dhid);
    af_arg_i32(l, m.F);
    af_arg_i32(l, n->attr.moe.act);
    expert_gemm(&m, m.dx, m.gu, 2 * m.F, false, m.gate_up_t, m.D, 2 * m.F, true);
    combine(&m, n->out[0], m.dx, NULL);
    if (n->n_out > 2)
        outer(&m, n->out[2], m.gu, m.x->data, m.x->ld, true, 2 * m.F, m.D);
    return AF_OK;
}

const af_cuda_op af_cuda_moe_route = {route_prepare, NULL, true};
const af_cuda_op af_cuda_moe_route_bwd = {route_bwd_prepare, NULL, true};
const af_cuda_op af_cuda_moe_ffn = {ffn_prepare, ffn_work, true};
const af_cuda_op af_cuda_moe_ffn_bwd = {ffn_bwd_prepare, ffn_work, true};
