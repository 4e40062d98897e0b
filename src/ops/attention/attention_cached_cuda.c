/* attention_cached_cuda.c - launcher of attention_cached (attention.c). */
#include "backend/cuda/cuda_graph.h"
#include "ops/attention/attention_in.h"
#include "ops/common/cuda_ops.h"
#include "ops/rope/rope_in.h"

enum {
    APPEND_THREADS = 128,
    THREADS = 256,
    GROUPED_KEYS = 64, /* of a warp that are not worth another block of the cluster */
    GROUP_MAX = 16,    /* query heads of a key-value head in attention_grouped.cu */
    HEAD_MAX = 256,
    ROWS_MAX = 65535,
    CLUSTER = 8
};

/* bounds, start and the shape: the same in all kernels. */
static void arg_shape(af_launch *l, const af_node *n)
{
    const af_attention_inputs in = af_attention_in(n);
    af_arg_ptr(l, in.bounds->data);
    af_arg_ptr(l, in.start->data);
    af_arg_ptr(l, in.pages ? in.pages->data : NULL);
    af_arg_i32(l, in.S);
    af_arg_i32(l, in.pages ? in.pages->dim[1] : 1);
    af_arg_i64(l, in.cache->dim[1]);
    af_arg_i32(l, in.H);
    af_arg_i32(l, in.K);
}

AF_CHECKED static af_status check(const af_node *n, af_error *err)
{
    const af_tensor *qkv = af_attention_in(n).qkv, *cache = af_attention_in(n).cache;
    if (!af_cuda_float(qkv))
        return af_cuda_no_type(n, qkv, err);
    if (cache->dtype != qkv->dtype)
        return af_fail(err, AF_EUNSUPPORTED, "attention_cached on CUDA: the cache is %s, qkv is %s",
                       af_dtype_name(cache->dtype), af_dtype_name(qkv->dtype));
    if (n->attr.attention.head_dim > HEAD_MAX)
        return af_fail(err, AF_EUNSUPPORTED, "attention on CUDA: a head of %d is larger than %d",
                       n->attr.attention.head_dim, HEAD_MAX);
    if (af_rows(qkv) > ROWS_MAX)
        return af_fail(err, AF_EUNSUPPORTED,
                       "attention_cached on CUDA: %" PRId64 " rows at once, at most %d",
                       af_rows(qkv), ROWS_MAX);
    return AF_OK;
}

static void arg_out(af_launch *l, const af_node *n)
{
    const af_attention_inputs in = af_attention_in(n);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, n->n_out > 1 ? n->out[1]->data : NULL);
    af_arg_ptr(l, in.qkv->data);
    af_arg_ptr(l, in.cache->data);
}

static void arg_scores(af_launch *l, const af_node *n)
{
    af_arg_i64(l, n->out[0]->ld);
    af_arg_i64(l, af_attention_in(n).qkv->ld);
    af_arg_f32(l, n->attr.attention.scale);
    af_arg_f32(l, n->attr.attention.softcap);
    af_arg_i32(l, n->attr.attention.chunk ? n->attr.attention.chunk : n->attr.attention.window);
}

static int values_per_load(const af_node *n)
{
    const af_attention_inputs in = af_attention_in(n);
    const int wide = af_cuda_wide(in.qkv);
    return in.E % wide == 0 && af_cuda_rows_fit(in.qkv, wide) && af_cuda_rows_fit(in.cache, wide)
               ? wide
               : 1;
}

/* All query heads of a key-value head in one block, on tensor cores. */
static bool can_group(const af_cuda *cu, const af_node *n)
{
    const af_attention_inputs in = af_attention_in(n);
    const int vec = values_per_load(n);
    return cu->arch >= 80 && in.qkv->dtype == AF_DTYPE_BF16 && vec > 1 &&
           (in.E == 64 || in.E == 128) && in.H / in.K <= GROUP_MAX && !n->attr.attention.chunk;
}

/* The rope node whose work the launch of n does, too, or NULL: rows are single tokens of a decoder,
 * so that a row's own key is the only one that was not in the cache before. */
static af_node *rotates(const af_cuda *cu, const af_graph *g, const af_node *n)
{
    const af_tensor *qkv = n->in[0];
    af_node *rope = qkv->producer;
    if (cu->cg->level == 0 || !g->picks || !rope || rope->op != AF_OP_ROPE ||
        rope->at + 1 != n->at || qkv->last != n->at || qkv->data != rope->in[0]->data ||
        qkv->ld != rope->in[0]->ld)
        return NULL;
    const af_rope_inputs r = af_rope_in(rope);
    const af_attention_inputs in = af_attention_in(n);
    const bool whole = rope->attr.rope.rotate && rope->attr.rope.rotary_dim == in.E;
    return whole && !rope->attr.rope.pairs && rope->attr.rope.query_beta == 0 && !r.q_norm &&
                   r.inv_freq->dtype == AF_DTYPE_F32 && r.H == in.H && r.K == in.K && r.E == in.E
               ? rope
               : NULL;
}

static void launch_grouped(af_cuda *cu, const af_graph *g, af_node *n)
{
    af_node *rope = rotates(cu, g, n);
    const af_rope_inputs rope_in = rope ? af_rope_in(rope) : (af_rope_inputs){0};
    const af_attention_inputs in = af_attention_in(n);
    const int64_t blocks = in.K * af_rows(in.qkv);
    const int64_t keys = (in.pages ? in.pages->dim[1] : 1) * in.cache->dim[1];
    const int group = in.H / in.K > GROUP_MAX / 2 ? GROUP_MAX : GROUP_MAX / 2;
    /* a cluster takes longer to begin than a large block, which is alone on its multiprocessor */
    const int warps = blocks <= cu->sms && group < GROUP_MAX ? 8 : 4;
    int shared = 1;
    while (cu->arch >= 90 && shared < CLUSTER && 2 * shared * blocks <= (int64_t)cu->sms * 2 &&
           shared * warps * GROUPED_KEYS < keys)
        shared *= 2;
    const char *defines = af_cuda_text(cu, "AF_E=%d AF_G=%d AF_WARPS=%d AF_KS=%d AF_ROPE=%d",
                                       (int)in.E, group, warps, shared, rope != NULL);
    af_launch *l = af_cuda_launch(
        cu, n, af_cuda_kernel(cu, "attention_grouped.cu", "attention_grouped", defines),
        in.K * shared, af_rows(in.qkv), 1, warps * 32, 0);
    if (rope)
        af_cuda_drop_steps(cu, rope);
    af_cuda_reads_early(l, in.bounds);
    af_cuda_reads_early(l, in.start);
    af_cuda_reads_early(l, in.pages);
    af_cuda_reads_early(l, rope_in.positions);
    af_cuda_reads_early(l, rope_in.inv_freq);
    arg_out(l, n);
    arg_shape(l, n);
    arg_scores(l, n);
    af_arg_ptr(l, rope ? rope_in.positions->data : NULL);
    af_arg_ptr(l, rope ? rope_in.inv_freq->data : NULL);
    af_arg_f32(l, rope ? rope->attr.rope.scale : 1);
}

static void launch_heads(af_cuda *cu, af_node *n, const char *defines, int shared, int vec)
{
    const af_attention_inputs in = af_attention_in(n);
    af_launch *l = af_cuda_launch(
        cu, n, af_cuda_kernel(cu, "attention_cached.cu", "attention_cached", defines),
        in.H * shared, af_rows(in.qkv), 1, THREADS, 0);
    arg_out(l, n);
    arg_shape(l, n);
    af_arg_i32(l, in.E);
    arg_scores(l, n);
    af_arg_i32(l, af_cuda_lanes((int)in.E, vec));
}

static af_status attention_cached_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_status st = check(n, err);
    const af_attention_inputs in = af_attention_in(n);
    const af_tensor *qkv = in.qkv, *cache = in.cache;
    const int64_t rows = af_rows(qkv);
    if (st != AF_OK || rows == 0)
        return st;
    const int vec = values_per_load(n);
    const int64_t heads = n->attr.attention.heads;
    if (can_group(cu, n)) {
        launch_grouped(cu, g, n);
        return AF_OK;
    }
    const int shared = cu->arch >= 90 && heads * rows < (int64_t)cu->sms * 2 ? CLUSTER : 1;
    const char *defines =
        af_cuda_text(cu, "AF_T=%s AF_VEC=%d AF_KS=%d%s", af_cuda_ctype(qkv->dtype), vec, shared,
                     n->attr.attention.chunk ? " AF_CHUNK=1" : "");
    af_launch *l = af_cuda_launch(
        cu, n, af_cuda_kernel(cu, "attention_cached.cu", "attention_append", defines), rows, 1, 1,
        APPEND_THREADS, 0);
    af_arg_ptr(l, cache->data);
    af_arg_ptr(l, qkv->data);
    arg_shape(l, n);
    af_arg_i32(l, in.E);
    af_arg_i64(l, qkv->ld);
    launch_heads(cu, n, defines, shared, vec);
    return AF_OK;
}

const af_cuda_op af_cuda_attention_cached = {attention_cached_prepare, NULL, true};
