/* fp8_cuda.c - see fp8_cuda.h. On Hopper fp8_sm90.cu multiplies, elsewhere fp8_gemm.cu. */
#include "ops/linear/fp8_cuda.h"
#include "backend/cuda/driver.h"

enum {
    ARCH_MIN = 89,
    UNIT = 16,
    TILE = 128,
    STAGES_BYTES = 4 * 2 * 10240, /* fp8_gemm.cu */
    /* fp8_sm90.cu: blocks of a cluster, columns of a tile, shared memory */
    CLUSTER = 2,
    SM90_COLS = 192,
    SM90_BYTES = 5 * 40960 + 2 * 8192 + 1024 + 80,
    /* fp8_quant.cu: values of a thread */
    HELD = 5 * 8,
};

bool af_fp8_cuda_can(const af_cuda *cu, af_dtype type, int64_t in, int64_t out)
{
    return cu->arch >= ARCH_MIN && type == AF_DTYPE_BF16 && in % UNIT == 0 && out % UNIT == 0 &&
           cu->smem_max >= STAGES_BYTES;
}

void af_fp8_cuda_leaves(af_graph *g, af_linear_group *p)
{
    p->codes = af_leaf(g, AF_ROLE_WEIGHT, "", AF_DTYPE_E4M3, 2, (int64_t[]){p->O, p->I});
    p->codes_t = af_leaf(g, AF_ROLE_WEIGHT, "", AF_DTYPE_E4M3, 2, (int64_t[]){p->I, p->O});
    p->scale = af_leaf(g, AF_ROLE_WEIGHT, "", AF_DTYPE_F32, 1, (int64_t[]){p->O});
    p->scale_t = af_leaf(g, AF_ROLE_WEIGHT, "", AF_DTYPE_F32, 1, (int64_t[]){p->I});
    if (p->parts)
        p->at = af_leaf(g, AF_ROLE_WEIGHT, "", p->type, 2, (int64_t[]){p->I, p->ext});
}

static uint64_t code_bytes(const af_node *n)
{
    return AF_ALIGN_UP((uint64_t)af_count(n->in[0]), (uint64_t)256);
}

/* The two tensors are next to each other: activations, while a weight may have the same type. */
static af_fp8_rows rows_among(af_tensor *const *t, int n)
{
    for (int i = 0; i + 1 < n; i++)
        if (t[i]->dtype == AF_DTYPE_E4M3 && t[i]->role == AF_ROLE_ACTIVATION)
            return (af_fp8_rows){t[i], t[i + 1]};
    return (af_fp8_rows){NULL, NULL};
}

af_fp8_rows af_fp8_rows_made(const af_node *n) { return rows_among(n->out, n->n_out); }

/* Norms do, where every row they read and write starts on 16 bytes. */
static bool writes_rows(const af_node *n, const af_tensor *x)
{
    bool fits = n && n->out[0] == x && !x->base && n->n_out + 2 <= AF_NODE_OUT_MAX &&
                x->dtype == AF_DTYPE_BF16;
    fits = fits &&
           (n->op == AF_OP_RMSNORM || n->op == AF_OP_RMSNORM_ADD || n->op == AF_OP_RMSNORM_BWD);
    for (int k = 0; fits && k < n->n_in + n->n_out; k++) {
        const af_tensor *t = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
        fits = af_last(t) != af_last(x) || (t->ld % UNIT == 0 && t->base_offset % 16 == 0);
    }
    return fits;
}

bool af_fp8_rows_add(af_graph *g, af_node *maker, af_node *product)
{
    const af_tensor *x = product->in[0];
    if (maker->n_out + 2 > AF_NODE_OUT_MAX || product->n_in + 2 > AF_NODE_IN_MAX)
        return false;
    af_tensor *codes = af_node_output(g, maker, AF_DTYPE_E4M3, x->ndim, x->dim);
    af_tensor *scale = af_node_output(g, maker, AF_DTYPE_F32, 1, (int64_t[]){af_rows(x)});
    if (af_graph_failed(g))
        return false;
    product->in[product->n_in++] = codes;
    product->in[product->n_in++] = scale;
    return true;
}

/* The output that af_fp8_most_add added, or NULL. */
static af_tensor *fp8_most(const af_node *n)
{
    const bool product = n->op == AF_OP_LINEAR || n->op == AF_OP_LINEAR_DX;
    return product && n->attr.linear.fp8 && n->n_out > 1 ? n->out[n->n_out - 1] : NULL;
}

af_tensor *af_fp8_most_add(af_graph *g, af_node *n)
{
    if (fp8_most(n) || n->n_out + 1 > AF_NODE_OUT_MAX)
        return fp8_most(n);
    const int64_t halves = n->op == AF_OP_LINEAR ? 2 : 1;
    return af_node_output(g, n, AF_DTYPE_F32, 2, (int64_t[]){halves, af_rows(n->out[0])});
}

void af_fp8_cuda_join(af_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        af_node *n = g->nodes[i], *of = n->n_in > 0 ? n->in[0]->producer : NULL;
        if ((n->op != AF_OP_LINEAR && n->op != AF_OP_LINEAR_DX) || !n->attr.linear.fp8 ||
            n->n_in + 2 > AF_NODE_IN_MAX)
            continue;
        const af_tensor *x = n->in[0];
        const af_fp8_rows rows = of ? af_fp8_rows_made(of) : (af_fp8_rows){NULL, NULL};
        if (rows.codes) {
            n->in[n->n_in++] = rows.codes;
            n->in[n->n_in++] = rows.scale;
        } else if (writes_rows(of, x)) {
            (void)af_fp8_rows_add(g, of, n);
        }
    }
}

uint64_t af_fp8_cuda_work(const af_node *n)
{
    const bool product = n->op == AF_OP_LINEAR || n->op == AF_OP_LINEAR_DX;
    return product && n->attr.linear.fp8 && !rows_among(n->in, n->n_in).codes
               ? code_bytes(n) + AF_ALIGN_UP((uint64_t)af_rows(n->in[0]) * 4, (uint64_t)256)
               : 0;
}

static void rows_to_codes(af_cuda *cu, af_node *n, void *codes, void *scale, af_mat x)
{
    int threads = 128;
    while (threads < 1024 && (int64_t)threads * HELD < x.cols)
        threads *= 2;
    af_launch *l =
        af_cuda_launch(cu, n, af_cuda_kernel(cu, "fp8_quant.cu", "fp8_rows", "AF_T=bf16"), x.rows,
                       1, 1, threads, 0);
    af_arg_ptr(l, codes);
    af_arg_ptr(l, scale);
    af_arg_mat(l, x);
    af_arg_i32(l, x.cols);
}

void af_fp8_cuda_weights(af_cuda *cu, af_node *n, const af_linear_group *p, af_mat w)
{
    rows_to_codes(cu, n, p->codes->data, p->scale->data, w);
    af_launch *l =
        af_cuda_launch(cu, n, af_cuda_kernel(cu, "fp8_quant.cu", "fp8_columns", "AF_T=bf16"),
                       (w.cols + 31) / 32, 1, 1, 256, 0);
    af_arg_ptr(l, p->codes_t->data);
    af_arg_ptr(l, p->scale_t->data);
    af_arg_mat(l, w);
    af_arg_i32(l, w.rows);
    af_arg_i32(l, w.cols);
}

/* The operands of c = sx sw (x w') + x2 w2' + bias. */
typedef struct fp8_product {
    af_mat c, x, w, x2, w2; /* x, w: codes */
    const void *sx, *sw, *bias;
    void *most; /* of each row of c, or NULL */
    int64_t split;
} fp8_product;

static void add_most(af_launch *l, const fp8_product *q)
{
    af_arg_ptr(l, q->most);
    af_arg_i32(l, q->split);
}

/* Two codes count as one bf16. */
static af_mat as_pairs(af_mat m)
{
    return (af_mat){m.data, m.rows, m.cols / 2, m.ld / 2, AF_DTYPE_BF16};
}

static void on_hopper(af_cuda *cu, af_node *n, const fp8_product *q)
{
    const bool second = q->x2.cols > 0;
    const int64_t pairs = ((q->c.rows + CLUSTER * TILE - 1) / (CLUSTER * TILE)) *
                          ((q->c.cols + SM90_COLS - 1) / SM90_COLS);
    af_launch *l =
        af_cuda_launch(cu, n, af_cuda_kernel(cu, "fp8_sm90.cu", "fp8_sm90", "AF_T=bf16"),
                       AF_MIN(pairs, (int64_t)cu->sms / CLUSTER) * CLUSTER, 1, 1, 384, SM90_BYTES);
    af_arg_map(cu, l, q->c);
    af_arg_map(cu, l, as_pairs(q->x));
    af_arg_ptr(l, q->sx);
    af_arg_map(cu, l, as_pairs(q->w));
    af_arg_ptr(l, q->sw);
    af_arg_map(cu, l, second ? q->x2 : as_pairs(q->x));
    af_arg_map(cu, l, second ? q->w2 : as_pairs(q->w));
    af_arg_ptr(l, q->bias);
    af_arg_i32(l, q->c.rows);
    af_arg_i32(l, q->c.cols);
    af_arg_i32(l, q->x.cols);
    af_arg_i32(l, q->x2.cols);
    add_most(l, q);
}

static void elsewhere(af_cuda *cu, af_node *n, const fp8_product *q)
{
    af_launch *l = af_cuda_launch(cu, n, af_cuda_kernel(cu, "fp8_gemm.cu", "fp8_gemm", "AF_T=bf16"),
                                  (q->c.cols + TILE - 1) / TILE, (q->c.rows + TILE - 1) / TILE, 1,
                                  128, STAGES_BYTES);
    af_arg_mat(l, q->c);
    af_arg_ptr(l, q->x.data);
    af_arg_ptr(l, q->sx);
    af_arg_ptr(l, q->w.data);
    af_arg_ptr(l, q->sw);
    af_arg_mat(l, q->x2);
    af_arg_mat(l, q->w2);
    af_arg_ptr(l, q->bias);
    af_arg_i64(l, q->c.rows);
    af_arg_i64(l, q->c.cols);
    af_arg_i64(l, q->x.cols);
    af_arg_i32(l, q->x2.cols);
    add_most(l, q);
}

void af_fp8_cuda_product(af_cuda *cu, af_node *n, const af_linear_group *p, af_mat x2, af_mat w2,
                         const void *bias)
{
    const bool forward = n->op == AF_OP_LINEAR;
    const af_mat x = af_mat_of(n->in[0]);
    const af_fp8_rows made = rows_among(n->in, n->n_in);
    uint8_t *codes =
        made.codes ? made.codes->data
                   : (uint8_t *)cu->work + AF_ALIGN_UP(af_linear_group_scratch(p), (uint64_t)256);
    uint8_t *scale = made.codes ? made.scale->data : codes + code_bytes(n);
    if (!made.codes)
        rows_to_codes(cu, n, codes, scale, x);
    const af_tensor *most = fp8_most(n);
    if (most)
        af_cuda_zero(cu, n, most->data, af_tensor_bytes(most));
    const fp8_product q = {.c = af_mat_of(n->out[0]),
                           .x = {codes, x.rows, x.cols, x.cols, AF_DTYPE_E4M3},
                           .w = af_mat_of(forward ? p->codes : p->codes_t),
                           .x2 = x2,
                           .w2 = w2,
                           .sx = scale,
                           .sw = (forward ? p->scale : p->scale_t)->data,
                           .bias = bias,
                           .most = most ? most->data : NULL,
                           .split = forward ? af_last(n->out[0]) / 2 : INT32_MAX};
    if (cu->arch == 90 && cu->drv->tensor_map && cu->smem_max >= SM90_BYTES && q.c.ld % 8 == 0 &&
        (uintptr_t)q.c.data % 16 == 0)
        on_hopper(cu, n, &q);
    else
        elsewhere(cu, n, &q);
}
