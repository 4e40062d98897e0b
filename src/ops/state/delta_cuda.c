/* delta_cuda.c - see delta_cuda.h. What lies between the kernels is in the workspace, in bf16; the
 * backward makes the states again. */
#include "ops/state/delta_cuda.h"
#include "ops/state/state_in.h"

enum {
    CHUNK = 64,
    DIM = 128,
    THREADS = 256,
    WARPS = 8,
    WIDE = CHUNK * (DIM + 8) * 2,     /* bytes of a [64][128] matrix in shared memory */
    SQUARE = CHUNK * (CHUNK + 8) * 2, /* of [64][64] */
    PLAIN = CHUNK * (CHUNK + 1) * 4,  /* of [64][64] in f32 */
    STATIC = 8192,
};
static const unsigned prepare_smem = 2 * WIDE + 2 * SQUARE + 2 * PLAIN,
                      states_smem = 2 * WIDE + 4 * SQUARE, out_smem = 5 * WIDE + SQUARE,
                      local_smem = 3 * WIDE + SQUARE, dstates_smem = 3 * WIDE + 4 * SQUARE,
                      grads_smem = 5 * WIDE + 2 * SQUARE;

/* delta_args of delta.cuh */
typedef struct delta_args {
    const void *x, *decay, *beta, *bounds;
    void *q, *k, *w, *d;
    float *G;
    int64_t ldx, ld_decay, ld_beta;
    int beta_type, N, S, H, J, unused;
} delta_args;

/* delta_out of delta_bwd.cu */
typedef struct delta_out {
    void *dx, *dq, *dk, *ddecay, *dbeta;
    int64_t lddx, ld_ddecay, ld_dbeta;
} delta_out;

/* bf16 [slot][H][128][128], [slot][H][64][64], [N][H][128] */
typedef struct delta_parts {
    void *states, *dstates, *inverse, *dd, *dq, *dk;
    int64_t slots;
} delta_parts;

/* Rows can be copied 16 bytes at a time. */
static bool even(const af_tensor *t) { return t->ld % 8 == 0 && t->base_offset % 16 == 0; }

bool af_delta_fits(const af_cuda *cu, const af_node *n)
{
    const af_scan_inputs in = af_scan_in(n);
    return n->attr.scan.delta && in.D == 1 && in.K == DIM && in.V == DIM && !in.skip &&
           cu->arch >= 80 && grads_smem + STATIC <= (unsigned)cu->smem_max &&
           in.x->dtype == AF_DTYPE_BF16 && even(in.x) && even(n->out[0]) && (!in.dy || even(in.dy));
}

static uint64_t layout(delta_args *a, delta_parts *p, const af_cuda *cu, const af_node *n)
{
    const af_scan_inputs in = af_scan_in(n);
    const bool back = in.dy != NULL;
    const int64_t N = in.x->dim[0], slots = N / CHUNK + in.S, keys = N * in.J * DIM,
                  values = N * in.H * DIM, state = slots * in.H * DIM * DIM;
    *p = (delta_parts){.slots = slots};
    *a = (delta_args){.x = in.x->data,
                      .decay = in.decay->data,
                      .beta = in.beta->data,
                      .bounds = in.bounds->data,
                      .ldx = in.x->ld,
                      .ld_decay = in.decay->ld,
                      .ld_beta = in.beta->ld,
                      .beta_type = af_cuda_state_type(in.beta),
                      .N = (int)N,
                      .S = (int)in.S,
                      .H = (int)in.H,
                      .J = (int)in.J};
    void *G;
    const struct {
        void **to;
        int64_t halves; /* of a float */
    } parts[] = {{&a->q, keys},
                 {&a->k, keys},
                 {&a->w, values},
                 {&a->d, values},
                 {&G, slots * in.H * CHUNK * 2},
                 {&p->states, state},
                 {&p->dstates, back ? state : 0},
                 {&p->inverse, back ? slots * in.H * CHUNK * CHUNK : 0},
                 {&p->dd, back ? values : 0},
                 {&p->dq, back ? values : 0},
                 {&p->dk, back ? values : 0}};
    uint64_t at = 0;
    for (size_t i = 0; i < AF_LEN(parts); i++) {
        *parts[i].to = cu->work && parts[i].halves ? (uint8_t *)cu->work + at : NULL;
        at += AF_ALIGN_UP((uint64_t)parts[i].halves * 2, (uint64_t)256);
    }
    a->G = G;
    return at;
}

uint64_t af_delta_work(const af_cuda *cu, const af_node *n)
{
    delta_args a;
    delta_parts p;
    return layout(&a, &p, cu, n);
}

static af_launch *launch(af_cuda *cu, af_node *n, const char *file, const char *name, int64_t x,
                         int64_t y, unsigned smem)
{
    return af_cuda_launch(cu, n, af_cuda_kernel(cu, file, name, "AF_T=bf16"), x, y, 1, THREADS,
                          smem);
}

/* Triangular systems, states and d of all chunks. */
static void launch_states(af_cuda *cu, af_node *n, const delta_args *a, const delta_parts *p)
{
    const int64_t rows = 2 * (int64_t)a->N * a->J;
    af_launch *l = launch(cu, n, "delta.cu", "delta_norm", (rows + WARPS - 1) / WARPS, 1, 0);
    af_arg_bytes(l, a, sizeof *a);
    l = launch(cu, n, "delta.cu", "delta_prepare", p->slots, a->H, prepare_smem);
    af_arg_ptr(l, p->inverse);
    af_arg_bytes(l, a, sizeof *a);
    l = launch(cu, n, "delta.cu", "delta_states", 2 * (int64_t)a->H, a->S, states_smem);
    af_arg_ptr(l, p->states);
    af_arg_bytes(l, a, sizeof *a);
}

void af_delta_launch(af_cuda *cu, af_node *n)
{
    delta_args a;
    delta_parts p;
    (void)layout(&a, &p, cu, n);
    launch_states(cu, n, &a, &p);
    af_launch *l = launch(cu, n, "delta.cu", "delta_out", p.slots, a.H, out_smem);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_ptr(l, p.states);
    af_arg_bytes(l, &a, sizeof a);
}

static void launch_grads(af_cuda *cu, af_node *n, const delta_args *a, const delta_parts *p)
{
    const af_scan_inputs in = af_scan_in(n);
    const delta_out o = {.dx = n->out[0]->data,
                         .dq = p->dq,
                         .dk = p->dk,
                         .ddecay = n->out[1]->data,
                         .dbeta = n->out[2]->data,
                         .lddx = n->out[0]->ld,
                         .ld_ddecay = n->out[1]->ld,
                         .ld_dbeta = n->out[2]->ld};
    af_launch *l = launch(cu, n, "delta_bwd.cu", "delta_grads", p->slots, a->H, grads_smem);
    af_arg_bytes(l, &o, sizeof o);
    af_arg_ptr(l, p->inverse);
    af_arg_ptr(l, p->states);
    af_arg_ptr(l, p->dstates);
    af_arg_ptr(l, p->dd);
    af_arg_ptr(l, in.dy->data);
    af_arg_i64(l, in.dy->ld);
    af_arg_bytes(l, a, sizeof *a);
    l = launch(cu, n, "delta_bwd.cu", "delta_join", (2 * (int64_t)a->N * a->J + WARPS - 1) / WARPS,
               1, 0);
    af_arg_bytes(l, &o, sizeof o);
    af_arg_bytes(l, a, sizeof *a);
}

void af_delta_launch_bwd(af_cuda *cu, af_node *n)
{
    const af_scan_inputs in = af_scan_in(n);
    delta_args a;
    delta_parts p;
    (void)layout(&a, &p, cu, n);
    launch_states(cu, n, &a, &p);
    af_launch *l = launch(cu, n, "delta_bwd.cu", "delta_local", p.slots, a.H, local_smem);
    af_arg_ptr(l, p.dd);
    af_arg_ptr(l, in.dy->data);
    af_arg_i64(l, in.dy->ld);
    af_arg_bytes(l, &a, sizeof a);
    l = launch(cu, n, "delta_bwd.cu", "delta_dstates", 2 * (int64_t)a.H, a.S, dstates_smem);
    af_arg_ptr(l, p.dstates);
    af_arg_ptr(l, p.dd);
    af_arg_ptr(l, in.dy->data);
    af_arg_i64(l, in.dy->ld);
    af_arg_bytes(l, &a, sizeof a);
    launch_grads(cu, n, &a, &p);
}
