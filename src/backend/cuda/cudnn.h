/* cudnn.h - cuDNN's graph interface: operations on 4-d tensors, described one by one, that the
 * library turns into one plan.
 *
 * A graph is made with the functions below, which latch the first refusal; af_dnn_build then asks
 * the library for an engine. Everything belongs to the graph and goes with it. Tensors are named by
 * numbers of the caller's; those in memory get their addresses in af_dnn_bind.
 *
 * To build a plan takes the library most of a second, because it compiles; so plans are stored in
 * the cache folder as the library writes them, and are read back in milliseconds. */
#ifndef AF_CUDNN_H
#define AF_CUDNN_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/driver.h"

typedef enum af_dnn_type {
    AF_DNN_F32 = 0,
    AF_DNN_I32 = 4,
    AF_DNN_BF16 = 9,
    AF_DNN_I64 = 10,
    AF_DNN_BOOL = 11
} af_dnn_type;

typedef enum af_dnn_mode {
    AF_DNN_ADD = 0,
    AF_DNN_MUL = 1,
    AF_DNN_DIV = 6,
    AF_DNN_SUB = 9,
    AF_DNN_EXP = 13,
    AF_DNN_LOG = 15,
    AF_DNN_GE = 303,
    AF_DNN_LT = 304,
    AF_DNN_AND = 400,
    AF_DNN_INDEX = 501, /* of an axis */
    AF_DNN_SELECT = 601 /* x where t, else b */
} af_dnn_mode;

typedef enum af_dnn_reduction { AF_DNN_SUM = 0, AF_DNN_MAX = 3 } af_dnn_reduction;

/* Where a tensor is: in device memory, a number of the host, or nowhere (between operations). */
typedef enum af_dnn_place { AF_DNN_MEMORY, AF_DNN_VALUE, AF_DNN_VIRTUAL } af_dnn_place;

enum { AF_DNN_DESCS = 96, AF_DNN_OPS = 32 };

typedef struct af_dnn_graph {
    const af_cudnn_api *api;
    void *desc[AF_DNN_DESCS], *op[AF_DNN_OPS];
    int descs, ops;
    int64_t next;     /* number of the next tensor between operations */
    int status;       /* of the first call that failed */
    const char *what; /* it was for */
    void *plan;
} af_dnn_graph;

typedef struct af_dnn_shape {
    int64_t dim[4], stride[4]; /* in elements */
} af_dnn_shape;

/* A tensor: `id` names it (at most 99; 0 for one between operations). `ragged`, or NULL, holds
 * where each index of the first axis starts, in elements. */
void *af_dnn_tensor(af_dnn_graph *g, int id, af_dnn_type type, const af_dnn_shape *s,
                    af_dnn_place place, void *ragged);
/* y = mode(x, b): b, t may be NULL. AF_DNN_INDEX takes the axis. Computes in `type`. */
void af_dnn_point(af_dnn_graph *g, af_dnn_mode mode, af_dnn_type type, int axis, void *x, void *b,
                  void *t, void *y);
/* y = x reduced along the axes where y has 1. */
void af_dnn_reduce(af_dnn_graph *g, af_dnn_reduction mode, void *x, void *y);
/* c = a b in the last two axes. m, n, k: NULL, or how much of that size each index of the first
 * axis has. */
void af_dnn_matmul(af_dnn_graph *g, void *a, void *b, void *c, void *m, void *n, void *k);

/* Makes the plan of the operations so far, with the library's first choice of engine that builds.
 * False when there is none. */
bool af_dnn_build(af_dnn_graph *g, void *handle);
void af_dnn_clear(af_dnn_graph *g);

/* ---- plans of one device: cudnn_plan.c ---- */

typedef struct af_dnn_plan af_dnn_plan;
struct af_dnn_plan {
    char *key;
    void *desc;
    uint64_t work; /* bytes of device memory it needs */
    af_dnn_plan *next;
};

/* The library on one device. */
struct af_dnn {
    af_cudnn_api api;
    void *handle;
    void *stream; /* the handle works on */
    size_t version;
    char *cache; /* folder of stored plans, or NULL */
    af_dnn_plan *plan;
};

/* Opens the library for a device once; afterwards cu->dnn is there, or it failed. `api` NULL: the
 * one that is installed. */
AF_CHECKED af_status af_dnn_open(af_cuda *cu, const af_cudnn_api *api, af_error *err);
void af_dnn_close(af_dnn *d);

/* The plan named `key`: one made before, one stored in the cache folder, or a new one of the graph
 * that `describe` makes. NULL when the library refuses. Lives as long as the device. */
const af_dnn_plan *af_dnn_plan_get(af_cuda *cu, const char *key,
                                   void (*describe)(af_dnn_graph *, const void *), const void *of);

/* Addresses of a plan's tensors (device memory, or numbers of the host) as the library expects
 * them; NULL when it refuses. Freed with af_dnn_unbind. */
void *af_dnn_bind(const af_dnn *d, const int64_t *id, void *const *at, int n, void *work);
void af_dnn_unbind(const af_dnn *d, void *pack);
/* Puts the work on the device's stream. */
AF_CHECKED af_status af_dnn_issue(af_cuda *cu, const af_dnn_plan *p, void *pack, const char *what,
                                  af_error *err);
#endif
