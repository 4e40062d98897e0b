/* eval_run.c - `afinar eval RUN.yaml`: what a run has made, on the run's own evaluation data. */
#include "afinar/train.h"
#include "base/file.h"
#include "base/log.h"
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
    const bool full = run->method == AF_METHOD_FULL;
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
    *(run->method == AF_METHOD_FULL ? &run->base_model : &run->lora_model_dir) = dir;
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

static af_status evaluate(const af_run_config *run, af_eval_result *out, af_error *err)
{
    af_trainer t;
    af_eval_result r = {0};
    bool whole;
    af_status st = af_trainer_open(&t, run, NULL, err);
    if (st != AF_OK)
        return st;
    AF_TRY(af_trainer_evaluate(&t, &r.loss, &r.accuracy, &whole, err));
    AF_TRY(count_tokens(&t, &r.tokens, err));
    r.rows = t.data.eval_items;
    *out = r;
done:
    af_trainer_close(&t);
    return st;
}

af_status af_train_eval(const char *run_file, const char *const *overrides, int count,
                        af_eval_result *out, af_error *err)
{
    af_run_config run = {0};
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
    begin_from(&run, dir);
    st = evaluate(&run, out, err);
done:
    af_run_config_clear(&run);
    free(dir);
    return st;
}
