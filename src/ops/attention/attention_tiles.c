/* attention_tiles.c - attention.c where the machine's tiles have a path of their own: bf16, and f32
 * as three planes of bf16 (af_attend in cpu_kernels.h). One item of work is a block of queries of
 * all heads that share keys; of the backward, some of them (attention_parts.h), for which keys are
 * packed before. */
#include "ops/attention/attention_tiles.h"

#include "ops/attention/attention_parts.h"

typedef struct attn_tiles_job {
    af_attn a;
    const af_fast *f;
    uint64_t share; /* bytes of a thread */
    /* the backward's */
    const af_parts *parts;
    uint8_t *keys;
} attn_tiles_job;

enum { LEAST_BLOCKS = 4 }; /* keys and values are packed again for what a thread takes at once */

static int planes_of(const af_node *n) { return n->in[0]->dtype == AF_DTYPE_BF16 ? 1 : 3; }

static uint64_t share_bytes(const af_node *n)
{
    const uint64_t bytes =
        af_fast_get()->attention->work(n->in[0]->dim[0], n->attr.attention.head_dim, planes_of(n));
    return AF_ALIGN_UP(bytes, UINT64_C(64));
}

/* kv head `kv` of sequence s: what both directions read. */
static af_attend head_of(const af_attn *a, int64_t s, int64_t kv)
{
    const int64_t group = a->H / a->K, row = a->bounds[s];
    return (af_attend){.planes = planes_of(a->n),
                       .q = af_attn_head(a, kv * group, row).data,
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
static void *result(const af_attn *a, const af_tensor *t, int64_t row, int64_t h)
{
    return (uint8_t *)t->data + (row * a->H + h) * a->E * (int64_t)af_dtype_get(t->dtype)->bytes;
}

static void forward_blocks(void *arg, int64_t from, int64_t to, int share)
{
    const attn_tiles_job *j = arg;
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
            j->f->attention->pack(&x, work);
            j->f->attention->run(&x, first, end, work);
        }
}

static void forward_run(const af_node *n, af_cpu *cpu)
{
    const af_attn a = af_attn_of(n, cpu, 0);
    attn_tiles_job j = {.a = a, .f = a.f, .share = share_bytes(n)};
    int64_t count = 0;
    for (int64_t s = 0; s < j.a.S; s++)
        count += blocks_of(&j.a, s) * j.a.K;
    af_attn_zero_rows(&j.a);
    af_pool_run_least(cpu->pool, count, LEAST_BLOCKS, forward_blocks, &j);
}

static int64_t padded_size(const af_node *n)
{
    return AF_ALIGN_UP((int64_t)n->attr.attention.head_dim, INT64_C(32));
}

/* Of a thread: the sums of a head that is not cut, and what the tiles need. */
static uint64_t sums_floats(const af_node *n)
{
    return AF_ALIGN_UP((uint64_t)n->in[0]->dim[0], UINT64_C(32)) * (uint64_t)padded_size(n);
}
static uint64_t bwd_share_bytes(const af_node *n)
{
    return 2 * sums_floats(n) * sizeof(float) +
           AF_ALIGN_UP(af_fast_get()->attention->bwd_work(n->attr.attention.head_dim, planes_of(n)),
                       UINT64_C(64));
}

static uint8_t *keys_at(const attn_tiles_job *j, const af_part *p)
{
    return j->keys + j->f->attention->bwd_keys(p->row, j->a.E, planes_of(j->a.n));
}

static void pack_keys(void *arg, const af_part *p, int64_t from, int64_t to)
{
    const attn_tiles_job *j = arg;
    const af_attend x = head_of(&j->a, p->seq, p->kv);
    j->f->attention->bwd_pack(&x, from, to, keys_at(j, p));
}

static void run_part(void *arg, const af_part *p, int share)
{
    const attn_tiles_job *j = arg;
    const af_attn *a = &j->a;
    const int64_t row = a->bounds[p->seq], h = p->kv * (a->H / a->K);
    float *own = (float *)((uint8_t *)a->work + (uint64_t)share * j->share),
          *rest = own + 2 * sums_floats(a->n);
    af_attend x = head_of(a, p->seq, p->kv);
    x.y = result(a, a->n->in[2], row, h);
    x.dy = result(a, a->n->in[4], row, h);
    x.lse = (float *)a->n->in[3]->data + row * a->H + h;
    x.dq = (uint8_t *)a->n->out[0]->data +
           (row * a->width + h * a->E) * (int64_t)af_dtype_get(a->n->out[0]->dtype)->bytes;
    x.keys = keys_at(j, p);
    x.from = p->from;
    x.to = p->to;
    x.key = p->key;
    x.dk_sums = p->dk ? p->dk : own;
    x.dv_sums = p->dv ? p->dv : own + sums_floats(a->n);
    j->f->attention->bwd(&x, rest);
    if (!p->dk)
        af_parts_put(j->parts, p, 0, x.len, x.dk_sums, x.dv_sums);
}

static uint64_t keys_bytes(const af_node *n, int threads)
{
    return af_fast_get()->attention->bwd_keys(af_parts_rows(n, threads), n->attr.attention.head_dim,
                                              planes_of(n));
}

static void backward_run(const af_node *n, af_cpu *cpu)
{
    const int threads = af_pool_threads(cpu->pool);
    const af_attn a = af_attn_of(n, cpu, 0);
    attn_tiles_job j = {.a = a, .f = a.f, .share = bwd_share_bytes(n)};
    af_parts p = {.a = &a,
                  .width = padded_size(n),
                  .factor = (float)n->attr.attention.scale,
                  .ready = pack_keys,
                  .run = run_part,
                  .arg = &j};
    j.parts = &p;
    j.keys = (uint8_t *)cpu->work + (uint64_t)threads * j.share;
    af_attn_zero_rows(&a);
    af_parts_run(&p, cpu->pool, j.keys + keys_bytes(n, threads));
}

static uint64_t forward_work(const af_node *n, int threads)
{
    return (uint64_t)threads * share_bytes(n);
}
static uint64_t backward_work(const af_node *n, int threads)
{
    return (uint64_t)threads * bwd_share_bytes(n) + keys_bytes(n, threads) +
           af_parts_bytes(n, padded_size(n), threads);
}

static const af_cpu_op forward_op = {forward_run, forward_work},
                       backward_op = {backward_run, backward_work};

/* A soft cap needs scores scaled and capped: the general path does that. */
static bool served(const af_node *n)
{
    const af_dtype type = n->in[0]->dtype;
    return af_fast_get()->attention && (type == AF_DTYPE_BF16 || type == AF_DTYPE_F32) &&
           n->out[0]->dtype == type && !(n->attr.attention.softcap > 0);
}

const af_cpu_op *af_attention_tiles(const af_node *n) { return served(n) ? &forward_op : NULL; }

const af_cpu_op *af_attention_bwd_tiles(const af_node *n)
{
    const af_dtype type = n->in[0]->dtype;
    return served(n) && n->in[2]->dtype == type && n->in[4]->dtype == type ? &backward_op : NULL;
}
