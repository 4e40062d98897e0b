/* trainer_step.c - one optimizer step and one evaluation.
 *
 * The loss of a step is the sum over all supervised tokens of its micro-batches over their number:
 * so k micro-batches of b are one batch of k*b. The batches are read before the first one runs,
 * because each needs the whole number. */
#include "ops/head/token_draw.h"
#include "train/step/ranks.h"
#include "train/trainer/trainer.h"

#include <math.h>

/* Counts the tokens of the step's micro-batches, which the loss is divided by. */
static af_status count_step(af_trainer *t, af_step_result *r, af_error *err)
{
    const af_run_progress *p = &t->progress;
    af_stream_hold(t->data.stream, p->micro);
    for (int64_t k = 0; k < p->micro_per_step; k++) {
        const af_batch *b;
        const af_status st = af_stream_get(t->data.stream, p->micro + k, &b, err);
        if (st != AF_OK)
            return st;
        const int64_t width = t->run->pad_to_sequence_len ? t->run->sequence_len : b->longest;
        r->tokens += b->rows;
        r->supervised += b->supervised;
        r->padded += AF_MAX(b->items * width - b->rows, INT64_C(0));
        r->pairs += b->pairs;
    }
    const int64_t items = (p->micro + p->micro_per_step) * p->items_per_micro;
    r->epoch = (double)items / (double)p->items_per_epoch;
    return AF_OK;
}

/* Of distillation: cross-entropy and divergence of a micro-batch. */
static af_status read_parts(af_step_graph *s, int64_t k, af_error *err)
{
    af_teacher *t = &s->teacher;
    const af_status st =
        af_tensor_read_later(s->graph, t->ce, &t->ce_loss[k], sizeof *t->ce_loss, err);
    return st == AF_OK
               ? af_tensor_read_later(s->graph, t->kd, &t->kd_loss[k], sizeof *t->kd_loss, err)
               : st;
}

static void add_parts(const af_teacher *t, int64_t n, af_pref_metrics *m)
{
    double ce = 0, kd = 0;
    for (int64_t k = 0; k < n; k++) {
        ce += t->ce_loss[k];
        kd += t->kd_loss[k];
    }
    af_pref_metrics_add(m, AF_METRIC_CE, ce);
    af_pref_metrics_add(m, AF_METRIC_KL, kd);
}

/* Gradients of a cross-entropy: the mean over all supervised tokens of the step. */
static af_status add_gradients(af_trainer *t, const af_step_result *r, af_error *err)
{
    af_status st = AF_OK;
    af_step_graph *s = &t->step;
    const float scale = r->supervised ? (float)(1.0 / (double)r->supervised) : 0.0f;
    for (int64_t j = 0; j < t->run->accumulation; j++) {
        const int64_t k = af_step_graph_micro(s, j);
        const af_batch *b;
        AF_TRY(af_stream_get(t->data.stream, t->progress.micro + k, &b, err));
        af_graph_set_clock(s->graph, t->clock + (uint64_t)k);
        AF_TRY(af_step_graph_upload(s, b, scale, err));
        AF_TRY(af_graph_run(s->graph, AF_RUN_GRAD, err));
        AF_TRY(af_tensor_read_later(s->graph, s->loss, &s->losses[k], sizeof *s->losses, err));
        if (af_run_model_distils(s->model))
            AF_TRY(read_parts(s, k, err));
        if (s->router_loss)
            AF_TRY(af_tensor_read_later(s->graph, s->router_loss, &s->router_losses[k],
                                        sizeof *s->router_losses, err));
        AF_TRY(af_step_graph_carry(s, j, err));
    }
done:
    return st;
}

/* EAFT: the entropy of the k most likely tokens, as if there were no others. `row` has pairs of a
 * token and its log-probability, best first. */
static double likely_entropy(const double *row, int64_t k)
{
    double sum = 0, entropy = 0;
    for (int64_t i = 0; i < k && row[2 * i] >= 0; i++)
        sum += exp(row[2 * i + 1] - row[1]);
    for (int64_t i = 0; i < k && row[2 * i] >= 0; i++) {
        const double share = exp(row[2 * i + 1] - row[1]) / sum;
        entropy -= share > 0 ? share * log(share) : 0;
    }
    return entropy;
}

/* The weight of a token with loss `one`, which has no gradient of its own. DFT, ASFT: its
 * probability. */
static double token_weight(const af_step_graph *s, int64_t row, double one)
{
    const af_run_config *r = s->run;
    if (!s->likely)
        return exp(-one);
    const double entropy =
        likely_entropy(s->likely_rows + row * 2 * AF_DRAW_TOPS_MAX, s->run->eaft_k);
    return pow(r->eaft_third ? entropy / 3 : entropy, r->eaft_alpha);
}

static double weigh_tokens(const af_step_graph *s, const af_batch *b, double scale)
{
    double loss = 0;
    for (int64_t i = 0; i < b->rows; i++) {
        const double one = s->row_stats[AF_HEAD_STATS * i];
        const double weight = b->labels[i] < 0 ? 0 : scale * token_weight(s, i, one);
        s->row_weights[i] = (float)weight;
        loss += weight * one;
    }
    return loss;
}

/* The loss of micro-batch k, and the weights of its rows. */
static af_status weigh_batch(af_step_graph *s, const af_batch *b, int64_t k, double scale,
                             af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_tensor_read(s->graph, s->rows, s->row_stats, af_tensor_bytes(s->rows), err));
    if (s->likely)
        AF_TRY(
            af_tensor_read(s->graph, s->likely, s->likely_rows, af_tensor_bytes(s->likely), err));
    double loss = weigh_tokens(s, b, scale);
    if (af_run_model_distils(s->model)) {
        float *kd = &s->teacher.kd_loss[k];
        AF_TRY(af_tensor_read(s->graph, s->teacher.kd, kd, sizeof *kd, err));
        s->teacher.ce_loss[k] = (float)loss;
        loss += s->run->asft_alpha * (double)*kd;
    }
    if (s->router_loss) {
        AF_TRY(af_tensor_read(s->graph, s->router_loss, &s->router_losses[k],
                              sizeof *s->router_losses, err));
        loss += s->router_coef * (double)s->router_losses[k];
    }
    s->losses[k] = (float)loss;
    st = af_step_graph_upload_weights(s, b->rows, err);
done:
    return st;
}

static af_status add_weighed_gradients(af_trainer *t, const af_step_result *r, af_error *err)
{
    af_status st = AF_OK;
    af_step_graph *s = &t->step;
    const double scale = r->supervised ? 1.0 / (double)r->supervised : 0;
    for (int64_t j = 0; j < t->run->accumulation; j++) {
        const int64_t k = af_step_graph_micro(s, j);
        const af_batch *b;
        AF_TRY(af_stream_get(t->data.stream, t->progress.micro + k, &b, err));
        af_graph_set_clock(s->graph, t->clock + (uint64_t)k);
        AF_TRY(af_step_graph_upload(s, b, (float)scale, err));
        AF_TRY(af_graph_run(s->graph, AF_RUN_FORWARD | AF_RUN_KEEP, err));
        AF_TRY(weigh_batch(s, b, k, scale, err));
        AF_TRY(af_graph_run(s->graph, AF_RUN_BACKWARD, err));
        AF_TRY(af_step_graph_carry(s, j, err));
    }
done:
    return st;
}

af_status af_trainer_step(af_trainer *t, af_step_result *r, af_error *err)
{
    af_status st = AF_OK;
    af_step_graph *s = &t->step;
    *r = (af_step_result){.finite = true, .router_loss = s->router_loss ? 0 : NAN};
    AF_TRY(count_step(t, r, err));
    AF_TRY(af_step_graph_begin(s, t->progress.step, err));
    t->clock = af_graph_clock(s->graph);
    AF_TRY((af_run_compares(t->run)        ? af_trainer_pref_gradients
            : af_run_scores(t->run)        ? af_trainer_score_gradients
            : t->run->kd_uld               ? af_trainer_uld_gradients
            : af_run_weighs_tokens(t->run) ? add_weighed_gradients
                                           : add_gradients)(t, r, err));
    af_graph_set_clock(s->graph, t->clock + (uint64_t)t->progress.micro_per_step);
    AF_TRY(af_step_graph_reduce(s, err));
    t->progress.rate_factor = t->progress.plateau.factor;
    af_graph_set_learning_rate(s->graph, af_run_progress_lr(&t->progress, t->progress.step));
    af_graph_set_step(s->graph, t->progress.step + 1);
    if (t->output.saver)
        af_saver_wait_read(t->output.saver);
    AF_TRY(af_graph_run(s->graph, AF_RUN_UPDATE, err));
    AF_TRY(af_step_graph_gather(s, err));
    t->sent_steps++;
    if (t->model.gpus)
        af_comm_wait_begin(t->comm);
    st = af_graph_grad_norm(s->graph, &r->grad_norm, &r->finite, err); /* the step's one wait */
    if (t->model.gpus)
        af_comm_wait_end(t->comm);
    AF_TRY(st);
    AF_TRY(af_step_graph_share_losses(s, err));
    const int64_t micro = t->progress.micro_per_step;
    for (int64_t k = 0; k < micro; k++)
        r->loss += s->losses[k];
    for (int64_t k = 0; k < micro && s->router_loss; k++)
        r->router_loss += (double)s->router_losses[k] / (double)micro;
    if (af_run_model_distils(s->model))
        add_parts(&s->teacher, micro, &t->progress.pref);
    r->finite = r->finite && isfinite(r->loss);
done:
    return st;
}

/* What one record adds to an evaluation. */
typedef struct eval_item {
    double loss, hits;
    int64_t tokens;
} eval_item;

static eval_item item_of(const af_batch *b, const af_step_graph *s)
{
    const float *row = s->row_stats;
    const int64_t columns = af_tensor_count(s->rows) / s->rows_max;
    eval_item e = {.tokens = b->supervised};
    for (int64_t k = 0; k < b->rows; k++, row += columns) {
        e.loss += row[0];
        e.hits += row[1];
    }
    return e;
}

static af_status evaluate_now(af_trainer *t, double *loss, double *accuracy, bool *whole,
                              af_error *err)
{
    af_step_graph *s = &t->step;
    eval_item *item = NULL, all = {0};
    int64_t i = 0, to = 0;
    af_status st = AF_OK;
    AF_TRY(af_step_graph_begin(s, AF_MAX(t->progress.step - 1, INT64_C(0)), err));
    if (af_run_compares(t->run))
        return af_trainer_pref_evaluate(t, loss, accuracy, whole, err);
    if (af_run_scores(t->run))
        return af_trainer_score_evaluate(t, loss, accuracy, whole, err);
    af_graph_set_training(s->graph, false);
    item = af_calloc((uint64_t)t->data.eval_items, sizeof *item);
    if (!item)
        AF_TRY(af_fail_nomem(err, "an evaluation", (uint64_t)t->data.eval_items * sizeof *item));
    af_ranks_even_part(&t->model, t->data.eval_items, &i, &to);
    for (; i < to && !af_trainer_stops(t); i++) {
        const af_batch *b;
        const int64_t k = AF_MIN(i, t->data.eval_items - 1);
        if (t->hooks && t->hooks->evaluating)
            t->hooks->evaluating(t->hooks->user, i, to);
        AF_TRY(af_stream_get(t->data.eval_stream, k, &b, err));
        AF_TRY(af_step_graph_upload(s, b, 0.0f, err));
        AF_TRY(af_graph_run(s->graph, AF_RUN_FORWARD, err));
        AF_TRY(af_tensor_read(s->graph, s->rows, s->row_stats, af_tensor_bytes(s->rows), err));
        item[k] = item_of(b, s);
        if (!isfinite(item[k].loss))
            AF_TRY(af_trainer_explain_eval(t, b, err));
    }
    *whole = i == to;
    if (*whole)
        AF_TRY(af_ranks_share(t->comm, item, sizeof *item, t->data.eval_items, err));
    for (i = 0; i < t->data.eval_items && *whole; i++) { /* in this order on every rank */
        all.loss += item[i].loss;
        all.hits += item[i].hits;
        all.tokens += item[i].tokens;
    }
    if (*whole) {
        *loss = all.tokens ? all.loss / (double)all.tokens : NAN;
        *accuracy = all.tokens ? all.hits / (double)all.tokens : NAN;
    }
done:
    free(item);
    af_graph_set_training(s->graph, true); /* a caller may train on after a failed evaluation */
    return st;
}

/* Of a schedule-free run the average is evaluated. */
af_status af_trainer_evaluate(af_trainer *t, double *loss, double *accuracy, bool *whole,
                              af_error *err)
{
    af_status st = af_graph_average(t->step.graph, true, err);
    if (st == AF_OK)
        st = evaluate_now(t, loss, accuracy, whole, err);
    const af_status back = af_graph_average(t->step.graph, false, st == AF_OK ? err : NULL);
    return st == AF_OK ? back : st;
}
