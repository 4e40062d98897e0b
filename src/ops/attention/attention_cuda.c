/* attention_cuda.c - launchers of attention.c. bf16 with aligned heads goes to the tensor cores:
 * attention_sm90*.cu on Hopper for the heads of hopper(), else attention.cu; other types, odd
 * sizes, and what does not fit the device's shared memory to attention_plain.cu. How rows are cut
 * into tiles is bounded here and found on the device. */
#include "backend/cuda/driver.h"
#include "backend/cuda/kernels.h"
#include "ops/attention/attention_choice.h"
#include "ops/attention/attention_cost.h"
#include "ops/attention/attention_in.h"
#include "ops/common/cuda_ops.h"

enum {
    WARPS = 4,
    SM90_ROWS = 64, /* of a warpgroup of attention_sm90.cuh */
    SM90_THREADS = 128,
    SM90_STREAMED = 64,  /* rows of a streamed tile; twice as many in the narrow forward */
    SM90_HANDED = 64,    /* bytes of barriers of attention_sm90_wide_dkv.cu */
    SM90_BARRIERS = 256, /* bytes, with what lies around them */
    ROW_TILES = 2,       /* AF_MT of the forward */
    PLAIN_ROWS = 32,     /* rows a block of attention_plain.cu owns */
    PLAIN_THREADS = 256,
    DELTA_THREADS = 256,
};

typedef struct attention_plan {
    const af_tensor *qkv, *bounds;
    int H, K, E;
    bool mma, sm90, softcap;
    int ep, warps, mt, bn; /* padded head; warps; 16-row tiles a warp; streamed rows */
    int rows, kv_rows;     /* a block owns; kv_rows: in attention_dkv */
    int threads;
    unsigned shared, kv_shared;
    int splits; /* blocks that share the query heads of one kv head (dk, dv) */
} attention_plan;

static unsigned mma_shared(int owned, int streamed, int ep)
{
    return (unsigned)((owned + streamed) * (ep + 8) * 2);
}

/* Tiles as they were measured, with smaller ones where those do not fit. */
static void tiles_measured(attention_plan *p, const af_cuda *cu, bool back)
{
    p->warps = WARPS;
    p->mt = back || p->ep > 128 ? 1 : ROW_TILES;
    p->bn = p->ep > 128 ? 32 : 64;
    p->rows = WARPS * 16 * p->mt;
    if (!back) {
        p->shared = mma_shared(p->rows, 2 * p->bn, p->ep);
        return;
    }
    p->shared = mma_shared(2 * p->rows, 4 * p->bn, p->ep) + (unsigned)p->bn * 16;
    if (p->shared > (unsigned)cu->smem_max && p->ep == 128) {
        p->bn = 32;
        p->shared = mma_shared(2 * p->rows, 4 * p->bn, p->ep) + (unsigned)p->bn * 16;
    }
}

enum { DEFINES_MAX = 112 };
static void mma_defines(char out[DEFINES_MAX], const attention_plan *p, bool back)
{
    snprintf(out, DEFINES_MAX,
             "AF_BWD=%d AF_EP=%d AF_WARPS=%d AF_MT=%d AF_BN=%d AF_SOFTCAP=%d AF_VEC=8", back, p->ep,
             p->warps, p->mt, p->bn, p->softcap);
}

/* Tiles, and blocks that share a kv head, as the cost model chooses them. */
static void tiles_modelled(attention_plan *p, const af_cuda *cu, const af_node *n, bool back)
{
    const af_gpu_rates g = af_gpu_rates_read(cu);
    const af_attention_shape s = {.rows = af_rows(p->qkv),
                                  .sequences = p->bounds->dim[0] - 1,
                                  .heads = p->H,
                                  .kv_heads = p->K,
                                  .ep = p->ep,
                                  .window = n->attr.attention.window,
                                  .causal = n->attr.attention.causal,
                                  .capped = p->softcap,
                                  .back = back};
    const af_attention_way w = af_attention_choose(&g, &s);
    tiles_measured(p, cu,
                   back); /* for builds that do not ship the others and cannot compile them */
    if (w.tile < 0)
        return;
    const attention_plan measured = *p;
    char defines[DEFINES_MAX];
    const af_attention_tile *t = &af_attention_tile_list[w.tile];
    p->warps = t->warps;
    p->mt = t->mt;
    p->bn = t->bn;
    p->rows = af_attention_tile_rows(t);
    p->shared = (unsigned)af_attention_tile_shared(t);
    p->splits = w.splits;
    mma_defines(defines, p, back);
    if (!af_kernels_can(cu->kernels, "attention.cu", defines))
        *p = measured;
}

/* The tensor core kernels take this node. */
static bool plan_mma(attention_plan *p, const af_cuda *cu, const af_node *n, bool back)
{
    static const int heads[] = {32, 64, 80, 96, 128, 256}, capped[] = {64, 128, 256};
    if (p->qkv->dtype != AF_DTYPE_BF16 || p->E % 8 || p->E > 256)
        return false;
    for (size_t i = 0; i < AF_LEN(heads) && p->ep < p->E && !p->softcap; i++)
        p->ep = heads[i];
    for (size_t i = 0; i < AF_LEN(capped) && p->ep < p->E && p->softcap; i++)
        p->ep = capped[i];
    if (af_gpu_modelled(cu))
        tiles_modelled(p, cu, n, back);
    else
        tiles_measured(p, cu, back);
    p->threads = p->warps * 32;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->dtype == AF_DTYPE_BF16 && !af_cuda_rows_fit(n->in[i], 8))
            return false;
    return af_cuda_rows_fit(n->out[0], 8) && p->shared <= (unsigned)cu->smem_max;
}

/* Heads that Hopper's warpgroup MMA and copy engine take, if rows are aligned. */
static bool hopper(const attention_plan *p, const af_cuda *cu)
{
    const int E = p->E;
    return cu->arch == 90 && cu->drv->tensor_map &&
           (E == 128 || E == 256 || (!p->softcap && (E == 64 || E == 80 || E == 96 || E == 192)));
}

/* Heads with kernels of their own for the gradients: attention_sm90_wide_dq.cu and _dkv.cu. */
static bool wide(int head) { return head > 128; }
/* Warpgroups of a block that compute: GROUPS of attention_sm90.cuh. */
static int sm90_groups(int head) { return head == 64 ? 3 : 2; }
/* Rows a block owns in attention_dkv: OWN of attention_sm90.cuh. */
static int sm90_kv_rows(int head) { return wide(head) ? SM90_ROWS : sm90_groups(head) * SM90_ROWS; }

/* Bytes for `rows` rows of tiles, and what a kernel keeps besides. */
static unsigned sm90_shared(int head, int rows, int extra)
{
    return (unsigned)(1024 + rows * ((head + 63) / 64 * 128) + extra + SM90_BARRIERS);
}

/* They take this node, which the tensor cores do. */
static bool plan_sm90(attention_plan *p, const af_cuda *cu, bool back)
{
    if (!hopper(p, cu))
        return false;
    const int E = p->E, groups = sm90_groups(E), rows = groups * SM90_ROWS, bn = SM90_STREAMED;
    attention_plan to = *p;
    to.ep = E;
    to.rows = rows;
    to.kv_rows = sm90_kv_rows(E);
    to.threads = (groups + 1) * SM90_THREADS;
    /* rows of all tiles: owned ones, those where results are staged, stages of both streams */
    if (!back)
        to.shared = sm90_shared(E, wide(E) ? rows + 4 * bn : 2 * rows + 10 * bn, 0);
    else if (wide(E))
        to.shared = sm90_shared(E, 2 * rows + (E > 192 ? 3 : 5) * bn, 0);
    else
        to.shared = sm90_shared(E, 3 * rows + 7 * bn, groups * 4 * bn * 4);
    to.kv_shared = to.shared;
    if (back && wide(E))
        to.kv_shared = sm90_shared(E, 2 * to.kv_rows + (E > 192 ? 4 : 6) * bn,
                                   (to.kv_rows + 4) * bn * 4 + SM90_HANDED);
    if ((int)AF_MAX(to.shared, to.kv_shared) > cu->smem_max)
        return false;
    *p = to;
    return true;
}

static bool plan_plain(attention_plan *p)
{
    static const int heads[] = {32, 64, 96, 128, 192, 256};
    if (p->E > 256)
        return false;
    p->ep = 0;
    for (size_t i = 0; i < AF_LEN(heads) && p->ep < p->E; i++)
        p->ep = heads[i];
    p->rows = PLAIN_ROWS;
    p->threads = PLAIN_THREADS;
    p->shared = (unsigned)((2 * 32 * (p->ep + 1) + 16 * p->ep) * 4);
    return true;
}

/* Few kv heads and few rows leave the device idle: then blocks share the query heads of one kv head
 * and the parts are added up in order. On Hopper pieces are dealt out by what they cost: two for
 * each multiprocessor, or nearly so, are enough; the cost model has chosen where nothing was
 * measured. */
static int splits_of(const attention_plan *p, const af_cuda *cu)
{
    const int heads = p->H / p->K;
    const bool on_hopper = hopper(p, cu);
    const int64_t blocks = af_rows(p->qkv) / (on_hopper ? sm90_kv_rows(p->E) : p->rows) * p->K;
    int splits = 1;
    if (!p->mma)
        return 1;
    if (!on_hopper && af_gpu_modelled(cu))
        return AF_MAX(p->splits, 1);
    if (!on_hopper)
        return blocks < (int64_t)cu->sms * 8 ? heads : 1;
    while (splits < heads && (heads % splits || blocks * splits * 8 < (int64_t)cu->sms * 15))
        splits++;
    return splits;
}

AF_CHECKED static af_status plan_of(attention_plan *p, const af_cuda *cu, const af_node *n,
                                    af_error *err)
{
    const bool back = n->op == AF_OP_ATTENTION_BWD;
    *p = (attention_plan){.qkv = af_attention_in(n).qkv, .bounds = af_attention_in(n).bounds};
    p->H = n->attr.attention.heads;
    p->K = n->attr.attention.kv_heads;
    p->E = n->attr.attention.head_dim;
    p->softcap = n->attr.attention.softcap > 0;
    if (!af_cuda_float(p->qkv))
        return af_cuda_no_type(n, p->qkv, err);
    p->mma = plan_mma(p, cu, n, back);
    p->sm90 = p->mma && plan_sm90(p, cu, back);
    if (!p->mma && !plan_plain(p))
        return af_fail(err, AF_EUNSUPPORTED, "attention on CUDA: a head of %d is larger than %d",
                       p->E, 256);
    if (!p->sm90) {
        p->kv_rows = p->rows;
        p->kv_shared = p->shared;
    }
    p->splits = splits_of(p, cu);
    return AF_OK;
}

static af_kernel *kernel(af_cuda *cu, const char *name, const attention_plan *p, bool back,
                         bool dkv)
{
    if (!p->mma)
        return af_cuda_kernel(
            cu, "attention_plain.cu", name,
            af_cuda_text(cu, "AF_T=%s AF_EP=%d", af_cuda_ctype(p->qkv->dtype), p->ep));
    const char *sm90 = af_cuda_text(cu, "AF_EP=%d AF_SOFTCAP=%d", p->ep, p->softcap);
    if (p->sm90 && back && wide(p->ep))
        return af_cuda_kernel(cu, dkv ? "attention_sm90_wide_dkv.cu" : "attention_sm90_wide_dq.cu",
                              name, sm90);
    if (p->sm90)
        return af_cuda_kernel(cu, back ? "attention_sm90.cu" : "attention_sm90_fwd.cu", name, sm90);
    char defines[DEFINES_MAX];
    mma_defines(defines, p, back);
    return af_cuda_kernel(cu, "attention.cu", name, defines);
}

static int64_t tiles(const attention_plan *p, int rows)
{
    return af_rows(p->qkv) / rows + p->bounds->dim[0]; /* N / rows + S + 1 */
}

/* `heads` pieces of work a tile. On Hopper blocks stay and take piece after piece. */
static af_launch *launch_tiles(af_cuda *cu, af_node *n, const attention_plan *p, bool dkv,
                               int64_t heads)
{
    const bool back = n->op == AF_OP_ATTENTION_BWD;
    const char *name = dkv ? "attention_dkv" : back ? "attention_dq" : "attention_fwd";
    const int64_t each = tiles(p, dkv ? p->kv_rows : p->rows);
    return af_cuda_launch(cu, n, kernel(cu, name, p, back, dkv),
                          p->sm90 ? AF_MIN((int64_t)cu->sms, heads * each) : heads,
                          p->sm90 ? 1 : each, 1, p->threads, dkv ? p->kv_shared : p->shared);
}

static void arg_matrix(af_cuda *cu, af_launch *l, const attention_plan *p, const af_tensor *t)
{
    if (p->sm90)
        af_arg_map(cu, l, af_mat_of(t));
    else
        af_arg_ptr(l, t->data);
}

static void arg_shape(af_launch *l, const attention_plan *p)
{
    af_arg_ptr(l, p->bounds->data);
    af_arg_i32(l, p->bounds->dim[0] - 1);
    af_arg_i32(l, af_rows(p->qkv));
    af_arg_i32(l, p->H);
    af_arg_i32(l, p->K);
    if (!p->sm90)
        af_arg_i32(l, p->E);
}

/* Row strides of what is written, of qkv and of the gradient where there is one. */
static void arg_strides(af_launch *l, const attention_plan *p, int64_t to, const af_tensor *dy)
{
    af_arg_i64(l, to);
    if (!p->sm90)
        af_arg_i64(l, p->qkv->ld);
    if (!p->sm90 && dy)
        af_arg_i64(l, dy->ld);
}

static void arg_numbers(af_launch *l, const af_node *n)
{
    af_arg_f32(l, n->attr.attention.scale);
    af_arg_f32(l, n->attr.attention.softcap);
    af_arg_i32(l, n->attr.attention.window);
    af_arg_i32(l, n->attr.attention.causal);
}

static uint64_t attention_work(const af_cuda *cu, const af_node *n)
{
    attention_plan p;
    return plan_of(&p, cu, n, NULL) == AF_OK ? af_attention_dnn_work(cu, n, p.sm90) : 0;
}

static af_status attention_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    attention_plan p;
    const af_status st = plan_of(&p, cu, n, err);
    if (st != AF_OK || af_rows(p.qkv) == 0)
        return st;
    af_dnn_use *dnn = af_attention_offer(cu, n, p.sm90);
    af_launch *l = launch_tiles(cu, n, &p, false, p.H);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, n->out[1]->data);
    arg_matrix(cu, l, &p, p.qkv);
    arg_shape(l, &p);
    arg_strides(l, &p, n->out[0]->ld, NULL);
    arg_numbers(l, n);
    af_attention_over(cu, n, dnn, l);
    return AF_OK;
}

static uint64_t delta_bytes(const attention_plan *p)
{
    return AF_ALIGN_UP((uint64_t)(af_rows(p->qkv) * p->H) * sizeof(float), (uint64_t)256);
}

static int64_t part_elems(const attention_plan *p) { return af_rows(p->qkv) * 2 * p->K * p->E; }

/* Pointers are not known yet: workspace for the parts whichever kernels it will be. */
static uint64_t attention_bwd_work(const af_cuda *cu, const af_node *n)
{
    attention_plan p;
    if (plan_of(&p, cu, n, NULL) != AF_OK)
        return 0;
    p.mma = p.qkv->dtype == AF_DTYPE_BF16;
    p.rows = sm90_groups(p.E) * SM90_ROWS; /* the fewest blocks: the most splits */
    p.splits = splits_of(&p, cu);
    const uint64_t size = (uint64_t)af_dtype_get(p.qkv->dtype)->bytes;
    return delta_bytes(&p) + (p.splits > 1 ? (uint64_t)(p.splits * part_elems(&p)) * size : 0);
}

static int delta_vec(const attention_plan *p, const af_node *n)
{
    const int wide = af_cuda_wide(p->qkv);
    bool fits = p->E % wide == 0 && af_cuda_rows_fit(n->out[0], wide);
    for (int i = 0; i < n->n_in; i++)
        fits = fits && (n->in[i]->dtype != p->qkv->dtype || af_cuda_rows_fit(n->in[i], wide));
    return fits ? wide : 1;
}

static af_kernel *delta_kernel(af_cuda *cu, const char *name, const attention_plan *p, int vec)
{
    return af_cuda_kernel(cu, "attention_delta.cu", name,
                          af_cuda_text(cu, "AF_T=%s AF_VEC=%d", af_cuda_ctype(p->qkv->dtype), vec));
}

static void launch_delta(af_cuda *cu, af_node *n, const attention_plan *p)
{
    const af_tensor *o = af_attention_in(n).o, *dy = af_attention_in(n).dy;
    const int64_t heads = af_rows(p->qkv) * p->H;
    const int vec = delta_vec(p, n), lanes = af_cuda_lanes(p->E, vec);
    af_launch *l =
        af_cuda_launch(cu, n, delta_kernel(cu, "attention_delta", p, vec),
                       (heads * lanes + DELTA_THREADS - 1) / DELTA_THREADS, 1, 1, DELTA_THREADS, 0);
    af_arg_ptr(l, cu->work);
    af_arg_ptr(l, o->data);
    af_arg_ptr(l, dy->data);
    af_arg_i64(l, heads);
    af_arg_i32(l, p->H);
    af_arg_i32(l, p->E);
    af_arg_i64(l, o->ld);
    af_arg_i64(l, dy->ld);
    af_arg_i32(l, lanes);
}

/* dq, or one part of dk|dv, into `to` with row stride ld. */
static void launch_grad(af_cuda *cu, af_node *n, const attention_plan *p, bool dkv, void *to,
                        int64_t ld)
{
    const af_attention_inputs in = af_attention_in(n);
    af_launch *l = launch_tiles(cu, n, p, dkv, dkv ? p->K * p->splits : p->H);
    af_arg_ptr(l, to);
    arg_matrix(cu, l, p, p->qkv);
    arg_matrix(cu, l, p, in.dy);
    af_arg_ptr(l, in.lse->data);
    af_arg_ptr(l, cu->work);
    if (p->sm90 && !dkv)
        af_arg_mat(l, af_mat_of(in.o));
    arg_shape(l, p);
    arg_strides(l, p, ld, in.dy);
    arg_numbers(l, n);
    if (dkv) {
        af_arg_i32(l, p->splits);
        af_arg_i64(l, part_elems(p));
    }
}

static af_status attention_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    attention_plan p;
    const af_status st = plan_of(&p, cu, n, err);
    if (st != AF_OK || af_rows(p.qkv) == 0)
        return st;
    const af_tensor *dx = n->out[0];
    const int64_t width = (int64_t)2 * p.K * p.E, size = af_dtype_get(dx->dtype)->bytes;
    uint8_t *dkv = (uint8_t *)dx->data + (int64_t)p.H * p.E * size;
    if (!p.sm90) /* else dq makes it */
        launch_delta(cu, n, &p);
    launch_grad(cu, n, &p, false, dx->data, dx->ld);
    if (p.splits == 1) {
        launch_grad(cu, n, &p, true, dkv, dx->ld);
        return AF_OK;
    }
    uint8_t *part = (uint8_t *)cu->work + delta_bytes(&p);
    launch_grad(cu, n, &p, true, part, width);
    const int64_t accesses = part_elems(&p) / 8;
    af_launch *l = af_cuda_launch(cu, n, delta_kernel(cu, "attention_join", &p, delta_vec(&p, n)),
                                  af_cuda_grid(cu, accesses, 256), 1, 1, 256, 0);
    af_arg_ptr(l, dkv);
    af_arg_ptr(l, part);
    af_arg_i64(l, af_rows(p.qkv));
    af_arg_i32(l, width);
    af_arg_i64(l, dx->ld);
    af_arg_i32(l, p.splits);
    return AF_OK;
}

const af_cuda_op af_cuda_attention = {attention_prepare, attention_work, true};
const af_cuda_op af_cuda_attention_bwd = {attention_bwd_prepare, attention_bwd_work, true};
