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
     * ADAPTER_DB and ADAPTER_DA, or NULL. A unit that a LINEAR took over may have no `low`. */
    af_node *low, *db, *da;
    af_node *linear; /* the LINEAR that took `glu` over (gate_up.h), or NULL, */
    bool keeps;      /* and whether gate and up are read by others: its first output then */
    /* Its rows go to a product in FP8 as codes: outputs of `glu`, whose last inputs are the largest
     * magnitudes of gate and up, and of dy. `plain`: others read the rows themselves. */
    bool codes, plain;
} af_glu_adapter;

/* Those of a graph: the family's slot. */
typedef struct af_glu_adapters {
    af_glu_adapter *unit;
    int n;
} af_glu_adapters;

/* The unit of n, a GLU, a GLU_BWD or the LINEAR that took one over. NULL for a unit that does its
 * own work only. */
const af_glu_adapter *af_glu_adapter_of(const af_graph *g, const af_node *n);

/* For that LINEAR: A as it reads it, [R][F]; the parts of h A', [strip][rows][AF_GLU_RANK]; the
 * launch that adds them up. */
af_mat af_glu_adapter_half(af_cuda *cu, const af_glu_adapter *u);
float *af_glu_adapter_parts(af_cuda *cu, const af_glu_adapter *u);
void af_glu_adapter_sums(af_cuda *cu, const af_glu_adapter *u);
#endif
