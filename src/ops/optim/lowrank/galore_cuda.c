/* galore_cuda.c - launcher of GaLore (galore_cpu.c): in the steps that renew projections subspace
 * iteration, whose products with the gradient are GEMMs and the rest kernels; in each step GEMMs
 * with the projections, moments, the update. Nothing waits for the host. */
#include "ops/common/cuda_ops.h"
#include "ops/linear/linear_cuda.h"
#include "ops/optim/lowrank/galore.h"

enum { THREADS = 256, WARPS = THREADS / 32, TILE = 16 };

typedef struct galore_launch {
    af_cuda *cu;
    af_node *n;
    af_optim_inputs in;
    af_galore_shape s;
    af_mat g, v, u; /* the gradient, the projections */
    /* in the workspace */
    af_mat low, half;                  /* [low][rank]; full: [R][rank] */
    float *y, *z, *q, *draw;           /* [m][k]; q: [n][k] */
    double *t, *w, *e, *small, *large; /* [k][k] */
    double *turns;                     /* [2 k] for each block of the small problems */
    uint32_t *count;                   /* of blocks that have come together */
} galore_launch;

static void *take(uint8_t *work, uint64_t *at, int64_t count, uint64_t size)
{
    void *p = work ? work + *at : NULL;
    *at += AF_ALIGN_UP((uint64_t)count * size, (uint64_t)256);
    return p;
}

static af_mat thin(const void *data, int64_t rows, int64_t cols)
{
    return (af_mat){(void *)(uintptr_t)data, rows, cols, cols, AF_DTYPE_F32};
}

static galore_launch open(af_cuda *cu, const af_node *n, void *work, uint64_t *bytes)
{
    galore_launch a = {.cu = cu, .in = af_optim_in(n), .s = af_galore_shape_of(n)};
    const af_galore_shape *s = &a.s;
    const int64_t of_m = s->m * s->k, square = s->k * s->k;
    uint64_t at = 0;
    a.g = thin(a.in.grads->data, s->R, s->C);
    if (s->right)
        a.v = thin(a.in.state[2]->data, s->C, s->rank);
    if (s->left)
        a.u = thin(a.in.state[2 + s->right]->data, s->R, s->rank);
    a.low = thin(take(work, &at, s->low * s->rank, 4), s->low, s->rank);
    if (s->right && s->left)
        a.half = thin(take(work, &at, s->R * s->rank, 4), s->R, s->rank);
    a.y = take(work, &at, of_m, 4);
    a.z = take(work, &at, of_m, 4);
    a.draw = take(work, &at, of_m, 4);
    a.q = take(work, &at, s->n * s->k, 4);
    a.t = take(work, &at, square, 8);
    a.w = take(work, &at, square, 8);
    a.e = take(work, &at, square, 8);
    a.small = take(work, &at, square, 8);
    a.large = take(work, &at, square, 8);
    a.turns = take(work, &at, 2 * (s->k + s->k % 2) * cu->sms, 8);
    a.count = take(work, &at, 1, sizeof *a.count);
    *bytes = at;
    return a;
}

static uint64_t galore_work(const af_cuda *cu, const af_node *n)
{
    uint64_t bytes;
    open((af_cuda *)(uintptr_t)cu, n, NULL, &bytes);
    return bytes;
}

static af_launch *launch(const galore_launch *a, const char *name, int64_t grid, int block)
{
    return af_cuda_launch(a->cu, a->n, af_cuda_kernel(a->cu, "galore.cu", name, ""), grid, 1, 1,
                          block, 0);
}

/* Of one problem, whose blocks wait for one another: a warp per task, all blocks at once. */
static af_launch *launch_small(const galore_launch *a, const char *name, int64_t tasks)
{
    const int64_t blocks = (tasks + WARPS - 1) / WARPS;
    af_cuda_zero(a->cu, a->n, a->count, sizeof *a->count);
    af_launch *l = launch(a, name, AF_MIN(blocks, (int64_t)a->cu->sms), THREADS);
    if (l)
        l->together = true;
    return l;
}

static int64_t grid_of(const galore_launch *a, int64_t count)
{
    return af_cuda_grid(a->cu, count, THREADS);
}

static void multiply(const galore_launch *a, af_mat c, af_mat x, bool tx, af_mat y, bool ty)
{
    af_cuda_add_gemm(a->cu, a->n,
                     &(af_cuda_gemm){.a = x, .b = y, .c = c, .ta = tx, .tb = ty, .alpha = 1});
}

/* ---- projections ---- */

static void add_draw(const galore_launch *a, float *out, int64_t count)
{
    af_launch *l =
        af_cuda_launch(a->cu, a->n, af_cuda_kernel(a->cu, "apollo.cu", "apollo_draw", ""),
                       grid_of(a, (count + 3) / 4), 1, 1, THREADS, 0);
    af_arg_ptr(l, out);
    af_arg_ptr(l, a->in.hyper->data);
    af_arg_u64(l, a->n->attr.optim.seed);
    af_arg_u64(l, af_lowrank_stream(a->n));
    af_arg_i64(l, count);
    af_arg_f32(l, 1);
}

static void add_gram(const galore_launch *a, const float *z, int64_t rows, int64_t k)
{
    const int64_t tiles = (k + TILE - 1) / TILE;
    af_launch *l = launch(a, "galore_gram", tiles * tiles, TILE * TILE);
    af_arg_ptr(l, a->t);
    af_arg_ptr(l, z);
    af_arg_i64(l, rows);
    af_arg_i32(l, k);
}

static void add_times(const galore_launch *a, float *out, const float *z, const double *x,
                      int64_t rows, int64_t k, int64_t cols)
{
    af_launch *l = launch(a, "galore_times", grid_of(a, rows * cols), THREADS);
    af_arg_ptr(l, out);
    af_arg_ptr(l, z);
    af_arg_ptr(l, x);
    af_arg_i64(l, rows);
    af_arg_i32(l, k);
    af_arg_i32(l, cols);
}

static void orthonormalise(const galore_launch *a, float *out, const float *z, int64_t rows,
                           int64_t k)
{
    add_gram(a, z, rows, k);
    af_launch *l = launch_small(a, "galore_orthonormal", k);
    af_arg_ptr(l, a->w);
    af_arg_ptr(l, a->e);
    af_arg_ptr(l, a->t);
    af_arg_ptr(l, a->turns);
    af_arg_ptr(l, a->count);
    af_arg_i32(l, k);
    add_times(a, out, z, a->w, rows, k, k);
}

/* a->z [rows][rank] into the state p. */
static void keep_vectors(const galore_launch *a, af_mat p, int64_t rows)
{
    const int64_t rank = a->s.rank;
    add_gram(a, a->z, rows, rank);
    add_draw(a, a->draw, rows * rank);
    af_launch *l = launch(a, "galore_fill", grid_of(a, rows * rank), THREADS);
    af_arg_ptr(l, a->z);
    af_arg_ptr(l, a->draw);
    af_arg_ptr(l, a->t);
    af_arg_ptr(l, a->in.stats->data);
    af_arg_i64(l, rows * rank);
    af_arg_i32(l, rank);
    orthonormalise(a, a->draw, a->z, rows, rank);
    l = launch(a, "galore_keep", rank, THREADS);
    af_arg_ptr(l, p.data);
    af_arg_ptr(l, a->draw);
    af_arg_ptr(l, a->in.hyper->data);
    af_arg_ptr(l, a->in.stats->data);
    af_arg_i64(l, rows);
    af_arg_i32(l, rank);
}

/* y = A q, or q = A^T y */
static void times_a(const galore_launch *a, float *out, const float *in, bool transposed)
{
    const af_galore_shape *s = &a->s;
    multiply(a, thin(out, transposed ? s->n : s->m, s->k), a->g, transposed == s->tall,
             thin(in, transposed ? s->m : s->n, s->k), false);
}

static void launch_renewal(const galore_launch *a)
{
    const af_galore_shape *s = &a->s;
    const int64_t k = s->k;
    a->cu->renew_only = true;
    add_draw(a, a->z, s->n * k);
    orthonormalise(a, a->q, a->z, s->n, k);
    for (int i = 0; i < s->steps; i++) {
        times_a(a, a->z, a->q, false);
        orthonormalise(a, a->y, a->z, s->m, k);
        times_a(a, a->z, a->y, true);
        orthonormalise(a, a->q, a->z, s->n, k);
    }
    times_a(a, a->y, a->q, false);
    add_gram(a, a->y, s->m, k);
    const int64_t pairs = (k + 1) / 2;
    af_launch *l = launch_small(a, "galore_ritz", pairs * ((pairs + 31) / 32));
    af_arg_ptr(l, a->small);
    af_arg_ptr(l, a->large);
    af_arg_ptr(l, a->t);
    af_arg_ptr(l, a->e);
    af_arg_ptr(l, a->w);
    af_arg_ptr(l, a->turns);
    af_arg_ptr(l, a->count);
    af_arg_i32(l, k);
    af_arg_i32(l, s->rank);
    if (s->tall ? s->right : s->left) {
        add_times(a, a->z, a->q, a->small, s->n, k, s->rank);
        keep_vectors(a, s->tall ? a->v : a->u, s->n);
    }
    if (s->tall ? s->left : s->right) {
        add_times(a, a->z, a->y, a->large, s->m, k, s->rank);
        keep_vectors(a, s->tall ? a->u : a->v, s->m);
    }
    a->cu->renew_only = false;
}

/* ---- a step ---- */

static void launch_moments(const galore_launch *a)
{
    const double b1 = a->n->attr.optim.beta1, b2 = a->n->attr.optim.beta2;
    const int64_t count = a->s.low * a->s.rank;
    af_launch *l = launch(a, "galore_moments", grid_of(a, count), THREADS);
    af_arg_ptr(l, a->low.data);
    af_arg_ptr(l, a->in.state[0]->data);
    af_arg_ptr(l, a->in.state[1]->data);
    af_arg_ptr(l, a->in.stats->data);
    af_arg_i64(l, count);
    af_arg_f32(l, b1);
    af_arg_f32(l, 1 - b1);
    af_arg_f32(l, b2);
    af_arg_f32(l, 1 - b2);
    af_arg_f32(l, a->n->attr.optim.eps);
}

static void launch_apply(const galore_launch *a)
{
    const int64_t count = a->s.R * a->s.C;
    const bool bf16 = a->in.params->dtype == AF_DTYPE_BF16;
    af_kernel *k =
        bf16 ? af_cuda_kernel(a->cu, "optimizer_bf16.cu", "galore_apply_bf16",
                              af_cuda_text(a->cu, "AF_ROUND=%d", a->n->attr.optim.rounding))
             : af_cuda_kernel(a->cu, "galore.cu", "galore_apply", "");
    af_launch *l = af_cuda_launch(a->cu, a->n, k, grid_of(a, count), 1, 1, THREADS, 0);
    af_arg_ptr(l, a->in.params->data);
    af_arg_ptr(l, a->in.grads->data);
    af_arg_ptr(l, a->in.hyper->data);
    af_arg_ptr(l, a->in.stats->data);
    if (bf16)
        af_arg_ptr(l, a->in.rest ? a->in.rest->data : NULL);
    af_arg_i64(l, count);
    af_arg_f32(l, a->n->attr.optim.weight_decay);
    af_arg_f32(l, a->n->attr.optim.lr_factor);
    af_arg_f32(l, a->n->attr.optim.scale);
    if (bf16) {
        af_arg_u64(l, a->n->attr.optim.seed);
        af_arg_i64(l, a->n->attr.optim.from);
    }
}

static void launch_step(const galore_launch *a)
{
    const bool both = a->s.right && a->s.left;
    if (both) {
        multiply(a, a->half, a->g, false, a->v, false);
        multiply(a, a->low, a->u, true, a->half, false);
    } else {
        multiply(a, a->low, a->g, a->s.left, a->s.left ? a->u : a->v, false);
    }
    launch_moments(a);
    if (both) { /* the direction takes the gradient's place */
        multiply(a, a->half, a->u, false, a->low, false);
        multiply(a, a->g, a->half, false, a->v, true);
    } else {
        multiply(a, a->g, a->s.left ? a->u : a->low, false, a->s.left ? a->low : a->v, true);
    }
    launch_apply(a);
}

static af_status galore_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    uint64_t bytes;
    galore_launch a = open(cu, n, cu->work, &bytes);
    (void)g;
    if (a.in.params->dtype != AF_DTYPE_F32 && a.in.params->dtype != AF_DTYPE_BF16)
        return af_cuda_no_type(n, a.in.params, err);
    if (a.s.n == 0)
        return AF_OK;
    a.n = n;
    launch_renewal(&a);
    launch_step(&a);
    return AF_OK;
}

const af_cuda_op af_cuda_galore = {galore_prepare, galore_work, false};
