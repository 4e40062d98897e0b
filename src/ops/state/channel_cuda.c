/* channel_cuda.c - see channel_cuda.h. The workspace of the backward has the states before every
 * chunk, those of one chunk for every block, and sums of every tile of columns. */
#include "ops/state/channel_cuda.h"

/* As in channel.cu. BLOCKS: of the backward at most, each with 64 states of its own. */
enum { CHUNK = 64, COLUMNS = 32, THREADS = 256, BLOCKS = 512 };

typedef struct channel_parts {
    float *states, *inner, *sums;
    int64_t jobs, blocks;
} channel_parts;

static int64_t tiles_of(const af_scan_inputs *in) { return (in->V + COLUMNS - 1) / COLUMNS; }

unsigned af_channel_shared(const af_scan_inputs *in)
{
    return (unsigned)sizeof(float) * (unsigned)(in->K * (2 * COLUMNS + 3) + CHUNK * COLUMNS);
}

static uint64_t layout(channel_parts *p, const af_cuda *cu, const af_node *n)
{
    const af_scan_inputs in = af_scan_in(n);
    const int64_t N = in.x->dim[0], tiles = tiles_of(&in), slots = N / CHUNK + in.S;
    *p = (channel_parts){.jobs = in.S * in.H * tiles};
    p->blocks = AF_MIN(p->jobs, (int64_t)BLOCKS);
    const struct {
        float **to;
        int64_t floats;
    } parts[] = {{&p->states, slots * in.H * in.K * in.V},
                 {&p->inner, p->blocks * CHUNK * in.K * COLUMNS},
                 {&p->sums, tiles * N * in.H * (3 * in.K + 1)}};
    uint64_t at = 0;
    for (size_t i = 0; i < AF_LEN(parts) && in.dy; i++) {
        *parts[i].to = cu->work ? (float *)((uint8_t *)cu->work + at) : NULL;
        at += AF_ALIGN_UP((uint64_t)parts[i].floats * sizeof(float), (uint64_t)256);
    }
    return at;
}

uint64_t af_channel_work(const af_cuda *cu, const af_node *n)
{
    channel_parts p;
    return layout(&p, cu, n);
}

static af_kernel *kernel(af_cuda *cu, const char *name, const af_tensor *x)
{
    return af_cuda_kernel(cu, "channel.cu", name,
                          af_cuda_text(cu, "AF_T=%s", af_cuda_ctype(x->dtype)));
}

/* Outputs, or the states before every chunk. */
static void launch_scan(af_cuda *cu, af_node *n, const scan_args *a, const channel_parts *p)
{
    const af_scan_inputs in = af_scan_in(n);
    const af_tensor *y = in.dy ? NULL : n->out[0];
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "channel_scan", in.x), p->jobs, 1, 1, THREADS,
                                  (unsigned)sizeof(float) * (unsigned)(in.K * (COLUMNS + 3)));
    af_arg_ptr(l, af_cuda_data(y));
    af_arg_i64(l, y ? y->ld : 0);
    af_arg_ptr(l, af_cuda_data(in.state));
    af_arg_ptr(l, af_cuda_data(in.start));
    af_arg_ptr(l, p->states);
    af_arg_bytes(l, a, sizeof *a);
}

void af_channel_launch(af_cuda *cu, af_node *n, const scan_args *a)
{
    channel_parts p;
    (void)layout(&p, cu, n);
    launch_scan(cu, n, a, &p);
}

void af_channel_launch_bwd(af_cuda *cu, af_node *n, const scan_args *a)
{
    const af_scan_inputs in = af_scan_in(n);
    channel_parts p;
    (void)layout(&p, cu, n);
    launch_scan(cu, n, a, &p);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "channel_back", in.x), p.blocks, 1, 1, THREADS,
                                  af_channel_shared(&in));
    af_arg_ptr(l, n->out[0]->data);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_ptr(l, p.sums);
    af_arg_ptr(l, p.states);
    af_arg_ptr(l, p.inner);
    af_arg_ptr(l, in.dy->data);
    af_arg_i64(l, in.dy->ld);
    af_arg_i32(l, in.x->dim[0]);
    af_arg_i32(l, p.jobs);
    af_arg_bytes(l, a, sizeof *a);
    l = af_cuda_launch(cu, n, kernel(cu, "channel_join", in.x), in.x->dim[0], a->J, 1, 32, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_ptr(l, n->out[1]->data);
    af_arg_i64(l, n->out[1]->ld);
    af_arg_ptr(l, n->out[2]->data);
    af_arg_i64(l, n->out[2]->ld);
    af_arg_ptr(l, p.sums);
    af_arg_i32(l, in.x->dim[0]);
    af_arg_bytes(l, a, sizeof *a);
}
