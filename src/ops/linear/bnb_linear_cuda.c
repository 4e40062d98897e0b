/* bnb_linear_cuda.c - projections of few tokens straight from 4-bit weights (bnb_linear.cu,
 * bnb_linear_few.cu, bnb_linear_sm90.cu and bnb_linear_dx.cu): which nodes they serve, and their
 * launches. Everything else dequantises and multiplies (linear_cuda.c). */
#include "backend/cuda/cuda_test.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/kernels.h"
#include "ops/common/cuda_ops.h"
#include "ops/linear/linear_cuda.h"

enum {
    TOKENS_MAX = 16,
    DX_TOKENS_MAX = 64,
    SEGMENT = 64, /* values; a row is whole segments, a block holds at least one */
    THREADS = 256,
    /* bnb_linear.cu */
    ROWS = 16,
    SPLIT_MAX = 8,
    ITEM_COST = 6, /* of starting and ending an item, in segments of a warp */
    TABLE_BYTES = 256 * 256 + 1024,
    SLOT_BYTES = ROWS * SEGMENT, /* of a warp */
    /* bnb_linear_dx.cu */
    DX_COLS = 64,
    DX_ROWS = 128, /* a block takes at a time */
    DX_PARTS_MAX = 16,
    /* bnb_linear_sm90.cu */
    SM90_TOKENS_MAX = 256,
    SM90_FEW = 8,
    SM90_TILE = 64, /* rows of a warpgroup */
    SM90_BOX = 8192,
    SM90_PAIRS = 256 * 256,
    SM90_LAUNCH = 4000, /* cycles that another launch costs */
    /* bnb_linear_few.cu */
    FEW90_TOKENS = 2,
    FEW90_WARPS = 16, /* of a block at most */
    FEW90_BUSY = 12,
    FEW90_ROWS = 8,     /* of a tile */
    FEW90_UNIT = 256,   /* values of a row that a warp takes at a time */
    FEW90_SCALES = 128, /* of a warp */
    FEW90_X = 144,      /* bytes of x of a segment */
};

typedef struct bnb_piece { /* as in bnb_linear.cu */
    const void *codes, *absmax, *nested;
    int64_t end;
} bnb_piece;

static int log2_of(int64_t n)
{
    int k = 0;
    while (INT64_C(1) << k < n)
        k++;
    return k;
}

static bool same_format(const af_tensor *a, const af_tensor *b)
{
    return a->dtype == b->dtype && a->quant->block == b->quant->block &&
           a->quant->nested_block == b->quant->nested_block;
}

static bool readable(const af_linear_group *p)
{
    int64_t rows = 0;
    if (p->pieces == 0 || p->I % SEGMENT || p->type != AF_DTYPE_BF16)
        return false;
    for (int i = 0; i < p->pieces; i++) {
        const af_tensor *w = p->w[i];
        const af_quant *q = w->quant;
        if (!q || (w->dtype != AF_DTYPE_NF4 && w->dtype != AF_DTYPE_FP4) ||
            !same_format(w, p->w[0]) || q->block < SEGMENT || q->block & (q->block - 1) ||
            q->nested_block & (q->nested_block - 1) || p->of->attr.linear.piece_from[i] != rows ||
            (uintptr_t)w->data % AF_CUDA_ACCESS)
            return false;
        rows += w->dim[0];
    }
    return rows == p->O && p->O * p->I / SEGMENT <= INT32_MAX;
}

/* 16-byte rows; the adapter's halves as the kernels expect them. These sums have another
 * order than dequantise + GEMM: not where bits must be the same however weights are stored. */
static bool serves(const af_cuda *cu, const af_linear_group *p, const af_tensor *x, int most)
{
    return p->scratch && !p->gathered && !(cu->test && cu->test->no_4bit_gemm) &&
           !cu->graph->same_bits && af_rows(x) > 0 && af_rows(x) <= most && x->ld % 8 == 0 &&
           (uintptr_t)x->data % AF_CUDA_ACCESS == 0 && readable(p) &&
           (p->parts == 0 || (p->bt && p->down));
}

static const char *book(const af_linear_group *p) { return af_dtype_name(p->w[0]->dtype); }

static void arg_pieces(af_cuda *cu, af_launch *l, const af_linear_group *p)
{
    bnb_piece piece[AF_LINEAR_PIECES];
    int64_t end = 0;
    for (int i = 0; i < AF_LINEAR_PIECES; i++) {
        const af_tensor *w = p->w[AF_MIN(i, p->pieces - 1)];
        end += i < p->pieces ? w->dim[0] : 0;
        piece[i] = (bnb_piece){w->data, w->quant->absmax->data,
                               w->quant->nested ? w->quant->nested->data : NULL, end};
    }
    af_arg_bytes(l, piece, sizeof piece);
    for (int i = 0; i < AF_LINEAR_PIECES; i++)
        af_arg_f32_late(cu, l, &p->w[AF_MIN(i, p->pieces - 1)]->quant->offset);
}

static void arg_blocks(af_launch *l, const af_linear_group *p)
{
    const af_quant *q = p->w[0]->quant;
    af_arg_i32(l, log2_of(q->block / SEGMENT));
    af_arg_i32(l, q->nested_block ? log2_of(q->nested_block) : -1);
}

static void arg_shape(af_launch *l, const af_linear_group *p, int64_t tokens)
{
    af_arg_i32(l, tokens);
    af_arg_i32(l, p->O);
    af_arg_i32(l, p->I);
    af_arg_i32(l, p->parts ? p->R : 0);
    arg_blocks(l, p);
}

/* AF_WARPS and AF_SLOTS of bnb_linear.cu, and what its defines say of them: as many warps as the
 * GPU's shared memory holds. The first of each is Hopper's and the kernel's own; the others have
 * not run on a GPU that needs them (163 KiB: sm_80; 99 KiB: sm_86, sm_89, sm_120). */
typedef struct few_plan {
    int warps, slots;
    const char *defines;
} few_plan;

static int few_shared(few_plan p, int capacity)
{
    const int sums = 2 * ROWS * (capacity + 1) * (int)sizeof(float);
    return TABLE_BYTES + p.warps * (sums + p.slots * SLOT_BYTES);
}

/* warps: 0 when none fits. */
static few_plan few_plan_of(const af_cuda *cu, int capacity)
{
    static const few_plan of_8[] = {{24, 4, ""},
                                    {16, 4, " AF_WARPS=16 AF_SLOTS=4"},
                                    {8, 2, " AF_WARPS=8 AF_SLOTS=2"}},
                          of_16[] = {{16, 4, ""}, {8, 2, " AF_WARPS=8 AF_SLOTS=2"}};
    const few_plan *p = capacity == 8 ? of_8 : of_16;
    const size_t n = capacity == 8 ? AF_LEN(of_8) : AF_LEN(of_16);
    for (size_t i = 0; i < n; i++)
        if (few_shared(p[i], capacity) <= cu->smem_max)
            return p[i];
    return (few_plan){0};
}

/* Warps that share an item: the fewest rounds of the longest warp, in segments. The same for any
 * number of tokens, so that the order of a sum is. */
static int split_of(const af_cuda *cu, int64_t items, int64_t segments)
{
    const int warps = few_plan_of(cu, 8).warps;
    int best = 1;
    int64_t least = INT64_MAX;
    for (int split = 1; split <= SPLIT_MAX; split *= 2) {
        const int64_t groups = (int64_t)cu->sms * (warps / split);
        const int64_t cost =
            (items + groups - 1) / groups * ((segments + split - 1) / split + ITEM_COST);
        if (cost < least) {
            least = cost;
            best = split;
        }
    }
    return best;
}

/* ---- Hopper, more tokens ---- */
typedef struct sm90_plan {
    int N, wg, ks; /* AF_N, AF_WG and AF_KS of the kernel */
} sm90_plan;

/* As the kernel lays it out. */
static int64_t sm90_shared(sm90_plan p, int64_t segments)
{
    const int boxes = p.wg * (p.N <= 64 ? 3 : 2);
    const int stages = p.N == 256 ? 3 : p.N == 8 ? 0 : 4;
    const int slab = AF_MIN(p.N, 32), owners = AF_MIN(p.ks, slab / 8);
    const int sent = (p.ks - 1) * (slab / 2 / owners) * p.wg * 128 * 4;
    const int sums = slab / owners * (p.wg * SM90_TILE + 4) * 4, bars = 2 * (stages + boxes) + 4;
    const int64_t whole = p.N == 8 ? (segments + p.ks - 1) / p.ks * 1024 : 0;
    const int at = SM90_PAIRS + boxes * SM90_BOX + stages * p.N * 128 + 2 * sent + sums + bars * 8;
    return AF_ALIGN_UP(at, 1024) + 1024 + whole;
}

static int64_t sm90_tiles(const af_linear_group *g)
{
    int64_t n = 0;
    for (int i = 0; i < g->pieces; i++)
        n += (g->w[i]->dim[0] + SM90_TILE - 1) / SM90_TILE;
    return n;
}

/* Clusters that are surely at work together. Processors come in groups, some of which are smaller
 * than 16: of an H200's 132, 30 clusters of four blocks are at work at once. */
static int64_t sm90_clusters(const af_cuda *cu, sm90_plan p)
{
    return (p.ks > 2 ? cu->sms * 7 / 8 : cu->sms) / p.ks;
}

/* Cycles of the longest sequence of items (p.wg tiles): of a segment, which decodes and multiplies
 * or waits for x and codes, and of the beginning and end of an item (measured on an H200). */
static int64_t sm90_cost(const af_cuda *cu, const af_linear_group *g, sm90_plan p, int64_t tiles)
{
    const int64_t decode = (p.N <= 64 ? 320 : p.N == 128 ? 400 : 600) * p.wg;
    const int64_t arrive = AF_MAX(p.N, 64) * 16 / 3 + 88 * p.wg;
    const int64_t ends = 3000 + (p.ks > 1 ? AF_MAX(p.N, 64) * 48 : 0);
    const int64_t each = sm90_clusters(cu, p) * p.wg, segments = g->I / SEGMENT;
    return (tiles + each - 1) / each *
           ((segments + p.ks - 1) / p.ks * AF_MAX(decode, arrive) + ends);
}

/* The plan for `tiles` tiles, and its cost; the same for any number of tokens up to 64. */
static sm90_plan sm90_plan_of(const af_cuda *cu, const af_linear_group *g, int64_t tokens,
                              int64_t tiles, int64_t *least)
{
    static const int sizes[] = {8, 64, 128, 256};
    sm90_plan best = {0};
    int N = 0;
    *least = INT64_MAX;
    while (sizes[N] < tokens)
        N++;
    for (int wg = 2; wg <= (sizes[N] == 256 ? 2 : 3); wg++)
        for (int ks = 1; ks <= 4 && ks <= g->I / SEGMENT; ks *= 2) {
            const sm90_plan p = {sizes[N], wg, ks};
            const int64_t cost = sm90_cost(cu, g, p, tiles);
            if (sm90_shared(p, g->I / SEGMENT) <= cu->smem_max && cost < *least) {
                *least = cost;
                best = p;
            }
        }
    return best;
}

/* Tiles of a first launch, in whole rounds of blocks that share nothing, where a second launch for
 * what remains is faster than another round: 0 when it is not. */
static int64_t sm90_first(const af_cuda *cu, const af_linear_group *g, sm90_plan p, int64_t tokens,
                          int64_t tiles, int64_t least)
{
    const sm90_plan first = {p.N, 2, 1};
    const int64_t each = sm90_clusters(cu, first) * first.wg, n = tiles / each * each;
    int64_t rest;
    if (p.N < 256 || n == 0 || n == tiles || sm90_shared(first, g->I / SEGMENT) > cu->smem_max)
        return 0;
    (void)sm90_plan_of(cu, g, tokens, tiles - n, &rest);
    return sm90_cost(cu, g, first, n) + rest + SM90_LAUNCH < least ? n : 0;
}

static void sm90_launch(af_cuda *cu, af_node *n, const af_linear_group *g, sm90_plan p,
                        int64_t from, int64_t to)
{
    const af_tensor *x = n->in[0], *y = n->out[0];
    const int64_t items = (to - from + p.wg - 1) / p.wg;
    af_kernel *k = af_cuda_kernel(
        cu, "bnb_linear_sm90.cu", "bnb_linear_sm90",
        af_cuda_text(cu, "AF_BOOK=%s_bits AF_N=%d AF_WG=%d AF_KS=%d", book(g), p.N, p.wg, p.ks));
    af_launch *l = af_cuda_launch(cu, n, k, AF_MIN(items, sm90_clusters(cu, p)) * p.ks, 1, 1,
                                  (p.wg + 1) * 128, (unsigned)sm90_shared(p, g->I / SEGMENT));
    af_arg_ptr(l, y->data);
    af_arg_i64(l, y->ld);
    af_arg_mat(l, af_mat_of(x));
    af_arg_map(cu, l, af_mat_of(x));
    for (int i = 0; i < AF_LINEAR_PIECES; i++) {
        const af_tensor *w = g->w[AF_MIN(i, g->pieces - 1)];
        af_arg_map(cu, l, (af_mat){w->data, w->dim[0], g->I / 4, g->I / 4, AF_DTYPE_BF16});
    }
    arg_pieces(cu, l, g);
    af_arg_ptr(l, g->bias ? g->bias->data : NULL);
    af_arg_i32(l, af_rows(x));
    af_arg_i32(l, g->I);
    arg_blocks(l, g);
    af_arg_i32(l, from);
    af_arg_i32(l, to);
}

static bool on_sm90(af_cuda *cu, af_node *n, const af_linear_group *g)
{
    const af_tensor *x = n->in[0];
    const int64_t tokens = af_rows(x), tiles = sm90_tiles(g);
    int64_t least;
    if (cu->arch != 90 || !cu->drv->tensor_map || g->parts || !serves(cu, g, x, SM90_TOKENS_MAX))
        return false;
    const sm90_plan p = sm90_plan_of(cu, g, tokens, tiles, &least);
    if (p.N == 0)
        return false;
    const int64_t first = sm90_first(cu, g, p, tokens, tiles, least);
    if (first == 0) {
        sm90_launch(cu, n, g, p, 0, tiles);
        return true;
    }
    sm90_launch(cu, n, g, (sm90_plan){p.N, 2, 1}, 0, first);
    sm90_launch(cu, n, g, sm90_plan_of(cu, g, tokens, tiles - first, &least), first, tiles);
    return true;
}

/* ---- Hopper, a token or two ---- */
typedef struct few90_plan {
    int rows, warps; /* of a block */
    int split;       /* warps that share a tile of rows */
} few90_plan;

/* As the kernel lays it out. */
static int64_t few90_shared(few90_plan p, int64_t tokens, int64_t I)
{
    const int64_t floats = p.warps * FEW90_SCALES + p.split * p.rows * FEW90_TOKENS;
    return SM90_PAIRS + floats * (int64_t)sizeof(float) + tokens * (I / SEGMENT * FEW90_X + 16);
}

/* As many rows for every multiprocessor. What takes longer counts: the turns of one warp, as fewer
 * than FEW90_BUSY warps do not keep a multiprocessor busy, or the work of all. The end of a tile's
 * row costs half a unit. Of plans that take as long, the one with the fewest warps. */
static few90_plan few90_plan_of(const af_cuda *cu, const af_linear_group *g, int64_t tokens)
{
    few90_plan best = {0};
    int64_t least = INT64_MAX;
    const int64_t rows = AF_ALIGN_UP((g->O + cu->sms - 1) / cu->sms, (int64_t)4);
    const int64_t tiles = (rows + FEW90_ROWS - 1) / FEW90_ROWS, units = g->I / FEW90_UNIT;
    for (int split = 1; split <= FEW90_WARPS && split <= units; split++)
        for (int groups = 1; groups * split <= FEW90_WARPS && groups <= tiles; groups++) {
            const few90_plan p = {(int)rows, groups * split, split};
            const int64_t each = (units + split - 1) / split;
            const int64_t turns = (tiles + groups - 1) / groups * (2 * each + 1);
            const int64_t all = tiles * (2 * units + split);
            const int64_t cost = AF_MAX(turns * FEW90_BUSY, all) * FEW90_WARPS + p.warps;
            if (few90_shared(p, tokens, g->I) <= cu->smem_max && cost < least) {
                least = cost;
                best = p;
            }
        }
    return best;
}

/* Scales in words of four, of 64 values and nested. */
static bool few90_reads(const af_linear_group *g)
{
    for (int i = 0; i < g->pieces; i++) {
        const af_quant *q = g->w[i]->quant;
        if ((uintptr_t)q->absmax->data % 4 || q->block != SEGMENT || q->nested_block < 4)
            return false;
    }
    return g->I % FEW90_UNIT == 0;
}

static bool on_few90(af_cuda *cu, af_node *n, const af_linear_group *g)
{
    const af_tensor *x = n->in[0], *y = n->out[0];
    const int64_t tokens = af_rows(x);
    if (cu->arch != 90 || g->parts || !serves(cu, g, x, FEW90_TOKENS) || !few90_reads(g))
        return false;
    const few90_plan p = few90_plan_of(cu, g, tokens);
    if (p.rows == 0)
        return false;
    af_kernel *k = af_cuda_kernel(cu, "bnb_linear_few.cu", "bnb_linear_few",
                                  af_cuda_text(cu, "AF_BOOK=%s_bits", book(g)));
    af_launch *l = af_cuda_launch(cu, n, k, (g->O + p.rows - 1) / p.rows, 1, 1, p.warps * 32,
                                  (unsigned)few90_shared(p, tokens, g->I));
    af_arg_ptr(l, y->data);
    af_arg_i64(l, y->ld);
    af_arg_mat(l, af_mat_of(x));
    arg_pieces(cu, l, g);
    af_arg_ptr(l, g->bias ? g->bias->data : NULL);
    af_arg_i32(l, tokens);
    af_arg_i32(l, g->O);
    af_arg_i32(l, g->I);
    af_arg_i32(l, log2_of(g->w[0]->quant->nested_block));
    af_arg_i32(l, p.rows);
    af_arg_i32(l, p.split);
    return true;
}

bool af_bnb_linear(af_cuda *cu, af_node *n, const af_linear_group *p)
{
    const af_tensor *x = n->in[0], *low = af_linear_in(n).xa, *y = n->out[0];
    const int64_t tokens = af_rows(x);
    const int64_t items = (p->O + ROWS - 1) / ROWS;
    const int capacity = tokens <= 8 ? 8 : TOKENS_MAX;
    const few_plan few = few_plan_of(cu, capacity);
    if (tokens <= FEW90_TOKENS && on_few90(cu, n, p))
        return true;
    /* a single token is faster below */
    if ((tokens > TOKENS_MAX || (tokens > 1 && tokens <= SM90_FEW)) && on_sm90(cu, n, p))
        return true;
    if (few.warps == 0 || !serves(cu, p, x, TOKENS_MAX))
        return false;
    const char *defines =
        af_cuda_text(cu, "AF_BOOK=%s_bits AF_TOK=%d%s", book(p), capacity, few.defines);
    if (few.defines[0] && !af_kernels_can(cu->kernels, "bnb_linear.cu", defines))
        return false; /* not shipped, and nothing compiles it */
    af_kernel *k = af_cuda_kernel(
        cu, "bnb_linear.cu", "bnb_linear",
        af_cuda_text(cu, "AF_BOOK=%s_bits AF_TOK=%d%s", book(p), capacity, few.defines));
    af_launch *l = af_cuda_launch(cu, n, k, AF_MIN(items, (int64_t)cu->sms), 1, 1, few.warps * 32,
                                  (unsigned)few_shared(few, capacity));
    af_arg_ptr(l, y->data);
    af_arg_i64(l, y->ld);
    af_arg_ptr(l, x->data);
    af_arg_i64(l, x->ld);
    arg_pieces(cu, l, p);
    af_arg_ptr(l, p->bias ? p->bias->data : NULL);
    af_arg_ptr(l, low ? low->data : NULL);
    af_arg_i64(l, low ? low->ld : 0);
    af_arg_ptr(l, low ? p->bt->data : NULL);
    arg_shape(l, p, tokens);
    af_arg_i32(l, split_of(cu, items, p->I / SEGMENT));
    return true;
}

/* Blocks that share a column of dx. Their sums fit the group's part of the workspace: a block has
 * at least DX_ROWS rows, so 64 tokens in f32 take no more than those rows in two bytes. */
static int64_t parts_of(const af_cuda *cu, const af_linear_group *p)
{
    const int64_t want = (int64_t)cu->sms * 2 / (p->I / DX_COLS), most = p->O / DX_ROWS;
    return AF_MAX(AF_MIN(AF_MIN(want, most), (int64_t)DX_PARTS_MAX), (int64_t)1);
}

bool af_bnb_linear_dx(af_cuda *cu, af_node *n, const af_linear_group *p)
{
    const af_tensor *dy = n->in[0], *low = af_linear_in(n).g, *dx = n->out[0];
    const int64_t tokens = af_rows(dy);
    if (!serves(cu, p, dy, DX_TOKENS_MAX) || (p->parts && !low))
        return false;
    const int64_t parts = parts_of(cu, p);
    const char *defines = af_cuda_text(cu, "AF_BOOK=%s_bits AF_MT=%d", book(p),
                                       tokens <= 16   ? 1
                                       : tokens <= 32 ? 2
                                                      : 4);
    af_launch *l =
        af_cuda_launch(cu, n, af_cuda_kernel(cu, "bnb_linear_dx.cu", "bnb_linear_dx", defines),
                       p->I / DX_COLS, parts, 1, THREADS, 0);
    af_arg_ptr(l, dx->data);
    af_arg_i64(l, dx->ld);
    af_arg_ptr(l, dy->data);
    af_arg_i64(l, dy->ld);
    arg_pieces(cu, l, p);
    af_arg_ptr(l, low ? low->data : NULL);
    af_arg_i64(l, low ? low->ld : 0);
    af_arg_ptr(l, low ? p->down->data : NULL);
    af_arg_i64(l, low ? p->down->ld : 0);
    af_arg_ptr(l, parts > 1 ? cu->work : NULL);
    arg_shape(l, p, tokens);
    if (parts == 1)
        return true;
    l = af_cuda_launch(cu, n, af_cuda_kernel(cu, "bnb_linear_dx.cu", "bnb_join", defines),
                       af_cuda_grid(cu, tokens * p->I, THREADS), 1, 1, THREADS, 0);
    af_arg_ptr(l, dx->data);
    af_arg_i64(l, dx->ld);
    af_arg_ptr(l, cu->work);
    af_arg_i32(l, tokens);
    af_arg_i32(l, p->I);
    af_arg_i32(l, parts);
    return true;
}

/* ---- the matrix, where a GEMM reads it ---- */
typedef struct fill_half { /* as in bnb_fill.cu */
    const void *b, *a;
    int32_t ext, rank, parts, unused;
    struct {
        int32_t out_from, out_rows, rank_from, rank;
        int64_t at;
    } part[AF_ADAPTER_PARTS];
} fill_half;

static bool fill_serves(const af_node *n, const af_linear_group *p)
{
    for (int i = 0; i < p->pieces; i++)
        if (af_linear_group_piece(p, n, i) != p->w[i]) /* gathered for this node */
            return false;
    return p->scratch && !p->gathered && readable(p) && (p->I + p->ext) % 8 == 0 &&
           (p->parts == 0 || (p->a->dtype == AF_DTYPE_F32 && p->b->dtype == AF_DTYPE_F32 &&
                              p->ext % 8 == 0 && p->a->ld == p->I));
}

bool af_bnb_fill(af_cuda *cu, af_node *n, const af_linear_group *p, int what)
{
    const bool up = what & AF_FILL_B, down = what & AF_FILL_A;
    if (!(what & AF_FILL_W) || (up && down) || !fill_serves(n, p))
        return false;
    fill_half half = {.ext = (int32_t)p->ext, .rank = (int32_t)p->R, .parts = p->parts};
    int64_t values = 0, at = 0;
    for (int i = 0; i < p->parts; i++) {
        const af_adapter_part *q = &p->of->attr.linear.part[i];
        half.part[i].out_from = (int32_t)q->out_from;
        half.part[i].out_rows = (int32_t)q->out_rows;
        half.part[i].rank_from = q->rank_from;
        half.part[i].rank = q->rank;
        half.part[i].at = at;
        at += q->out_rows * q->rank;
    }
    if (p->parts && up) {
        half.b = p->b->data;
        values = p->O * p->ext;
    } else if (p->parts && down) {
        half.a = p->a->data;
        values = p->I * p->ext;
    }
    const int64_t blocks = (p->O * p->I / SEGMENT + 127) / 128;
    const int64_t w_blocks = AF_MIN(blocks, (int64_t)cu->sms * 16);
    const af_mat to = af_linear_group_mat(cu, p, 0, p->O, 0, p->I);
    af_kernel *k = af_cuda_kernel(cu, "bnb_fill.cu", "bnb_fill_dequant",
                                  af_cuda_text(cu, "AF_BOOK=%s_bits", book(p)));
    af_launch *l =
        af_cuda_launch(cu, n, k, w_blocks + (values / 8 + THREADS - 1) / THREADS, 1, 1, THREADS, 0);
    af_arg_mat(l, to);
    arg_pieces(cu, l, p);
    af_arg_i32(l, p->O);
    af_arg_i32(l, p->I);
    arg_blocks(l, p);
    af_arg_bytes(l, &half, sizeof half);
    af_arg_i32(l, w_blocks);
    return true;
}
