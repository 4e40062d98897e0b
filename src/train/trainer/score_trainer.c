/* score_trainer.c - see score_trainer.h. */
#include "train/trainer/score_trainer.h"
#include "train/step/ranks.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <stdlib.h>

/* The model's padding token, else the tokenizer's. */
static int32_t pad_of(const af_run_model *m)
{
    const int64_t own = af_loader_config(m->loader)->pad_token_id;
    af_tokenizer *t = NULL;
    int32_t pad = (int32_t)own;
    if (own < 0 && af_tokenizer_open(&t, m->texts, NULL) == AF_OK)
        pad = af_tokenizer_pad(t);
    af_tokenizer_close(t);
    return pad;
}

af_status af_score_trainer_open(af_score_trainer *s, const af_run_model *model,
                                const af_run_data *data, const af_run_config *run, int64_t micro,
                                af_error *err)
{
    af_status st = AF_OK;
    const uint64_t most = (uint64_t)AF_MAX(data->sequences_max, run->micro_batch_size);
    *s = (af_score_trainer){.labels = model->label_opts, .pad = pad_of(model)};
    s->most = (int64_t)most * s->labels.count;
    s->pair_most = 2 * s->labels.count;
    s->score = af_calloc((uint64_t)AF_MAX(s->most * micro, s->pair_most * data->eval_items),
                         sizeof *s->score);
    s->reward = (af_pref_opts){.rl = AF_RL_REWARD, .center_coef = run->center_coef};
    s->pair = af_calloc(most, sizeof *s->pair);
    s->grad = af_calloc((uint64_t)s->labels.count, sizeof *s->grad);
    s->target = af_calloc((uint64_t)s->labels.count, sizeof *s->target);
    AF_TRY(af_label_counts_init(&s->counts, s->labels.count, err));
    if (!s->score || !s->pair || !s->grad || !s->target)
        st = af_fail_nomem(err, "scores", most * sizeof *s->pair);
done:
    if (st != AF_OK)
        af_score_trainer_close(s);
    return st;
}

void af_score_trainer_close(af_score_trainer *s)
{
    free(s->score);
    free(s->pair);
    free(s->grad);
    free(s->target);
    af_label_counts_clear(&s->counts);
    *s = (af_score_trainer){0};
}

static af_status run_forward(af_trainer *t, const af_batch *b, int what, af_error *err)
{
    af_step_graph *s = &t->step;
    af_status st = AF_OK;
    AF_TRY(af_step_graph_upload(s, b, 0, err));
    AF_TRY(af_graph_run(s->graph, what, err));
    st = af_tensor_read(s->graph, s->rows, s->row_stats, af_tensor_bytes(s->rows), err);
done:
    return st;
}

/* The scores of sequence i of a batch begin here in a [rows][labels] array. */
static int64_t score_at(const af_trainer *t, const af_batch *b, int64_t i)
{
    return af_score_row(b->ids, b->bounds[i], b->bounds[i + 1], t->scores.pad) *
           t->scores.labels.count;
}

/* The scores of a batch to a place of those that ranks exchange, or back from there. */
static void move_scores(af_trainer *t, const af_batch *b, float *place, bool back)
{
    const int64_t n = t->scores.labels.count;
    for (int64_t i = 0; i < b->sequences; i++) {
        float *row = t->step.row_stats + score_at(t, b, i);
        memcpy(back ? row : place + i * n, back ? place + i * n : row, (size_t)n * sizeof *row);
    }
}

/* ---- reward ---- */

static void add_reward_metrics(af_pref_metrics *m, const af_pref_pair *p, int64_t n)
{
    double right = 0, margin = 0, least = INFINITY, most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double c = p[i].chosen.logp, r = p[i].rejected.logp;
        right += c > r;
        margin += c - r;
        sum += c + r;
        least = AF_MIN(least, AF_MIN(c, r));
        most = AF_MAX(most, AF_MAX(c, r));
    }
    af_pref_metrics_add_mean(m, AF_METRIC_ACCURACY, right / (double)n, n);
    af_pref_metrics_add_mean(m, AF_METRIC_MARGIN, margin / (double)n, n);
    af_pref_metrics_add_extreme(m, AF_METRIC_MAX_REWARD, most, true);
    af_pref_metrics_add_mean(m, AF_METRIC_MEAN_REWARD, sum / (double)(2 * n), n);
    af_pref_metrics_add_extreme(m, AF_METRIC_MIN_REWARD, least, false);
}

/* Loss of a batch of pairs; gradients times `share` go to the rows of the scores. */
static double reward_batch(af_trainer *t, const af_batch *b, double share, af_pref_metrics *m)
{
    af_step_graph *s = &t->step;
    af_pref_pair *p = t->scores.pair;
    for (int64_t i = 0; i < b->pairs; i++) {
        p[i] = (af_pref_pair){.margin = b->pair[i].margin};
        p[i].chosen.logp = s->row_stats[score_at(t, b, 2 * i)];
        p[i].rejected.logp = s->row_stats[score_at(t, b, 2 * i + 1)];
    }
    const double loss = af_reward_loss(&t->scores.reward, p, b->pairs);
    for (int64_t i = 0; i < b->pairs; i++) {
        s->row_weights[score_at(t, b, 2 * i)] = (float)(share * p[i].chosen.grad);
        s->row_weights[score_at(t, b, 2 * i + 1)] = (float)(share * p[i].rejected.grad);
    }
    add_reward_metrics(m, p, b->pairs);
    m->tokens += b->rows;
    return loss;
}

/* ---- labels ---- */

static af_status read_target(af_trainer *t, const af_token_store *store, int64_t record,
                             af_error *err)
{
    af_pair_row row;
    const int64_t n = af_label_targets(&t->scores.labels);
    const af_status st = af_pair_row_read(&row, store, record, err);
    if (st != AF_OK)
        return st;
    if (row.second_len != n)
        return af_fail(err, AF_EFORMAT,
                       "record %" PRId64 " of the token store has %" PRId64 " labels, not %" PRId64,
                       record, row.second_len, n);
    memcpy(t->scores.target, row.second, (uint64_t)n * sizeof *t->scores.target);
    return AF_OK;
}

static af_status label_batch(af_trainer *t, const af_batch *b, const af_token_store *store,
                             double share, double *loss, af_error *err)
{
    af_step_graph *s = &t->step;
    af_score_trainer *sc = &t->scores;
    af_status st = AF_OK;
    *loss = 0;
    for (int64_t i = 0; i < b->pairs; i++) {
        const int64_t at = score_at(t, b, i);
        AF_TRY(read_target(t, store, b->pair[i].record, err));
        *loss += af_label_loss(&sc->labels, s->row_stats + at, sc->target, b->pairs, sc->grad);
        for (int64_t k = 0; k < sc->labels.count; k++)
            s->row_weights[at + k] = (float)(share * sc->grad[k]);
        af_label_counts_add(&sc->counts, &sc->labels, s->row_stats + at, sc->target);
    }
done:
    return st;
}

static af_status batch_loss(af_trainer *t, const af_batch *b, const af_token_store *store,
                            double share, double *loss, af_pref_metrics *m, af_error *err)
{
    const uint64_t rows = (uint64_t)b->rows * (uint64_t)t->scores.labels.count;
    memset(t->step.row_weights, 0, rows * sizeof *t->step.row_weights);
    if (t->run->rl != AF_RL_REWARD)
        return label_batch(t, b, store, share, loss, err);
    *loss = reward_batch(t, b, share, m);
    return AF_OK;
}

/* The counts of labels as metrics. */
static void add_counts(af_pref_metrics *m, const af_score_trainer *s)
{
    const af_label_counts *c = &s->counts;
    if (!c->texts)
        return;
    if (af_problem_of(&s->labels) == AF_PROBLEM_REGRESSION) {
        af_pref_metrics_add(m, AF_METRIC_MSE, c->squares / (double)c->values);
        return;
    }
    af_pref_metrics_add(m, AF_METRIC_ACCURACY, (double)c->right / (double)c->texts);
    af_pref_metrics_add(m, AF_METRIC_F1, af_label_f1_macro(c, &s->labels));
}

/* Losses and metrics of all micro-batches of the step, in their order on every rank. */
static af_status add_metrics(af_trainer *t, const af_step_result *r, af_error *err)
{
    const int64_t n = t->progress.micro_per_step;
    af_status st = AF_OK;
    af_label_counts_reset(&t->scores.counts);
    AF_TRY(af_step_graph_share(&t->step, t->scores.score, (uint64_t)t->scores.most * sizeof(float),
                               err));
    for (int64_t k = 0; k < n; k++) {
        const af_batch *b;
        double loss = 0;
        AF_TRY(af_stream_get(t->data.stream, t->progress.micro + k, &b, err));
        move_scores(t, b, t->scores.score + k * t->scores.most, true);
        const double share = (double)b->pairs / (double)r->pairs;
        AF_TRY(batch_loss(t, b, &t->data.store, share, &loss, &t->progress.pref, err));
        t->step.losses[k] = (float)(share * loss);
    }
    add_counts(&t->progress.pref, &t->scores);
done:
    return st;
}

af_status af_trainer_score_gradients(af_trainer *t, const af_step_result *r, af_error *err)
{
    af_status st = AF_OK;
    af_step_graph *s = &t->step;
    for (int64_t j = 0; j < t->run->accumulation; j++) {
        const int64_t k = af_step_graph_micro(s, j);
        const af_batch *b;
        af_pref_metrics unread = {0};
        double loss = 0;
        AF_TRY(af_stream_get(t->data.stream, t->progress.micro + k, &b, err));
        af_graph_set_clock(s->graph, t->clock + (uint64_t)k);
        AF_TRY(run_forward(t, b, AF_RUN_FORWARD | AF_RUN_KEEP, err));
        move_scores(t, b, t->scores.score + k * t->scores.most, false);
        const double share = (double)b->pairs / (double)r->pairs;
        AF_TRY(batch_loss(t, b, &t->data.store, share, &loss, &unread, err));
        AF_TRY(af_step_graph_upload_weights(s, b->rows, err));
        AF_TRY(af_graph_run(s->graph, AF_RUN_BACKWARD, err));
        AF_TRY(af_step_graph_carry(s, j, err));
    }
    st = add_metrics(t, r, err);
done:
    return st;
}

af_status af_trainer_score_evaluate(af_trainer *t, double *loss, double *accuracy, bool *whole,
                                    af_error *err)
{
    const af_token_store *store = af_run_data_eval_store(&t->data);
    af_pref_metrics *m = &t->pref.eval_metrics;
    double sum = 0;
    int64_t i = 0, to = 0;
    af_status st = AF_OK;
    *m = (af_pref_metrics){.pooled = true};
    af_label_counts_reset(&t->scores.counts);
    af_graph_set_training(t->step.graph, false);
    af_ranks_even_part(&t->model, t->data.eval_items, &i, &to);
    for (; i < to && !af_trainer_stops(t); i++) {
        const af_batch *b;
        const int64_t k = AF_MIN(i, t->data.eval_items - 1);
        if (t->hooks && t->hooks->evaluating)
            t->hooks->evaluating(t->hooks->user, i, to);
        AF_TRY(af_stream_get(t->data.eval_stream, k, &b, err));
        AF_TRY(run_forward(t, b, AF_RUN_FORWARD, err));
        move_scores(t, b, t->scores.score + k * t->scores.pair_most, false);
    }
    *whole = i == to;
    if (*whole)
        AF_TRY(af_ranks_share(t->comm, t->scores.score,
                              (uint64_t)t->scores.pair_most * sizeof(float), t->data.eval_items,
                              err));
    for (i = 0; i < t->data.eval_items && *whole; i++) { /* in this order on every rank */
        const af_batch *b;
        double one = 0;
        AF_TRY(af_stream_get(t->data.eval_stream, i, &b, err));
        move_scores(t, b, t->scores.score + i * t->scores.pair_most, true);
        AF_TRY(batch_loss(t, b, store, 1, &one, m, err));
        if (!isfinite(one))
            AF_TRY(af_trainer_explain_eval(t, b, err));
        sum += one;
    }
    if (*whole) {
        add_counts(m, &t->scores);
        *loss = sum / (double)i;
        *accuracy = af_pref_metrics_mean(m, AF_METRIC_ACCURACY);
        m->count[AF_METRIC_ACCURACY] = 0; /* which is a column of every evaluation */
        m->tokens = 0;                    /* counts what was trained */
    }
done:
    af_graph_set_training(t->step.graph, true);
    return st;
}
