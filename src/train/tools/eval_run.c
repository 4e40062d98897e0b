/* eval_run.c - `afinar eval RUN.yaml`: what a run has made, on the run's own evaluation data. */
#include "afinar/train.h"
#include "base/file.h"
#include "base/log.h"
#include "train/run/freeze.h"
#include "train/trainer/trainer.h"

#include <math.h>

static bool has_file(const char *dir, const char *name)
{
    char *path = af_path_join(dir, name);
    const bool yes = path && af_file_exists(path);
    free(path);
    return yes;
}

/* The finished result of the run, or its newest checkpoint. malloc'ed. */
static af_status find_result(char **dir, const af_run_config *run, af_error *err)
{
    const bool full = af_method_trains_base(run);
    *dir = NULL;
    if (has_file(run->output_dir, full ? "model.safetensors" : "adapter_model.safetensors") ||
        (full && has_file(run->output_dir, "model.safetensors.index.json"))) {
        *dir = af_strdup(run->output_dir);
        return *dir ? AF_OK : af_fail_nomem(err, "a path", strlen(run->output_dir));
    }
    const af_status st = af_dir_exists(run->output_dir)
                             ? af_checkpoint_newest(run->output_dir, NULL, dir, err)
                             : AF_OK;
    if (st == AF_OK && !*dir)
        return af_fail(err, AF_EUSAGE,
                       "'%s' has neither a result nor a checkpoint of this run: train it first "
                       "(afinar train %s)",
                       run->output_dir, run->path);
    if (st == AF_OK)
        af_log_write(AF_LOG_INFO, "the run is not finished: evaluating %s", *dir);
    return st;
}

/* The run again, begun from its result; nothing is written. */
static void begin_from(af_run_config *run, const char *dir)
{
    *(af_method_trains_base(run) ? &run->base_model : &run->lora_model_dir) = dir;
    run->own_result = true;
    run->reinit_weights = false;
    run->output_dir = "";
    run->generate_samples.count = 0;
}

static af_status count_tokens(const af_trainer *t, int64_t *tokens, af_error *err)
{
    *tokens = 0;
    for (int64_t i = 0; i < t->data.eval_items; i++) {
        const af_batch *b;
        const af_status st = af_stream_get(t->data.eval_stream, i, &b, err);
        if (st != AF_OK)
            return st;
        *tokens += b->supervised;
    }
    return AF_OK;
}

/* The tables of a run whose reference is what it began with: before `begin_from`. */
static af_status read_reference(const af_run_config *run, af_pref_trainer *out, af_error *err)
{
    af_trainer t;
    af_run_config start = *run;
    if (!af_pref_has_reference(run->rl))
        return AF_OK;
    start.output_dir = "";
    start.generate_samples.count = 0;
    af_status st = af_trainer_open(&t, &start, NULL, NULL, err);
    if (st != AF_OK)
        return st;
    st = af_trainer_reference(&t, true, err);
    if (st == AF_OK) {
        out->ref = t.pref.ref;
        out->eval_ref = t.pref.eval_ref;
        t.pref.ref = t.pref.eval_ref = NULL;
    }
    af_trainer_close(&t);
    return st;
}

/* `from`: its tables are taken. */
static void use_reference(af_pref_trainer *to, af_pref_trainer *from)
{
    if (!from->ref)
        return;
    free(to->ref);
    free(to->eval_ref);
    to->ref = from->ref;
    to->eval_ref = from->eval_ref;
    from->ref = from->eval_ref = NULL;
}

static af_status evaluate(const af_run_config *run, af_pref_trainer *reference, af_eval_result *out,
                          af_error *err)
{
    af_trainer t;
    af_eval_result r = {0};
    bool whole;
    af_status st = af_trainer_open(&t, run, NULL, NULL, err);
    if (st != AF_OK)
        return st;
    use_reference(&t.pref, reference);
    AF_TRY(af_trainer_evaluate(&t, &r.loss, &r.accuracy, &whole, err));
    AF_TRY(count_tokens(&t, &r.tokens, err));
    r.rows = t.data.eval_items;
    r.pairs = run->rl != AF_RL_NONE ? r.rows : 0;
    r.texts = af_run_rl(run) == AF_RL_LABELS ? r.rows : 0;
    r.margin = af_pref_metrics_margin(&t.pref.eval_metrics);
    r.f1 = af_pref_metrics_mean(&t.pref.eval_metrics, AF_METRIC_F1);
    r.mse = af_pref_metrics_mean(&t.pref.eval_metrics, AF_METRIC_MSE);
    *out = r;
done:
    af_trainer_close(&t);
    return st;
}

af_status af_train_eval(const char *run_file, const char *const *overrides, int count,
                        af_eval_result *out, af_error *err)
{
    AF_NEED(err, run_file, overrides || !count, out);
    af_run_config run = {0};
    af_pref_trainer reference = {0};
    char *dir = NULL;
    af_error unread;
    err = af_error_or(err, &unread);
    af_status st = af_run_config_read(&run, run_file, overrides, count, err);
    if (st != AF_OK)
        return st;
    if (!run.test_datasets && run.val_set_size <= 0)
        AF_TRY(af_fail(err, AF_EUSAGE,
                       "%s: no evaluation data: set val_set_size or test_datasets, or name a model "
                       "and --data",
                       run.path));
    AF_TRY(find_result(&dir, &run, err));
    AF_TRY(read_reference(&run, &reference, err));
    begin_from(&run, dir);
    st = evaluate(&run, &reference, out, err);
done:
    af_pref_trainer_close(&reference);
    af_run_config_clear(&run);
    free(dir);
    return st;
}
