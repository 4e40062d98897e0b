/* uld_trainer.c - steps with a teacher of another tokenizer: a forward pass, the loss and its
 * gradient by the logits on the host, the backward pass. The distillation part is a mean over the
 * records of a step, the cross-entropy one over its tokens. */
#include "train/trainer/trainer.h"

static af_status write_gradient(af_trainer *t, af_error *err)
{
    const af_step_graph *s = &t->step;
    return af_tensor_write(s->graph, s->uld_grad, t->uld.grad, af_tensor_bytes(s->uld_grad), err);
}

static af_status count_records(af_trainer *t, int64_t *records, af_error *err)
{
    *records = 0;
    for (int64_t k = 0; k < t->run->accumulation; k++) {
        const af_batch *b;
        const af_status st = af_stream_get(t->data.stream, t->progress.micro + k, &b, err);
        if (st != AF_OK)
            return st;
        *records += b->sequences;
    }
    return AF_OK;
}

af_status af_trainer_uld_gradients(af_trainer *t, const af_step_result *r, af_error *err)
{
    af_status st = AF_OK;
    af_step_graph *s = &t->step;
    const af_run_config *run = t->run;
    const float scale = r->supervised ? (float)(1.0 / (double)r->supervised) : 0.0f;
    double ce_sum = 0, uld_sum = 0;
    int64_t records;
    AF_TRY(count_records(t, &records, err));
    for (int64_t k = 0; k < run->accumulation; k++) {
        const af_batch *b;
        float ce;
        double loss;
        AF_TRY(af_stream_get(t->data.stream, t->progress.micro + k, &b, err));
        AF_TRY(af_step_graph_upload(s, b, scale, err));
        AF_TRY(af_graph_run(s->graph, AF_RUN_FORWARD | AF_RUN_KEEP, err));
        AF_TRY(af_tensor_read(s->graph, s->uld_ce, &ce, sizeof ce, err));
        AF_TRY(af_tensor_read(s->graph, s->uld_logits, t->uld.logits,
                              af_tensor_bytes(s->uld_logits), err));
        AF_TRY(af_uld_teacher_batch(&t->uld, b, run->kd_alpha / (double)records, &loss, err));
        AF_TRY(write_gradient(t, err));
        AF_TRY(af_graph_run(s->graph, AF_RUN_BACKWARD, err));
        AF_TRY(af_step_graph_carry(s, k, err));
        loss /= (double)records;
        s->losses[k] = (float)(run->kd_ce_alpha * (double)ce + run->kd_alpha * loss);
        ce_sum += (double)ce;
        uld_sum += loss;
    }
    af_pref_metrics_add(&t->progress.pref, AF_METRIC_CE, ce_sum);
    af_pref_metrics_add(&t->progress.pref, AF_METRIC_KL, uld_sum);
done:
    return st;
}
