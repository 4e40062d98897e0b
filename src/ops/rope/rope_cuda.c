/* rope_cuda.c - launchers of rope.c: one block does four rows, or one of a few. */
#include "ops/common/cuda_ops.h"
#include "ops/rope/rope_in.h"

enum { ROWS = 4 /* AF_ROWS of rope.cu */, THREADS = 256, DNORM_PARTS = 128 };

typedef struct rope_launch {
    af_rope_inputs in;
    int rot, vec; /* rotary dimensions, 0 = none; values per load */
} rope_launch;

AF_CHECKED static af_status open(rope_launch *r, const af_node *n, af_error *err)
{
    *r = (rope_launch){.in = af_rope_in(n)};
    r->rot = n->attr.rope.rotate ? n->attr.rope.rotary_dim : 0;
    if (!af_cuda_float(r->in.qkv))
        return af_cuda_no_type(n, r->in.qkv, err);
    if (r->in.inv_freq && r->in.inv_freq->dtype != AF_DTYPE_F32)
        return af_fail(err, AF_EUNSUPPORTED, "rope on CUDA needs inv_freq in %s, not %s", "f32",
                       af_dtype_name(r->in.inv_freq->dtype));
    if (r->in.q_norm &&
        (r->in.q_norm->dtype != r->in.k_norm->dtype || !af_cuda_float(r->in.q_norm)))
        return af_fail(err, AF_EUNSUPPORTED, "rope on CUDA cannot mix norm weights in %s and %s",
                       af_dtype_name(r->in.q_norm->dtype), af_dtype_name(r->in.k_norm->dtype));
    const int wide = af_cuda_wide(r->in.qkv);
    const bool pairs = n->attr.rope.pairs, norms = r->in.q_norm != NULL;
    bool fits = r->in.E % wide == 0 && !(norms && (pairs || r->rot / 2 % wide)) &&
                !(pairs && r->rot % wide) && af_cuda_rows_fit(r->in.qkv, wide) &&
                af_cuda_rows_fit(r->in.dy, wide) && af_cuda_rows_fit(r->in.q_norm, wide) &&
                af_cuda_rows_fit(r->in.k_norm, wide);
    if (n->op != AF_OP_ROPE_DNORM)
        fits = fits && af_cuda_rows_fit(n->out[0], wide);
    r->vec = fits ? wide : 1;
    if (n->op == AF_OP_ROPE_DNORM && n->attr.rope.query_beta != 0)
        return af_fail(err, AF_EUNSUPPORTED, "rope on CUDA has no gradient of norms with %s",
                       "queries scaled by position");
    return AF_OK;
}

static af_kernel *kernel(af_cuda *cu, const char *name, const rope_launch *r, const af_node *n)
{
    const af_dtype t = r->in.qkv->dtype, w = r->in.q_norm ? r->in.q_norm->dtype : t;
    return af_cuda_kernel(cu, "rope.cu", name,
                          af_cuda_text(cu, "AF_T=%s AF_W=%s AF_VEC=%d AF_NORM=%d%s",
                                       af_cuda_ctype(t), af_cuda_ctype(w), r->vec,
                                       r->in.q_norm != NULL,
                                       n->attr.rope.pairs ? " AF_PAIRS=1" : ""));
}

static unsigned shared_bytes(const rope_launch *r)
{
    return (unsigned)(ROWS * (r->rot + 2 * (r->in.H + r->in.K))) * (unsigned)sizeof(float);
}

static void arg_tensor(af_launch *l, const af_tensor *t) { af_arg_ptr(l, t ? t->data : NULL); }

static void arg_inputs(af_launch *l, const rope_launch *r)
{
    arg_tensor(l, r->in.qkv);
    arg_tensor(l, r->in.positions);
    arg_tensor(l, r->in.inv_freq);
    arg_tensor(l, r->in.q_norm);
    arg_tensor(l, r->in.k_norm);
    af_arg_i64(l, af_rows(r->in.qkv));
    af_arg_i32(l, r->in.H);
    af_arg_i32(l, r->in.K);
    af_arg_i32(l, r->in.E);
    af_arg_i32(l, r->rot);
}

static void arg_numbers(af_launch *l, const af_node *n)
{
    af_arg_f32(l, n->attr.rope.scale);
    af_arg_f32(l, n->attr.rope.eps);
    af_arg_f32(l, n->attr.rope.plus_one);
    af_arg_i32(l, n->attr.rope.norm_whole);
}

/* Both ways: the gradient before the rotation is as many times that after it. */
static void scale_queries(af_cuda *cu, af_node *n, const rope_launch *r)
{
    const int64_t width = r->in.H * r->in.E;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "rope_query", r, n), af_rows(r->in.qkv),
                                  (width + THREADS - 1) / THREADS, 1, THREADS, 0);
    arg_tensor(l, n->out[0]);
    arg_tensor(l, r->in.positions);
    af_arg_i32(l, width);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_f32(l, n->attr.rope.query_beta);
    af_arg_i32(l, AF_MIN(n->attr.rope.query_length, INT32_MAX));
    af_arg_i32(l, n->attr.rope.query_from);
}

static af_status rope_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    rope_launch r;
    const bool back = n->op == AF_OP_ROPE_BWD;
    const af_status st = open(&r, n, err);
    const int64_t rows = st == AF_OK ? af_rows(r.in.qkv) : 0;
    if (rows == 0)
        return st;
    const int64_t blocks = !back && rows <= cu->sms ? rows : (rows + ROWS - 1) / ROWS;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, back ? "rope_bwd" : "rope_fwd", &r, n), blocks,
                                  1, 1, THREADS, shared_bytes(&r));
    arg_tensor(l, n->out[0]);
    if (back)
        arg_tensor(l, r.in.dy);
    arg_inputs(l, &r);
    af_arg_i64(l, n->out[0]->ld);
    if (back)
        af_arg_i64(l, r.in.dy->ld);
    af_arg_i64(l, r.in.qkv->ld);
    arg_numbers(l, n);
    if (n->attr.rope.query_beta != 0)
        scale_queries(cu, n, &r);
    return AF_OK;
}

static int64_t dnorm_parts(const af_node *n)
{
    return AF_MAX(AF_MIN(af_rows(af_rope_in(n).qkv) / (2 * ROWS), (int64_t)DNORM_PARTS),
                  INT64_C(1));
}

static uint64_t rope_dnorm_work(const af_cuda *cu, const af_node *n)
{
    (void)cu;
    return (uint64_t)(dnorm_parts(n) * (af_count(n->out[0]) + af_count(n->out[1]))) * sizeof(float);
}

static af_status rope_dnorm_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    rope_launch r;
    const af_status st = open(&r, n, err);
    if (st != AF_OK)
        return st;
    const int64_t parts = dnorm_parts(n), rows = af_rows(r.in.qkv), q = af_count(n->out[0]),
                  width = q + af_count(n->out[1]);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "rope_dnorm", &r, n), parts, 1, 1, THREADS,
                                  shared_bytes(&r) + (unsigned)width * (unsigned)sizeof(float));
    af_arg_ptr(l, cu->work);
    arg_tensor(l, r.in.dy);
    arg_inputs(l, &r);
    af_arg_i64(l, r.in.dy->ld);
    af_arg_i64(l, r.in.qkv->ld);
    arg_numbers(l, n);
    af_arg_i64(l, (rows + parts - 1) / parts);
    af_cuda_reduce_parts(cu, n, n->out[0], cu->work, width, parts, 1, false);
    af_cuda_reduce_parts(cu, n, n->out[1], (const float *)cu->work + q, width, parts, 1, false);
    return AF_OK;
}

const af_cuda_op af_cuda_rope = {rope_prepare, NULL, true};
const af_cuda_op af_cuda_rope_bwd = {rope_prepare, NULL, true};
const af_cuda_op af_cuda_rope_dnorm = {rope_dnorm_prepare, rope_dnorm_work, true};
