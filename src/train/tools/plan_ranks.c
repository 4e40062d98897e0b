/* plan_ranks.c - see plan_ranks.h. Traffic is counted by the code that sends (dist/shards.h), so
 * that it is what a run's counter says; times are estimates from stated rates. */
#include "train/tools/plan_ranks.h"
#include "base/pool.h"
#include "dist/shards.h"
#include "graph/graph_access.h"
#include "train/step/memory_fit.h"
#include "train/step/ranks.h"

/* What an estimate takes for granted: half of an H200's bf16 rate, a core's f32 rate. */
#define GPU_RATE  350e12
#define CORE_RATE 35e9

/* Bytes that rank 0 sends to ranks at least `distance` away. */
typedef struct traffic {
    int ranks, distance;
    uint64_t sent;
} traffic;

static void add_traffic(void *user, const int64_t *cut, uint64_t size, bool gathers)
{
    traffic *t = user;
    t->sent += af_shards_sent(cut, 0, t->ranks, t->distance, size, gathers);
}

static uint64_t sent_by_nodes(const af_step_graph *s, int what, int ranks, int distance)
{
    traffic t = {.ranks = ranks, .distance = distance};
    af_graph_exchanges(s->graph, what, add_traffic, &t);
    return t.sent;
}

/* Nodes of each micro-batch, of each block of them, and of the update. */
static void count_sent(const af_step_graph *s, const af_plan_ranks *r, af_stage_plan *out)
{
    const uint64_t micro = (uint64_t)s->run->accumulation, blocks = micro / (uint64_t)s->block;
    const int per_node = r->ranks_per_node ? r->ranks_per_node : r->ranks;
    for (int far = 0; far < 2; far++) {
        const int from = far ? per_node : 1;
        *(far ? &out->sent_far : &out->sent) =
            micro * sent_by_nodes(s, AF_RUN_FORWARD, r->ranks, from) +
            micro * sent_by_nodes(s, AF_RUN_BACKWARD, r->ranks, from) +
            blocks * sent_by_nodes(s, 0, r->ranks, from) +
            sent_by_nodes(s, AF_RUN_UPDATE, r->ranks, from);
    }
}

static double step_seconds(const af_step_graph *s, const af_plan_ranks *r, const af_stage_plan *p)
{
    const double rate =
        af_run_model_on_cpu(s->model)
            ? CORE_RATE * (double)(s->run->threads
                                       ? s->run->threads
                                       : AF_MAX(af_cpu_count() / AF_MAX(r->ranks_per_node, 1), 1))
            : GPU_RATE;
    return (double)s->run->accumulation * s->plan.effort / rate +
           (double)(p->sent - p->sent_far) / r->bandwidth + (double)p->sent_far / r->bandwidth_far;
}

static void note_memory(const af_step_graph *s, af_stage_plan *out)
{
    out->total = s->plan.total + out->nccl;
    out->resident = af_run_model_on_cpu(s->model) ? af_memory_resident(s, &s->plan) : out->total;
    out->mapped = af_plan_in_place(&s->plan);
    out->weights = s->plan.weights + s->plan.params + s->plan.bound;
    out->state = s->plan.state;
    out->grads = s->plan.grads;
}

/* Where gradients are split, ranks write theirs at different times, and what lies among them
 * differs: the largest of the first, the middle and the last rank. */
static af_status find_largest(af_step_graph *s, af_stage_plan *out, af_error *err)
{
    const int ranks = s->model->ranks, more[] = {ranks / 2, ranks - 1};
    const af_memory_mode mode = s->memory_mode;
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(more) && s->model->zero_stage >= AF_SHARD_GRADIENTS; i++) {
        if (more[i] == s->model->rank)
            continue;
        s->model->rank = more[i];
        AF_TRY(af_memory_plan(s, mode, err));
        if (s->plan.total + out->nccl > out->total)
            note_memory(s, out);
    }
done:
    return st;
}

/* Every stage has the memory mode that a run with it would choose. */
static af_status plan_stage(af_step_graph *s, const af_plan_ranks *r, int stage,
                            uint64_t free_bytes, af_stage_plan *out, af_error *err)
{
    af_status st = AF_OK;
    const uint64_t sharing =
        af_run_model_on_cpu(s->model) ? (uint64_t)AF_MAX(r->ranks_per_node, 1) : 1;
    bool fits;
    const int run_stage = af_run_order_stage(s->run, r->ranks, stage);
    *out = (af_stage_plan){.there = run_stage <= af_run_model_zero_max(s->model) &&
                                    af_run_order_check(s->run, r->ranks, stage, NULL) == AF_OK};
    if (!out->there)
        return AF_OK;
    s->model->ranks = r->ranks;
    s->model->zero_stage = run_stage;
    out->nccl = af_run_model_uses_nccl(s->model) ? af_ranks_nccl_bytes(r->ranks, false) : 0;
    const uint64_t free_of_rank = free_bytes / sharing;
    AF_TRY(af_memory_choose(s, free_of_rank - AF_MIN(free_of_rank, out->nccl), &fits, err));
    note_memory(s, out);
    count_sent(s, r, out);
    out->seconds = step_seconds(s, r, out);
    AF_TRY(find_largest(s, out, err));
    out->fits = out->total <= free_of_rank;
done:
    s->model->rank = 0;
    s->model->ranks = 1;
    s->model->zero_stage = 0;
    return st;
}

af_status af_plan_stages(af_step_graph *s, const af_plan_ranks *r, uint64_t free_bytes,
                         af_stage_plan out[AF_STAGES], af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < AF_STAGES && st == AF_OK; i++)
        st = plan_stage(s, r, i, free_bytes, &out[i], err);
    return st;
}

/* The fastest that fits; -1 = none does. */
static int advised(const af_stage_plan p[AF_STAGES])
{
    int best = -1;
    for (int i = 0; i < AF_STAGES; i++)
        if (p[i].there && p[i].fits && (best < 0 || p[i].seconds < p[best].seconds))
            best = i;
    return best;
}

void af_plan_stages_text(af_buf *b, const af_stage_plan p[AF_STAGES], const af_plan_ranks *r)
{
    const int best = advised(p);
    af_buf_printf(b,
                  "\n%d ranks, %d on a machine; %.3g GB/s inside a machine, %.3g between them\n"
                  "zero_stage   peak GiB of a rank   weights   optimizer   "
                  "sent per step (between machines)   estimated step\n",
                  r->ranks, r->ranks_per_node, r->bandwidth / 1e9, r->bandwidth_far / 1e9);
    for (int i = 0; i < AF_STAGES; i++) {
        if (!p[i].there) {
            af_buf_printf(b, "%10d   not without NCCL\n", i);
            continue;
        }
        af_buf_printf(b, "%10d   %18.3f   %7.3f   %9.3f   %10.3f MB (%.3f MB)   %15.4g s%s%s\n", i,
                      (double)(p[i].total + p[i].mapped) / 0x1p30, (double)p[i].weights / 0x1p30,
                      (double)p[i].state / 0x1p30, (double)p[i].sent / 1e6,
                      (double)p[i].sent_far / 1e6, p[i].seconds, p[i].fits ? "" : ", does not fit",
                      i == best ? "  <- advised" : "");
    }
    if (p[0].nccl)
        af_buf_printf(b, "peaks include %.3f GiB of NCCL's own memory\n",
                      (double)p[0].nccl / 0x1p30);
    if (best < 0)
        af_buf_str(b, "no stage fits: use more machines, a shorter sequence_len or load_in_4bit\n");
}

json_t *af_plan_stages_json(const af_stage_plan p[AF_STAGES], const af_plan_ranks *r)
{
    const int best = advised(p);
    json_t *o = json_pack("{s:i,s:i,s:f,s:f,s:o}", "ranks", r->ranks, "ranks_per_node",
                          r->ranks_per_node, "bandwidth", r->bandwidth, "bandwidth_far",
                          r->bandwidth_far, "advised", best < 0 ? json_null() : json_integer(best));
    json_t *list = json_array();
    for (int i = 0; i < AF_STAGES; i++)
        json_array_append_new(
            list,
            p[i].there
                ? json_pack("{s:i,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:b}", "zero_stage", i,
                            "peak_bytes", (json_int_t)p[i].total, "mapped_bytes",
                            (json_int_t)p[i].mapped, "resident_bytes", (json_int_t)p[i].resident,
                            "weight_bytes", (json_int_t)p[i].weights, "state_bytes",
                            (json_int_t)p[i].state, "gradient_bytes", (json_int_t)p[i].grads,
                            "nccl_bytes", (json_int_t)p[i].nccl, "sent_bytes",
                            (json_int_t)p[i].sent, "sent_bytes_between_machines",
                            (json_int_t)p[i].sent_far, "seconds", p[i].seconds, "fits", p[i].fits)
                : json_pack("{s:i,s:b}", "zero_stage", i, "there", false));
    json_object_set_new(o, "stages", list);
    return o;
}
