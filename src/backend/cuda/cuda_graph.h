/* cuda_graph.h - the backend's state of one graph, and the steps a node was prepared into. */
#ifndef AF_CUDA_GRAPH_H
#define AF_CUDA_GRAPH_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/driver.h"

typedef struct af_cuda_gemm_plan af_cuda_gemm_plan;

typedef enum af_step_kind {
    AF_STEP_LAUNCH,
    AF_STEP_GEMM,
    AF_STEP_ZERO,
    AF_STEP_COPY,
    AF_STEP_SWAP
} af_step_kind;

/* Something that may replace a launch, decided when every kernel is built (a family's choose). */
typedef struct af_alternative af_alternative;
struct af_alternative {
    bool chosen;
    af_status (*issue)(af_cuda *cu, const af_alternative *a, af_error *err);
};

typedef struct af_step {
    af_step_kind kind;
    bool backward_only, renew_only, probe; /* as in af_cuda */
    uint8_t chunk;
    af_launch *launch;
    const af_alternative *alternative; /* NULL = none */
    bool prelude; /* the launch prepares for the alternative, and runs only where that is chosen */
    af_cuda_gemm_plan *gemm;
    void *to;
    const void *from;
    uint64_t bytes;
    const af_exchange *exchange; /* messages with other ranks; `bytes` of them are sent */
    const af_swap *swap;
    int swaps;
} af_step;

typedef struct af_exec {
    af_step *step;
    int n, cap;
} af_exec;

/* An argument that follows a number of the host. */
typedef struct af_late af_late;
struct af_late {
    void *to;
    const float *from;
    af_late *next;
};

/* A value leaves the device after a node, or comes back before one. */
typedef enum af_move_kind {
    AF_MOVE_OUT,
    AF_MOVE_OUT_DONE,
    AF_MOVE_IN_DONE,
    AF_MOVE_IN
} af_move_kind;
typedef struct af_move {
    int at; /* a position: after it (out), before it (in) */
    af_move_kind kind;
    const af_tensor *t;
    uint64_t host;    /* where it lies in the pinned memory */
    int order;        /* of the copies on their stream */
    bool first, last; /* of those that begin at this position */
} af_move;

/* node->exec: one af_exec per level. Level 0 computes every row; a graph that generates is prepared
 * for few rows as well, and a run takes the level its live rows fit. RENEW is added to the AF_RUN_*
 * of an update that also renews projections; it is not captured. */
enum { AF_RUN_MASKS = 16, AF_RUN_RENEW = 16, AF_CHUNKS_MAX = 16, AF_ROW_LEVELS = 7 };

static inline const af_exec *af_exec_of(const af_node *n, int level)
{
    return n->exec ? (const af_exec *)n->exec + level : NULL;
}

/* What layout decided; it survives a release, because the graph may be prepared again. */
typedef struct af_cuda_plan {
    uint8_t *on_second; /* by position: how many of the next nodes overlap with this one */
    bool *joins;        /* by position: the node needs what the second stream makes */
    bool uses_second;   /* some do */
    bool uses_third;    /* exchanges with other ranks run next to the nodes around them */
    int *gather;   /* by position: 1 + the last gather whose weights the node reads; 0 = none */
    af_move *move; /* offload.c, by position */
    int moves;
    bool can_shrink;              /* a family holds copies it could do without */
    void *slot[AF_CUDA_FAMILIES]; /* see af_cuda_slot */
} af_cuda_plan;

struct af_cuda_graph {
    af_cuda_plan plan;
    af_arena mem; /* steps and their arguments */
    uint8_t *arena[AF_ROLE_COUNT];
    af_late *late;
    void *temp; /* device memory that loading needs, freed by the first run */
    uint64_t temp_bytes;
    uint8_t *pinned; /* host memory of offloaded values */
    /* Not nodes of the graph: steps that bring copies of weights (dequantised, cast, fused) and of
     * params (the same, for trainable values) up to date. */
    af_node on_weights, on_params;
    bool weights_dirty, params_dirty; /* the host wrote some since the last run */
    int level, levels;                /* in use now (or being prepared); how many are prepared */
    /* instantiated CUDA graphs, by level, AF_RUN_* mask and number of chunks with labels */
    struct {
        void *exec;
        uint64_t launches, sent_bytes;
    } captured[AF_ROW_LEVELS][AF_RUN_MASKS][AF_CHUNKS_MAX + 1];
    const af_tensor *labels;
    int64_t chunk_rows;
    int chunks; /* in use now */
    bool capture_refused;
    void *tables; /* device memory: what the copy_table launches of the two read */
};

/* Appends one step to n; NULL when memory is gone (latched in cu->err). */
af_step *af_cuda_step(af_cuda *cu, af_node *n, af_step_kind kind);
/* Issues one launch on the stream: launch.c. */
AF_CHECKED af_status af_cuda_issue_launch(af_cuda *cu, const af_launch *l, af_error *err);
/* Issues the steps of one node on the stream, for a run of `what`; adds to *count. */
AF_CHECKED af_status af_cuda_issue(af_cuda *cu, const af_exec *e, int what, int chunks,
                                   uint64_t *count, af_error *err);
/* Checks what launchers requested: grid and block limits, shared memory, argument sizes. */
AF_CHECKED af_status af_cuda_check_launches(af_cuda *cu, const af_node *n, af_error *err);

/* A sum over ranks that the backward pass need not wait for at once. */
static inline bool af_cuda_sums_on_third(const af_node *n)
{
    return (n->op == AF_OP_RANK_SUM || n->op == AF_OP_RANK_JOIN) && n->phase == AF_PHASE_BACKWARD;
}
void af_cuda_rewrite(af_graph *g);
AF_CHECKED af_status af_cuda_layout(af_device *d, af_graph *g, af_error *err);
AF_CHECKED af_status af_cuda_run(af_device *d, af_graph *g, int what, af_error *err);
AF_CHECKED af_status af_cuda_run_nodes(af_device *d, af_graph *g, int what, int from, int to,
                                       af_error *err);
AF_CHECKED af_status af_cuda_run_node(af_device *d, af_graph *g, const af_node *n, af_error *err);
/* How many levels the graph is prepared for. */
int af_cuda_levels(const af_graph *g);
/* Tensors of the token dimension look as if they had the level's rows (0: all, as recorded). */
void af_cuda_set_level(af_graph *g, int level);
/* The level with the fewest rows that hold the live ones. */
int af_cuda_level_of(const af_graph *g);
void af_cuda_drop_captures(af_cuda *cu, af_cuda_graph *cg);

/* ---- values that leave the device between the passes: offload.c ---- */
AF_CHECKED af_status af_cuda_offload_layout(af_graph *g, af_cuda_graph *cg, af_error *err);
AF_CHECKED af_status af_cuda_offload_prepare(af_cuda *cu, af_graph *g, af_error *err);
/* Issues the moves around node `at`; *next is the first move not issued yet. */
AF_CHECKED af_status af_cuda_offload_issue(af_cuda *cu, const af_cuda_graph *cg, int at,
                                           bool before, int *next, af_error *err);

/* ---- loading: load_cuda.c ---- */
AF_CHECKED af_status af_cuda_write_nf4(af_device *d, af_graph *g, af_tensor *t,
                                       const uint16_t *rows, af_error *err);
AF_CHECKED af_status af_cuda_write_noise(af_device *d, af_graph *g, af_tensor *t,
                                         const af_random_fill *n, af_error *err);
/* Before a run: what was written reaches the arguments that depend on it. *changed: some of them
 * did, and captured graphs hold the old ones. */
AF_CHECKED af_status af_cuda_load_done(af_cuda *cu, af_cuda_graph *cg, bool *changed,
                                       af_error *err);

/* ---- transfers: upload.c ---- */
typedef struct af_upload af_upload;
AF_CHECKED af_status af_upload_new(af_upload **out, af_cuda *cu, af_error *err);
void af_upload_free(af_upload *u, af_cuda *cu);
/* rows x width bytes from packed host memory to device rows `pitch` bytes apart, asynchronously. */
AF_CHECKED af_status af_upload_rows(af_cuda *cu, void *to, uint64_t pitch, const void *from,
                                    uint64_t width, uint64_t rows, const char *what, af_error *err);
/* A few bytes without waiting: they are at `to` after the next af_download_rows. */
AF_CHECKED af_status af_download_async(af_cuda *cu, void *to, const void *from, uint64_t bytes,
                                       const char *what, af_error *err);
/* Waits for them. */
AF_CHECKED af_status af_download_wait(af_cuda *cu, af_error *err);
void af_download_drop(af_cuda *cu); /* they are no longer needed */
/* The reverse of af_upload_rows; returns when the bytes are there. */
AF_CHECKED af_status af_download_rows(af_cuda *cu, void *to, const void *from, uint64_t pitch,
                                      uint64_t width, uint64_t rows, const char *what,
                                      af_error *err);
#endif
