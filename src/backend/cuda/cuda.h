/* cuda.h - the CUDA backend as op launchers see it.
 *
 * An op's launcher (src/ops/<family>/<op>_cuda.c) is a `prepare` that appends steps to its node:
 * kernel launches, GEMMs, memsets, copies. Pointers (tensor->data, cu->work) are final by then, so
 * a step holds its arguments as bytes and a run only iterates over arrays. Kernels are only named
 * here and built together after every node has been prepared: af_kernel.func is NULL until then.
 *
 * Rules for launchers and kernels
 *   - row r of an activation starts at data + r * ld (tensor->ld, in elements; ld >= last dim).
 *     Ops that honour ld in every activation they read and write set `strided`; only then do their
 *     tensors get padded rows.
 *   - every row is computed (live rows are ignored: dead rows carry label -100 and lie after
 *     the last bound), so that one captured graph serves every batch.
 *   - shapes, eps, scales are arguments, never part of a kernel's name or defines.
 *   - n->accumulate: add to output (accum_out - 1) instead of writing it.
 *   - no float atomics; the same bits every run. */
#ifndef AF_CUDA_H
#define AF_CUDA_H

#include "base/arena.h"
#include "graph/backend.h"
#include "tensor/dtype.h"

typedef struct af_driver af_driver; /* driver.h */
typedef struct af_lt af_lt;         /* gemm.h: cuBLASLt, its plans and its workspace */
typedef struct af_dnn af_dnn;       /* cudnn.h */
typedef struct af_kernels af_kernels;
typedef struct af_cuda_graph af_cuda_graph;

/* One function of one module; `func` is set when prepare has built it. */
typedef struct af_kernel {
    const char *name;
    struct af_module *module;
    void *func;
    unsigned shared; /* dynamic shared memory it may have; 0 = what every kernel may */
} af_kernel;

enum { AF_LAUNCH_ARGS = 32, AF_LAUNCH_BYTES = 832 };

typedef struct af_launch {
    af_kernel *kernel;
    unsigned grid[3], block, smem;
    bool whole;    /* begins when the launch before it has ended, whatever its file says */
    bool together; /* blocks wait for one another (meet_all): all run at once, or one does */
    int n_args;
    unsigned used;             /* bytes of `store` */
    void *arg[AF_LAUNCH_ARGS]; /* into `store` */
    uint8_t size[AF_LAUNCH_ARGS];
    _Alignas(8) uint8_t store[AF_LAUNCH_BYTES];
} af_launch;

/* A row-major matrix in device memory. */
typedef struct af_mat {
    void *data;
    int64_t rows, cols, ld; /* ld in elements */
    af_dtype dtype;
} af_mat;

/* c = alpha * op(a) op(b) + beta * add, plus bias [c.cols] on every row when set. op is the
 * transpose where ta, tb are set; f32 accumulation. Batched when batch > 1: strides in elements. */
typedef struct af_cuda_gemm {
    af_mat a, b, c;
    af_mat add; /* of c's shape and type; empty: c itself. Not in a batch */
    bool ta, tb;
    float alpha, beta;
    const void *bias; /* of c's type */
    int batch;        /* 0 = 1 */
    int64_t stride_a, stride_b, stride_c;
} af_cuda_gemm;

/* Sums over ranks that may be under way during the backward pass. */
enum { AF_EXCHANGES_AHEAD = 2 };
/* Gathered weights whose end is remembered: more than are usually under way. */
enum { AF_GATHERS_AHEAD = 16 };
/* The same of values that move to host memory and back. */
enum { AF_MOVES_AHEAD = 16 };

typedef struct af_cuda {
    af_device device; /* first */
    const af_driver *drv;
    const af_driver *own_driver; /* freed with the device */
    void *context, *stream;
    /* a second stream for work that may overlap; events before and after it */
    void *second, *fork, *join;
    /* a third one for exchanges with other ranks, when a graph has some: before and after each */
    void *third, *ready, *done[AF_EXCHANGES_AHEAD], *gathered[AF_GATHERS_AHEAD];
    void *moved[AF_MOVES_AHEAD]; /* after each copy of an offloaded value; NULL until there are some
                                  */
    int ordinal;
    int arch;     /* 90 */
    int cuda;     /* what the driver supports: 12040 for 12.4 */
    int sms;      /* multiprocessors */
    int smem_max; /* bytes of shared memory one block may ask for */
    uint64_t memory;
    char name[64];
    af_kernels *kernels;
    af_lt *lt;
    /* workspaces of GEMMs, one per stream; made by the first prepare that needs them */
    void *gemm_work, *second_gemm_work;
    af_dnn *dnn; /* NULL until a graph needs it */
    af_attention_by attention;
    af_gemm_by gemm;
    bool report_own_gemm; /* cuBLASLt was not found, and nobody was told yet */
    struct af_upload *upload;
    /* set while a graph is being prepared */
    af_graph *graph;
    af_cuda_graph *cg;
    bool after_launch; /* the newest work in the stream is a launch of ours */
    bool after_gemm;   /* one of cuBLASLt counts as that: in a graph that generates */
    void *work; /* device workspace shared by all nodes: at least what the op's `work` requested */
    int chunk;  /* steps appended now run only when this chunk of labels is in use; 0 = always */
    bool backward_only; /* steps appended now are left out of runs without a backward pass */
    bool renew_only;    /* ... of updates without new projections (af_graph.renews) */
    bool probe;         /* steps appended now are left out but where nodes run one by one ... */
    bool probing;       /* ... as they do now */
    af_error err;       /* latched by the helpers below; prepare returns it */
    bool tf32;          /* GEMMs of f32 values may round their operands */
    struct af_cuda_test *test; /* cuda_test.h; NULL in production */
} af_cuda;

/* What a family of ops (projections, attention) does for a graph as a whole. Every hook is optional
 * and called once per graph, in the order of af_cuda_families; what a family keeps between them
 * lies in its slot of the graph. */
typedef struct af_cuda_family {
    /* Before recomputation is planned: may replace nodes by others. */
    void (*rewrite)(af_graph *g);
    /* Before offsets are assigned: may add weights, pad rows (ld), make tensors views. What it puts
     * in the slot lives in g->mem and survives a release. */
    af_status (*layout)(af_cuda *cu, af_graph *g, af_error *err);
    /* The plan does not fit: give up copies that only save time. Called when layout has set
     * can_shrink in the backend's plan. */
    void (*shrink)(af_cuda *cu, af_graph *g);
    /* Before the nodes are prepared: pointers are final. */
    af_status (*prepare)(af_cuda *cu, af_graph *g, af_error *err);
    /* Every kernel is built: chooses between those that could do the same. *dirtied: timing them
     * wrote over activations and inputs. */
    af_status (*choose)(af_cuda *cu, af_graph *g, bool *dirtied, af_error *err);
    /* Before the memory of the graph is freed. */
    void (*release)(af_cuda *cu, af_graph *g);
} af_cuda_family;

typedef struct af_cuda_op {
    af_status (*prepare)(af_cuda *cu, af_graph *g, af_node *n, af_error *err);
    /* Bytes of cu->work the node needs; shapes are known, pointers are not. NULL = none. */
    uint64_t (*work)(const af_cuda *cu, const af_node *n);
    bool strided; /* honours ld of every activation it reads and writes */
} af_cuda_op;

/* Indexed by af_op: src/ops/registry.c. NULL for views, which have no kernel. */
extern const af_cuda_op *const af_cuda_ops[AF_OP_COUNT];
/* Those that have hooks: src/ops/families.c. */
enum { AF_CUDA_FAMILIES = 5 };
extern const af_cuda_family *const af_cuda_families[AF_CUDA_FAMILIES];
/* Where a family keeps what belongs to a graph; NULL there until it stores something. */
void **af_cuda_slot(const af_graph *g, const af_cuda_family *f);

/* ---- for launchers. None of these fails visibly: the first error is latched in cu->err and
 * prepare reports it, so a launcher calls them one after another and returns AF_OK. ---- */

/* The kernel `name` of source file `file` ("rmsnorm.cu"), built with `defines`: words separated by
 * spaces, each X or X=value ("AF_T=bf16 AF_E=128"), "" for none. Modules are shared by all kernels
 * of one (file, defines). */
af_kernel *af_cuda_kernel(af_cuda *cu, const char *file, const char *name, const char *defines);
/* printf into memory that lives as long as the graph, for defines. */
AF_PRINTF(2, 3) const char *af_cuda_text(af_cuda *cu, const char *fmt, ...);
/* The C name dev.cuh gives a dtype: "float", "double", "bf16", "half", "int", ... */
const char *af_cuda_ctype(af_dtype t);

/* Appends a launch; its arguments follow, in the kernel's order. */
af_launch *af_cuda_launch(af_cuda *cu, af_node *n, af_kernel *k, int64_t gx, int64_t gy, int64_t gz,
                          int block, unsigned smem);
void af_arg_ptr(af_launch *l, const void *p);
void af_arg_i32(af_launch *l, int64_t v); /* asserts that it fits */
void af_arg_i64(af_launch *l, int64_t v);
void af_arg_f32(af_launch *l, double v);
/* A number that is known when weights have been written, not yet while nodes are prepared. */
void af_arg_f32_late(af_cuda *cu, af_launch *l, const float *from);
void af_arg_f64(af_launch *l, double v);
void af_arg_u64(af_launch *l, uint64_t v);
/* A struct passed by value, at most 128 bytes, aligned to 8, without padding: bytes of padding are
 * arbitrary, and a test takes each word for an address. */
void af_arg_bytes(af_launch *l, const void *p, unsigned n);
/* The kernel reads `t` before previous_done (dev.cuh): it begins early only where no launch writes
 * it. NULL: nothing. */
void af_cuda_reads_early(af_launch *l, const af_tensor *t);
/* Another node's launches do the work of n at this number of rows. */
void af_cuda_drop_steps(af_cuda *cu, af_node *n);
/* A matrix: its data and its row stride. */
void af_arg_mat(af_launch *l, af_mat m);
/* A matrix of bf16 as Hopper's copy engine sees it (af_map of tma.cuh): boxes of 64 rows
 * and 64 columns with the 128-byte swizzle, zeros outside. Rows start on 16 bytes. */
void af_arg_map(af_cuda *cu, af_launch *l, af_mat m);

/* Appends c = alpha op(a) op(b) + beta c. Types: f32, bf16 or f16 operands (both the same), c of
 * that type or f32. */
void af_cuda_add_gemm(af_cuda *cu, af_node *n, const af_cuda_gemm *m);
/* Appends a fill of `bytes` bytes with zeros, and a copy inside device memory. */
void af_cuda_zero(af_cuda *cu, af_node *n, void *p, uint64_t bytes);
void af_cuda_copy(af_cuda *cu, af_node *n, void *to, const void *from, uint64_t bytes);

/* Bytes of a message that is added, at most: what waits to be added does not depend on the tensor.
 */
enum { AF_RANK_MESSAGE = 32 << 20 };
/* Appends messages with other ranks, as one (af_exchange.swap of the graph). They are copied. */
void af_cuda_swap(af_cuda *cu, af_node *n, const af_swap *s, int count);

/* A tensor (or `cols` columns of it from `col`) as a matrix of all its rows. */
af_mat af_mat_of(const af_tensor *t);
af_mat af_mat_cols(const af_tensor *t, int64_t col, int64_t cols);

/* The rows of labels a run has (those not negative) are counted when the host writes them, and
 * steps of later chunks (cu->chunk) are left out of runs that do not reach them. False when `t` is
 * not an input, or another one is counted already: then every chunk always runs. */
bool af_cuda_count_labels(af_cuda *cu, const af_tensor *t, int64_t chunk_rows);

/* ---- devices ---- */

/* Opens GPU number `ordinal`. */
AF_CHECKED af_status af_cuda_open(af_device **out, int ordinal, af_error *err);
/* The same over the caller's table of entry points (tests: a recording fake). */
AF_CHECKED af_status af_cuda_open_with(af_device **out, const af_driver *drv, int ordinal,
                                       af_error *err);
#endif
