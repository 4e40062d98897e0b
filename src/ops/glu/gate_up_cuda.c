/* gate_up_cuda.c - see gate_up.h. */
#include "backend/cuda/cuda_test.h"
#include "backend/cuda/driver.h"
#include "ops/glu/gate_up.h"
#include "ops/glu/glu_adapter_in.h"

enum {
    ARCH = 90,
    ROWS_MIN = 1024, /* fewer were not measured */
    /* as in gate_up_sm90.cu */
    PAIR = 2,
    PAIR_ROWS = 256,
    COLS = 128,
    BAND = 8,       /* pairs of rows */
    HALF_TIME = 62, /* of a tile of half the columns, in hundredths (not measured alone) */
    STEP = 16,
    STAGE_COLS = 64,
    SHARED = 4 * 49152 + 2 * 2 * 8192 + 1024 + 64,
};

/* Does a gated unit, or its gradient, read t? */
static bool feeds_unit(const af_graph *g, const af_tensor *t)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *n = g->nodes[i];
        if ((n->op == AF_OP_GLU || n->op == AF_OP_GLU_BWD) && n->in[0] == t)
            return n->attr.glu.limit <= 0;
    }
    return false;
}

static bool rows_fit(const af_tensor *t)
{
    return t->dtype == AF_DTYPE_BF16 && t->ld % 8 == 0 && t->base_offset % 16 == 0;
}

static bool group_fits(const af_linear_group *p, const af_tensor *x)
{
    return p && (p->fused || p->scratch) && !p->direct && !p->fp8 && !p->bias && !p->gathered &&
           p->pieces > 0 && p->type == AF_DTYPE_BF16 && p->I % STAGE_COLS == 0 &&
           p->O % (2 * COLS) == 0 &&
           (!p->parts || (p->R <= AF_FOLD_RANK && x->ld >= p->I + p->ext));
}

bool af_gate_up_fits(const af_cuda *cu, const af_graph *g, const af_node *n)
{
    if (n->op != AF_OP_LINEAR || cu->arch != ARCH || !cu->drv->tensor_map ||
        cu->smem_max < SHARED || (cu->test && cu->test->no_fold))
        return false;
    return !n->accumulate && !n->attr.linear.adds && af_rows(n->in[0]) >= ROWS_MIN &&
           rows_fit(n->in[0]) && rows_fit(n->out[0]) &&
           group_fits(af_linear_group_of(g, n), n->in[0]) && feeds_unit(g, n->out[0]);
}

/* Rounds of all pairs of blocks, in tiles, with strips of so many tiles. */
static int64_t rounds(const af_cuda *cu, int64_t M, int64_t F, int tiles)
{
    const int64_t strips = (F + tiles * COLS - 1) / (tiles * COLS);
    const int64_t items = (M + PAIR_ROWS - 1) / PAIR_ROWS * strips, pairs = cu->sms / PAIR;
    return (items + pairs - 1) / pairs * tiles;
}

/* Tiles that the last pair of blocks has done when it ends, in hundredths, where the last `narrow`
 * strips of COLS are taken in halves. Pairs take items in turn. */
static int64_t time_of(const af_cuda *cu, int64_t rows, int64_t strips, int64_t narrow)
{
    const int64_t pairs = cu->sms / PAIR, whole = rows * (strips - narrow);
    const int64_t all = whole + 2 * rows * narrow;
    int64_t most = 0;
    for (int64_t p = 0; p < pairs; p++) {
        const int64_t n = (all - p + pairs - 1) / pairs, first = (whole - p + pairs - 1) / pairs;
        most = AF_MAX(most, first * 100 + (n - first) * HALF_TIME);
    }
    return most;
}

/* Strips to take in halves, so that the last round is not one of few pairs with whole tiles. Only
 * where the last tiles are those of all rows: rows have the same parts then. */
static int64_t narrow_strips(const af_cuda *cu, int64_t M, int64_t F)
{
    const int64_t rows = (M + PAIR_ROWS - 1) / PAIR_ROWS, strips = F / COLS;
    int64_t best = 0;
    for (int64_t n = 1; rows <= BAND && n < strips && n * rows <= cu->sms; n++)
        if (time_of(cu, rows, strips, n) < time_of(cu, rows, strips, best))
            best = n;
    return best;
}

af_gate_up_cut af_gate_up_cut_of(const af_cuda *cu, int64_t M, int64_t F)
{
    const int64_t rows = (M + PAIR_ROWS - 1) / PAIR_ROWS, narrow = narrow_strips(cu, M, F);
    const int64_t least = time_of(cu, rows, F / COLS, narrow);
    int tiles = 4; /* the more, the fewer parts, which may take up to 1 % more time */
    while (tiles > 1 && 100 * 100 * rounds(cu, M, F, tiles) > 101 * least)
        tiles /= 2;
    const int64_t wide = (int64_t)tiles * COLS, halved = tiles == 1 ? narrow : 0;
    return (af_gate_up_cut){wide, halved * COLS, (F + wide - 1) / wide + halved};
}

static bool launch(af_cuda *cu, const af_graph *g, af_node *n, const af_linear_group *p)
{
    const af_glu_adapter *u = af_glu_adapter_of(g, n);
    if (!u && !af_gate_up_fits(cu, g, n))
        return false;
    const af_tensor *out = u ? u->glu->in[0] : n->out[0];
    const bool keep = !u || u->keeps;
    const int64_t M = af_rows(out), F = af_last(out) / 2;
    const af_gate_up_cut cut = af_gate_up_cut_of(cu, M, F);
    const int64_t K = p->I + (p->parts ? AF_ALIGN_UP(p->R, (int64_t)STEP) : 0);
    const int64_t items = (M + PAIR_ROWS - 1) / PAIR_ROWS * cut.strips;
    const bool low = u && u->low;
    const af_mat x = af_mat_cols(n->in[0], 0, K); /* also where a map is not used */
    const af_mat a = low ? af_glu_adapter_half(cu, u) : x;
    af_kernel *k = af_cuda_kernel(cu, "gate_up_sm90.cu", "gate_up_sm90",
                                  af_cuda_text(cu, "AF_ACT=%d AF_KEEP=%d AF_UNIT=%d AF_LOW=%d",
                                               u ? u->glu->attr.glu.act : 0, keep, u != NULL, low));
    af_launch *l =
        af_cuda_launch(cu, n, k, AF_MIN(items, (int64_t)cu->sms / PAIR) * PAIR, 1, 1, 384, SHARED);
    af_arg_map(cu, l, keep ? af_mat_cols(out, 0, F) : x);
    af_arg_map(cu, l, keep ? af_mat_cols(out, F, F) : x);
    af_arg_map(cu, l, u ? af_mat_of(u->glu->out[0]) : x);
    af_arg_map(cu, l, x);
    af_arg_map(cu, l, af_linear_group_mat(cu, p, 0, p->O, 0, K));
    af_arg_map(cu, l, a);
    af_arg_ptr(l, low ? af_glu_adapter_parts(cu, u) : NULL);
    af_arg_i32(l, M);
    af_arg_i32(l, F);
    af_arg_i32(l, K);
    af_arg_i32(l, cut.wide);
    af_arg_i32(l, cut.narrow);
    if (low)
        af_glu_adapter_sums(cu, u);
    return true;
}

const af_linear_epilogue af_gate_up_epilogue = {launch, af_glu_adapter_work};
