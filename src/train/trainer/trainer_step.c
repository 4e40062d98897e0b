/* trainer_step.c - one optimizer step and one evaluation.
 *
 * The loss of a step is the sum over all supervised tokens of its micro-batches over their number:
 * so k micro-batches of b are one batch of k*b. The batches are read before the first one runs,
 * because each needs the whole number. */
#include "train/checkpoint/checkpoint.h"

#include <math.h>

/* Live rows from the batch, `rest` behind them: a device that always runs all rows sees padding
 * there. */
static af_status write_rows(af_trainer *t, af_tensor *to, const int32_t *from, int64_t n,
                            int32_t rest, af_error *err)
{
    memcpy(t->staging, from, (size_t)n * sizeof *from);
    for (int64_t i = n; i < t->rows_max; i++)
        t->staging[i] = rest;
    return af_tensor_write(t->graph, to, t->staging, (uint64_t)t->rows_max * sizeof *from, err);
}

/* What ropes that follow the length see: the width of the micro-batch, segments being on their own.
 */
static int64_t rope_length(const af_trainer *t, const af_batch *b)
{
    int64_t length = t->run->pad_to_sequence_len ? t->run->sequence_len : 1;
    for (int64_t i = 0; i < b->rows && t->spec->rope_by_length; i++)
        length = AF_MAX(length, b->positions[i] + 1);
    return length;
}

af_status af_trainer_upload(af_trainer *t, const af_batch *b, float scale, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(write_rows(t, t->in.ids, b->ids, b->rows, 0, err));
    AF_TRY(write_rows(t, t->in.positions, b->positions, b->rows, 0, err));
    AF_TRY(write_rows(t, t->labels, b->labels, b->rows, -100, err));
    for (int64_t i = 0; i < t->bounds_len; i++)
        t->bounds[i] = b->bounds[AF_MIN(i, b->sequences)];
    AF_TRY(af_tensor_write(t->graph, t->in.bounds, t->bounds, (uint64_t)t->bounds_len * 4, err));
    AF_TRY(af_tensor_write(t->graph, t->scale, &scale, sizeof scale, err));
    AF_TRY(af_model_write_rope(&t->leaves, rope_length(t, b), err));
    af_graph_set_live_rows(t->graph, b->rows);
done:
    return st;
}

/* The supervised tokens of the step's micro-batches, and what else is counted. */
static af_status count_step(af_trainer *t, af_step_result *r, af_error *err)
{
    const int64_t per_epoch = af_stream_items(t->stream);
    af_stream_hold(t->stream, t->progress.micro);
    for (int64_t k = 0; k < t->run->accumulation; k++) {
        const af_batch *b;
        const af_status st = af_stream_get(t->stream, t->progress.micro + k, &b, err);
        if (st != AF_OK)
            return st;
        const int64_t width = t->run->pad_to_sequence_len ? t->run->sequence_len : b->longest;
        r->tokens += b->rows;
        r->supervised += b->supervised;
        r->padded += b->items * width - b->rows;
    }
    const double items =
        (double)((t->progress.micro + t->run->accumulation) * t->run->micro_batch_size);
    r->epoch = items / (double)per_epoch;
    return AF_OK;
}

af_status af_trainer_step(af_trainer *t, af_step_result *r, af_error *err)
{
    af_status st = AF_OK;
    *r = (af_step_result){.finite = true};
    AF_TRY(count_step(t, r, err));
    const float scale = r->supervised ? (float)(1.0 / (double)r->supervised) : 0.0f;
    for (int64_t k = 0; k < t->run->accumulation; k++) {
        const af_batch *b;
        AF_TRY(af_stream_get(t->stream, t->progress.micro + k, &b, err));
        AF_TRY(af_trainer_upload(t, b, scale, err));
        AF_TRY(af_graph_run(t->graph, AF_RUN_GRAD, err));
        AF_TRY(af_tensor_read_later(t->graph, t->loss, &t->losses[k], sizeof *t->losses, err));
    }
    af_graph_set_learning_rate(t->graph, af_schedule_lr(&t->schedule, t->progress.step));
    af_graph_set_step(t->graph, t->progress.step + 1);
    if (t->saver)
        af_saver_let_go(t->saver);
    AF_TRY(af_graph_run(t->graph, AF_RUN_UPDATE, err));
    AF_TRY(af_graph_grad_norm(t->graph, &r->grad_norm, &r->finite, err)); /* the step's one wait */
    for (int64_t k = 0; k < t->run->accumulation; k++)
        r->loss += t->losses[k];
    r->finite = r->finite && isfinite(r->loss);
done:
    return st;
}

af_status af_trainer_eval(af_trainer *t, double *loss, double *accuracy, bool *whole, af_error *err)
{
    double sum = 0, hits = 0;
    int64_t tokens = 0, i = 0;
    af_graph_set_training(t->graph, false);
    for (; i < t->eval_items && !af_trainer_stop_asked(t); i++) {
        const af_batch *b;
        af_status st = af_stream_get(t->eval_stream, i, &b, err);
        if (st == AF_OK)
            st = af_trainer_upload(t, b, 0.0f, err);
        if (st == AF_OK)
            st = af_graph_run(t->graph, AF_RUN_FORWARD, err);
        if (st == AF_OK)
            st = af_tensor_read(t->graph, t->rows, t->row_stats, af_tensor_bytes(t->rows), err);
        if (st != AF_OK)
            return st;
        for (int64_t k = 0; k < b->rows; k++) {
            sum += t->row_stats[2 * k];
            hits += t->row_stats[2 * k + 1];
        }
        if (!isfinite(sum))
            return af_trainer_explain_eval(t, b, err);
        tokens += b->supervised;
    }
    af_graph_set_training(t->graph, true);
    *whole = i == t->eval_items;
    if (!*whole)
        return AF_OK;
    *loss = tokens ? sum / (double)tokens : NAN;
    *accuracy = tokens ? hits / (double)tokens : NAN;
    return AF_OK;
}
