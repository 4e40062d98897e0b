/* cpu.h - the CPU backend: a pool, a workspace, and one kernel per node.
 *
 * Every op has a reference kernel (its twin), written for reading: it loads any
 * float type as double, computes in double, rounds once. Hot ops have a fast version next to it
 * (src/cpu), chosen at prepare. */
#ifndef AF_CPU_H
#define AF_CPU_H

#include "base/pool.h"
#include "graph/backend.h"
#include "tensor/dtype.h"

/* What the nodes of one op took in one phase. */
typedef struct af_cpu_time {
    uint64_t nodes;
    double seconds;
} af_cpu_time;

typedef struct af_cpu_times {
    af_cpu_time of[AF_OP_COUNT][AF_PHASE_UPDATE + 1];
} af_cpu_times;

/* Which frozen weights are packed once. */
typedef enum af_packing {
    AF_PACKS_THAT_PAY, /* on this machine */
    AF_PACKS_NONE,     /* tests: this and the next, on any machine */
    AF_PACKS_ALL,
} af_packing;

typedef struct af_cpu {
    af_device device; /* first */
    af_pool *pool;
    int threads;
    bool twins_only; /* tests: never take a fast version */
    af_packing packing;
    bool work_apart; /* tests: every node's workspace is a range of the arena */
    bool poison;     /* tests: nodes meet what cpu_poison.c prepares for them */
    void *work;      /* of the running node, 64-byte aligned */
    uint8_t *shared; /* what most nodes work in: one for all graphs, which run in turn */
    uint64_t shared_bytes;
    uint8_t *guarded; /* poison: the workspace, and a page after it that must not be touched */
    uint64_t guarded_bytes;
    int what;         /* AF_RUN_* of the running call: a forward node may make gradients too */
    bool grads_spent; /* gradients lie among activations: an update is the last to see them */
    /* what a kernel that reaches other ranks may fail with, and where it says why */
    af_status failed;
    af_error *err;
    af_cpu_times *times; /* NULL, or where every node's time is added */
} af_cpu;

/* ---- tests: mistakes with memory made to show, src/backend/cpu/cpu_poison.c ---- */

/* NaN in the outputs and in the workspace, which ends before a page that must not be touched. */
void af_cpu_poison_before(af_cpu *cpu, const af_node *n);
/* NaN in values that are no longer needed; stops when a node wrote before its workspace. */
void af_cpu_poison_after(const af_cpu *cpu, const af_node *n);
void af_cpu_poison_free(af_cpu *cpu);

typedef void af_cpu_kernel(const af_node *n, af_cpu *cpu);

typedef struct af_cpu_op {
    af_cpu_kernel *run;
    uint64_t (*work)(const af_node *n, int threads); /* bytes of cpu->work it needs; NULL = none */
} af_cpu_op;

/* Indexed by af_op: src/ops/registry.c. */
extern const af_cpu_op *const af_cpu_ops[AF_OP_COUNT];

/* The fast version for this node's types and shapes on this machine, or NULL:
 * src/ops/registry.c.
 */
const af_cpu_op *af_cpu_fast(const af_node *n);

/* What a family of ops does for a graph as a whole; every hook is called once per graph. */
typedef struct af_cpu_family {
    /* Before offsets are assigned. Returns the bytes of memory it needs for itself: they are
     * planned as workspace, but the graph must run without them too. *work: bytes of cpu->work that
     * begin_run needs. Adds to g->returned_bytes what of bound weights need not stay resident then.
     */
    uint64_t (*layout)(const af_cpu *cpu, af_graph *g, uint64_t *work);
    /* That memory, zeroed; NULL where the machine has too little after all. */
    void (*prepare)(af_graph *g, uint8_t *memory);
    /* Before each run, where it has the memory. */
    void (*begin_run)(af_cpu *cpu, af_graph *g);
    /* The host has written t. */
    void (*written)(af_tensor *t);
} af_cpu_family;

/* Those that have hooks: src/ops/families.c. */
enum { AF_CPU_FAMILIES = 1 };
extern const af_cpu_family *const af_cpu_families[AF_CPU_FAMILIES];

/* Names the instruction set the fast versions use: "neon+bf16", "avx512", "none". */
const char *af_cpu_isa(void);

/* What multiplies bf16 faster than f32 there: "AMX tiles", or NULL. */
const char *af_cpu_bf16_unit(void);

/* Opens the CPU as a device (af_device_open does this for "cpu"). */
AF_CHECKED af_status af_cpu_open(af_device **out, int threads, af_error *err);

/* ---- for twins: any float or integer type as double ---- */
static inline double af_ld(const af_tensor *t, int64_t i)
{
    return af_load_f64(t->data, t->dtype, (uint64_t)i);
}
static inline void af_st(af_tensor *t, int64_t i, double v)
{
    af_store_f64(t->data, t->dtype, (uint64_t)i, v);
}
/* Writes, or adds to, an output that the node may accumulate into. */
static inline void af_put(const af_node *n, af_tensor *t, int64_t i, double v)
{
    af_st(t, i, n->accumulate ? af_ld(t, i) + v : v);
}
/* Value i of a weight of any type, block types included (slow: decodes its block). */
double af_ld_weight(const af_tensor *t, int64_t i);
/* Values [from, from+count) of a tensor of any type as doubles, and back (no block types). */
void af_ld_row(const af_tensor *t, int64_t from, int64_t count, double *out);
/* The same as floats: what the fast kernels read weights through. */
void af_ld_row_f32(const af_tensor *t, int64_t from, int64_t count, float *out);
void af_st_row(af_tensor *t, int64_t from, int64_t count, const double *v);
#endif
