/* pref_trainer.c - see pref_trainer.h.
 *
 * A step's loss is the mean over its micro-batches, each by its number of pairs: as TRL's where all
 * have as many, and a mean over pairs whatever packing does. */
#include "train/trainer/pref_trainer.h"
#include "data/store/token_cache.h"
#include "train/step/ranks.h"
#include "train/trainer/reference_cache.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <stdlib.h>

static af_pair_reference *new_references(int64_t n)
{
    af_pair_reference *r = af_calloc((uint64_t)AF_MAX(n, INT64_C(1)), sizeof *r);
    for (int64_t i = 0; r && i < n; i++)
        r[i].first = NAN;
    return r;
}

af_status af_pref_trainer_open(af_pref_trainer *p, const af_run_data *data,
                               const af_run_config *run, int64_t micro, af_error *err)
{
    af_status st = AF_OK;
    const int64_t most = AF_MAX(data->sequences_max, run->micro_batch_size);
    *p = (af_pref_trainer){0};
    AF_TRY(af_run_pref_opts(&p->opts, run, err));
    AF_TRY(af_pref_scratch_init(&p->scratch, most, err));
    p->ref = new_references(data->store.records);
    p->eval_ref = data->eval_own_store ? new_references(data->eval_store.records) : NULL;
    p->most = most;
    p->sums = af_calloc((uint64_t)(most * micro), sizeof *p->sums);
    p->refs = af_calloc((uint64_t)most, sizeof *p->refs);
    p->grads = af_calloc((uint64_t)most, sizeof *p->grads);
    p->eval_sums = af_calloc((uint64_t)data->eval_items + 1, sizeof *p->eval_sums);
    if (!p->ref || (data->eval_own_store && !p->eval_ref) || !p->sums || !p->refs || !p->grads ||
        !p->eval_sums)
        st = af_fail_nomem(err, "pairs", (uint64_t)data->store.records * sizeof *p->ref);
done:
    if (st != AF_OK)
        af_pref_trainer_close(p);
    return st;
}

void af_pref_trainer_close(af_pref_trainer *p)
{
    af_pref_scratch_clear(&p->scratch);
    free(p->ref);
    free(p->eval_ref);
    free(p->sums);
    free(p->refs);
    free(p->grads);
    free(p->eval_sums);
    *p = (af_pref_trainer){0};
}

/* The sums of a batch's pairs, after a forward pass. */
static af_status run_forward(af_trainer *t, const af_batch *b, int what, double share,
                             af_pair_sums *sums, af_error *err)
{
    af_step_graph *s = &t->step;
    af_status st = AF_OK;
    AF_TRY(af_step_graph_upload(s, b, (float)share, err));
    AF_TRY(af_graph_run(s->graph, what, err));
    AF_TRY(af_tensor_read(s->graph, s->rows, s->row_stats, af_tensor_bytes(s->rows), err));
    for (int64_t k = 0; k < b->pairs; k++)
        sums[k] = af_pair_sums_of(&b->pair[k], s->row_stats);
done:
    return st;
}

/* ---- the reference ---- */

static bool all_known(const af_batch *b, const af_pair_reference *table)
{
    for (int64_t k = 0; k < b->pairs; k++)
        if (isnan(table[b->pair[k].record].first))
            return false;
    return true;
}

/* Batches 0 .. n-1 of a stream. */
static af_status fill_table(af_trainer *t, af_stream *stream, int64_t n, af_pair_reference *table,
                            int64_t *computed, af_error *err)
{
    af_status st = AF_OK;
    for (int64_t m = 0; m < n; m++) {
        const af_batch *b;
        if (af_trainer_stops(t))
            return af_fail(err, AF_ESTOPPED,
                           "stopped before the first step, while the reference was computed");
        AF_TRY(af_stream_get(stream, m, &b, err));
        if (all_known(b, table))
            continue;
        AF_TRY(run_forward(t, b, AF_RUN_FORWARD, 0, t->pref.sums, err));
        for (int64_t k = 0; k < b->pairs; k++) {
            *computed += isnan(table[b->pair[k].record].first);
            table[b->pair[k].record] = af_pair_reference_of(&t->pref.sums[k]);
        }
    }
done:
    return st;
}

/* A cache that cannot be written is no reason to stop. */
static void keep_references(const af_trainer *t, const char *path, const af_pair_reference *table,
                            int64_t records)
{
    af_error why = {0};
    uint64_t limit;
    if (af_reference_save(path, table, records, &why) != AF_OK ||
        af_token_cache_limit(&limit, &why) != AF_OK ||
        af_token_cache_trim(path, limit, &why) != AF_OK)
        af_run_log(t->hooks, "note: the reference's values are not kept: %s", why.msg);
}

static int64_t micro_batches(const af_trainer *t)
{
    const af_run_progress *p = &t->progress;
    const int64_t epoch = (p->items_per_epoch + p->items_per_micro - 1) / p->items_per_micro;
    return AF_MIN(epoch, p->steps * p->micro_per_step);
}

/* The values of one store: what the cache has, then what is missing. */
static af_status fill_store(af_trainer *t, bool eval, bool eval_only, af_error *err)
{
    af_status st = AF_OK;
    af_pair_reference *table = eval ? t->pref.eval_ref : t->pref.ref;
    const int64_t records = eval ? t->data.eval_store.records : t->data.store.records;
    const double start = af_seconds_now();
    int64_t known = 0, computed = 0;
    char *path = NULL;
    if (t->run->precompute_ref != AF_TRI_NO)
        AF_TRY(af_reference_path(&path, &t->model, &t->data, t->run, eval, err));
    if (path)
        known = af_reference_load(path, table, records);
    if (af_run_model_splits_weights(&t->model)) /* all must miss the same values */
        AF_TRY(af_comm_broadcast(t->comm, table, (uint64_t)records * sizeof *table, 0, err));
    if (!eval && !eval_only)
        AF_TRY(fill_table(t, t->data.stream, micro_batches(t), table, &computed, err));
    if (t->data.eval_items && eval == t->data.eval_own_store)
        AF_TRY(fill_table(t, t->data.eval_stream, t->data.eval_items, table, &computed, err));
    if (computed)
        af_run_log(t->hooks, "reference: %" PRId64 " records in %.1f s%s", computed,
                   af_seconds_now() - start, path ? ", kept in the cache" : "");
    else if (known)
        af_run_log(t->hooks, "reference: %" PRId64 " records from the cache", known);
    if (path && computed && af_trainer_writes(t))
        keep_references(t, path, table, records);
done:
    free(path);
    return st;
}

af_status af_trainer_reference(af_trainer *t, bool eval_only, af_error *err)
{
    af_status st = AF_OK;
    if (!af_pref_has_reference(t->run->rl))
        return AF_OK;
    af_graph_set_training(t->step.graph, false);
    if (!eval_only || !t->data.eval_own_store)
        AF_TRY(fill_store(t, false, eval_only, err));
    if (t->data.eval_own_store)
        AF_TRY(fill_store(t, true, eval_only, err));
done:
    af_graph_set_training(t->step.graph, true);
    return st;
}

/* ---- steps ---- */

static void look_up(af_pref_trainer *p, const af_pair_sums *sums, int64_t n,
                    const af_pair_reference *table)
{
    for (int64_t k = 0; k < n; k++)
        p->refs[k] = table[sums[k].record];
}

/* Losses and metrics of all micro-batches of the step, in their order on every rank. */
static af_status add_metrics(af_trainer *t, const af_step_result *r, af_error *err)
{
    af_pref_trainer *p = &t->pref;
    af_step_graph *s = &t->step;
    const int64_t n = t->progress.micro_per_step;
    af_status st = AF_OK;
    if (s->router_loss)
        AF_TRY(af_step_graph_share_losses(s, err));
    AF_TRY(af_step_graph_share(s, p->sums, (uint64_t)p->most * sizeof *p->sums, err));
    for (int64_t k = 0; k < n; k++) {
        const af_batch *b;
        AF_TRY(af_stream_get(t->data.stream, t->progress.micro + k, &b, err));
        look_up(p, p->sums + k * p->most, b->pairs, p->ref);
        const double loss = af_pref_batch_loss(&p->opts, &p->scratch, p->sums + k * p->most,
                                               p->refs, b->pairs, NULL, &t->progress.pref);
        const double router = s->router_loss ? s->router_coef * (double)s->router_losses[k] : 0;
        s->losses[k] = (float)((double)b->pairs / (double)r->pairs * (loss + router));
    }
done:
    return st;
}

af_status af_trainer_pref_gradients(af_trainer *t, const af_step_result *r, af_error *err)
{
    af_status st = AF_OK;
    af_step_graph *s = &t->step;
    af_pref_trainer *p = &t->pref;
    for (int64_t j = 0; j < t->run->accumulation; j++) {
        const int64_t k = af_step_graph_micro(s, j);
        const af_batch *b;
        af_pair_sums *sums = p->sums + k * p->most;
        af_pref_metrics unread = {0};
        AF_TRY(af_stream_get(t->data.stream, t->progress.micro + k, &b, err));
        const double share = (double)b->pairs / (double)r->pairs;
        af_graph_set_clock(s->graph, t->clock + (uint64_t)k);
        AF_TRY(run_forward(t, b, AF_RUN_FORWARD | AF_RUN_KEEP, share, sums, err));
        look_up(p, sums, b->pairs, p->ref);
        if (s->router_loss)
            AF_TRY(af_tensor_read(s->graph, s->router_loss, &s->router_losses[k],
                                  sizeof *s->router_losses, err));
        (void)!af_pref_batch_loss(&p->opts, &p->scratch, sums, p->refs, b->pairs, p->grads,
                                  &unread);
        af_pref_batch_weights(b, p->grads, share, s->row_weights);
        AF_TRY(af_step_graph_upload_weights(s, b->rows, err));
        AF_TRY(af_graph_run(s->graph, AF_RUN_BACKWARD, err));
        AF_TRY(af_step_graph_carry(s, j, err));
    }
    st = add_metrics(t, r, err);
done:
    return st;
}

/* ---- evaluation ---- */

/* The losses of blocks of micro_batch_size pairs, as if each were a batch. */
static double eval_loss(af_trainer *t, int64_t n)
{
    af_pref_trainer *p = &t->pref;
    const af_pair_reference *table = t->data.eval_own_store ? p->eval_ref : p->ref;
    double sum = 0;
    for (int64_t at = 0; at < n; at += t->run->micro_batch_size) {
        const int64_t block = AF_MIN(t->run->micro_batch_size, n - at);
        look_up(p, p->eval_sums + at, block, table);
        sum += (double)block * af_pref_batch_loss(&p->opts, &p->scratch, p->eval_sums + at, p->refs,
                                                  block, NULL, &p->eval_metrics);
    }
    return sum / (double)n;
}

af_status af_trainer_pref_evaluate(af_trainer *t, double *loss, double *accuracy, bool *whole,
                                   af_error *err)
{
    af_pref_trainer *p = &t->pref;
    int64_t i = 0, to = 0;
    af_status st = AF_OK;
    af_graph_set_training(t->step.graph, false);
    p->eval_metrics = (af_pref_metrics){0};
    af_ranks_even_part(&t->model, t->data.eval_items, &i, &to);
    for (; i < to && !af_trainer_stops(t); i++) {
        const af_batch *b;
        const int64_t k = AF_MIN(i, t->data.eval_items - 1);
        if (t->hooks && t->hooks->evaluating)
            t->hooks->evaluating(t->hooks->user, i, to);
        AF_TRY(af_stream_get(t->data.eval_stream, k, &b, err));
        AF_TRY(run_forward(t, b, AF_RUN_FORWARD, 0, &p->eval_sums[k], err));
        if (!isfinite(p->eval_sums[k].first.shared + p->eval_sums[k].second.shared))
            AF_TRY(af_trainer_explain_eval(t, b, err));
    }
    *whole = i == to;
    if (*whole) {
        AF_TRY(
            af_ranks_share(t->comm, p->eval_sums, sizeof *p->eval_sums, t->data.eval_items, err));
        *loss = eval_loss(t, t->data.eval_items);
        *accuracy = af_pref_metrics_mean(&p->eval_metrics, AF_METRIC_ACCURACIES);
        p->eval_metrics.tokens = 0; /* counts what was trained */
    }
done:
    af_graph_set_training(t->step.graph, true);
    return st;
}
