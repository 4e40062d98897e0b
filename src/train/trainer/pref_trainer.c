/* pref_trainer.c - see pref_trainer.h.
 *
 * A step's loss is the mean over its micro-batches, each by its number of pairs: as TRL's where all
 * have as many, and a mean over pairs whatever packing does. */
#include "train/trainer/pref_trainer.h"
#include "data/store/token_cache.h"
#include "graph/graph_access.h"
#include "train/checkpoint/checkpoint.h"
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
    free(p->reference);
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

/* Batches from .. to-1 of a stream. */
static af_status fill_table(af_trainer *t, af_stream *stream, int64_t from, int64_t to,
                            af_pair_reference *table, int64_t *computed, af_error *err)
{
    af_status st = AF_OK;
    for (int64_t m = from; m < to; m++) {
        const af_batch *b;
        if (t->progress.step == 0 && af_trainer_stops(t))
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
    const int64_t steps = t->run->sync_ref ? AF_MIN(p->steps, t->run->ref_sync_steps) : p->steps;
    return AF_MIN(epoch, steps * p->micro_per_step);
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
        AF_TRY(fill_table(t, t->data.stream, 0, micro_batches(t), table, &computed, err));
    if (t->data.eval_items && eval == t->data.eval_own_store)
        AF_TRY(fill_table(t, t->data.eval_stream, 0, t->data.eval_items, table, &computed, err));
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

/* ---- a reference that follows the weights ---- */

typedef void sync_item(float *weight, float *reference, int64_t n, double alpha);

/* As TRL's callback. */
static void mix(float *weight, float *reference, int64_t n, double alpha)
{
    const float keep = (float)(1 - alpha), take = (float)alpha;
    for (int64_t i = 0; i < n; i++)
        reference[i] = reference[i] * keep + take * weight[i];
}

static void copy(float *weight, float *reference, int64_t n, double alpha)
{
    (void)alpha;
    memcpy(reference, weight, (uint64_t)n * sizeof *weight);
}

static void swap(float *weight, float *reference, int64_t n, double alpha)
{
    (void)alpha;
    for (int64_t i = 0; i < n; i++) {
        const float w = weight[i];
        weight[i] = reference[i];
        reference[i] = w;
    }
}

/* `item` of every trained tensor, which is written back where it may have changed. */
static af_status each_param(af_trainer *t, sync_item *item, bool write, af_error *err)
{
    af_graph *g = t->step.graph;
    float *at = t->pref.reference;
    af_status st = AF_OK;
    for (af_tensor *x = NULL; st == AF_OK && (x = af_graph_next(g, AF_ROLE_PARAM, x));) {
        const uint64_t bytes = af_tensor_bytes(x);
        float *w = af_tensor_is_stored(x) ? malloc(AF_MAX(bytes, 1)) : NULL;
        if (!af_tensor_is_stored(x))
            continue;
        st = w ? af_tensor_read(g, x, w, bytes, err) : af_fail_nomem(err, "a reference", bytes);
        if (st == AF_OK)
            item(w, at, (int64_t)(bytes / sizeof *w), t->run->ref_mixup);
        if (st == AF_OK && write)
            st = af_tensor_write(g, x, w, bytes, err);
        at += bytes / sizeof *w;
        free(w);
    }
    return st;
}

static af_status count_params(const af_trainer *t, int64_t *out, af_error *err)
{
    const char *why = af_run_model_splits_weights(&t->model) ? "'zero_stage: 3'" : NULL;
    *out = 0;
    for (af_tensor *x = NULL; (x = af_graph_next(t->step.graph, AF_ROLE_PARAM, x));) {
        *out += af_tensor_is_stored(x) ? af_tensor_count(x) : 0;
        if (af_tensor_is_stored(x) && af_tensor_dtype(x) != AF_DTYPE_F32)
            why = "weights that are trained in bf16";
    }
    char at[300];
    return why ? af_fail(err, AF_EUNSUPPORTED, "%s: sync_ref_model is not supported with %s",
                         af_run_key_loc(t->run, "sync_ref_model", at, sizeof at), why)
               : AF_OK;
}

af_status af_trainer_sync_open(af_trainer *t, af_error *err)
{
    int64_t n = 0;
    if (!t->run->sync_ref)
        return AF_OK;
    const af_status st = count_params(t, &n, err);
    if (st != AF_OK)
        return st;
    t->pref.reference = af_calloc((uint64_t)n, sizeof *t->pref.reference);
    if (!t->pref.reference)
        return af_fail_nomem(err, "a reference", (uint64_t)n * sizeof(float));
    t->step.reference = t->pref.reference;
    t->step.reference_count = n;
    return each_param(t, copy, false, err);
}

static void forget(af_pair_reference *table, int64_t n)
{
    for (int64_t i = 0; i < n && table; i++)
        table[i].first = NAN;
}

/* The reference's values of the records until it changes again, and of the evaluation. */
static af_status refill(af_trainer *t, af_error *err)
{
    const af_run_progress *p = &t->progress;
    const int64_t every = t->run->ref_sync_steps, next = (p->step / every + 1) * every;
    const int64_t to = AF_MIN(next, p->steps) * p->micro_per_step;
    int64_t computed = 0;
    af_status st = each_param(t, swap, true, err);
    if (st != AF_OK)
        return st;
    forget(t->pref.ref, t->data.store.records);
    forget(t->pref.eval_ref, t->data.eval_own_store ? t->data.eval_store.records : 0);
    af_graph_set_training(t->step.graph, false);
    st = fill_table(t, t->data.stream, p->micro, to, t->pref.ref, &computed, err);
    if (st == AF_OK && t->data.eval_items)
        st = fill_table(t, t->data.eval_stream, 0, t->data.eval_items,
                        t->data.eval_own_store ? t->pref.eval_ref : t->pref.ref, &computed, err);
    af_graph_set_training(t->step.graph, true);
    const af_status back = each_param(t, swap, true, st == AF_OK ? err : NULL);
    return st == AF_OK ? back : st;
}

af_status af_trainer_sync_resume(af_trainer *t, af_error *err)
{
    return t->run->sync_ref && t->progress.step > 0 ? refill(t, err) : AF_OK;
}

af_status af_trainer_sync(af_trainer *t, af_error *err)
{
    if (!t->run->sync_ref || t->progress.step % t->run->ref_sync_steps != 0)
        return AF_OK;
    /* a checkpoint in writing reads weights and reference */
    af_status st = af_trainer_writes(t) ? af_saver_wait(t->output.saver, err) : AF_OK;
    if (st == AF_OK)
        st = each_param(t, mix, false, err);
    return st == AF_OK ? refill(t, err) : st;
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
    if (t->run->rl == AF_RL_KTO)
        af_pref_metrics_pool_margins(&p->eval_metrics);
    return sum / (double)n;
}

af_status af_trainer_pref_evaluate(af_trainer *t, double *loss, double *accuracy, bool *whole,
                                   af_error *err)
{
    af_pref_trainer *p = &t->pref;
    int64_t i = 0, to = 0;
    af_status st = AF_OK;
    af_graph_set_training(t->step.graph, false);
    p->eval_metrics = (af_pref_metrics){.pooled = true};
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
