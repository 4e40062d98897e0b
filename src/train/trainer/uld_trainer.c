/* uld_trainer.c - steps with a teacher of another tokenizer: a forward pass, the loss and its
 * gradient by the logits on the host, the backward pass. The distillation part is a mean over the
 * records of a step, the cross-entropy one over its tokens. */
#include "train/step/ranks.h"
#include "train/trainer/trainer.h"

static af_status write_gradient(af_trainer *t, af_error *err)
{
    const af_step_graph *s = &t->step;
    return af_tensor_write(s->graph, s->uld_grad, t->uld.grad, af_tensor_bytes(s->uld_grad), err);
}

static af_status count_records(af_trainer *t, int64_t *records, af_error *err)
{
    *records = 0;
    for (int64_t k = 0; k < t->progress.micro_per_step; k++) {
        const af_batch *b;
        const af_status st = af_stream_get(t->data.stream, t->progress.micro + k, &b, err);
        if (st != AF_OK)
            return st;
        *records += b->sequences;
    }
    return AF_OK;
}

/* The two parts of the loss of a micro-batch. */
typedef struct uld_parts {
    double ce, loss;
} uld_parts;

static af_status batch_gradient(af_trainer *t, int64_t k, float scale, int64_t records,
                                uld_parts *part, af_error *err)
{
    af_status st = AF_OK;
    af_step_graph *s = &t->step;
    const af_batch *b;
    float ce;
    AF_TRY(af_stream_get(t->data.stream, t->progress.micro + k, &b, err));
    af_graph_set_clock(s->graph, t->clock + (uint64_t)k);
    AF_TRY(af_step_graph_upload(s, b, scale, err));
    AF_TRY(af_graph_run(s->graph, AF_RUN_FORWARD | AF_RUN_KEEP, err));
    AF_TRY(af_tensor_read(s->graph, s->uld_ce, &ce, sizeof ce, err));
    AF_TRY(af_tensor_read(s->graph, s->uld_logits, t->uld.logits, af_tensor_bytes(s->uld_logits),
                          err));
    AF_TRY(af_uld_teacher_batch(&t->uld, b, t->run->kd_alpha / (double)records, &part->loss, err));
    AF_TRY(write_gradient(t, err));
    AF_TRY(af_graph_run(s->graph, AF_RUN_BACKWARD, err));
    part->ce = (double)ce;
    part->loss /= (double)records;
done:
    return st;
}

af_status af_trainer_uld_gradients(af_trainer *t, const af_step_result *r, af_error *err)
{
    af_status st = AF_OK;
    const af_run_config *run = t->run;
    const float scale = r->supervised ? (float)(1.0 / (double)r->supervised) : 0.0f;
    const int64_t n = t->progress.micro_per_step;
    uld_parts sum = {0}, *part = af_calloc((uint64_t)n, sizeof *part);
    int64_t records;
    if (!part)
        return af_fail_nomem(err, "losses", (uint64_t)n * sizeof *part);
    AF_TRY(count_records(t, &records, err));
    for (int64_t j = 0; j < run->accumulation; j++) {
        const int64_t k = af_step_graph_micro(&t->step, j);
        AF_TRY(batch_gradient(t, k, scale, records, &part[k], err));
        AF_TRY(af_step_graph_carry(&t->step, j, err));
    }
    AF_TRY(af_step_graph_share(&t->step, part, sizeof *part, err));
    for (int64_t k = 0; k < n; k++) {
        t->step.losses[k] = (float)(run->kd_ce_alpha * part[k].ce + run->kd_alpha * part[k].loss);
        sum.ce += part[k].ce;
        sum.loss += part[k].loss;
    }
    af_pref_metrics_add(&t->progress.pref, AF_METRIC_CE, sum.ce);
    af_pref_metrics_add(&t->progress.pref, AF_METRIC_KL, sum.loss);
done:
    free(part);
    return st;
}
