/* attention_cudnn.c - the forward pass of attention.c as cuDNN expects it described: matmuls,
 * masks and softmax as single operations, in the order its fused kernel is known by. */
#include "ops/attention/attention_cudnn.h"

typedef struct graph {
    af_dnn_graph *g;
    const af_dnn_attention *a;
    void *length_q, *length_k;
} graph;

/* [S][H][T][T], [S][H][T][1] */
static void *scores(const graph *x, af_dnn_type type)
{
    const af_dnn_attention *a = x->a;
    const af_dnn_shape s = {{a->S, a->H, a->T, a->T}, {a->H * a->T * a->T, a->T * a->T, a->T, 1}};
    return af_dnn_tensor(x->g, 0, type, &s, AF_DNN_VIRTUAL, NULL);
}

static void *column(const graph *x)
{
    const af_dnn_attention *a = x->a;
    const af_dnn_shape s = {{a->S, a->H, a->T, 1}, {a->H * a->T, a->T, 1, 1}};
    return af_dnn_tensor(x->g, 0, AF_DNN_F32, &s, AF_DNN_VIRTUAL, NULL);
}

static void *number(const graph *x, int id)
{
    const af_dnn_shape s = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    return af_dnn_tensor(x->g, id, AF_DNN_F32, &s, AF_DNN_VALUE, NULL);
}

static void *list(const graph *x, int id, af_dnn_type type, int64_t n)
{
    const af_dnn_shape s = {{n, 1, 1, 1}, {1, 1, 1, 1}};
    return af_dnn_tensor(x->g, id, type, &s, AF_DNN_MEMORY, NULL);
}

static void *heads(const graph *x, int id, int64_t count, int64_t ld, bool transposed, void *at)
{
    const af_dnn_attention *a = x->a;
    const af_dnn_shape s = {{a->S, count, a->T, a->E}, {a->T * ld, a->E, ld, 1}};
    const af_dnn_shape t = {{a->S, count, a->E, a->T}, {a->T * ld, a->E, 1, ld}};
    return af_dnn_tensor(x->g, id, AF_DNN_BF16, transposed ? &t : &s, AF_DNN_MEMORY, at);
}

static void *point(const graph *x, af_dnn_mode mode, af_dnn_type type, void *a, void *b, void *y)
{
    af_dnn_point(x->g, mode, type, 0, a, b, NULL, y);
    return y;
}

static void *index_of(const graph *x, void *like, int axis)
{
    void *y = scores(x, AF_DNN_I32);
    af_dnn_point(x->g, AF_DNN_INDEX, AF_DNN_I32, axis, like, NULL, NULL, y);
    return y;
}

/* s where `keep`, else minus infinity. */
static void *keep_where(const graph *x, void *s, void *keep, int low)
{
    void *y = scores(x, AF_DNN_F32);
    af_dnn_point(x->g, AF_DNN_SELECT, AF_DNN_F32, 0, s, number(x, low), keep, y);
    return y;
}

/* What a query sees: rows of its sequence, and of those no later ones. */
static void *mask(const graph *x, void *s)
{
    void *row = index_of(x, s, 2), *col = index_of(x, s, 3);
    row = point(x, AF_DNN_LT, AF_DNN_BOOL, row, x->length_q, scores(x, AF_DNN_BOOL));
    col = point(x, AF_DNN_LT, AF_DNN_BOOL, col, x->length_k, scores(x, AF_DNN_BOOL));
    void *both = point(x, AF_DNN_AND, AF_DNN_BOOL, row, col, scores(x, AF_DNN_BOOL));
    s = keep_where(x, s, both, AF_DNN_LOW);
    row = index_of(x, s, 2), col = index_of(x, s, 3);
    void *seen = point(x, AF_DNN_GE, AF_DNN_BOOL, row, col, scores(x, AF_DNN_BOOL));
    return keep_where(x, s, seen, AF_DNN_LOW_CAUSAL);
}

/* Rows of p in bf16, and lse. */
static void *softmax(const graph *x, void *s)
{
    const af_dnn_attention *a = x->a;
    const af_dnn_shape shape = {{a->S, a->H, a->T, 1}, {a->T * a->H, 1, a->H, 1}};
    void *at = list(x, AF_DNN_AT_LSE, AF_DNN_I64, a->S + 1);
    void *lse = af_dnn_tensor(x->g, AF_DNN_LSE, AF_DNN_F32, &shape, AF_DNN_MEMORY, at);
    void *most = column(x), *sum = column(x);
    af_dnn_reduce(x->g, AF_DNN_MAX, s, most);
    void *e = point(x, AF_DNN_SUB, AF_DNN_F32, s, most, scores(x, AF_DNN_F32));
    e = point(x, AF_DNN_EXP, AF_DNN_F32, e, NULL, scores(x, AF_DNN_F32));
    af_dnn_reduce(x->g, AF_DNN_SUM, e, sum);
    void *log = point(x, AF_DNN_LOG, AF_DNN_F32, sum, NULL, column(x));
    (void)point(x, AF_DNN_ADD, AF_DNN_F32, most, log, lse);
    return point(x, AF_DNN_DIV, AF_DNN_F32, e, sum, scores(x, AF_DNN_BF16));
}

void af_dnn_attention_forward(af_dnn_graph *g, const af_dnn_attention *a)
{
    graph x = {.g = g, .a = a};
    x.length_q = list(&x, AF_DNN_LENGTH_Q, AF_DNN_I32, a->S);
    x.length_k = list(&x, AF_DNN_LENGTH_K, AF_DNN_I32, a->S);
    void *at_qkv = list(&x, AF_DNN_AT_QKV, AF_DNN_I64, a->S + 1);
    void *at_o = list(&x, AF_DNN_AT_O, AF_DNN_I64, a->S + 1);
    void *q = heads(&x, AF_DNN_Q, a->H, a->ld_qkv, false, at_qkv);
    void *k = heads(&x, AF_DNN_K, a->K, a->ld_qkv, true, at_qkv);
    void *v = heads(&x, AF_DNN_V, a->K, a->ld_qkv, false, at_qkv);
    void *o = heads(&x, AF_DNN_O, a->H, a->ld_o, false, at_o);
    void *s = scores(&x, AF_DNN_F32);
    af_dnn_matmul(g, q, k, s, x.length_q, x.length_k, NULL);
    s = point(&x, AF_DNN_MUL, AF_DNN_F32, s, number(&x, AF_DNN_SCALE), scores(&x, AF_DNN_F32));
    af_dnn_matmul(g, softmax(&x, mask(&x, s)), v, o, x.length_q, NULL, x.length_k);
}
