/* low_rank_both_cuda.c - g and dB of an adapter over one reading of dy (low_rank_both.cu): which
 * nodes it serves, and its launches. They are ADAPTER_G's; ADAPTER_DB, which follows, has none. */
#include "backend/cuda/cuda_test.h"
#include "ops/common/cuda_ops.h"
#include "ops/linear/linear_cuda.h"

enum {
    THREADS = 256,
    TOKENS = 128, /* of a tile; these as in low_rank_both.cu */
    COLS = 64,
    STAGES = 3,
    RANKS_MAX = 32,
    PER_CHUNK = 16,  /* chunks of a strip times ranks / 8 */
    ROWS_MIN = 1024, /* fewer are too few blocks */
    SLABS_MAX = 32,
};

typedef struct both_part { /* as in low_rank_both.cu */
    void *out;
    int32_t from, cols, rank_from, ranks, first;
    float scale;
} both_part;

typedef struct both_plan {
    both_part part[AF_ADAPTER_PARTS];
    int64_t strips, slabs, slab, total; /* total: values of dB */
    int tiles, chunks, ranks;           /* tiles: ranks / 8 of the kernel */
} both_plan;

/* The node that makes dB from the dy of g_node, or NULL. */
static af_node *db_of(const af_graph *g, const af_node *g_node)
{
    int i = 0;
    while (i < g->n_nodes && g->nodes[i] != g_node)
        i++;
    for (i++; i < g->n_nodes && g->nodes[i]->op != AF_OP_ADAPTER_G; i++)
        if (g->nodes[i]->op == AF_OP_ADAPTER_DB && g->nodes[i]->in[0] == g_node->in[0])
            return g->nodes[i];
    return NULL;
}

static bool aligned(const af_tensor *t)
{
    return t->dtype == AF_DTYPE_BF16 && t->ld % 8 == 0 && (uintptr_t)t->data % AF_CUDA_ACCESS == 0;
}

/* Strips as wide as registers allow, narrower where a wide one would leave processors idle. */
static void cut(const af_cuda *cu, both_plan *p, const af_node *n, int64_t rows)
{
    const int64_t tiles = (rows + TOKENS - 1) / TOKENS;
    for (p->chunks = PER_CHUNK / p->tiles;; p->chunks /= 2) {
        p->strips = p->total = 0;
        for (int i = 0; i < AF_ADAPTER_PARTS; i++) {
            const af_adapter_part *q = &n->attr.linear.part[i];
            const int64_t width = (int64_t)p->chunks * COLS;
            if (i >= n->attr.linear.parts) {
                p->part[i] = (both_part){.first = INT32_MAX};
                continue;
            }
            p->part[i] = (both_part){.from = (int32_t)q->out_from,
                                     .cols = (int32_t)q->out_rows,
                                     .rank_from = (int32_t)q->rank_from,
                                     .ranks = (int32_t)q->rank,
                                     .first = (int32_t)p->strips,
                                     .scale = q->scale};
            p->strips += (q->out_rows + width - 1) / width;
            p->total += q->out_rows * q->rank;
        }
        if (p->chunks <= 2 || p->strips * AF_MIN(tiles, (int64_t)SLABS_MAX) >= cu->sms * 2)
            break;
    }
    const int64_t want = AF_MAX((cu->sms * 2 + p->strips - 1) / p->strips, (int64_t)1);
    const int64_t slabs = AF_MIN(AF_MIN(want, tiles), (int64_t)SLABS_MAX);
    p->slab = (tiles + slabs - 1) / slabs * TOKENS;
    p->slabs = (rows + p->slab - 1) / p->slab;
}

static bool plan(const af_cuda *cu, const af_node *n, both_plan *p)
{
    const int64_t rows = af_rows(n->in[0]);
    *p = (both_plan){0};
    if (getenv("AF_NO_BOTH") || cu->arch < 80 || rows < ROWS_MIN || n->in[0]->dtype != AF_DTYPE_BF16 || n->n_in < 3 ||
        (cu->test && (cu->test->no_low_rank || cu->test->no_cublas)))
        return false;
    for (int i = 0; i < n->attr.linear.parts; i++) {
        const af_adapter_part *q = &n->attr.linear.part[i];
        if (q->out_from % 8 || q->out_rows % 8 || q->rank_from % 8 || q->rank % 8 || q->rank == 0 ||
            q->rank > RANKS_MAX || q->out_rows == 0)
            return false;
        p->ranks = AF_MAX(p->ranks, (int)q->rank);
    }
    p->tiles = (p->ranks + 15) / 16 * 2;
    cut(cu, p, n, rows);
    return p->ranks > 0;
}

static uint64_t g_bytes(const both_plan *p, int64_t rows)
{
    return AF_ALIGN_UP((uint64_t)(p->strips * rows * p->tiles * 8) * sizeof(float), 256u);
}

uint64_t af_low_rank_both_work(const af_cuda *cu, const af_node *n)
{
    both_plan p;
    if (!plan(cu, n, &p))
        return 0;
    return g_bytes(&p, af_rows(n->in[0])) + (uint64_t)(p.slabs * p.total) * sizeof(float);
}

static bool serves(const af_cuda *cu, const af_graph *g, const af_node *n,
                   const af_linear_group *group, both_plan *p)
{
    const af_node *db = plan(cu, n, p) ? db_of(g, n) : NULL;
    return db && db->in[1] == n->in[2] && db->out[0]->dtype == AF_DTYPE_F32 &&
           db->out[0]->role == AF_ROLE_GRADIENT && aligned(n->in[0]) && aligned(n->in[2]) &&
           !group->direct && group->I % 8 == 0 && group->ext % 8 == 0;
}

bool af_low_rank_both(af_cuda *cu, const af_graph *g, af_node *n, const af_linear_group *group,
                      af_mat c)
{
    both_plan p;
    if (!serves(cu, g, n, group, &p))
        return false;
    const af_node *db = db_of(g, n);
    const int64_t rows = af_rows(n->in[0]);
    uint8_t *at = db->out[0]->data, *work = cu->work;
    for (int i = 0; i < n->attr.linear.parts; i++) {
        p.part[i].out = at;
        at += (uint64_t)(p.part[i].cols * p.part[i].ranks) * sizeof(float);
    }
    af_linear_group_fill(cu, n, group, AF_FILL_B);
    work += AF_ALIGN_UP(af_linear_group_scratch(group), 256u);
    uint8_t *sums = work + g_bytes(&p, rows);
    const char *defines = af_cuda_text(cu, "AF_NT=%d", p.tiles);
    const unsigned ranks = (unsigned)p.tiles * 8 + 8;
    const unsigned bytes =
        2 * (STAGES * TOKENS * (COLS + 8 + ranks) + PER_CHUNK / (unsigned)p.tiles * COLS * ranks);
    af_launch *l =
        af_cuda_launch(cu, n, af_cuda_kernel(cu, "low_rank_both.cu", "low_rank_both", defines),
                       p.strips, p.slabs, 1, THREADS, bytes);
    af_arg_mat(l, af_mat_of(n->in[0]));
    af_arg_mat(l, af_mat_of(n->in[2]));
    af_arg_mat(l, af_linear_group_mat(cu, group, 0, group->O, group->I, group->R));
    af_arg_bytes(l, p.part, sizeof p.part);
    af_arg_ptr(l, work);
    af_arg_ptr(l, sums);
    af_arg_i64(l, rows);
    af_arg_i64(l, p.total);
    af_arg_i32(l, p.chunks);
    af_arg_i32(l, p.slab);
    l = af_cuda_launch(cu, n, af_cuda_kernel(cu, "low_rank_both.cu", "low_rank_join", defines),
                       af_cuda_grid(cu, rows * c.cols + p.total, THREADS), 1, 1, THREADS, 0);
    af_arg_mat(l, c);
    af_arg_bytes(l, p.part, sizeof p.part);
    af_arg_ptr(l, work);
    af_arg_ptr(l, sums);
    af_arg_i64(l, rows);
    af_arg_i64(l, p.total);
    af_arg_i32(l, p.strips);
    af_arg_i32(l, p.slabs);
    af_arg_i32(l, c.cols);
    af_arg_i32(l, db->accumulate);
    return true;
}

bool af_low_rank_both_did(af_cuda *cu, const af_graph *g, const af_node *db)
{
    both_plan p;
    for (int i = 0; i < g->n_nodes && g->nodes[i] != db; i++) {
        const af_node *n = g->nodes[i];
        if (n->op == AF_OP_ADAPTER_G && n->in[0] == db->in[0] && db_of(g, n) == db)
            return serves(cu, g, n, af_linear_group_of(g, n), &p);
    }
    return false;
}
