/* scan_cuda.c - launchers of scan.c: chunks at once, states from chunk to chunk; the backward makes
 * the states again. What lies between the kernels is in the workspace. */
#include "ops/state/channel_cuda.h"
#include "ops/state/delta_cuda.h"
#include "ops/state/state_cuda.h"
#include "ops/state/state_in.h"

enum { CHUNK = 64, THREADS = 256, TILE_MAX = 32, TILE_MIN = 8, STATIC = 4096, SKIP_PARTS = 32 };

/* f32 in the workspace. NULL: this direction, or a recurrence without delta, has none. */
typedef struct scan_parts {
    float *states, *dstates;        /* [slots][H][K][V] */
    float *score, *inverse, *cross; /* [slots][H][64][64] */
    float *keep;                    /* [slots][H] */
    float *dmat, *dr, *error;       /* [N][H*V] */
    float *dq, *dk, *G;             /* [N][H][K], [N][H] */
    float *skip;                    /* [SKIP_PARTS][H] */
    int64_t slots;
} scan_parts;

/* Tensor cores round to tf32, which f32 values do not allow. */
static bool on_tensor_cores(const af_cuda *cu, const af_tensor *x)
{
    return cu->arch >= 80 && x->dtype != AF_DTYPE_F32;
}

/* Bytes of shared memory of the kernels: UNIT, AF_PAD and the arrays of scan.cuh. */
typedef struct scan_shared {
    unsigned scores, added, states, out, dscores, dkeys;
} scan_shared;

static scan_shared shared_with(const af_cuda *cu, const af_tensor *x, const scan_args *a, int tile)
{
    const bool mma = on_tensor_cores(cu, x);
    const unsigned unit = mma ? 16 : 4, pad = mma ? 4 : 1, LDC = CHUNK + pad,
                   rows = AF_ALIGN_UP((unsigned)a->K, unit), ld = rows + pad,
                   lt = (unsigned)tile + pad, keys = CHUNK * ld, values = CHUNK * lt,
                   state = rows * lt, square = CHUNK * LDC, one = sizeof(float);
    return (scan_shared){.scores = one * (keys + (a->delta ? AF_MAX(keys, square) + square : keys)),
                         .added = one * (keys + values + state),
                         .states = one * (keys + state + 3 * values + square),
                         .out = one * (keys + state + 2 * values + square),
                         .dscores = one * (2 * square + 3 * values + (a->delta ? 0 : keys + state)),
                         .dkeys = one * (2 * keys + state + values + square)};
}

static unsigned most_shared(const scan_shared *m)
{
    return AF_MAX(AF_MAX(m->scores, m->states), AF_MAX(m->dscores, m->dkeys));
}

/* The widest tile whose blocks fit. */
static int tile_of(const af_cuda *cu, const af_tensor *x, const scan_args *a)
{
    for (int tile = TILE_MAX; tile > TILE_MIN; tile /= 2) {
        const scan_shared m = shared_with(cu, x, a, tile);
        if (most_shared(&m) + STATIC <= (unsigned)cu->smem_max)
            return tile;
    }
    return TILE_MIN;
}
static scan_shared shared_of(const af_cuda *cu, const af_tensor *x, const scan_args *a)
{
    return shared_with(cu, x, a, tile_of(cu, x, a));
}

static scan_args args_of(const af_node *n, const af_scan_inputs *in)
{
    return (scan_args){.x = in->x->data,
                       .decay = in->decay->data,
                       .beta = in->beta->data,
                       .skip = af_cuda_data(in->skip),
                       .bounds = in->bounds->data,
                       .ldx = in->x->ld,
                       .ld_decay = in->decay->ld,
                       .ld_beta = in->beta->ld,
                       .beta_type = af_cuda_state_type(in->beta),
                       .skip_type = af_cuda_state_type(in->skip),
                       .S = (int)in->S,
                       .H = (int)in->H,
                       .J = (int)in->J,
                       .K = (int)in->K,
                       .V = (int)in->V,
                       .q_from = (int)in->q_from,
                       .k_from = (int)in->k_from,
                       .v_from = (int)in->v_from,
                       .delta = n->attr.scan.delta};
}

static uint64_t layout(scan_parts *p, const af_cuda *cu, const af_node *n)
{
    const af_scan_inputs in = af_scan_in(n);
    const bool back = in.dy != NULL, delta = n->attr.scan.delta;
    const int64_t N = in.x->dim[0];
    *p = (scan_parts){.slots = N / CHUNK + in.S};
    const int64_t state = p->slots * in.H * in.K * in.V, square = p->slots * in.H * CHUNK * CHUNK,
                  values = N * in.H * in.V, keys = N * in.H * in.K;
    const struct {
        float **to;
        int64_t floats;
    } parts[] = {{&p->states, state},
                 {&p->score, square},
                 {&p->inverse, delta ? square : 0},
                 {&p->keep, delta ? 0 : p->slots * in.H},
                 {&p->dmat, delta ? values : 0},
                 {&p->dstates, back ? state : 0},
                 {&p->cross, back && delta ? square : 0},
                 {&p->dr, back && delta ? values : 0},
                 {&p->error, back && delta ? values : 0},
                 {&p->dq, back ? keys : 0},
                 {&p->dk, back ? keys : 0},
                 {&p->G, back ? N * in.H : 0},
                 {&p->skip, back ? in.H * SKIP_PARTS : 0}};
    uint64_t at = 0;
    for (size_t i = 0; i < AF_LEN(parts); i++) {
        *parts[i].to = cu->work && parts[i].floats ? (float *)((uint8_t *)cu->work + at) : NULL;
        at += AF_ALIGN_UP((uint64_t)parts[i].floats * sizeof(float), (uint64_t)256);
    }
    return at;
}

static uint64_t scan_work(const af_cuda *cu, const af_node *n)
{
    scan_parts p;
    return af_scan_in(n).D > 1    ? af_channel_work(cu, n)
           : af_delta_fits(cu, n) ? af_delta_work(cu, n)
                                  : layout(&p, cu, n);
}

static af_kernel *kernel(af_cuda *cu, const char *file, const char *name, const af_tensor *x,
                         const scan_args *a)
{
    return af_cuda_kernel(cu, file, name,
                          af_cuda_text(cu, "AF_T=%s AF_MMA=%d AF_TILE=%d", af_cuda_ctype(x->dtype),
                                       on_tensor_cores(cu, x), tile_of(cu, x, a)));
}

AF_CHECKED static af_status check(const af_cuda *cu, const af_node *n, af_error *err)
{
    const af_scan_inputs in = af_scan_in(n);
    const scan_args a = args_of(n, &in);
    const scan_shared m = shared_of(cu, in.x, &a);
    const unsigned bytes = in.D > 1 ? af_channel_shared(&in) : most_shared(&m);
    if (bytes + STATIC > (unsigned)cu->smem_max)
        return af_fail(err, AF_EUNSUPPORTED,
                       "scan on CUDA: keys of %d need more shared memory than %d bytes", a.K,
                       cu->smem_max);
    return af_cuda_state_check(n, err);
}

static void zero_rows(af_cuda *cu, af_node *n, const scan_args *a, const af_tensor *t)
{
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "scan.cu", "scan_zero", n->in[0], a),
                                  af_rows(t), 1, 1, THREADS, 0);
    af_arg_ptr(l, t->data);
    af_arg_i32(l, af_cuda_state_type(t));
    af_arg_i64(l, t->ld);
    af_arg_i32(l, af_last(t));
    af_arg_ptr(l, a->bounds);
    af_arg_i32(l, a->S);
}

/* Tiles of a head's values. */
static int64_t tiles_of(const af_cuda *cu, const af_tensor *x, const scan_args *a)
{
    const int tile = tile_of(cu, x, a);
    return (a->V + tile - 1) / tile;
}

/* What chunks add becomes the states before them, or after them. */
static void launch_pass(af_cuda *cu, af_node *n, const scan_args *a, const scan_parts *p,
                        float *states, bool back)
{
    const int one = a->K * a->V, each = THREADS * (one % 4 == 0 ? 4 : 1);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "scan.cu", "scan_pass", n->in[0], a),
                                  (one + each - 1) / each, a->H, a->S, THREADS, 0);
    af_arg_ptr(l, states);
    af_arg_ptr(l, p->keep);
    af_arg_i32(l, back);
    af_arg_bytes(l, a, sizeof *a);
}

/* The matrices and the states of all chunks. */
static void launch_states(af_cuda *cu, af_node *n, const scan_args *a, const scan_parts *p)
{
    const af_tensor *x = n->in[0];
    const scan_shared m = shared_of(cu, x, a);
    const int64_t tiles = tiles_of(cu, x, a);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "scan.cu", "scan_scores", x, a), p->slots, a->H,
                                  1, THREADS, m.scores);
    af_arg_ptr(l, p->score);
    af_arg_ptr(l, p->inverse);
    af_arg_ptr(l, p->cross);
    af_arg_bytes(l, a, sizeof *a);
    if (!a->delta) {
        l = af_cuda_launch(cu, n, kernel(cu, "scan.cu", "scan_added", x, a), p->slots, a->H * tiles,
                           1, THREADS, m.added);
        af_arg_ptr(l, p->states);
        af_arg_ptr(l, p->keep);
        af_arg_bytes(l, a, sizeof *a);
        launch_pass(cu, n, a, p, p->states, false);
        return;
    }
    l = af_cuda_launch(cu, n, kernel(cu, "scan.cu", "scan_states", x, a), a->H * tiles, a->S, 1,
                       THREADS, m.states);
    af_arg_ptr(l, p->states);
    af_arg_ptr(l, p->dmat);
    af_arg_ptr(l, p->error);
    af_arg_ptr(l, p->inverse);
    af_arg_bytes(l, a, sizeof *a);
}

static af_status scan_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_scan_inputs in = af_scan_in(n);
    const scan_args a = args_of(n, &in);
    const af_status st = check(cu, n, err);
    scan_parts p;
    (void)layout(&p, cu, n);
    if (st != AF_OK || in.x->dim[0] == 0)
        return st;
    zero_rows(cu, n, &a, n->out[0]);
    if (in.D > 1) {
        af_channel_launch(cu, n, &a);
        return AF_OK;
    }
    if (af_delta_fits(cu, n)) {
        af_delta_launch(cu, n);
        return AF_OK;
    }
    launch_states(cu, n, &a, &p);
    af_launch *l =
        af_cuda_launch(cu, n, kernel(cu, "scan.cu", "scan_out", in.x, &a), p.slots,
                       a.H * tiles_of(cu, in.x, &a), 1, THREADS, shared_of(cu, in.x, &a).out);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_ptr(l, p.states);
    af_arg_ptr(l, p.dmat);
    af_arg_ptr(l, p.score);
    af_arg_bytes(l, &a, sizeof a);
    return AF_OK;
}

/* Gradients of states. */
static void launch_dstates(af_cuda *cu, af_node *n, const scan_args *a, const scan_parts *p)
{
    const af_scan_inputs in = af_scan_in(n);
    const scan_shared m = shared_of(cu, in.x, a);
    const int64_t tiles = tiles_of(cu, in.x, a);
    if (!a->delta) {
        af_launch *l = af_cuda_launch(cu, n, kernel(cu, "scan_bwd.cu", "scan_dadded", in.x, a),
                                      p->slots, a->H * tiles, 1, THREADS, m.added);
        af_arg_ptr(l, p->dstates);
        af_arg_ptr(l, in.dy->data);
        af_arg_i64(l, in.dy->ld);
        af_arg_bytes(l, a, sizeof *a);
        launch_pass(cu, n, a, p, p->dstates, true);
        return;
    }
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "scan_bwd.cu", "scan_dstates", in.x, a),
                                  a->H * tiles, a->S, 1, THREADS, m.states);
    af_arg_ptr(l, p->dstates);
    af_arg_ptr(l, p->dr);
    af_arg_ptr(l, in.dy->data);
    af_arg_i64(l, in.dy->ld);
    af_arg_ptr(l, p->score);
    af_arg_ptr(l, p->inverse);
    af_arg_bytes(l, a, sizeof *a);
}

/* Gradients of matrices, v and beta. */
static void launch_dscores(af_cuda *cu, af_node *n, const scan_args *a, const scan_parts *p)
{
    const af_scan_inputs in = af_scan_in(n);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "scan_bwd.cu", "scan_dscores", in.x, a),
                                  p->slots, a->H, 1, THREADS, shared_of(cu, in.x, a).dscores);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_ptr(l, n->out[2]->data);
    af_arg_i64(l, n->out[2]->ld);
    af_arg_ptr(l, p->G);
    af_arg_ptr(l, p->score);
    af_arg_ptr(l, p->cross);
    af_arg_ptr(l, p->dmat);
    af_arg_ptr(l, p->dr);
    af_arg_ptr(l, p->error);
    af_arg_ptr(l, p->dstates);
    af_arg_ptr(l, in.dy->data);
    af_arg_i64(l, in.dy->ld);
    af_arg_bytes(l, a, sizeof *a);
}

/* Gradients of q, k and the decay. */
static void launch_dkeys(af_cuda *cu, af_node *n, const scan_args *a, const scan_parts *p)
{
    const af_scan_inputs in = af_scan_in(n);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "scan_bwd.cu", "scan_dkeys", in.x, a), p->slots,
                                  a->H, 1, THREADS, shared_of(cu, in.x, a).dkeys);
    af_arg_ptr(l, p->dq);
    af_arg_ptr(l, p->dk);
    af_arg_ptr(l, n->out[1]->data);
    af_arg_i64(l, n->out[1]->ld);
    af_arg_ptr(l, p->G);
    af_arg_ptr(l, p->score);
    af_arg_ptr(l, p->cross);
    af_arg_ptr(l, p->states);
    af_arg_ptr(l, p->dstates);
    af_arg_ptr(l, p->dmat);
    af_arg_ptr(l, p->dr);
    af_arg_ptr(l, in.dy->data);
    af_arg_i64(l, in.dy->ld);
    af_arg_bytes(l, a, sizeof *a);
    l = af_cuda_launch(cu, n, kernel(cu, "scan_bwd.cu", "scan_join", in.x, a), in.x->dim[0], a->J,
                       1, 32, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_ptr(l, p->dq);
    af_arg_ptr(l, p->dk);
    af_arg_bytes(l, a, sizeof *a);
}

static af_status scan_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_scan_inputs in = af_scan_in(n);
    const scan_args a = args_of(n, &in);
    const af_status st = check(cu, n, err);
    scan_parts p;
    (void)layout(&p, cu, n);
    if (st != AF_OK || in.x->dim[0] == 0)
        return st;
    for (int i = 0; i < 3; i++)
        zero_rows(cu, n, &a, n->out[i]);
    if (in.D > 1) {
        af_channel_launch_bwd(cu, n, &a);
        return AF_OK;
    }
    if (af_delta_fits(cu, n)) {
        af_delta_launch_bwd(cu, n);
        return AF_OK;
    }
    launch_states(cu, n, &a, &p);
    launch_dstates(cu, n, &a, &p);
    launch_dscores(cu, n, &a, &p);
    launch_dkeys(cu, n, &a, &p);
    if (!in.skip)
        return AF_OK;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "scan_bwd.cu", "scan_dskip", in.x, &a), a.H,
                                  SKIP_PARTS, 1, THREADS, 0);
    af_arg_ptr(l, p.skip);
    af_arg_ptr(l, in.dy->data);
    af_arg_i64(l, in.dy->ld);
    af_arg_bytes(l, &a, sizeof a);
    af_cuda_reduce_parts(cu, n, n->out[3], p.skip, a.H, SKIP_PARTS, 1, false);
    return AF_OK;
}

static af_status scan_cached_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_scan_inputs in = af_scan_in(n);
    const scan_args a = args_of(n, &in);
    const af_status st = af_cuda_state_check(n, err);
    if (st != AF_OK || in.x->dim[0] == 0)
        return st;
    zero_rows(cu, n, &a, n->out[0]);
    if (in.D > 1) {
        af_channel_launch(cu, n, &a);
        return AF_OK;
    }
    af_launch *l =
        af_cuda_launch(cu, n, kernel(cu, "scan.cu", "scan_step", in.x, &a), (a.V + 31) / 32 * a.H,
                       a.S, 1, THREADS, (unsigned)(34 * a.K) * (unsigned)sizeof(float));
    af_arg_ptr(l, n->out[0]->data);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_ptr(l, in.state->data);
    af_arg_ptr(l, in.start->data);
    af_arg_bytes(l, &a, sizeof a);
    return AF_OK;
}

const af_cuda_op af_cuda_scan = {scan_prepare, scan_work, true};
const af_cuda_op af_cuda_scan_bwd = {scan_bwd_prepare, scan_work, true};
const af_cuda_op af_cuda_scan_cached = {scan_cached_prepare, NULL, true};
