/* glu_adapter_in.h - what layout found, for the launchers: see glu_adapter.h. */
#ifndef AF_GLU_ADAPTER_IN_H
#define AF_GLU_ADAPTER_IN_H

#include "ops/glu/glu_adapter.h"
#include "ops/linear/linear_cuda.h"

enum {
    AF_GLU_RANK = 16,      /* of each adapter, at most */
    AF_GLU_SHARED = 99328, /* shared memory of a block, backward */
};

typedef struct af_glu_adapter {
    af_node *glu;
    /* no longer in the graph, but their attributes and tensors count: ADAPTER_DOWN or ADAPTER_G;
     * ADAPTER_DB and ADAPTER_DA, or NULL */
    af_node *low, *db, *da;
    /* Its rows go to a product in FP8 as codes: outputs of `glu`, whose last inputs are the largest
     * magnitudes of gate and up, and of dy. `plain`: others read the rows themselves. */
    bool codes, plain;
} af_glu_adapter;

/* Those of a graph: the family's slot. */
typedef struct af_glu_adapters {
    af_glu_adapter *unit;
    int n;
} af_glu_adapters;

/* NULL for a unit that does its own work only. */
const af_glu_adapter *af_glu_adapter_of(const af_graph *g, const af_node *n);
#endif
