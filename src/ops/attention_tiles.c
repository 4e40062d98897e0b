/* attention_tiles.c - attention.c in bf16 where the machine's tiles have a way of their own
 * (af_attend in fast/fast.h). One item of work is a block of queries of all heads that share keys;
 * of the backward, all of a kv head, whose dk and dv are one sum. */
#include "ops/attention_tiles.h"

#include "ops/attention_fast.h"

typedef struct job {
    af_attn a;
    const af_fast *f;
    uint64_t share; /* bytes of a thread */
} job;

enum { LEAST_BLOCKS = 4 }; /* keys and values are packed again for what a thread takes at once */

static bool is_bf16(const af_tensor *t) { return t->dtype == AF_DTYPE_BF16; }

static uint64_t share_bytes(const af_node *n)
{
    const af_fast *f = af_fast_get();
    const int64_t N = n->in[0]->dim[0], E = n->attr.attention.head_dim;
    const uint64_t bytes =
        n->op == AF_OP_ATTENTION ? f->attend_work(N, E) : f->attend_bwd_work(N, E);
    return AF_ALIGN_UP(bytes, UINT64_C(64));
}

static job job_of(const af_node *n, const af_cpu *cpu)
{
    const af_attn a = af_attn_of(n, cpu, 0);
    return (job){a, a.f, share_bytes(n)};
}

/* kv head `kv` of sequence s: what both directions read. */
static af_attend head_of(const af_attn *a, int64_t s, int64_t kv)
{
    const int64_t group = a->H / a->K, row = a->bounds[s];
    return (af_attend){.q = af_attn_head(a, kv * group, row).data,
                       .k = af_attn_head(a, a->H + kv, row).data,
                       .v = af_attn_head(a, a->H + a->K + kv, row).data,
                       .ld = a->width,
                       .heads = group,
                       .len = a->bounds[s + 1] - row,
                       .E = a->E,
                       .causal = a->n->attr.attention.causal,
                       .window = a->n->attr.attention.window,
                       .scale = (float)a->n->attr.attention.scale,
                       .ldy = a->H * a->E,
                       .ldl = a->H};
}

static int64_t blocks_of(const af_attn *a, int64_t s)
{
    return (a->bounds[s + 1] - a->bounds[s] + AF_ATTEND_Q - 1) / AF_ATTEND_Q;
}

/* Head h of rows from `row` of a result or its gradient. */
static uint16_t *result(const af_attn *a, const af_tensor *t, int64_t row, int64_t h)
{
    return (uint16_t *)t->data + (row * a->H + h) * a->E;
}

static void forward_blocks(void *arg, int64_t from, int64_t to, int share)
{
    const job *j = arg;
    const af_attn *a = &j->a;
    void *work = (uint8_t *)a->work + (uint64_t)share * j->share;
    int64_t at = 0; /* items before this kv head */
    for (int64_t s = 0; s < a->S && at < to; s++)
        for (int64_t kv = 0, n = blocks_of(a, s); kv < a->K && at < to; kv++, at += n) {
            const int64_t first = AF_MAX(from - at, INT64_C(0)), end = AF_MIN(n, to - at),
                          h = kv * (a->H / a->K), row = a->bounds[s];
            if (first >= end)
                continue;
            af_attend x = head_of(a, s, kv);
            x.y = result(a, a->n->out[0], row, h);
            x.lse = (float *)a->n->out[1]->data + row * a->H + h;
            j->f->attend_pack(&x, work);
            j->f->attend(&x, first, end, work);
        }
}

static void forward_run(const af_node *n, af_cpu *cpu)
{
    job j = job_of(n, cpu);
    int64_t count = 0;
    for (int64_t s = 0; s < j.a.S; s++)
        count += blocks_of(&j.a, s) * j.a.K;
    af_attn_zero_rows(&j.a);
    af_pool_run_least(cpu->pool, count, LEAST_BLOCKS, forward_blocks, &j);
}

static void backward_heads(void *arg, int64_t from, int64_t to, int share)
{
    const job *j = arg;
    const af_attn *a = &j->a;
    const int64_t group = a->H / a->K;
    for (int64_t item = from; item < to; item++) {
        const int64_t s = item / a->K, kv = item % a->K, row = a->bounds[s], h = kv * group;
        uint16_t *d = (uint16_t *)a->n->out[0]->data + row * a->width;
        af_attend x = head_of(a, s, kv);
        x.y = result(a, a->n->in[2], row, h);
        x.dy = result(a, a->n->in[4], row, h);
        x.lse = (float *)a->n->in[3]->data + row * a->H + h;
        x.dq = d + h * a->E;
        x.dk = d + (a->H + kv) * a->E;
        x.dv = d + (a->H + a->K + kv) * a->E;
        j->f->attend_bwd(&x, (uint8_t *)a->work + (uint64_t)share * j->share);
    }
}

static void backward_run(const af_node *n, af_cpu *cpu)
{
    job j = job_of(n, cpu);
    af_attn_zero_rows(&j.a);
    af_pool_run(cpu->pool, j.a.S * j.a.K, backward_heads, &j);
}

static uint64_t work(const af_node *n, int threads) { return (uint64_t)threads * share_bytes(n); }

static const af_cpu_op forward_op = {forward_run, work}, backward_op = {backward_run, work};

/* A soft cap wants scores scaled and bent: the general way does that. */
static bool served(const af_node *n)
{
    return af_fast_get()->attend && !(n->attr.attention.softcap > 0);
}

const af_cpu_op *af_attention_tiles(const af_node *n)
{
    return served(n) && is_bf16(n->in[0]) && is_bf16(n->out[0]) ? &forward_op : NULL;
}
const af_cpu_op *af_attention_bwd_tiles(const af_node *n)
{
    return served(n) && is_bf16(n->in[0]) && is_bf16(n->in[2]) && is_bf16(n->in[4]) &&
                   is_bf16(n->out[0])
               ? &backward_op
               : NULL;
}
