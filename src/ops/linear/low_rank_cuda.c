/* low_rank_cuda.c - the low-rank GEMMs of adapters where own kernels serve: low_rank.cu along a
 * row, low_rank_dw.cu over tokens. Elsewhere linear_cuda.c asks for a GEMM. */
#include "backend/cuda/cuda_test.h"
#include "ops/common/cuda_ops.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/take_over.h"

enum {
    ROWS_MAX = 64, /* above, a GEMM is faster (measured) */
    BLOCK_ROWS = 16,
    SHARED_COLS = 2048, /* from here on the blocks of a cluster have work */
    SHARED = 8,
    REACH = 12,  /* nodes between gradients of one projection */
    SINGLES = 1, /* parts of a gradient alone from which on the kernel serves it */
};

bool af_low_rank(af_cuda *cu, af_node *n, const af_linear_group *p, bool down, af_mat c)
{
    const af_mat x = af_mat_of(n->in[0]);
    const af_tensor *copy = down ? p->down : p->bt;
    /* as in bnb_linear_cuda.c: not where bits must not depend on how weights are stored */
    if (!copy || cu->graph->same_bits || (cu->test && cu->test->no_low_rank) || x.rows > ROWS_MAX ||
        x.ld % 8 || (uintptr_t)x.data % AF_CUDA_ACCESS)
        return false;
    const af_mat w = af_mat_of(copy);
    const int columns = (int)w.rows / 8;
    const int shared = cu->arch >= 90 && x.cols >= SHARED_COLS ? SHARED : 1;
    af_kernel *k = af_cuda_kernel(cu, "low_rank.cu", "low_rank",
                                  af_cuda_text(cu, "AF_NT=%d AF_KS=%d", columns, shared));
    af_launch *l =
        af_cuda_launch(cu, n, k, (x.rows + BLOCK_ROWS - 1) / BLOCK_ROWS * shared, 1, 1, 256, 0);
    af_arg_mat(l, c);
    af_arg_mat(l, x);
    af_arg_mat(l, w);
    af_arg_i64(l, x.rows);
    af_arg_i32(l, x.cols);
    af_arg_i32(l, c.cols);
    af_arg_f32(l, n->attr.linear.part[0].scale);
    return true;
}

/* ---- gradients ---- */

enum {                /* as in low_rank_dw.cu */
       DW_COLS = 128, /* of a block */
       DW_TOKENS = 64,
       DW_STAGES = 3,
       DW_FLIP = 1,
       DW_ADD = 2,
       DW_PARTS = AF_ADAPTER_PARTS + 1,
       DW_RANKS_MAX = 64,
       DW_COLS_MAX = 8192, /* of all parts; wider ones are a GEMM's (measured) */
};

typedef struct outer_part { /* as in low_rank_dw.cu */
    const void *y, *z;
    void *out;
    int32_t ldy, ldz, cols, ranks, first, flags;
} outer_part;

static bool outer_fits(const af_tensor *y, const af_tensor *z, const af_tensor *out)
{
    return y->dtype == AF_DTYPE_BF16 && z->dtype == AF_DTYPE_BF16 && out->dtype == AF_DTYPE_F32 &&
           y->ld % 8 == 0 && z->ld % 8 == 0 && y->base_offset % AF_CUDA_ACCESS == 0 &&
           z->base_offset % AF_CUDA_ACCESS == 0 && y->ld <= INT32_MAX && af_rows(y) > 0 &&
           af_last(y) <= DW_COLS_MAX && af_last(y) % 8 == 0;
}

/* Known before memory is: ADAPTER_DA and ADAPTER_DB that the kernel can do. */
static bool low_rank_fits(const af_cuda *cu, const af_node *n)
{
    bool fits = cu->arch >= 90 && !(cu->test && (cu->test->no_low_rank || cu->test->no_cublas)) &&
                outer_fits(n->in[0], n->in[1], n->out[0]);
    int ranks = 0;
    for (int i = 0; i < n->attr.linear.parts; i++) {
        const af_adapter_part *q = &n->attr.linear.part[i];
        fits = fits && q->out_from % 8 == 0 && q->out_rows % 8 == 0 && q->rank_from % 8 == 0 &&
               q->rank % 8 == 0 && q->out_rows > 0;
        ranks += q->rank;
    }
    return fits && ranks <= DW_RANKS_MAX && af_last(n->in[1]) <= DW_RANKS_MAX;
}

static outer_part outer_of(af_mat y, af_mat z, void *out, int flags)
{
    return (outer_part){.y = y.data,
                        .z = z.data,
                        .out = out,
                        .ldy = (int32_t)y.ld,
                        .ldz = (int32_t)z.ld,
                        .cols = (int32_t)y.cols,
                        .ranks = (int32_t)z.cols,
                        .flags = flags};
}

static outer_part da_part(const af_node *n, const af_tensor *x, const af_tensor *g,
                          const af_tensor *out)
{
    return outer_of(af_mat_of(x), af_mat_of(g), out->data, DW_FLIP | (n->accumulate ? DW_ADD : 0));
}

static void db_parts(outer_part *part, const af_node *n)
{
    uint8_t *at = n->out[0]->data;
    for (int i = 0; i < n->attr.linear.parts; i++) {
        const af_adapter_part *q = &n->attr.linear.part[i];
        part[i] =
            outer_of(af_mat_cols(n->in[0], q->out_from, q->out_rows),
                     af_mat_cols(n->in[1], q->rank_from, q->rank), at, n->accumulate ? DW_ADD : 0);
        at += (uint64_t)(q->out_rows * q->rank) * sizeof(float);
    }
}

static void launch_parts(af_cuda *cu, af_node *n, outer_part part[DW_PARTS], int parts)
{
    const int64_t rows = af_rows(n->in[0]);
    int64_t blocks = 0;
    int ranks = 0, shared = 1;
    for (int i = 0; i < DW_PARTS; i++) {
        part[i].first = i < parts ? (int32_t)blocks : INT32_MAX;
        ranks = AF_MAX(ranks, part[i].ranks);
        blocks += i < parts ? (part[i].cols + DW_COLS - 1) / DW_COLS : 0;
    }
    while (shared < 8 && blocks * shared < (int64_t)cu->sms * 2 &&
           rows >= (int64_t)DW_TOKENS * 4 * shared)
        shared *= 2;
    const int tiles = AF_MAX((ranks + 15) / 16 * 2, 2);
    const unsigned bytes = DW_STAGES * DW_TOKENS * (DW_COLS + 8 + (unsigned)tiles * 8 + 8) * 2;
    af_kernel *k = af_cuda_kernel(cu, "low_rank_dw.cu", "low_rank_dw",
                                  af_cuda_text(cu, "AF_NT=%d AF_KS=%d", tiles, shared));
    af_launch *l = af_cuda_launch(cu, n, k, blocks * shared, 1, 1, 256, bytes);
    af_arg_bytes(l, part, DW_PARTS * sizeof *part);
    af_arg_i64(l, rows);
}

bool af_low_rank_da(af_cuda *cu, af_node *n)
{
    outer_part part[DW_PARTS] = {{0}};
    if (SINGLES > 1 || !low_rank_fits(cu, n))
        return false;
    part[0] = da_part(n, n->in[0], n->in[1], n->out[0]);
    launch_parts(cu, n, part, 1);
    return true;
}

bool af_low_rank_db(af_cuda *cu, af_node *n)
{
    outer_part part[DW_PARTS] = {{0}};
    int parts = n->attr.linear.parts;
    if (n->n_out == 1 && (parts < SINGLES || !low_rank_fits(cu, n)))
        return false;
    db_parts(part, n);
    if (n->n_out > 1)
        part[parts++] = da_part(n, n->in[2], n->in[3], n->out[1]);
    launch_parts(cu, n, part, parts);
    return true;
}

/* ADAPTER_DB takes over the ADAPTER_DA of the same projection: one launch for both. */
static bool same_projection(const af_node *da, const af_node *db)
{
    const af_node *g = da->in[1]->producer;
    return g && g->op == AF_OP_ADAPTER_G && g->in[0] == db->in[0] &&
           da->accumulate == db->accumulate;
}

static af_status layout(af_cuda *cu, af_graph *g, af_error *err)
{
    int count = 0;
    af_node **taken = af_arena_take(&g->mem, (uint64_t)(g->n_nodes + 1) * sizeof(af_node *));
    if (!taken)
        return af_fail_nomem(err, "the plan", (uint64_t)g->n_nodes * sizeof *taken);
    for (int i = 0; i < g->n_nodes; i++) {
        af_node *n = g->nodes[i], *da = NULL;
        if (n->op != AF_OP_ADAPTER_DB || !low_rank_fits(cu, n))
            continue;
        for (int k = AF_MAX(i - REACH, 0); k < i && !da; k++)
            if (g->nodes[k]->op == AF_OP_ADAPTER_DA && same_projection(g->nodes[k], n))
                da = g->nodes[k];
        if (!da || !low_rank_fits(cu, da) || !af_may_take_over(g, n, da, 0))
            continue;
        af_take_over(g, n, da, 0);
        taken[count++] = da;
    }
    af_remove_taken(g, taken, count);
    return AF_OK;
}

const af_cuda_family af_cuda_low_rank_family = {.layout = layout};
