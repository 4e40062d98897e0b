/* step_ranks.c - a step of several ranks: which micro-batches each has, and how gradients,
 * parameters and losses come together (step_graph.h). */
#include "dist/comm_device.h"
#include "dist/shards.h"
#include "graph/graph_access.h"
#include "train/step/ranks.h"
#include "train/step/step_graph.h"

#include <math.h>
#include <stdlib.h>

/* ---- micro-batches ---- */

/* Split gradients are summed over the ranks block by block, so that neighbours in the tree must be
 * blocks of different ranks: blocks are dealt in turn. Else a rank has all its blocks in a row. */
static int64_t micro_of(const af_step_graph *s, int rank, int64_t j)
{
    const int64_t block = j / s->block, blocks = s->run->accumulation / s->block;
    const bool in_turn = s->model->zero_stage >= AF_SHARD_GRADIENTS;
    const int64_t number =
        in_turn ? block * af_comm_size(s->model->comm) + rank : rank * blocks + block;
    return number * s->block + j % s->block;
}

int64_t af_step_graph_micro(const af_step_graph *s, int64_t j)
{
    return micro_of(s, af_comm_rank(s->model->comm), j);
}

af_status af_step_graph_share(const af_step_graph *s, void *items, uint64_t size, af_error *err)
{
    af_comm *c = s->model->comm;
    const int64_t own = s->run->accumulation;
    uint8_t *at = items;
    if (!c)
        return AF_OK;
    const uint64_t part = (uint64_t)own * size, ranks = (uint64_t)af_comm_size(c);
    uint8_t *all = af_calloc(ranks, part);
    if (!all)
        return af_fail_nomem(err, "results of all ranks", ranks * part);
    uint8_t *mine = all + (uint64_t)af_comm_rank(c) * part;
    for (int64_t j = 0; j < own; j++)
        memcpy(mine + (uint64_t)j * size, at + (uint64_t)af_step_graph_micro(s, j) * size, size);
    const af_status st = af_comm_all_gather(c, mine, all, part, err);
    for (int r = 0; r < af_comm_size(c) && st == AF_OK; r++)
        for (int64_t j = 0; j < own; j++)
            memcpy(at + (uint64_t)micro_of(s, r, j) * size,
                   all + (uint64_t)r * part + (uint64_t)j * size, size);
    free(all);
    return st;
}

af_status af_step_graph_share_losses(af_step_graph *s, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_step_graph_share(s, s->losses, sizeof *s->losses, err));
    if (s->router_loss)
        AF_TRY(af_step_graph_share(s, s->router_losses, sizeof *s->router_losses, err));
    if (af_run_model_distils(s->model)) {
        AF_TRY(af_step_graph_share(s, s->teacher.ce_loss, sizeof *s->teacher.ce_loss, err));
        AF_TRY(af_step_graph_share(s, s->teacher.kd_loss, sizeof *s->teacher.kd_loss, err));
    }
done:
    return st;
}

/* ---- nodes that reach the other ranks ---- */

/* A search for what is not finite: every rank repeats the same micro-batch, and sees the same. */
static void look_at(af_step_graph *s, const float *v, const int64_t *cut)
{
    for (int64_t i = 0; s->seeks && i < cut[s->model->ranks]; i++)
        s->sums_bad |= !isfinite(v[i]);
}

static af_status sum_pieces(void *user, float *v, const int64_t *cut, af_error *err)
{
    af_step_graph *s = user;
    const uint64_t before = af_comm_bytes(s->model->comm);
    look_at(s, v, cut);
    const af_status st = af_reduce_scatter(s->model->comm, v, cut, err);
    s->sent += af_comm_bytes(s->model->comm) - before;
    return st;
}

static af_status gather_pieces(void *user, void *v, uint64_t size, const int64_t *cut,
                               af_error *err)
{
    af_step_graph *s = user;
    const uint64_t before = af_comm_bytes(s->model->comm);
    const af_status st = af_gather_shards(s->model->comm, v, size, cut, err);
    if (af_graph_is_training(s->graph)) /* an evaluation is not part of a step */
        s->sent += af_comm_bytes(s->model->comm) - before;
    return st;
}

static af_status swap_on_gpus(void *user, const af_swap *swap, int n, void *stream, af_error *err)
{
    const af_step_graph *s = user;
    return af_comm_device_swap(s->model->gpus, swap, n, stream, err);
}

uint64_t af_step_graph_sent(const af_step_graph *s)
{
    return s->sent + af_device_counters(s->model->device).sent_bytes;
}

void af_step_ranks_connect(af_step_graph *s)
{
    af_graph_set_exchange(s->graph, &(af_exchange){sum_pieces, gather_pieces, swap_on_gpus, s});
}

/* ---- gradients and parameters of GPUs that are not connected ---- */

typedef af_status on_host(af_step_graph *s, float *v, int64_t count, af_error *err);

/* A flat vector of the GPU in the memory of this process; then it is written back. */
static af_status with_host(af_step_graph *s, af_tensor *t, on_host *work, af_error *err)
{
    af_status st = AF_OK;
    const uint64_t bytes = af_tensor_bytes(t);
    float *v = malloc(AF_MAX(bytes, 1));
    if (!v)
        return af_fail_nomem(err, "a copy on the host", bytes);
    AF_TRY(af_tensor_read(s->graph, t, v, bytes, err));
    AF_TRY(work(s, v, af_tensor_count(t), err));
    st = af_tensor_write(s->graph, t, v, bytes, err);
done:
    free(v);
    return st;
}

/* Bytes of a parameter: f32 or bf16. */
static uint64_t param_size(const af_step_graph *s)
{
    return af_dtype_get(af_tensor_dtype(af_graph_flat_params(s->graph)))->bytes;
}

static af_status gather_params(af_step_graph *s, float *v, int64_t count, af_error *err)
{
    (void)count;
    return gather_pieces(s, v, param_size(s), af_graph_cuts(s->graph), err);
}

af_status af_step_graph_gather(af_step_graph *s, af_error *err)
{
    if (!s->model->comm || s->model->zero_stage < AF_SHARD_STATE ||
        af_run_model_sums_by_nodes(s->model))
        return AF_OK;
    return with_host(s, af_graph_flat_params(s->graph), gather_params, err);
}

static af_status sum_ranks(af_step_graph *s, float *v, int64_t count, af_error *err)
{
    af_comm *c = s->model->comm;
    int64_t *cut = af_calloc((uint64_t)af_comm_size(c) + 1, sizeof *cut);
    if (!cut)
        return af_fail_nomem(err, "ranks", (uint64_t)af_comm_size(c) * sizeof *cut);
    af_shard_cuts(cut, af_comm_size(c), count, 64);
    af_status st = sum_pieces(s, v, cut, err);
    if (st == AF_OK)
        st = gather_pieces(s, v, sizeof *v, cut, err);
    free(cut);
    return st;
}

af_status af_step_graph_reduce(af_step_graph *s, af_error *err)
{
    if (!s->model->comm || af_run_model_sums_by_nodes(s->model))
        return AF_OK;
    return with_host(s, af_graph_flat_gradients(s->graph), sum_ranks, err);
}

af_status af_step_graph_carry(af_step_graph *s, int64_t j, af_error *err)
{
    return (j + 1) % s->block == 0 ? af_graph_carry(s->graph, j / s->block, err) : AF_OK;
}
