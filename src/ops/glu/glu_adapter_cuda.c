/* glu_adapter_cuda.c - launchers of glu_adapter.cu. */
#include "ops/common/cuda_ops.h"
#include "ops/glu/gate_up.h"
#include "ops/glu/glu_adapter_in.h"
#include "ops/linear/fp8_cuda.h"

enum { /* as in glu_adapter.cu */
       COLS = 256,
       TOKENS = 16,
       WIDE = 2,
       CODES_WIDE = 4, /* with codes */
       PLANE = TOKENS * (COLS + 8),
       SUM_BYTES = 2 * 8 * TOKENS * (AF_GLU_RANK + 4) * 4,
       CODES_SPAN = 4 * TOKENS, /* tokens of a block, forward */
       RESIDENT = 2,            /* blocks of a multiprocessor, backward */
       FWD_RESIDENT = 3,
       SPLITS_MAX = 32,
       ALIGN = 256,
};

static_assert(AF_GLU_SHARED == (2 * 3 * PLANE + 2 * TOKENS * (3 * AF_GLU_RANK + 8) +
                                2 * COLS * (AF_GLU_RANK + 8)) *
                                       2 +
                                   SUM_BYTES,
              "the kernel's planes, narrow values, B and sums");

typedef struct glu_ranks {
    int32_t gate, up, down;
} glu_ranks;
typedef struct low_parts {
    const float *part;
    void *out;
    int64_t ld;
    int32_t parts, adapters, rank[2], wide;
    float scale[2];
    int32_t unused;
} low_parts;
typedef struct dw_parts {
    const float *part;
    void *db, *da;
    int64_t n_db, n;
    int32_t parts, add_db, add_da, unused;
} dw_parts;

typedef struct fp8_out {
    void *codes;
    float *scale;
    const void *most, *most_dy;
} fp8_out;

/* How a unit's work is cut, and where its parts lie in the workspace. */
typedef struct cut {
    const af_linear_group *group; /* whose adapter gives the narrow result */
    int64_t N, F, strips, span, splits, blocks;
    glu_ranks ranks;
    uint64_t half_at, low_at, dw_at, bytes;
} cut;

/* The node in the graph that does u's work. */
static af_node *node_of(const af_glu_adapter *u) { return u->linear ? u->linear : u->glu; }

/* Splits of the tokens: multiprocessors are busy to the end, parts of gradients cost little. */
static int64_t splits_of(const af_cuda *cu, const cut *c)
{
    const int64_t tiles = (c->N + TOKENS - 1) / TOKENS, slots = (int64_t)cu->sms * RESIDENT;
    const double main_bytes = 10.0 * (double)c->N * (double)c->F;
    const double part_bytes = 8.0 * (double)c->F * (c->ranks.gate + c->ranks.up + c->ranks.down);
    int64_t best = 1;
    double least = 0;
    for (int64_t s = 1; s <= AF_MIN((tiles + 3) / 4, (int64_t)SPLITS_MAX); s++) {
        const int64_t each = (tiles + s - 1) / s, used = (tiles + each - 1) / each;
        const int64_t waves = (c->strips * used + slots - 1) / slots;
        const double cost = (main_bytes + (double)used * part_bytes) * (double)(waves * each) /
                            (double)(c->strips * tiles);
        if (s == 1 || cost < least) {
            least = cost;
            best = used;
        }
    }
    return best;
}

/* Tiles of a strip's columns, forward. */
static int strip_tiles(const af_glu_adapter *u) { return u->codes ? CODES_WIDE : WIDE; }

static cut cut_of(const af_cuda *cu, const af_glu_adapter *u)
{
    const af_adapter_part *q = u->low->attr.linear.part;
    const af_tensor *x = u->glu->in[0];
    cut c = {
        .group = af_linear_group_of(cu->graph, u->low),
        .N = af_rows(x),
        .F = af_last(x) / 2,
        .ranks = {q[0].rank, u->db ? q[1].rank : 0, u->da ? u->da->attr.linear.part[0].rank : 0}};
    const int64_t width = u->db ? COLS : strip_tiles(u) * COLS;
    const int64_t tiles = (c.N + TOKENS - 1) / TOKENS;
    c.strips = u->linear ? af_gate_up_cut_of(cu, c.N, c.F).strips : (c.F + width - 1) / width;
    if (u->db) {
        c.splits = splits_of(cu, &c);
        c.span = (tiles + c.splits - 1) / c.splits * TOKENS;
    } else if (u->codes) {
        c.splits = (c.N + CODES_SPAN - 1) / CODES_SPAN;
        c.span = CODES_SPAN;
    } else { /* tiles of all strips, shared equally */
        c.blocks = AF_MIN(c.strips * tiles, (int64_t)cu->sms * FWD_RESIDENT);
    }
    /* the adapter's half where no matrix holds it */
    const int64_t half = c.group->scratch ? c.group->R * (u->db ? 2 * c.F : c.F) : 0;
    const uint64_t before = /* the LINEAR's own matrix */
        u->linear ? af_linear_group_scratch(af_linear_group_of(cu->graph, u->linear)) : 0;
    c.half_at = AF_ALIGN_UP(before, (uint64_t)ALIGN);
    c.low_at = AF_ALIGN_UP(c.half_at + (uint64_t)half * 2, (uint64_t)ALIGN);
    const uint64_t low = (uint64_t)(c.strips * c.N) * AF_GLU_RANK * (u->db ? 2 : 1) * sizeof(float);
    const int64_t dw = u->db ? c.splits * c.F * (c.ranks.gate + c.ranks.up + c.ranks.down) : 0;
    c.dw_at = AF_ALIGN_UP(c.low_at + low, (uint64_t)ALIGN);
    c.bytes = c.dw_at + (uint64_t)dw * sizeof(float);
    return c;
}

static af_kernel *kernel(af_cuda *cu, const af_glu_adapter *u, const char *name)
{
    return af_cuda_kernel(
        cu, "glu_adapter.cu", name,
        af_cuda_text(cu, u->codes ? "AF_ACT=%d AF_CODES=1" : "AF_ACT=%d", u->glu->attr.glu.act));
}

/* The last argument: used where the kernel writes codes. */
static void add_codes(af_launch *l, const af_glu_adapter *u)
{
    const af_node *n = u->glu;
    const bool back = n->op == AF_OP_GLU_BWD;
    fp8_out f = {0};
    if (u->codes) {
        const af_fp8_rows rows = af_fp8_rows_made(n);
        f = (fp8_out){.codes = rows.codes->data,
                      .scale = rows.scale->data,
                      .most = n->in[n->n_in - 1 - back]->data,
                      .most_dy = back ? n->in[n->n_in - 1]->data : NULL};
    }
    af_arg_bytes(l, &f, sizeof f);
}

/* Where the rows go, if anything reads them. */
static af_mat rows_of(const af_glu_adapter *u)
{
    af_mat to = af_mat_of(u->glu->out[0]);
    if (u->codes && !u->plain)
        to.data = NULL;
    return to;
}

static void sums(af_cuda *cu, const af_glu_adapter *u, const cut *c)
{
    const af_tensor *x = u->low->in[0], *out = u->low->out[0];
    const af_linear_group *p = c->group;
    const bool in_spare = out->base == x;
    const int64_t wide = in_spare || out->ld >= p->ext ? p->ext : p->R;
    const af_mat to = in_spare ? af_mat_cols(x, af_last(x), wide) : af_mat_cols(out, 0, wide);
    const int adapters = u->db ? 2 : 1;
    const int64_t low_blocks = (c->N * adapters * AF_GLU_RANK / 4 + 255) / 256;
    const int64_t n_db = c->F * (c->ranks.gate + c->ranks.up), n = n_db + c->F * c->ranks.down;
    const low_parts low = {.part = (const float *)((uint8_t *)cu->work + c->low_at),
                           .out = to.data,
                           .ld = to.ld,
                           .parts = (int32_t)c->strips,
                           .adapters = adapters,
                           .rank = {c->ranks.gate, c->ranks.up},
                           .wide = (int32_t)wide,
                           .scale = {u->low->attr.linear.part[0].scale,
                                     u->db ? u->low->attr.linear.part[1].scale : 0}};
    dw_parts dw = {0};
    if (u->db)
        dw = (dw_parts){.part = (const float *)((uint8_t *)cu->work + c->dw_at),
                        .db = u->db->out[0]->data,
                        .da = u->da ? u->da->out[0]->data : NULL,
                        .n_db = n_db,
                        .n = n,
                        .parts = (int32_t)c->splits,
                        .add_db = u->db->accumulate,
                        .add_da = u->da && u->da->accumulate};
    const int64_t blocks = low_blocks + (u->db ? (n / 4 + 255) / 256 : 0);
    af_launch *l =
        af_cuda_launch(cu, node_of(u), kernel(cu, u, "adapter_sums"), blocks, 1, 1, 256, 0);
    af_arg_bytes(l, &low, sizeof low);
    af_arg_bytes(l, &dw, sizeof dw);
    af_arg_i64(l, c->N);
    af_arg_i32(l, low_blocks);
}

/* A [R][F] or B [2 F][R], in the group's matrix or in the workspace. */
static af_mat half_of(af_cuda *cu, const af_glu_adapter *u, const cut *c)
{
    const af_linear_group *p = c->group;
    if (!p->scratch)
        return u->db ? af_linear_group_mat(cu, p, 0, p->O, p->I, p->R)
                     : af_linear_group_mat(cu, p, p->O, p->R, 0, p->I);
    af_mat to = {(uint8_t *)cu->work + c->half_at, p->R, p->I, p->I, p->type};
    if (!u->db && p->down)
        return (af_mat){p->down->data, p->R, p->I, p->down->ld, p->type};
    if (!u->db) {
        af_cuda_copy_2d(cu, node_of(u), to, af_mat_of(p->a), p->I, 1.0f);
        return to;
    }
    to = (af_mat){cu->work, p->O, p->R, p->R, p->type};
    const uint8_t *from = p->b->data;
    for (int i = 0; i < 2; i++) {
        const af_adapter_part *q = &u->low->attr.linear.part[i];
        const af_mat half = {(uint8_t *)cu->work + (i * c->F * p->R + q->rank_from) * 2, c->F,
                             q->rank, p->R, p->type};
        af_cuda_copy_2d(cu, u->glu, half,
                        (af_mat){(void *)from, c->F, q->rank, q->rank, p->b->dtype}, q->rank, 1.0f);
        from += (uint64_t)(c->F * q->rank) * (uint64_t)af_dtype_get(p->b->dtype)->bytes;
    }
    return to;
}

static void forward(af_cuda *cu, const af_glu_adapter *u, const cut *c)
{
    const af_mat a = half_of(cu, u, c);
    const int bytes = (2 * PLANE + AF_GLU_RANK * (strip_tiles(u) * COLS + 8)) * 2 + SUM_BYTES;
    const char *name = u->codes ? "glu_adapter_fwd_codes" : "glu_adapter_fwd";
    af_launch *l =
        af_cuda_launch(cu, u->glu, kernel(cu, u, name), c->blocks ? c->blocks : c->strips,
                       c->blocks ? 1 : c->splits, 1, 256, (unsigned)bytes);
    af_arg_mat(l, rows_of(u));
    af_arg_mat(l, af_mat_of(u->glu->in[0]));
    af_arg_mat(l, a);
    af_arg_ptr(l, (uint8_t *)cu->work + c->low_at);
    af_arg_i64(l, c->N);
    af_arg_i32(l, c->F);
    if (u->codes)
        af_arg_i32(l, c->span);
    af_arg_i32(l, c->ranks.gate);
    if (u->codes)
        add_codes(l, u);
}

/* The last input of a node that GLU_BWD took over, as that has it now: it may come from host memory
 * since. They follow its own two inputs, without the first one of each. */
static af_mat taken_input(const af_glu_adapter *u, const af_node *of)
{
    int at = 2 + u->low->n_in - 1 + u->db->n_in - 1;
    if (of == u->da)
        at += u->da->n_in - 1;
    return af_mat_of(u->glu->in[at - 1]);
}

static void backward(af_cuda *cu, const af_glu_adapter *u, const cut *c)
{
    const af_mat b = half_of(cu, u, c);
    af_launch *l = af_cuda_launch(cu, u->glu, kernel(cu, u, "glu_adapter_bwd"), c->strips,
                                  c->splits, 1, 256, AF_GLU_SHARED);
    af_arg_mat(l, rows_of(u));
    af_arg_mat(l, af_mat_of(u->glu->in[0]));
    af_arg_mat(l, af_mat_of(u->glu->in[1]));
    af_arg_mat(l, b);
    af_arg_mat(l, taken_input(u, u->db));
    af_arg_mat(l, u->da ? taken_input(u, u->da) : (af_mat){0});
    af_arg_ptr(l, (uint8_t *)cu->work + c->low_at);
    af_arg_ptr(l, (uint8_t *)cu->work + c->dw_at);
    af_arg_i64(l, c->N);
    af_arg_i32(l, c->F);
    af_arg_i32(l, c->span);
    af_arg_bytes(l, &c->ranks, sizeof c->ranks);
    add_codes(l, u);
}

bool af_glu_adapter_launch(af_cuda *cu, af_graph *g, af_node *n, bool *rows)
{
    const af_glu_adapter *u = af_glu_adapter_of(g, n);
    *rows = !u || !u->codes || u->plain;
    if (!u)
        return false;
    const cut c = cut_of(cu, u);
    if (u->db)
        backward(cu, u, &c);
    else
        forward(cu, u, &c);
    sums(cu, u, &c);
    return true;
}

uint64_t af_glu_adapter_work(const af_cuda *cu, const af_node *n)
{
    const af_glu_adapter *u = af_glu_adapter_of(cu->graph, n);
    return u && u->low ? cut_of(cu, u).bytes : 0;
}

af_mat af_glu_adapter_half(af_cuda *cu, const af_glu_adapter *u)
{
    const cut c = cut_of(cu, u);
    return half_of(cu, u, &c);
}

float *af_glu_adapter_parts(af_cuda *cu, const af_glu_adapter *u)
{
    return (float *)((uint8_t *)cu->work + cut_of(cu, u).low_at);
}

void af_glu_adapter_sums(af_cuda *cu, const af_glu_adapter *u)
{
    const cut c = cut_of(cu, u);
    sums(cu, u, &c);
}
