/* scan_chunk.h - one chunk of one head of scan.c in f32: what the fast forward and backward share.
 * G, s0, s1, M, a as in scan.c. */
#ifndef AF_SCAN_CHUNK_H
#define AF_SCAN_CHUNK_H

#include "ops/common/cpu_fast.h"
#include "ops/state/state_in.h"

enum { AF_CHUNK = 64 };

typedef struct af_scan_job {
    const af_node *n;
    const af_fast *f;
    af_scan_inputs in;
    const int32_t *bounds;
    float *work;
    int64_t share; /* floats of one thread */
    bool delta;
} af_scan_job;

typedef struct af_scan_chunk {
    int64_t row, len, h;           /* its first row, its rows, the head */
    float *q, *k;                  /* [len][K], normalised */
    float *k_t;                    /* [K][CHUNK]; with a decay per channel exp(decay) [len][K] */
    float *v, *d, *error;          /* [len][V]; error: what beta multiplies */
    float *score, *m;              /* [len][CHUNK]: a[t][i] q[t].k[i]; beta[t] a[t][i] k[t].k[i] */
    float *G, *eG, *beta, *to_end; /* [CHUNK]: exp(G); exp(G[end] - G) */
    float *length;                 /* [2][CHUNK]: what q and k were multiplied with */
    float *row_buf;                /* max(K, V) */
} af_scan_chunk;

/* Floats of a chunk's arrays, and the arrays in `at`. */
int64_t af_scan_chunk_floats(const af_scan_inputs *in);
void af_scan_chunk_place(af_scan_chunk *c, const af_scan_inputs *in, float *at);
/* Rows [row, row + len) of head h: everything but d, error. With a decay per channel neither score,
 * m nor sums of decays. */
void af_scan_chunk_load(const af_scan_job *j, af_scan_chunk *c, int64_t row, int64_t len,
                        int64_t h);
/* d and error from the state before the chunk, s0 [K][V]. */
void af_scan_chunk_solve(const af_scan_job *j, af_scan_chunk *c, const float *s0);
/* s [K][V] from before the chunk to after it. */
void af_scan_chunk_pass(const af_scan_job *j, const af_scan_chunk *c, float *s);

/* The chunk's outputs, s from before it to after it. */
void af_scan_channel_pass(const af_scan_job *j, af_scan_chunk *c, float *s, bool outputs);
/* Gradients of the chunk's rows from the last one: dq, dk [len][K] are added to, ds [K][V] becomes
 * the gradient of the state before the chunk. s0: that state; states: [len + 1][K][V] of scratch.
 */
void af_scan_channel_back(const af_scan_job *j, af_scan_chunk *c, const float *s0, float *states,
                          float *ds, float *dq, float *dk);

af_scan_job af_scan_job_of(const af_node *n, const af_cpu *cpu, int64_t share);
/* Whether the fast versions serve the node's types. */
bool af_scan_serves(const af_node *n);
/* Zeros in rows outside every sequence. */
void af_scan_zero_rows(const af_scan_job *j);

static inline af_operand af_scan_rows(const float *data, int64_t ld)
{
    return (af_operand){.data = data, .ld = ld, .dtype = AF_DTYPE_F32};
}
/* Values [from, from+count) of row r of a tensor with rows of `width`, in f32. */
static inline void af_scan_load(const af_scan_job *j, const af_tensor *t, int64_t at, int64_t count,
                                float *out)
{
    if (t->dtype == AF_DTYPE_F32)
        memcpy(out, (const float *)t->data + at, (size_t)count * sizeof *out);
    else
        j->f->to_f32(out, (const uint16_t *)t->data + at, count);
}
static inline void af_scan_store(const af_scan_job *j, const af_tensor *t, int64_t at,
                                 int64_t count, const float *v)
{
    if (t->dtype == AF_DTYPE_F32)
        memcpy((float *)t->data + at, v, (size_t)count * sizeof *v);
    else
        j->f->to_bf16((uint16_t *)t->data + at, v, count);
}
#endif
