/* train.c - af_train: a run file from its first step to the end, or to a stop. */
#include "afinar/train.h"
#include "base/file.h"
#include "base/log.h"
#include "dist/comm_device.h"
#include "dist/launcher.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/run_files.h"
#include "train/report/next_steps.h"
#include "train/run/method.h"
#include "train/step/ranks.h"
#include "train/trainer/trainer.h"

#include <math.h>

static bool stops(const af_trainer *t)
{
    return t->progress.pending != AF_PENDING_NOTHING ||
           (af_trainer_stops(t) && t->progress.step < t->progress.steps);
}

static af_status stop_here(af_trainer *t, af_error *err)
{
    af_status st = AF_OK;
    const int64_t step = t->progress.step, pending = t->progress.pending;
    AF_TRY(af_trainer_save(t, err));
    AF_TRY(af_saver_wait(t->output.saver, err));
    st = af_fail(err, AF_ESTOPPED,
                 "stopped after step %" PRId64 " of %" PRId64 "%s; checkpoint-%" PRId64
                 " is in '%s'",
                 step, t->progress.steps,
                 pending == AF_PENDING_EVAL      ? " (not evaluated yet)"
                 : pending == AF_PENDING_SAMPLES ? " (its samples are not generated yet)"
                                                 : "",
                 step, t->output.dir);
done:
    return st;
}

/* ---- what the hooks may do between two steps ---- */

/* What rank 0 asks of the others between two steps. */
typedef enum rank_wish { WISH_GO_ON, WISH_CHECKPOINT, WISH_WEIGHTS } rank_wish;

static af_status tell_ranks(const af_trainer *t, rank_wish wish, af_error *err)
{
    uint8_t w = (uint8_t)wish;
    return af_comm_broadcast(t->comm, &w, sizeof w, 0, err);
}

/* The others, until the next step: each has a part of what a checkpoint holds. */
static af_status follow_wishes(const af_trainer *t, af_error *err)
{
    af_status st = AF_OK;
    for (uint8_t wish = WISH_CHECKPOINT; wish != WISH_GO_ON && st == AF_OK;) {
        st = af_comm_broadcast(t->comm, &wish, sizeof wish, 0, err);
        if (st == AF_OK && wish == WISH_CHECKPOINT)
            st = af_checkpoint_send(&t->step, err);
        if (st == AF_OK && wish == WISH_WEIGHTS)
            st = af_trained_send(&t->step, err);
    }
    return st;
}

/* What rank 0 writes where the others have parts of it. */
static af_status write_together(af_trainer *t, rank_wish wish, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    const bool split = af_checkpoint_is_split(&t->step);
    if (split && t->unmet.code != AF_OK)
        return af_fail(err, t->unmet.code, "%s", t->unmet.msg);
    if (split)
        st = tell_ranks(t, wish, err);
    if (st == AF_OK)
        st = wish == WISH_CHECKPOINT ? af_trainer_save(t, err)
                                     : af_trained_write(&t->step, dir, err);
    if (split && st != AF_OK) /* the others wait for what does not come: the run cannot go on */
        af_fail(&t->unmet, st, "%s", err ? err->msg : "a checkpoint between two steps failed");
    return st;
}

static af_status write_now(void *run, const char *dir, af_error *err)
{
    af_trainer *t = run;
    const af_status st = af_saver_wait(t->output.saver, err); /* it uses the same host memory */
    if (st != AF_OK) /* nobody else will hear of it: the run ends as at its next checkpoint */
        af_fail(&t->unmet, st, "%s", err ? err->msg : "the checkpoint was not written");
    return st == AF_OK ? write_together(t, WISH_WEIGHTS, dir, err) : st;
}

static af_status checkpoint_now(void *run, af_error *err)
{
    af_trainer *t = run;
    const af_status st = write_together(t, WISH_CHECKPOINT, NULL, err);
    return st == AF_OK ? af_saver_wait(t->output.saver, err) : st;
}

static bool stop_now(void *run) { return af_run_stop_requested(((af_trainer *)run)->asked); }

af_status af_trainer_between(af_trainer *t, af_error *err)
{
    const bool split = af_checkpoint_is_split(&t->step);
    const af_train_moment m = {.step = t->progress.step,
                               .steps = t->progress.steps,
                               .run = t,
                               .write = write_now,
                               .checkpoint = checkpoint_now,
                               .stop = stop_now};
    if (split && !af_trainer_writes(t))
        return follow_wishes(t, err);
    if (t->hooks && t->hooks->between)
        t->hooks->between(t->hooks->user, &m);
    if (t->unmet.code != AF_OK)
        return af_fail(err, t->unmet.code, "%s", t->unmet.msg);
    return split ? tell_ranks(t, WISH_GO_ON, err) : AF_OK;
}

af_status af_trainer_tell_start(const af_trainer *t, af_error *err)
{
    const af_run_config *r = t->run;
    const af_train_start s = {.base_model = t->model.path,
                              .output_dir = t->output.dir,
                              .device = r->device,
                              .threads = (int)r->threads,
                              .compute = t->model.compute == AF_DTYPE_BF16 ? AF_COMPUTE_BF16
                                                                           : AF_COMPUTE_F32,
                              .load_in_4bit = af_method_quantises(r) == 4,
                              .adapter = t->model.adapter != NULL,
                              .step = t->progress.step,
                              .steps = t->progress.steps,
                              .serve_host = r->serve_host,
                              .serve_port = (int)r->serve_port};
    return t->hooks && t->hooks->start ? t->hooks->start(t->hooks->user, &s, err) : AF_OK;
}

static af_status loop(af_trainer *t, af_error *err)
{
    af_status st = AF_OK;
    bool first = true;
    AF_TRY(af_trainer_between(t, err));
    /* a run that was killed after its last evaluation resumes at its end */
    while (!stops(t) && !af_trainer_done(t)) {
        AF_TRY(af_trainer_advance(t, err));
        if (first)
            af_log_time("first step");
        first = false;
        AF_TRY(af_trainer_between(t, err));
    }
    if (stops(t))
        return stop_here(t, err);
    if (af_trainer_out_of_patience(t))
        af_run_log(t->hooks, "early stop after step %" PRId64 ": no better evaluation in %" PRId64,
                   t->progress.step, t->progress.evals_without_gain);
    if (af_trainer_loss_too_high(t))
        af_run_log(t->hooks,
                   "early stop after step %" PRId64 ": the loss was above loss_watchdog_threshold "
                   "%g after %" PRId64 " steps in a row",
                   t->progress.step, t->run->loss_watchdog_threshold, t->progress.losses_above);
    if (t->run->save_strategy != AF_WHEN_NO)
        AF_TRY(af_trainer_save(t, err)); /* the end is a checkpoint too */
    st = af_saver_wait(t->output.saver, err);
    af_log_time("checkpoint");
done:
    return st;
}

static af_status run_all(af_trainer *t, af_error *err)
{
    af_status st = AF_OK;
    bool whole = true;
    AF_TRY(af_trainer_agree_stop(t, err));
    if (af_trainer_stops(t)) /* while data was read and tokenised */
        AF_TRY(af_fail(err, AF_ESTOPPED, "stopped before the first step; nothing was written"));
    AF_TRY(af_trainer_start(t, err));
    AF_TRY(af_trainer_tell_start(t, err));
    AF_TRY(loop(t, err));
    AF_TRY(af_trainer_finish(t, &whole, err));
    if (!whole)
        st = af_fail(err, AF_ESTOPPED,
                     "stopped after the last step, before its samples; the result is in '%s'%s",
                     t->output.dir,
                     t->run->save_strategy == AF_WHEN_NO
                         ? ""
                         : ", and resume_from_checkpoint: auto adds samples and report");
done:
    return st;
}

/* A run that cannot write, for instance to a full disk, may have room for the weights alone: they
 * are worth more than the checkpoint of an earlier step, which stays. */
static void keep_weights(const af_trainer *t, const char *checkpoint)
{
    af_error why = {0};
    const int64_t step = t->progress.step;
    const int64_t saved = checkpoint ? af_checkpoint_step(af_path_name(checkpoint)) : 0;
    const bool whole = t->model.adapter || !af_run_model_splits_weights(&t->model);
    if (step <= saved || !t->step.graph || !whole)
        return;
    if (af_dir_make(t->output.dir, &why) == AF_OK && /* somebody may have moved it away */
        af_trainer_write_weights(t, t->output.dir, &why) == AF_OK)
        af_run_log(t->hooks,
                   "the weights of step %" PRId64 " are in '%s', without the optimizer's state: "
                   "they can be used, not resumed from",
                   step, t->output.dir);
    else
        af_run_log(t->hooks, "note: the weights of step %" PRId64 " are not written: %s", step,
                   why.msg);
}

/* A run that stopped or failed has a report, too. The reason it ended matters more than a report
 * that cannot be written. */
static void report_end(af_trainer *t, af_status st, af_train_result *result, const af_error *err)
{
    af_error why = {0};
    const af_report_state state = st == AF_ESTOPPED ? AF_REPORT_STOPPED : AF_REPORT_FAILED;
    char *checkpoint = NULL; /* a stop has written one; a failure may have come before the first */
    if (state == AF_REPORT_FAILED)
        af_metrics_failed(&t->output.metrics);
    if (af_saver_wait(t->output.saver, &why) != AF_OK) /* it may be the newest, and needs room */
        af_run_log(t->hooks, "note: %s", why.msg);
    if (af_checkpoint_newest(t->output.dir, NULL, &checkpoint, &why) != AF_OK || !checkpoint)
        t->resume_command = NULL;
    else
        snprintf(result->resume, sizeof result->resume, "%s", t->resume_command);
    if (st == AF_EIO && af_trainer_writes(t) && !(t->comm && af_comm_failed(t->comm)))
        keep_weights(t, checkpoint);
    free(checkpoint);
    if (af_trainer_report(t, state, err->msg, &why) != AF_OK)
        af_run_log(t->hooks, "note: report.html is not written: %s", why.msg);
}

static void log_keys(const af_trainer *t)
{
    char line[300];
    const af_run_config *run = t->run;
    if (!af_trainer_writes(t))
        return;
    if (t->comm)
        af_run_log(t->hooks, "%d ranks over %s%s%s", af_comm_size(t->comm), af_comm_name(t->comm),
                   t->model.gpus ? " and " : "",
                   t->model.gpus ? af_comm_device_name(t->model.gpus) : "");
    if (af_dialect_name(run->dialect))
        af_run_log(t->hooks, "keys and defaults of %s", af_dialect_name(run->dialect));
    if (run->axolotl_warmup)
        af_run_log(
            t->hooks,
            "no warmup_steps or warmup_ratio in a file with keys of Axolotl: as there, %g %% "
            "of the run, at most %" PRId64 " steps",
            100 * run->warmup_ratio, run->warmup_max_steps);
    if (af_run_idle_text(run, line, sizeof line))
        af_run_log(t->hooks, "%s", line);
    af_run_idle_log(run);
}

static af_status train(const af_run_config *run, af_comm *comm, const af_train_hooks *hooks,
                       const char *resume, bool *common, af_train_result *result, af_error *err)
{
    af_trainer t;
    af_status st = af_trainer_open(&t, run, comm, hooks, err);
    *common = t.differs;
    if (st != AF_OK)
        return st;
    t.resume_command = resume;
    log_keys(&t);
    st = run_all(&t, err);
    *common = t.differs;
    if (st != AF_OK && t.report.began) /* its folder stays: so does the way to go on */
        report_end(&t, st, result, err);
    result->stopped = st == AF_ESTOPPED;
    result->steps = t.progress.step;
    result->first_loss = t.progress.first_loss;
    result->last_loss = t.progress.last_loss;
    if (strcmp(af_run_progress_metric(run), "loss") == 0)
        result->best_eval_loss = t.progress.best_eval;
    af_trainer_close(&t);
    af_log_time("end of the run");
    af_log_time_end();
    return st;
}

/* With the other ranks, if there are any: they hear why this one fails, unless one failed before or
 * all fail alike. */
static af_status train_ranks(const af_run_config *run, const af_train_hooks *hooks,
                             const char *resume, af_train_result *result, af_error *err)
{
    af_comm *comm = NULL;
    bool common = false;
    af_status st = af_ranks_open(&comm, run, hooks, &common, err);
    result->rank = af_comm_rank(comm);
    result->ranks = af_comm_size(comm);
    af_launcher started;
    if (st != AF_OK && !comm && af_launcher_find(&started, NULL) == AF_OK) {
        result->rank = started.rank; /* it says who did not come */
        result->ranks = started.size;
    }
    if (st == AF_OK)
        st = train(run, comm, hooks, resume, &common, result, err);
    if (st != AF_OK && st != AF_ESTOPPED && comm && !common && !af_comm_failed(comm)) {
        af_comm_abort(comm, err->msg);
        if (result->rank > 0)
            st = af_fail_prefix(st, err, "rank %d", result->rank);
    }
    result->ranks_differ = common;
    af_comm_close(comm);
    return st;
}

/* The run is complete, maybe with other keys than those of now: they are named. */
static af_status leave_complete(const af_run_config *run, const af_train_hooks *hooks,
                                af_train_result *result, af_error *err)
{
    const af_status st = af_resume_check_complete(run, hooks, err);
    result->nothing_to_do = st == AF_OK;
    return st;
}

static af_status read_and_train(const char *run_file, const char *const *overrides, int count,
                                const af_train_hooks *hooks, af_train_result *result, af_error *err)
{
    af_run_config run = {0};
    af_log_time_begin();
    af_status st = af_run_config_read(&run, run_file, overrides, count, err);
    if (st != AF_OK) {
        af_comm_report(err->msg);
        return st;
    }
    char *resume = af_resume_command(run_file, overrides, count, &run);
    if (!resume)
        st = af_fail_nomem(err, "a command", 256);
    else if (af_run_folder_finished(&run))
        st = leave_complete(&run, hooks, result, err);
    else
        st = train_ranks(&run, hooks, resume, result, err);
    free(resume);
    af_run_config_clear(&run);
    return st;
}

af_status af_train(const char *run_file, const char *const *overrides, int count,
                   const af_train_hooks *hooks, af_train_result *result, af_error *err)
{
    AF_NEED(err, run_file, overrides || !count);
    af_error unread;
    af_train_result ignored;
    af_launcher started;
    err = af_error_or(err, &unread);
    result = result ? result : &ignored;
    *result = (af_train_result){.first_loss = NAN, .last_loss = NAN, .best_eval_loss = NAN};
    af_log_mute(af_launcher_find(&started, NULL) == AF_OK && started.rank > 0);
    const af_status st = read_and_train(run_file, overrides, count, hooks, result, err);
    af_log_mute(false);
    return st;
}

af_status af_train_help(char **text, af_error *err)
{
    AF_NEED(err, text);
    return af_run_keys_help(text, err);
}
