/* merge_method.h - the merge methods: what each takes, and the passes it makes over a tensor.
 *
 * A method sees one tensor of every model as blocks of whole rows, [n][len] f32, and never the
 * whole tensor: memory does not grow with the model. It may first scan all blocks to gather numbers
 * (norms, thresholds), then emits each block. Blocks run on many threads; what scans gather is
 * combined in block order, so that results do not depend on the threads. */
#ifndef AF_MERGE_METHOD_H
#define AF_MERGE_METHOD_H

#include "base/pool.h"
#include "tensor/dtype.h"

enum {
    AF_MERGE_INPUTS_MAX = 64,
    AF_MERGE_BLOCK_VALUES = 1 << 14,
    AF_MERGE_RUN = 64,
    AF_MERGE_STRETCH = 2048, /* blocks between two pauses: 64 MB of bf16 per input */
};

typedef enum af_base_use { AF_BASE_NONE, AF_BASE_OPTIONAL, AF_BASE_NEEDED } af_base_use;

/* Parameters of one model, and of all. */
typedef struct af_merge_weights {
    double weight, density, gamma, epsilon, scale;
} af_merge_weights;

typedef struct af_merge_shared {
    double t, lambda, eps, tol, select_topk, epsilon, r, alpha;
    int max_iter;
    bool normalize, rescale, flatten, row_wise, normalize_weights, filter_wise;
} af_merge_shared;

/* The same rows of every input. */
typedef struct af_merge_block {
    int64_t index;                 /* which block */
    int64_t row, rows, cols, len;  /* len = rows * cols */
    int64_t at;                    /* flat index of the first value */
    float *x[AF_MERGE_INPUTS_MAX]; /* may be overwritten by the method; readable (not meant) up to
                                      a multiple of AF_MERGE_RUN */
    const float *base;             /* NULL when there is none */
    float *out;                    /* [len], emit only */
    float *scratch;                /* [4 * len], for the method */
} af_merge_block;

/* Where a sparse method cuts each input; see merge_select.c. */
typedef struct af_merge_cut {
    bool all;                /* keep everything */
    uint32_t lo, hi;         /* magnitude keys */
    int64_t lo_equal;        /* of those equal to lo, in order: the first so many are kept (top) or
                                dropped (bread crumbs) */
    int64_t hi_equal;        /* of those equal to hi: the first so many are kept (bread crumbs) */
    bool lo_ranks, hi_ranks; /* equal ones must be counted */
} af_merge_cut;

typedef struct af_merge_task af_merge_task;

/* Fills `block` with rows of all inputs (set by the caller of the methods). */
typedef void af_merge_read(const af_merge_task *t, int64_t row, int64_t rows, float *const *x,
                           float *base);

struct af_merge_task {
    const char *name;
    int64_t rows, cols, count;
    int n; /* inputs without the base */
    bool has_base;
    af_merge_weights w[AF_MERGE_INPUTS_MAX];
    bool has_scale;
    af_merge_shared p;
    uint64_t seed;
    af_pool *pool;
    af_merge_read *read;
    void (*pause)(const af_merge_task *t); /* in long passes: what was read may leave memory */
    void *user;
    /* made here */
    int64_t block_rows, blocks;
    double coef[AF_MERGE_INPUTS_MAX], base_coef; /* out = base_coef base + sum coef x */
    double factor[AF_MERGE_INPUTS_MAX];          /* rescaling of masked differences */
    af_merge_cut cut[AF_MERGE_INPUTS_MAX];
    int64_t *equal_before; /* [blocks][n][2]: equal ones in earlier blocks, or NULL */
    double *by_row;        /* coefficients per row or column, or NULL */
    float threshold;
};

typedef struct af_merge_method {
    const char *name;
    af_base_use base;
    int min_models, max_models; /* without the base */
    const char *params[12];     /* NULL at the end */
    bool needs_weight, needs_t;
    bool normalize;                                        /* its default */
    af_status (*prepare)(af_merge_task *t, af_error *err); /* NULL = nothing to gather */
    void (*emit)(const af_merge_task *t, const af_merge_block *b);
} af_merge_method;

const af_merge_method *af_merge_method_find(const char *name); /* NULL when unknown */
const char *const *af_merge_method_names(void);                /* NULL at the end */
bool af_merge_method_reads(const af_merge_method *m, const char *param);
bool af_merge_is_param(const char *name); /* of any method */

/* ---- for the methods ---- */

typedef void af_merge_visit(const af_merge_task *t, const af_merge_block *b, void *part, void *arg);
/* Visits every block; part i (part_size zeroed bytes each) belongs to block i. *parts is the
 * caller's, to be freed. */
AF_CHECKED af_status af_merge_scan(const af_merge_task *t, af_merge_visit *visit, size_t part_size,
                                   void *arg, void **parts, af_error *err);
/* The same with one part per thread; only for what does not depend on order (integer counts). Parts
 * are `shares` many. */
AF_CHECKED af_status af_merge_scan_shares(const af_merge_task *t, af_merge_visit *visit,
                                          size_t part_size, void *arg, void **parts, int *shares,
                                          af_error *err);
/* Emits blocks [from, from + n) into out, which begins at the first of them. */
AF_CHECKED af_status af_merge_emit(const af_merge_task *t,
                                   void (*emit)(const af_merge_task *, const af_merge_block *),
                                   int64_t from, int64_t n, float *out, af_error *err);
/* Gram matrix of the inputs (minus the base when `delta`), [n][n], in double. */
AF_CHECKED af_status af_merge_gram(const af_merge_task *t, bool delta, double *gram, af_error *err);

/* Keys of set k (0 .. sets-1) of a block, [len], ordered as the values are. */
typedef void af_merge_keys(const af_merge_task *t, const af_merge_block *b, int k, uint32_t *keys);
/* For each (set, rank): the key of that rank in ascending order and how many keys are below it. */
typedef struct af_merge_rank {
    int set;
    int64_t rank;
    uint32_t key;
    int64_t below, equal;
} af_merge_rank;
AF_CHECKED af_status af_merge_select(const af_merge_task *t, af_merge_keys *keys,
                                     af_merge_rank *rank, int ranks, af_error *err);
/* How many keys of each set equal cut[k].lo and .hi in earlier blocks -> t->equal_before. */
AF_CHECKED af_status af_merge_count_equal(af_merge_task *t, af_merge_keys *keys, int sets,
                                          af_error *err);
/* Magnitudes of x - base as keys: the order of |d| is that of its bits. */
void af_merge_delta_keys(const af_merge_task *t, const af_merge_block *b, int k, uint32_t *keys);
uint32_t af_merge_float_key(float x); /* order of any floats */
float af_merge_key_float(uint32_t key);

/* prepare and emit of the table's rows, by file */
af_status af_merge_linear_prepare(af_merge_task *t, af_error *err);
af_status af_merge_slerp_prepare(af_merge_task *t, af_error *err);
af_status af_merge_nuslerp_prepare(af_merge_task *t, af_error *err);
af_status af_merge_multislerp_prepare(af_merge_task *t, af_error *err);
af_status af_merge_karcher_prepare(af_merge_task *t, af_error *err);
af_status af_merge_stock_prepare(af_merge_task *t, af_error *err);
af_status af_merge_arithmetic_prepare(af_merge_task *t, af_error *err);
void af_merge_mix_emit(const af_merge_task *t, const af_merge_block *b);
void af_merge_nuslerp_emit(const af_merge_task *t, const af_merge_block *b);
void af_merge_stock_emit(const af_merge_task *t, const af_merge_block *b);

af_status af_merge_top_prepare(af_merge_task *t, af_error *err);
af_status af_merge_crumbs_prepare(af_merge_task *t, af_error *err);
af_status af_merge_dare_prepare(af_merge_task *t, af_error *err);
af_status af_merge_della_prepare(af_merge_task *t, af_error *err);
void af_merge_top_emit(const af_merge_task *t, const af_merge_block *b);
void af_merge_crumbs_emit(const af_merge_task *t, const af_merge_block *b);
void af_merge_crumbs_ties_emit(const af_merge_task *t, const af_merge_block *b);
void af_merge_dare_emit(const af_merge_task *t, const af_merge_block *b);
void af_merge_dare_ties_emit(const af_merge_task *t, const af_merge_block *b);
void af_merge_della_emit(const af_merge_task *t, const af_merge_block *b);
void af_merge_della_linear_emit(const af_merge_task *t, const af_merge_block *b);

af_status af_merge_sce_prepare(af_merge_task *t, af_error *err);
af_status af_merge_arcee_prepare(af_merge_task *t, af_error *err);
af_status af_merge_ramplus_prepare(af_merge_task *t, af_error *err);
void af_merge_sce_emit(const af_merge_task *t, const af_merge_block *b);
void af_merge_arcee_emit(const af_merge_task *t, const af_merge_block *b);
void af_merge_ram_emit(const af_merge_task *t, const af_merge_block *b);
void af_merge_nearswap_emit(const af_merge_task *t, const af_merge_block *b);
void af_merge_pass_emit(const af_merge_task *t, const af_merge_block *b);
#endif
