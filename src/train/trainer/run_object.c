/* run_object.c - the public af_run: a trainer that its caller takes from step to step. */
#include "afinar/train.h"
#include "base/file.h"
#include "train/checkpoint/run_files.h"
#include "train/checkpoint/run_folder.h"
#include "train/step/ranks.h"
#include "train/trainer/trainer.h"

#include <math.h>

struct af_run {
    af_run_config config;
    af_train_hooks hooks;
    bool opened, failed; /* failed: opening did, nothing but close is left */
    af_comm *comm;       /* the other ranks, or NULL */
    af_trainer trainer;
};

static const char message_name[] = "af_run"; /* where a run file's name stands */

af_status af_run_new(af_run **out, af_error *err)
{
    AF_NEED(err, out);
    af_run *r = af_calloc(1, sizeof *r);
    if (!r)
        return af_fail_nomem(err, "a run", sizeof *r);
    const af_status st = af_run_config_init(&r->config, message_name, err);
    if (st == AF_OK)
        *out = r;
    else
        af_run_close(r);
    return st;
}

af_status af_run_set(af_run *run, const char *key, const char *value, af_error *err)
{
    AF_NEED(err, run, key, value);
    if (run->opened || run->failed)
        return af_fail(err, AF_EUSAGE, "af_run_set: '%s' is set after af_run_open", key);
    /* an error is not fatal: the key may be set again */
    return af_run_config_set(&run->config, key, value, err);
}

af_status af_run_open(af_run *run, const af_train_hooks *hooks, af_error *err)
{
    AF_NEED(err, run);
    af_error unread;
    af_status st = AF_OK;
    bool common = false;
    err = af_error_or(err, &unread);
    if (run->opened || run->failed)
        return af_fail(err, AF_EUSAGE, "af_run_open: the run is opened already");
    run->hooks = hooks ? *hooks : (af_train_hooks){0};
    run->failed = true;
    AF_TRY(af_run_config_check(&run->config, err));
    if (af_run_folder_finished(&run->config))
        AF_TRY(af_fail(err, AF_EUSAGE, "output_dir '%s' holds a finished run: choose another one",
                       run->config.output_dir));
    AF_TRY(af_ranks_open(&run->comm, &run->config, &run->hooks, &common, err));
    AF_TRY(af_trainer_open(&run->trainer, &run->config, run->comm, &run->hooks, err));
    AF_TRY(af_trainer_start(&run->trainer, err));
    AF_TRY(af_trainer_tell_start(&run->trainer, err));
    AF_TRY(af_trainer_between(&run->trainer, err));
    run->opened = true;
    run->failed = false;
done:
    if (st != AF_OK && run->comm && !common)
        af_comm_abort(run->comm, err->msg);
    return st;
}

static af_status check_open(const af_run *run, const char *call, af_error *err)
{
    return run->opened ? AF_OK : af_fail(err, AF_EUSAGE, "%s: the run is not open", call);
}

static af_run_step_result result_of(const af_trainer *t)
{
    const af_run_progress *p = &t->progress;
    const bool any = p->step > 0;
    return (af_run_step_result){
        .step = p->step,
        .steps = p->steps,
        .epoch = p->last.epoch,
        .loss = any ? p->last.loss : NAN,
        .grad_norm = any ? p->last.grad_norm : NAN,
        .learning_rate = af_run_progress_lr(p, p->step - 1),
        .tokens = p->last.tokens,
        .supervised = p->last.supervised,
        .eval_loss = t->eval_loss,
        .finished = af_trainer_done(t),
    };
}

af_status af_run_step(af_run *run, af_run_step_result *out, af_error *err)
{
    AF_NEED(err, run);
    af_error unread;
    err = af_error_or(err, &unread);
    af_status st = check_open(run, "af_run_step", err);
    if (st != AF_OK)
        return st;
    af_trainer *t = &run->trainer;
    const bool pending = t->progress.pending != AF_PENDING_NOTHING; /* a stop interrupted it */
    const bool done = !pending && af_trainer_done(t);
    if (!done)
        st = (pending ? af_trainer_run_due : af_trainer_advance)(t, err);
    if (st != AF_OK)
        return st;
    if (out)
        *out = result_of(t);
    if (t->progress.pending == AF_PENDING_NOTHING)
        return done ? AF_OK : af_trainer_between(t, err);
    return af_fail(err, AF_ESTOPPED, "stopped after step %" PRId64 " of %" PRId64, t->progress.step,
                   t->progress.steps);
}

af_status af_run_evaluate(af_run *run, double *loss, double *accuracy, af_error *err)
{
    AF_NEED(err, run);
    af_error unread;
    double l = NAN, a = NAN;
    bool whole = false;
    err = af_error_or(err, &unread);
    af_status st = check_open(run, "af_run_evaluate", err);
    if (st == AF_OK && !run->trainer.data.eval_items)
        st = af_fail(err, AF_EUSAGE,
                     "af_run_evaluate: no evaluation data; set val_set_size or test_datasets");
    if (st == AF_OK)
        st = af_trainer_evaluate(&run->trainer, &l, &a, &whole, err);
    if (st == AF_OK && !whole)
        st = af_fail(err, AF_ESTOPPED, "the evaluation was stopped");
    if (st != AF_OK)
        return st;
    if (loss)
        *loss = l;
    if (accuracy)
        *accuracy = a;
    return AF_OK;
}

af_status af_run_save(af_run *run, const char *dir, af_error *err)
{
    AF_NEED(err, run);
    af_error unread;
    err = af_error_or(err, &unread);
    af_status st = check_open(run, "af_run_save", err);
    if (st != AF_OK)
        return st;
    const af_trainer *t = &run->trainer;
    if (!af_trainer_writes(t))
        return af_trained_send(&t->step, err);
    const char *to = dir ? dir : t->output.dir;
    if (af_path_same(to, t->model.path))
        return af_fail(err, AF_EUSAGE, "af_run_save: '%s' is the folder of base_model", to);
    if (t->run->lora_model_dir && af_path_same(to, t->run->lora_model_dir))
        return af_fail(err, AF_EUSAGE, "af_run_save: '%s' is the folder of lora_model_dir", to);
    AF_TRY(af_saver_wait(t->output.saver, err)); /* it reads the host's copy of the adapter */
    AF_TRY(af_output_check_path(to, err));
    AF_TRY(af_dir_make(to, err));
    st = af_trainer_write_weights(t, to, err);
done:
    return st;
}

af_status af_run_checkpoint(af_run *run, af_error *err)
{
    AF_NEED(err, run);
    af_error unread;
    err = af_error_or(err, &unread);
    af_status st = check_open(run, "af_run_checkpoint", err);
    if (st == AF_OK)
        st = af_trainer_save(&run->trainer, err);
    return st == AF_OK ? af_saver_wait(run->trainer.output.saver, err) : st;
}

void af_run_close(af_run *run)
{
    if (!run)
        return;
    af_trainer_close(&run->trainer);
    af_comm_close(run->comm);
    af_run_config_clear(&run->config);
    free(run);
}
