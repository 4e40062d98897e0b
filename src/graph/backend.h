/* backend.h - what a backend (CPU, CUDA) must offer to run graphs. The implementations are in
 * src/backend. */
#ifndef AF_BACKEND_H
#define AF_BACKEND_H

#include "graph/node.h"

typedef struct af_backend_ops {
    const char *kind;
    bool host;     /* tensors' data is memory of this process */
    bool one_pass; /* see af_graph_set_one_pass */
    /* Before recomputation is planned: may replace nodes by others. NULL = as recorded. */
    void (*rewrite)(af_graph *g);
    /* Before offsets are assigned: may pad rows (ld), make weights views of one fused tensor, and
     * sets g->work_bytes (next to the arenas) and the nodes' work (inside one). */
    af_status (*layout)(af_device *d, af_graph *g, af_error *err);
    /* Allocates every arena, sets tensor->data, picks and builds every kernel. */
    af_status (*prepare)(af_device *d, af_graph *g, af_error *err);
    af_status (*run)(af_device *d, af_graph *g, int what, af_error *err);
    /* Those of the nodes [from, to) that `what` selects, with values in place when it returns.
     * NULL = a pass runs only as a whole. */
    af_status (*run_nodes)(af_device *d, af_graph *g, int what, int from, int to, af_error *err);
    /* One node now, after all runs before. */
    af_status (*run_node)(af_device *d, af_graph *g, const af_node *n, af_error *err);
    af_status (*write)(af_device *d, af_graph *g, af_tensor *t, const void *data, af_error *err);
    af_status (*read)(af_device *d, af_graph *g, const af_tensor *t, void *data, af_error *err);
    /* As read, but the values may come with the next read. NULL = read waits for nothing. */
    af_status (*read_later)(af_device *d, af_graph *g, const af_tensor *t, void *data,
                            af_error *err);
    /* Loading only (values of activations are lost): the rows, bf16, quantised to nf4 with double
     * quantisation; t has the codes and t->quant the scales, or t is dense and gets the values that
     * dequantise to. NULL = the host does it. */
    af_status (*write_nf4)(af_device *d, af_graph *g, af_tensor *t, const uint16_t *rows,
                           af_error *err);
    /* Loading only: normal numbers. NULL = the host writes them. */
    af_status (*write_noise)(af_device *d, af_graph *g, af_tensor *t, const af_random_fill *n,
                             af_error *err);
    /* Frees what prepare made. */
    void (*release)(af_device *d, af_graph *g);
    uint64_t (*memory_free)(const af_device *d);
    /* Bytes of host memory for values that wait there between the passes. NULL = none do. */
    uint64_t (*host_free)(const af_device *d);
    /* af_device_fp8_gain; NULL = 1. */
    double (*fp8_gain)(const af_device *d, int64_t rows, int64_t out, int64_t in);
    void (*close)(af_device *d);
} af_backend_ops;

/* Before a run of `what`: checks the graph, writes clock and hyper-parameters; the clock advances.
 */
AF_CHECKED af_status af_graph_begin_run(af_graph *g, int what, af_error *err);

/* A backend's own device struct begins with this. */
struct af_device {
    const af_backend_ops *ops;
    char text[160];
    char no_gpu[160]; /* why "auto" took the CPU; "" = it did not */
    af_counters counters;
};
#endif
