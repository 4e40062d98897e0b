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
    const bool in_turn = s->model->zero_stage >= AF_SPLIT_GRADIENTS;
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
    const uint64_t before = af_run_model_sent(s->model);
    look_at(s, v, cut);
    const af_status st = af_reduce_scatter(s->model->comm, v, cut, err);
    s->sent += af_run_model_sent(s->model) - before;
    return st;
}

static af_status gather_pieces(void *user, void *v, uint64_t size, const int64_t *cut,
                               af_error *err)
{
    af_step_graph *s = user;
    const uint64_t before = af_run_model_sent(s->model);
    const af_status st = af_gather_shards(s->model->comm, v, size, cut, err);
    s->sent += af_run_model_sent(s->model) - before;
    return st;
}

void af_step_ranks_connect(af_step_graph *s)
{
    af_graph_set_exchange(s->graph, &(af_exchange){sum_pieces, gather_pieces, s});
}

/* ---- gradients and parameters as a whole ---- */

typedef af_status on_host(af_step_graph *s, float *v, int64_t count, af_error *err);

/* A flat vector in the memory of this process: the graph's own, or of a GPU a copy that is written
 * back. */
static af_status with_host(af_step_graph *s, af_tensor *t, on_host *work, af_error *err)
{
    af_status st = AF_OK;
    const uint64_t bytes = af_tensor_bytes(t);
    float *v = af_tensor_host_view(t), *copy = NULL;
    if (!v) {
        v = copy = malloc(AF_MAX(bytes, 1));
        if (!v)
            return af_fail_nomem(err, "a copy on the host", bytes);
        AF_TRY(af_tensor_read(s->graph, t, v, bytes, err));
    }
    AF_TRY(work(s, v, af_tensor_count(t), err));
    if (copy)
        st = af_tensor_write(s->graph, t, copy, bytes, err);
done:
    free(copy);
    return st;
}

static af_status gather_params(af_step_graph *s, float *v, int64_t count, af_error *err)
{
    (void)count;
    return gather_pieces(s, v, sizeof *v, af_graph_cuts(s->graph), err);
}

/* Every rank's part of the parameters, from its GPU. */
static af_status gather_on_gpus(af_step_graph *s, af_error *err)
{
    const int64_t *cut = af_graph_cuts(s->graph);
    const uint64_t before = af_run_model_sent(s->model);
    uint8_t *v = af_graph_flat_params(s->graph)->data;
    af_status st = AF_OK;
    for (int r = 0; r < s->model->ranks && st == AF_OK; r++)
        if (cut[r + 1] > cut[r])
            st = af_comm_device_broadcast(s->model->gpus, v + (uint64_t)cut[r] * sizeof(float),
                                          (uint64_t)(cut[r + 1] - cut[r]) * sizeof(float), r, NULL,
                                          err);
    af_tensor_wrote(s->graph, af_graph_flat_params(s->graph));
    s->sent += af_run_model_sent(s->model) - before;
    return st;
}

af_status af_step_graph_gather(af_step_graph *s, af_error *err)
{
    if (!s->model->comm || s->model->zero_stage < AF_SPLIT_STATE)
        return AF_OK;
    if (s->model->gpus)
        return gather_on_gpus(s, err);
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

/* The tree of sum_ranks without parts: with the neighbour at distance 1 a rank exchanges all it has
 * and adds, then with that at distance 2. The sum of two does not depend on which comes first. */
static af_status sum_on_gpus(af_step_graph *s, af_error *err)
{
    const af_tensor *g = af_graph_flat_gradients(s->graph), *in = af_graph_received(s->graph);
    const int me = af_comm_rank(s->model->comm);
    const uint64_t before = af_run_model_sent(s->model);
    af_status st = AF_OK;
    for (int bit = 1; bit < s->model->ranks && st == AF_OK; bit *= 2) {
        st = af_comm_device_exchange(s->model->gpus, me ^ bit, g->data, in->data,
                                     af_tensor_bytes(g), NULL, err);
        if (st == AF_OK)
            st = af_graph_add_received(s->graph, err);
    }
    s->sent += af_run_model_sent(s->model) - before;
    return st;
}

af_status af_step_graph_reduce(af_step_graph *s, af_error *err)
{
    if (!s->model->comm || s->model->zero_stage >= AF_SPLIT_GRADIENTS) /* nodes have done it */
        return AF_OK;
    if (s->model->gpus)
        return sum_on_gpus(s, err);
    return with_host(s, af_graph_flat_gradients(s->graph), sum_ranks, err);
}

af_status af_step_graph_carry(af_step_graph *s, int64_t j, af_error *err)
{
    return (j + 1) % s->block == 0 ? af_graph_carry(s->graph, j / s->block, err) : AF_OK;
}
