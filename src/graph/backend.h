/* backend.h - what a backend (CPU, CUDA) must offer to run graphs. The implementations are in
 * src/backend. */
#ifndef AF_BACKEND_H
#define AF_BACKEND_H

#include "graph/node.h"

typedef struct af_backend_ops {
    const char *kind;
    /* Before offsets are given: may pad rows (ld), make weights views of one fused tensor, and sets
     * g->work_bytes. */
    af_status (*layout)(af_device *d, af_graph *g, af_error *err);
    /* Allocates every arena, sets tensor->data, picks and builds every kernel. */
    af_status (*prepare)(af_device *d, af_graph *g, af_error *err);
    af_status (*run)(af_device *d, af_graph *g, int what, af_error *err);
    af_status (*write)(af_device *d, af_graph *g, af_tensor *t, const void *data, af_error *err);
    af_status (*read)(af_device *d, af_graph *g, const af_tensor *t, void *data, af_error *err);
    /* As read, but the values may come with the next read. NULL = read waits for nothing. */
    af_status (*read_later)(af_device *d, af_graph *g, const af_tensor *t, void *data,
                            af_error *err);
    /* Frees what prepare made. */
    void (*release)(af_device *d, af_graph *g);
    uint64_t (*memory_free)(const af_device *d);
    void (*close)(af_device *d);
} af_backend_ops;

/* A backend's own device struct begins with this. */
struct af_device {
    const af_backend_ops *ops;
    char text[160];
    af_counters counters;
};
#endif
