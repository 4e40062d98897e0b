/* cudnn.c - descriptors of cuDNN's graph interface, made, linked and turned into a plan. */
#include "backend/cuda/cudnn.h"

/* cudnnBackendDescriptorType_t, cudnnBackendAttributeName_t and cudnnBackendAttributeType_t */
enum {
    DESC_POINTWISE = 0,
    DESC_ENGINECFG = 3,
    DESC_HEURISTIC = 4,
    DESC_PLAN = 5,
    DESC_OP_POINTWISE = 13,
    DESC_GRAPH = 15,
    DESC_PACK = 16,
    DESC_TENSOR = 17,
    DESC_MATMUL = 18,
    DESC_OP_MATMUL = 19,
    DESC_REDUCTION = 21,
    DESC_OP_REDUCTION = 22,

    POINT_MODE = 0,
    POINT_PRECISION = 1,
    POINT_AXIS = 9,
    HEUR_MODE = 200,
    HEUR_GRAPH = 201,
    HEUR_RESULTS = 202,
    PLAN_HANDLE = 400,
    PLAN_CONFIG = 401,
    PLAN_WORK = 402,
    OP_POINT_DESC = 750,
    OP_POINT_X = 751,
    OP_POINT_B = 752,
    OP_POINT_Y = 753,
    OP_POINT_T = 758,
    GRAPH_HANDLE = 800,
    GRAPH_OPS = 801,
    TENSOR_ALIGN = 900,
    TENSOR_TYPE = 901,
    TENSOR_DIM = 902,
    TENSOR_STRIDE = 903,
    TENSOR_ID = 906,
    TENSOR_IS_VIRTUAL = 907,
    TENSOR_IS_VALUE = 908,
    TENSOR_RAGGED = 913,
    PACK_IDS = 1000,
    PACK_POINTERS = 1001,
    PACK_WORK = 1003,
    MATMUL_PRECISION = 1500,
    OP_MATMUL_A = 1520,
    OP_MATMUL_B = 1521,
    OP_MATMUL_C = 1522,
    OP_MATMUL_DESC = 1523,
    OP_MATMUL_M = 1525,
    OP_MATMUL_N = 1526,
    OP_MATMUL_K = 1527,
    REDUCTION_OPERATOR = 1600,
    REDUCTION_PRECISION = 1601,
    OP_REDUCTION_X = 1610,
    OP_REDUCTION_Y = 1611,
    OP_REDUCTION_DESC = 1612,

    TYPE_HANDLE = 0,
    TYPE_DATA_TYPE = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INT64 = 3,
    TYPE_POINTER = 6,
    TYPE_HEUR_MODE = 8,
    TYPE_POINTWISE = 14,
    TYPE_DESCRIPTOR = 15,
    TYPE_REDUCTION = 18,

    HEUR_MODE_A = 3,
    CONFIGS = 4,         /* candidates looked at */
    FIRST_BETWEEN = 100, /* number of the first tensor between operations */
    ALIGN = 16,
};

static bool good(af_dnn_graph *g, int status, const char *what)
{
    if (g->status == 0 && status != 0) {
        g->status = status;
        g->what = what;
    }
    return g->status == 0;
}

static void *make(af_dnn_graph *g, int kind, const char *what)
{
    void *d = NULL;
    if (g->status != 0)
        return NULL;
    assert(g->descs < AF_DNN_DESCS);
    if (!good(g, g->api->desc_new(kind, &d), what))
        return NULL;
    return g->desc[g->descs++] = d;
}

static void set(af_dnn_graph *g, void *d, int name, int type, int64_t n, const void *v,
                const char *what)
{
    if (g->status == 0)
        good(g, g->api->desc_set(d, name, type, n, v), what);
}

static void link_to(af_dnn_graph *g, void *d, int name, void *other, const char *what)
{
    if (other)
        set(g, d, name, TYPE_DESCRIPTOR, 1, &other, what);
}

static void *finish(af_dnn_graph *g, void *d, const char *what)
{
    if (g->status == 0)
        good(g, g->api->desc_finalize(d), what);
    return d;
}

static void add_op(af_dnn_graph *g, void *op, const char *what)
{
    assert(g->ops < AF_DNN_OPS);
    g->op[g->ops++] = finish(g, op, what);
}

void *af_dnn_tensor(af_dnn_graph *g, int id, af_dnn_type type, const af_dnn_shape *s,
                    af_dnn_place place, void *ragged)
{
    const int64_t uid = id ? id : FIRST_BETWEEN + g->next++, align = ALIGN;
    const int32_t data_type = type;
    const bool is_virtual = place == AF_DNN_VIRTUAL, value = place == AF_DNN_VALUE;
    void *d = make(g, DESC_TENSOR, "a tensor");
    set(g, d, TENSOR_TYPE, TYPE_DATA_TYPE, 1, &data_type, "a tensor's type");
    set(g, d, TENSOR_DIM, TYPE_INT64, 4, s->dim, "a tensor's sizes");
    set(g, d, TENSOR_STRIDE, TYPE_INT64, 4, s->stride, "a tensor's strides");
    set(g, d, TENSOR_ID, TYPE_INT64, 1, &uid, "a tensor's number");
    set(g, d, TENSOR_ALIGN, TYPE_INT64, 1, &align, "a tensor's alignment");
    set(g, d, TENSOR_IS_VIRTUAL, TYPE_BOOLEAN, 1, &is_virtual, "a tensor's place");
    set(g, d, TENSOR_IS_VALUE, TYPE_BOOLEAN, 1, &value, "a tensor's place");
    link_to(g, d, TENSOR_RAGGED, ragged, "a tensor's offsets");
    return finish(g, d, "a tensor");
}

typedef struct kind { /* what is set in the description of an operation that has a mode */
    int desc, mode, mode_type, precision;
    const char *what;
} kind;

static void *describe(af_dnn_graph *g, const kind *k, int32_t mode, int32_t precision)
{
    void *d = make(g, k->desc, k->what);
    set(g, d, k->mode, k->mode_type, 1, &mode, k->what);
    set(g, d, k->precision, TYPE_DATA_TYPE, 1, &precision, k->what);
    return d;
}

void af_dnn_point(af_dnn_graph *g, af_dnn_mode mode, af_dnn_type type, int axis, void *x, void *b,
                  void *t, void *y)
{
    static const kind point = {DESC_POINTWISE, POINT_MODE, TYPE_POINTWISE, POINT_PRECISION,
                               "an elementwise operation"};
    const int64_t along = axis;
    void *d = describe(g, &point, (int32_t)mode, (int32_t)type);
    if (mode == AF_DNN_INDEX)
        set(g, d, POINT_AXIS, TYPE_INT64, 1, &along, "an axis");
    finish(g, d, "an elementwise operation");
    void *op = make(g, DESC_OP_POINTWISE, "an elementwise operation");
    link_to(g, op, OP_POINT_DESC, d, "an elementwise operation");
    link_to(g, op, OP_POINT_X, x, "an elementwise operation's x");
    link_to(g, op, OP_POINT_B, b, "an elementwise operation's b");
    link_to(g, op, OP_POINT_T, t, "an elementwise operation's t");
    link_to(g, op, OP_POINT_Y, y, "an elementwise operation's y");
    add_op(g, op, "an elementwise operation");
}

void af_dnn_reduce(af_dnn_graph *g, af_dnn_reduction mode, void *x, void *y)
{
    static const kind reduction = {DESC_REDUCTION, REDUCTION_OPERATOR, TYPE_REDUCTION,
                                   REDUCTION_PRECISION, "a reduction"};
    void *d = describe(g, &reduction, (int32_t)mode, AF_DNN_F32);
    finish(g, d, "a reduction");
    void *op = make(g, DESC_OP_REDUCTION, "a reduction");
    link_to(g, op, OP_REDUCTION_DESC, d, "a reduction");
    link_to(g, op, OP_REDUCTION_X, x, "a reduction");
    link_to(g, op, OP_REDUCTION_Y, y, "a reduction");
    add_op(g, op, "a reduction");
}

void af_dnn_matmul(af_dnn_graph *g, void *a, void *b, void *c, void *m, void *n, void *k)
{
    const int32_t precision = AF_DNN_F32;
    void *d = make(g, DESC_MATMUL, "a matmul");
    set(g, d, MATMUL_PRECISION, TYPE_DATA_TYPE, 1, &precision, "a matmul");
    finish(g, d, "a matmul");
    void *op = make(g, DESC_OP_MATMUL, "a matmul");
    link_to(g, op, OP_MATMUL_A, a, "a matmul");
    link_to(g, op, OP_MATMUL_B, b, "a matmul");
    link_to(g, op, OP_MATMUL_C, c, "a matmul");
    link_to(g, op, OP_MATMUL_DESC, d, "a matmul");
    link_to(g, op, OP_MATMUL_M, m, "a matmul's rows");
    link_to(g, op, OP_MATMUL_N, n, "a matmul's columns");
    link_to(g, op, OP_MATMUL_K, k, "a matmul's inner size");
    add_op(g, op, "a matmul");
}

/* Tries one engine; what it made goes when it refuses. */
static bool try_config(af_dnn_graph *g, void *handle, void *config)
{
    const int mark = g->descs;
    void *plan = make(g, DESC_PLAN, "a plan");
    set(g, plan, PLAN_HANDLE, TYPE_HANDLE, 1, &handle, "a plan");
    link_to(g, plan, PLAN_CONFIG, config, "a plan");
    finish(g, plan, "a plan");
    if (g->status == 0) {
        g->plan = plan;
        return true;
    }
    while (g->descs > mark)
        g->api->desc_free(g->desc[--g->descs]);
    return false;
}

bool af_dnn_build(af_dnn_graph *g, void *handle)
{
    const int32_t mode = HEUR_MODE_A;
    void *config[CONFIGS] = {0};
    int64_t found = 0;
    void *graph = make(g, DESC_GRAPH, "the graph");
    set(g, graph, GRAPH_OPS, TYPE_DESCRIPTOR, g->ops, g->op, "the graph");
    set(g, graph, GRAPH_HANDLE, TYPE_HANDLE, 1, &handle, "the graph");
    finish(g, graph, "the graph");
    void *heuristic = make(g, DESC_HEURISTIC, "the choice of an engine");
    link_to(g, heuristic, HEUR_GRAPH, graph, "the choice of an engine");
    set(g, heuristic, HEUR_MODE, TYPE_HEUR_MODE, 1, &mode, "the choice of an engine");
    finish(g, heuristic, "the choice of an engine");
    for (int i = 0; i < CONFIGS; i++)
        config[i] = make(g, DESC_ENGINECFG, "an engine");
    if (g->status == 0)
        good(g, g->api->desc_get(heuristic, HEUR_RESULTS, TYPE_DESCRIPTOR, CONFIGS, &found, config),
             "the choice of an engine");
    for (int i = 0; i < AF_MIN(found, CONFIGS) && !g->plan && (g->status == 0 || i > 0); i++) {
        g->status = 0;
        (void)try_config(g, handle, config[i]);
    }
    return g->plan != NULL;
}

void af_dnn_clear(af_dnn_graph *g)
{
    while (g->descs > 0)
        g->api->desc_free(g->desc[--g->descs]);
    *g = (af_dnn_graph){.api = g->api};
}
