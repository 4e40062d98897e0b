/* linear_fill_cuda.c - keeps the matrices of linear_layout.c up to date: pieces that are not views
 * are dequantised or cast into them, adapters are copied next to them. */
#include "backend/cuda/cuda_graph.h"
#include "ops/common/weight_type.h"
#include "ops/linear/fp8_cuda.h"
#include "ops/linear/linear_cuda.h"

af_mat af_linear_group_mat(const af_cuda *cu, const af_linear_group *p, int64_t row, int64_t rows,
                           int64_t col, int64_t cols)
{
    const int64_t ld = p->I + p->ext;
    assert(row + rows <= p->O + p->ext && col + cols <= ld);
    uint8_t *base = p->scratch ? cu->work : p->fused->data;
    return (af_mat){base + (uint64_t)(row * ld + col) * (uint64_t)af_dtype_get(p->type)->bytes,
                    rows, cols, ld, p->type};
}

/* Rows `from` on. */
static af_mat rows_from(af_mat x, int64_t from, int64_t rows)
{
    if (x.data)
        x.data =
            (uint8_t *)x.data + (uint64_t)(from * x.ld) * (uint64_t)af_dtype_get(x.dtype)->bytes;
    x.rows = rows;
    return x;
}

void af_cuda_copy_2d(af_cuda *cu, af_node *n, af_mat dst, af_mat src, int64_t wide, float alpha)
{
    enum { ROWS_MAX = 65535 * 8 }; /* of one launch: the second axis of a grid ends there */
    if (src.cols == 0)
        src.dtype = dst.dtype;
    af_kernel *k = af_cuda_kernel(
        cu, "core.cu", "copy_2d",
        af_cuda_text(cu, "AF_S=%s AF_D=%s", af_cuda_ctype(src.dtype), af_cuda_ctype(dst.dtype)));
    for (int64_t from = 0; from < dst.rows && wide > 0; from += ROWS_MAX) {
        const int64_t rows = AF_MIN(dst.rows - from, (int64_t)ROWS_MAX);
        af_launch *l = af_cuda_launch(cu, n, k, AF_MIN((wide + 31) / 32, (int64_t)64),
                                      (rows + 7) / 8, 1, 256, 0);
        af_arg_mat(l, rows_from(dst, from, rows));
        af_arg_mat(l, rows_from(src, from, rows));
        af_arg_i64(l, rows);
        af_arg_i64(l, src.cols);
        af_arg_i64(l, wide);
        af_arg_f32(l, alpha);
    }
}

void af_cuda_dequantise(af_cuda *cu, af_node *n, af_mat dst, const af_tensor *w)
{
    const af_quant *q = w->quant;
    const bool four = w->dtype == AF_DTYPE_NF4 || w->dtype == AF_DTYPE_FP4;
    af_kernel *k =
        af_cuda_kernel(cu, "dequant.cu", af_cuda_text(cu, "%s_dequant", af_dtype_name(w->dtype)),
                       af_cuda_text(cu, "AF_T=%s", af_cuda_ctype(dst.dtype)));
    const int64_t blocks = AF_MIN((dst.rows * dst.cols + 2047) / 2048, (int64_t)cu->sms * 16);
    af_launch *l = af_cuda_launch(cu, n, k, AF_MAX(blocks, (int64_t)1), 1, 1, 256, 0);
    af_arg_mat(l, dst);
    af_arg_ptr(l, w->data);
    if (w->dtype == AF_DTYPE_I8) {
        assert(q && "an int8 weight has its scales");
        af_arg_ptr(l, q->absmax->data);
    }
    if (four) {
        assert(q && "a 4-bit weight has its scales");
        af_arg_ptr(l, q->absmax->data);
        af_arg_ptr(l, q->nested ? q->nested->data : NULL);
        af_arg_f32_late(cu, l, &af_gathered_from(w)->quant->offset);
    }
    af_arg_i64(l, dst.rows);
    af_arg_i64(l, dst.cols);
    if (four) {
        af_arg_i32(l, q->block);
        af_arg_i32(l, q->nested_block);
    }
    if (four || w->dtype == AF_DTYPE_I8)
        af_arg_i32(l, q->round == AF_DTYPE_BF16);
}

/* ---- copies that run together ---- */

typedef struct copy_entry { /* as in core.cu */
    void *dst;
    const void *src;
    int64_t dst_ld, src_ld, rows, cols, first, kind;
} copy_entry;

enum { COPY_BLOCK = 4096, KINDS_MAX = 12 };

typedef struct copies {
    af_node *n;
    af_dtype from, to;
    copy_entry *e;
    int count, cap;
    int64_t blocks;
} copies;

typedef struct copy_list {
    copies kind[KINDS_MAX];
    int n;
    bool failed;
} copy_list;

static bool aligned(const void *p, int64_t ld, int64_t size)
{
    return (uintptr_t)p % (uintptr_t)(4 * size) == 0 && ld % 4 == 0;
}

enum { COPY_PLAIN, COPY_QUADS, COPY_FLIP };

/* flip: dst is the transpose. */
static void collect(copy_list *k, af_node *n, af_mat dst, af_mat src, bool flip)
{
    copies *c = NULL;
    for (int i = 0; i < k->n && !c; i++)
        if (k->kind[i].n == n && k->kind[i].from == src.dtype && k->kind[i].to == dst.dtype)
            c = &k->kind[i];
    if (!c) {
        assert(k->n < KINDS_MAX);
        c = &k->kind[k->n++];
        *c = (copies){.n = n, .from = src.dtype, .to = dst.dtype};
    }
    if (c->count == c->cap) {
        const int cap = c->cap ? c->cap * 2 : 64;
        copy_entry *p = af_realloc(c->e, (uint64_t)cap, sizeof *p);
        k->failed |= !p;
        if (!p)
            return;
        c->e = p;
        c->cap = cap;
    }
    const bool quads = src.cols % 4 == 0 &&
                       aligned(src.data, src.ld, af_dtype_get(src.dtype)->bytes) &&
                       aligned(dst.data, dst.ld, af_dtype_get(dst.dtype)->bytes);
    c->e[c->count++] = (copy_entry){
        dst.data, src.data, dst.ld,    src.ld,
        src.rows, src.cols, c->blocks, flip ? COPY_FLIP : quads ? COPY_QUADS : COPY_PLAIN};
    c->blocks += (src.rows * src.cols + COPY_BLOCK - 1) / COPY_BLOCK;
}

/* One upload for all tables, one launch a kind. */
static af_status emit_collected(af_cuda *cu, af_cuda_graph *cg, copy_list *k, af_error *err)
{
    af_status st = AF_OK;
    uint64_t total = 0;
    for (int i = 0; i < k->n; i++)
        total += (uint64_t)k->kind[i].count * sizeof(copy_entry);
    if (k->failed)
        AF_TRY(af_fail_nomem(err, "the prepared graph", total));
    if (total == 0)
        goto done;
    AF_TRY(af_cu_check(cu->drv, cu->drv->mem_alloc(&cg->tables, total), "cuMemAlloc",
                       "tables of copies", err));
    cu->device.counters.allocations++;
    uint8_t *at = cg->tables;
    for (int i = 0; i < k->n; i++) {
        const copies *c = &k->kind[i];
        const uint64_t bytes = (uint64_t)c->count * sizeof(copy_entry);
        AF_TRY(af_upload_rows(cu, at, bytes, c->e, bytes, 1, "tables of copies", err));
        af_kernel *f = af_cuda_kernel(
            cu, "core.cu", "copy_table",
            af_cuda_text(cu, "AF_S=%s AF_D=%s", af_cuda_ctype(c->from), af_cuda_ctype(c->to)));
        af_launch *l = af_cuda_launch(cu, c->n, f, c->blocks, 1, 1, 256, 0);
        af_arg_ptr(l, at);
        af_arg_i32(l, c->count);
        at += bytes;
    }
done:
    for (int i = 0; i < k->n; i++)
        free(k->kind[i].e);
    return st;
}

/* dst = src, now or together with others. */
static void put(af_cuda *cu, af_node *n, copy_list *k, af_mat dst, af_mat src)
{
    if (src.rows == 0 || src.cols == 0)
        return;
    if (k)
        collect(k, n, dst, src, false);
    else
        af_cuda_copy_2d(cu, n, dst, src, src.cols, 1.0f);
}

static int64_t piece_row(const af_linear_group *p, int i)
{
    return p->of->op == AF_OP_HEAD_LOSS ? 0 : p->of->attr.linear.piece_from[i];
}

const af_tensor *af_linear_group_piece(const af_linear_group *p, const af_node *n, int i)
{
    switch (n->op) {
    case AF_OP_LINEAR:
    case AF_OP_LINEAR_DX:
        return af_linear_in(n).w[i];
    case AF_OP_HEAD_LOSS:
        return n->in[1];
    default:
        return p->w[i];
    }
}

static void fill_piece(af_cuda *cu, af_node *n, copy_list *k, const af_linear_group *p, int i)
{
    const af_tensor *w = af_linear_group_piece(p, n, i);
    if (p->fused && w->base == p->fused)
        return;
    const af_mat dst = af_linear_group_mat(cu, p, piece_row(p, i), w->dim[0], 0, p->I);
    if (af_is_coded(w->dtype))
        af_cuda_dequantise(cu, n, dst, w);
    else
        put(cu, n, k, dst, af_mat_of(w));
}

static void fill_a(af_cuda *cu, af_node *n, copy_list *k, const af_linear_group *p)
{
    put(cu, n, k, af_linear_group_mat(cu, p, p->O, p->R, 0, p->I), af_mat_of(p->a));
}

static void fill_b(af_cuda *cu, af_node *n, copy_list *k, const af_linear_group *p)
{
    const uint64_t size = (uint64_t)af_dtype_get(p->b->dtype)->bytes;
    uint8_t *src = p->b->data;
    for (int i = 0; i < p->parts; i++) {
        const af_adapter_part *q = &p->of->attr.linear.part[i];
        const af_mat from = {src, q->out_rows, q->rank, q->rank, p->b->dtype};
        put(cu, n, k,
            af_linear_group_mat(cu, p, q->out_from, q->out_rows, p->I + q->rank_from, q->rank),
            from);
        src += (uint64_t)(q->out_rows * q->rank) * size;
    }
}

/* B transposed, [R, up to 16][O]: what the low-rank GEMM of the backward pass reads. */
static void fill_bt(af_node *n, copy_list *k, const af_linear_group *p)
{
    const uint64_t size = (uint64_t)af_dtype_get(p->b->dtype)->bytes;
    const uint64_t to = (uint64_t)af_dtype_get(p->type)->bytes;
    uint8_t *src = p->b->data;
    for (int i = 0; p->bt && i < p->parts; i++) {
        const af_adapter_part *q = &p->of->attr.linear.part[i];
        const af_mat from = {src, q->out_rows, q->rank, q->rank, p->b->dtype};
        const af_mat dst = {(uint8_t *)p->bt->data +
                                (uint64_t)(q->rank_from * p->bt->ld + q->out_from) * to,
                            q->rank, q->out_rows, p->bt->ld, p->type};
        if (q->out_rows > 0)
            collect(k, n, dst, from, true);
        src += (uint64_t)(q->out_rows * q->rank) * size;
    }
}

/* A part of the output without a bias gets zeros, as in a leaf. */
static void fill_bias(af_cuda *cu, af_node *n, const af_linear_group *p)
{
    const af_linear_inputs in = af_linear_in(n);
    for (int i = 0; i < p->pieces; i++) {
        const int64_t rows = in.w[i]->dim[0];
        const af_mat dst = {af_linear_group_bias(cu, p, piece_row(p, i)), 1, rows, rows, p->type};
        af_mat src = {0};
        if (in.bias[i])
            src = (af_mat){in.bias[i]->data, 1, rows, rows, in.bias[i]->dtype};
        af_cuda_copy_2d(cu, n, dst, src, rows, 1.0f);
    }
}

void af_linear_group_fill(af_cuda *cu, af_node *n, const af_linear_group *p, int what)
{
    const uint64_t row = (uint64_t)(p->I + p->ext) * (uint64_t)af_dtype_get(p->type)->bytes;
    if (what & AF_FILL_BIAS && p->gathered)
        fill_bias(cu, n, p);
    if (!p->scratch || af_bnb_fill(cu, n, p, what))
        return;
    for (int i = 0; i < p->pieces && what & AF_FILL_W; i++)
        fill_piece(cu, n, NULL, p, i);
    if (what & AF_FILL_A && p->parts) { /* the workspace holds anything: spare rows become zeros */
        af_cuda_zero(cu, n, af_linear_group_mat(cu, p, p->O, p->ext, 0, p->I).data,
                     (uint64_t)p->ext * row);
        fill_a(cu, n, NULL, p);
    }
    if (what & AF_FILL_B && p->parts) {
        af_cuda_copy_2d(cu, n, af_linear_group_mat(cu, p, 0, p->O, p->I, p->ext), (af_mat){0},
                        p->ext, 1.0f);
        fill_b(cu, n, NULL, p);
    }
}

static af_node *keeper(af_cuda_graph *cg, const af_tensor *t)
{
    return t->role == AF_ROLE_PARAM ? &cg->on_params : &cg->on_weights;
}

/* Of the matrix as the copies before have left it. */
static void make_codes(af_cuda *cu, af_node *n, const af_linear_group *p)
{
    af_linear_group_fill(cu, n, p, AF_FILL_W);
    af_fp8_cuda_weights(
        cu, n, p, p->direct ? af_mat_of(p->w[0]) : af_linear_group_mat(cu, p, 0, p->O, 0, p->I));
}

af_status af_cuda_linear_prepare(af_cuda *cu, af_graph *g, af_error *err)
{
    af_cuda_graph *cg = g->backend;
    const af_linear_groups *groups = *af_cuda_slot(g, &af_cuda_linear_family);
    copy_list all = {0};
    for (int k = 0; k < groups->n; k++) {
        const af_linear_group *p = &groups->group[k];
        for (int i = 0; i < p->pieces && !p->gathered; i++)
            if (p->bias_in[i] && p->bias_in[i]->base != p->bias) {
                const int64_t n = p->bias_in[i]->dim[0];
                const af_mat dst = {(uint8_t *)p->bias->data +
                                        (uint64_t)piece_row(p, i) *
                                            (uint64_t)af_dtype_get(p->type)->bytes,
                                    1, n, n, p->type};
                const af_mat src = {p->bias_in[i]->data, 1, n, n, p->bias_in[i]->dtype};
                put(cu, keeper(cg, p->bias_in[i]), &all, dst, src);
            }
        if (p->bt)
            fill_bt(keeper(cg, p->b), &all, p);
        if (p->down)
            put(cu, keeper(cg, p->a), &all,
                (af_mat){p->down->data, p->R, p->I, p->down->ld, p->type}, af_mat_of(p->a));
        if (p->at)
            collect(&all, keeper(cg, p->a), af_mat_of(p->at), af_mat_of(p->a), true);
        if (p->direct || p->scratch)
            continue;
        for (int i = 0; i < p->pieces; i++)
            fill_piece(cu, keeper(cg, p->w[i]), &all, p, i);
        if (p->parts) {
            fill_a(cu, keeper(cg, p->a), &all, p);
            fill_b(cu, keeper(cg, p->b), &all, p);
        }
    }
    const af_status st = emit_collected(cu, cg, &all, err);
    for (int k = 0; k < groups->n && st == AF_OK; k++)
        if (groups->group[k].fp8)
            make_codes(cu, &cg->on_weights, &groups->group[k]);
    return st != AF_OK || cu->err.code == AF_OK ? st
                                                : af_fail(err, cu->err.code, "%s", cu->err.msg);
}
