/* run_card.c - see run_card.h. */
#include "train/report/run_card.h"

#include "base/file.h"
#include "convert/output/model_card.h"
#include "train/checkpoint/run_files.h"
#include "train/run/method.h"
#include "train/run/run_keys.h"

#include <math.h>

static const char *method_name(const af_run_model *m)
{
    if (!m->adapter)
        return "full fine-tuning";
    if (m->adapter->config.type == AF_PEFT_OFT)
        return af_method_quantises(m->run) == 4 ? "QOFT" : "OFT";
    if (m->adapter->config.dora)
        return m->run->method == AF_METHOD_QLORA ? "QLoRA (DoRA)" : "DoRA";
    return m->run->method == AF_METHOD_QLORA ? "QLoRA" : "LoRA";
}

static void put_data(af_buf *b, const af_report_source *s, af_card *c)
{
    const af_run_data *d = s->data;
    const int files = af_dataset_file_count(&d->store);
    af_buf_str(b, "\n## Data\n\n");
    for (int i = 0; i < AF_MIN(files, AF_CARD_LIST); i++) {
        c->datasets[c->dataset_count++] = af_dataset_file(&d->store, i);
        af_buf_str(b, "- ");
        af_card_code(b, af_path_name(af_dataset_file(&d->store, i)));
        af_buf_char(b, '\n');
    }
    if (files > AF_CARD_LIST)
        af_buf_printf(b, "- and %d more files\n", files - AF_CARD_LIST);
    af_buf_printf(b, "\n%" PRId64 " records, %" PRIu64 " tokens", d->store.records,
                  af_run_data_tokens(d, s->run));
    if (!af_run_scores(s->run)) /* they have one loss per text */
        af_buf_printf(b, ", %" PRIu64 " of them with loss", d->store.supervised);
    if (d->eval_items)
        af_buf_printf(b, "; %" PRId64 " records for evaluation", d->eval_items);
    af_buf_str(b, ".\n");
}

static void put_settings(af_buf *b, const af_report_source *s)
{
    const af_run_config *r = s->run;
    const af_run_model *m = s->step->model;
    af_buf_printf(b, "\n## Settings\n\n| | |\n|---|---|\n| method | %s |\n", method_name(m));
    if (m->adapter && m->adapter->config.type == AF_PEFT_LORA)
        af_buf_printf(b, "| rank, alpha, dropout | %d, %g, %g |\n", m->adapter->config.r,
                      m->adapter->config.alpha, m->dropout);
    af_buf_printf(b,
                  "| learning rate | %g, %s |\n| weight decay | %g |\n"
                  "| batch | %" PRId64 " x %" PRId64 " rows of at most %" PRId64 " tokens |\n"
                  "| steps | %" PRId64 " of %" PRId64 " (%.3g epochs) |\n| seed | %" PRId64 " |\n",
                  r->learning_rate, r->lr_scheduler, r->weight_decay, r->micro_batch_size,
                  r->accumulation, r->sequence_len, s->progress->step, s->progress->steps,
                  af_run_progress_epoch(s->progress), r->seed);
    af_buf_str(b, "\n`run.yaml` in this folder has all keys.\n");
}

static void put_results(af_buf *b, const af_run_config *r, const af_run_progress *p)
{
    const char *metric = af_run_progress_metric(r);
    af_buf_str(b, "\n## Results\n\n| | |\n|---|---|\n");
    if (isfinite(p->first_loss))
        af_buf_printf(b, "| training loss, first logged | %.5f |\n| last logged | %.5f |\n",
                      p->first_loss, p->last_loss);
    if (isfinite(p->best_eval) && strcmp(metric, "loss") == 0)
        af_buf_printf(b, "| best evaluation loss | %.5f (perplexity %.4g), step %" PRId64 " |\n",
                      p->best_eval, exp(p->best_eval), p->best_step);
    else if (isfinite(p->best_eval))
        af_buf_printf(b, "| best evaluation %s | %.5f, step %" PRId64 " |\n", metric, p->best_eval,
                      p->best_step);
}

af_status af_run_card_write(const af_report_source *s, af_error *err)
{
    static const char *const name[] = {AF_CARD_NAME};
    af_status st = AF_OK;
    af_buf b = {0};
    const af_run_config *r = s->run;
    const af_run_model *m = s->step->model;
    bool own = false;
    AF_TRY(af_run_files_is_own(r->output_dir, AF_CARD_NAME, &own, err));
    if (!own)
        return AF_OK;
    const char *title = af_path_name(r->output_dir);
    af_card c = {.title = *title && *title != '.' ? title : "model",
                 .library = m->adapter ? "peft" : "transformers",
                 .relation = m->adapter ? "adapter" : "finetune",
                 .base = {r->base_model},
                 .base_path = {m->path},
                 .bases = 1,
                 .tags = {!m->adapter                              ? "full-fine-tuning"
                          : m->adapter->config.type == AF_PEFT_OFT ? "oft"
                                                                   : "lora"}};
    af_buf_printf(&b, "%s of ", method_name(m));
    af_card_code(&b, r->base_model);
    af_buf_str(&b, ".\n");
    put_data(&b, s, &c);
    put_settings(&b, s);
    put_results(&b, r, s->progress);
    c.body = b.data;
    if (b.bad)
        AF_TRY(af_fail_nomem(err, "a model card", b.len));
    AF_TRY(af_run_files_claim(r->output_dir, name, 1, err));
    st = af_card_write(r->output_dir, &c, err);
done:
    af_buf_clear(&b);
    return st;
}
