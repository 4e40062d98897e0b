/* ranks.h - the processes of a run: what they must agree on, which part each has, and how results
 * come together. A NULL communicator is a run of one process, everywhere.
 *
 * Micro-batch k of a step belongs to rank k / accumulation. Every rank reads the whole stream of
 * batches, so that all know the tokens of a step without asking. */
#ifndef AF_RANKS_H
#define AF_RANKS_H

#include "dist/comm.h"
#include "train/run/run_config.h"
#include "train/run/run_hooks.h"
#include "train/step/run_data.h"
#include "train/step/run_model.h"

/* Joins the other ranks of the run, if there are any (*out NULL: this is the only one), and checks
 * that all have the same program and run file. *common: the error is the same on every rank. */
AF_CHECKED af_status af_ranks_open(af_comm **out, const af_run_config *run,
                                   const af_train_hooks *hooks, bool *common, af_error *err);
/* All ranks must have read the same records. */
AF_CHECKED af_status af_ranks_agree_data(af_comm *c, const af_run_data *d, af_error *err);
/* And the same weights, as far as samples of them show; and the same checkpoint, all of it. */
AF_CHECKED af_status af_ranks_agree_model(af_comm *c, const af_run_model *m, af_error *err);
AF_CHECKED af_status af_ranks_agree_checkpoint(af_comm *c, const char *dir, af_error *err);
/* The device of this rank: its own GPU, or its share of the processors. */
AF_CHECKED af_status af_ranks_device(af_comm *c, af_device **out, const af_run_config *run,
                                     af_error *err);
/* NCCL's own memory on a GPU: what it takes with the first messages (a rank has one neighbour per
 * level of the tree, or all others), after the plan is made, and what it takes when it starts. */
uint64_t af_ranks_nccl_bytes(int ranks, bool started);
/* Memory this rank may plan with: the same on all ranks. */
AF_CHECKED af_status af_ranks_memory(af_comm *c, const af_device *d, uint64_t *bytes,
                                     af_error *err);
/* Micro-batches of a step, of all ranks. */
static inline int64_t af_ranks_micro(const af_comm *c, const af_run_config *run)
{
    return run->accumulation * af_comm_size(c);
}
/* The items [from, to) of n that this rank computes, each a forward pass. Where weights are split
 * all ranks run as many: then `to` may be above n, and the last item is computed again in place of
 * those. */
void af_ranks_even_part(const af_run_model *m, int64_t n, int64_t *from, int64_t *to);
/* Every rank has computed its part of n items of `size` bytes: now all have all. */
AF_CHECKED af_status af_ranks_share(af_comm *c, void *items, uint64_t size, int64_t n,
                                    af_error *err);
/* Whether one of the ranks says yes. */
AF_CHECKED af_status af_ranks_any(af_comm *c, bool *yes, af_error *err);
/* A text of rank 0 (malloc'ed, or NULL) and a flag on all ranks. */
AF_CHECKED af_status af_ranks_tell(af_comm *c, char **text, bool *flag, af_error *err);
#endif
