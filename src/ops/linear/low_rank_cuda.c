/* low_rank_cuda.c - the low-rank GEMMs of adapters where own kernels serve: low_rank.cu along a
 * row, low_rank_dw.cu over tokens. Elsewhere linear_cuda.c asks for a GEMM. */
#include "backend/cuda/cuda_test.h"
#include "ops/common/cuda_ops.h"
#include "ops/linear/linear_cuda.h"

enum {
    ROWS_MAX = 64, /* above, a GEMM is faster (measured) */
    BLOCK_ROWS = 16,
    SHARED_COLS = 2048, /* from here on the blocks of a cluster have work */
    SHARED = 8,
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

enum {
    DW_COLS = 128, /* of a block; as in low_rank_dw.cu */
    DW_TOKENS = 64,
    DW_STAGES = 3,
    DW_RANKS_MAX = 64,
    DW_COLS_MAX = 8192, /* of all parts; wider ones are a GEMM's (measured) */
};

typedef struct outer_part { /* as in low_rank_dw.cu */
    void *out;
    int32_t from, cols, rank_from, ranks, first, unused;
} outer_part;

static bool aligned(af_mat x)
{
    return x.dtype == AF_DTYPE_BF16 && x.ld % 8 == 0 && (uintptr_t)x.data % AF_CUDA_ACCESS == 0;
}

/* One launch for all parts, where a GEMM each would be small. part[].out, from, cols, rank_from and
 * ranks are set. */
static bool outer(af_cuda *cu, af_node *n, outer_part part[AF_ADAPTER_PARTS], int parts)
{
    const af_mat y = af_mat_of(n->in[0]), z = af_mat_of(n->in[1]);
    int64_t blocks = 0;
    int ranks = 0, shared = 1;
    if (parts < 2 || af_last(n->in[0]) > DW_COLS_MAX || cu->arch < 90 ||
        (cu->test && (cu->test->no_low_rank || cu->test->no_cublas)) ||
        n->out[0]->dtype != AF_DTYPE_F32 || !aligned(y) || !aligned(z) || y.rows == 0)
        return false;
    for (int i = 0; i < AF_ADAPTER_PARTS; i++) {
        outer_part *q = &part[i];
        q->first = i < parts ? (int32_t)blocks : INT32_MAX;
        if (i >= parts)
            continue;
        if (q->from % 8 || q->cols % 8 || q->rank_from % 8 || q->ranks % 8 ||
            q->ranks > DW_RANKS_MAX)
            return false;
        ranks = AF_MAX(ranks, q->ranks);
        blocks += (q->cols + DW_COLS - 1) / DW_COLS;
    }
    while (shared < 8 && blocks * shared < (int64_t)cu->sms * 2 &&
           y.rows >= (int64_t)DW_TOKENS * 4 * shared)
        shared *= 2;
    const int tiles = AF_MAX((ranks + 15) / 16 * 2, 2);
    const unsigned bytes = DW_STAGES * DW_TOKENS * (DW_COLS + 8 + (unsigned)tiles * 8 + 8) * 2;
    af_kernel *k = af_cuda_kernel(cu, "low_rank_dw.cu", "low_rank_dw",
                                  af_cuda_text(cu, "AF_NT=%d AF_KS=%d", tiles, shared));
    if (blocks == 0)
        return true;
    af_launch *l = af_cuda_launch(cu, n, k, blocks * shared, 1, 1, 256, bytes);
    af_arg_mat(l, y);
    af_arg_mat(l, z);
    af_arg_bytes(l, part, AF_ADAPTER_PARTS * sizeof *part);
    af_arg_i64(l, y.rows);
    af_arg_i32(l, n->accumulate);
    return true;
}

bool af_low_rank_db(af_cuda *cu, af_node *n)
{
    outer_part part[AF_ADAPTER_PARTS] = {{0}};
    uint8_t *at = n->out[0]->data;
    for (int i = 0; i < n->attr.linear.parts; i++) {
        const af_adapter_part *q = &n->attr.linear.part[i];
        part[i] = (outer_part){.out = at,
                               .from = (int32_t)q->out_from,
                               .cols = (int32_t)q->out_rows,
                               .rank_from = (int32_t)q->rank_from,
                               .ranks = (int32_t)q->rank};
        at += (uint64_t)(q->out_rows * q->rank) * sizeof(float);
    }
    return outer(cu, n, part, n->attr.linear.parts);
}
