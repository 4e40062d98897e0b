/* trainer.c - opens and closes a run, and takes it from one step to the next. */
#include "train/trainer/trainer.h"
#include "base/cache_file.h"
#include "base/file.h"
#include "base/log.h"
#include "base/temps.h"
#include "graph/graph_access.h"
#include "train/checkpoint/best_checkpoint.h"
#include "train/checkpoint/run_files.h"
#include "train/report/run_card.h"
#include "train/report/samples.h"
#include "train/step/fp8_gate.h"
#include "train/step/memory_fit.h"
#include "train/step/ranks.h"
#include "train/step/resident.h"

#include <math.h>
#include <time.h>

static af_samples samples_of(const af_trainer *t)
{
    return (af_samples){.step = &t->step, .progress = &t->progress, .hooks = t->hooks};
}

/* ---- open and close ---- */

/* The others are silent, and none stops by itself. */
static void take_hooks(af_trainer *t, const af_train_hooks *hooks)
{
    t->hooks = t->asked = hooks;
    if (!t->comm)
        return;
    if (hooks && af_trainer_writes(t))
        t->own_hooks = *hooks;
    t->own_hooks.stop = NULL;
    t->hooks = &t->own_hooks;
}

/* Rank 0 comes first: it may have to tokenise, and the others find its cache. */
static af_status open_data(af_trainer *t, af_error *err)
{
    af_status st = AF_OK;
    if (!af_trainer_writes(t))
        AF_TRY(af_comm_barrier(t->comm, err));
    AF_TRY(af_run_data_open(&t->data, t->run, &t->model, err));
    if (af_trainer_writes(t))
        AF_TRY(af_comm_barrier(t->comm, err));
    st = af_ranks_agree_data(t->comm, &t->data, err);
    if (st == AF_OK)
        st = af_ranks_agree_model(t->comm, &t->model, err);
    t->differs = st == AF_EUSAGE;
done:
    return st;
}

af_status af_trainer_open(af_trainer *t, const af_run_config *run, af_comm *comm,
                          const af_train_hooks *hooks, af_error *err)
{
    af_status st = AF_OK;
    uint64_t memory = 0;
    *t = (af_trainer){.run = run, .comm = comm, .eval_loss = NAN};
    take_hooks(t, hooks);
    af_step_graph_init(&t->step, run, &t->model);
    AF_TRY(af_run_model_open(&t->model, run, comm, err));
    af_log_time("headers of the model");
    if (*run->output_dir && af_trainer_writes(t)) /* "": nothing is written. Before data is read */
        AF_TRY(af_run_folder_check(run, err));
    AF_TRY(open_data(t, err));
    af_log_time("tokenizer and data");
    AF_TRY(af_teacher_check_data(&t->model, &t->data.store, err));
    AF_TRY(af_run_progress_init(&t->progress, run, af_stream_items(t->data.stream),
                                af_ranks_micro(comm, run), err));
    AF_TRY(af_run_model_open_adapter(&t->model, err));
    af_log_time("start of the adapter");
    AF_TRY(af_prompts_new(&t->prompts, run, t->model.texts,
                          t->data.chat_template ? t->data.chat_template : run->chat_template, err));
    t->step.prompts = t->prompts;
    t->step.rows_max = t->data.rows_max;
    t->step.sequences_max = t->data.sequences_max;
    t->step.attention_max = t->data.attention_max;
    AF_TRY(af_ranks_memory(comm, t->model.device, &memory, err));
    AF_TRY(af_memory_fit(&t->step, memory, err));
    af_memory_count_program(&t->step);
    af_log_time("plan of the memory");
    AF_TRY(af_step_graph_load(&t->step, err));
    AF_TRY(af_fp8_gate(&t->step, t->data.stream, err));
    if (af_run_compares(run))
        st = af_pref_trainer_open(&t->pref, &t->data, run, t->progress.micro_per_step, err);
    else if (af_run_scores(run))
        st = af_score_trainer_open(&t->scores, &t->model, &t->data, run, t->progress.micro_per_step,
                                   err);
    else if (run->kd_uld)
        st = af_uld_teacher_open(&t->uld, &t->model, t->step.rows_max, err);
done:
    if (st != AF_OK)
        af_trainer_close(t);
    return st;
}

void af_trainer_close(af_trainer *t)
{
    af_run_output_close(&t->output);
    af_step_graph_close(&t->step);
    af_pref_trainer_close(&t->pref);
    af_score_trainer_close(&t->scores);
    af_uld_teacher_close(&t->uld);
    af_run_data_close(&t->data);
    af_run_model_close(&t->model);
    af_prompts_free(t->prompts);
    free(t->rank_memory);
    *t = (af_trainer){.differs = t->differs};
}

static af_status begin_output(af_trainer *t, const char *checkpoint, const char *best, bool own,
                              af_error *err)
{
    af_status st = AF_OK;
    const af_samples samples = samples_of(t);
    AF_TRY(af_run_output_create(&t->output, t->run, &t->progress, t->step.plan.flops, t->hooks,
                                checkpoint, own, err));
    if (best)
        AF_TRY(af_best_checkpoint_copy(best, t->output.dir, t->progress.best_step, err));
    AF_TRY(af_samples_open(&samples, err));
    af_trainer_log_start(t);
    af_run_output_warn_room(&t->output, &t->step, &t->progress, t->hooks);
    if (t->step.fp8.checked && !checkpoint)
        AF_TRY(af_metrics_fp8(&t->output.metrics, &t->step.fp8, err));
    if (checkpoint)
        af_run_log(t->hooks, "resumed from %s at step %" PRId64, checkpoint, t->progress.step);
    t->report.began = (int64_t)time(NULL);
    af_trainer_report_due(t, true); /* the one of an earlier session would mislead */
done:
    return st;
}

/* Nothing is created before everything that can be wrong has been checked; a folder created for a
 * run that does not start is removed again. */
af_status af_trainer_start(af_trainer *t, af_error *err)
{
    af_status st = AF_OK;
    char *checkpoint = NULL, *best = NULL;
    bool own = false;
    t->output.dir = t->run->output_dir;
    AF_TRY(af_trainer_check_best_metric(t->run, &t->model, err));
    if (af_trainer_writes(t))
        AF_TRY(af_run_output_open(&t->output, t->run, t->hooks, &checkpoint, &own, err));
    AF_TRY(af_ranks_tell(t->comm, &checkpoint, &own, err));
    AF_TRY(af_trainer_reference(t, false, err)); /* of the model that the run begins with */
    AF_TRY(af_trainer_sync_open(t, err));
    if (checkpoint) {
        st = af_ranks_agree_checkpoint(t->comm, checkpoint, err);
        t->differs = st == AF_EUSAGE;
        if (st != AF_OK)
            goto done;
        AF_TRY(af_resume_check(&t->model, &t->data, t->hooks, checkpoint, err));
        AF_TRY(af_checkpoint_load(&t->step, &t->progress, checkpoint, err));
        af_resume_check_data(&t->progress, &t->data, t->hooks);
        AF_TRY(af_trainer_sync_resume(t, err));
        if (!own)
            AF_TRY(af_trainer_find_best(t, &best, checkpoint, err));
    }
    t->progress.data_records = t->data.store.records;
    t->progress.data_tokens = (int64_t)t->data.store.tokens;
    if (af_trainer_writes(t) && !t->run->overwrite_output_dir) /* which makes room first */
        AF_TRY(af_run_output_check_room(&t->output, &t->step, best != NULL, err));
    if (af_trainer_writes(t))
        AF_TRY(begin_output(t, checkpoint, best, own, err));
    af_log_time("output folder");
done:
    if (st != AF_OK)
        af_run_output_discard(&t->output);
    free(checkpoint);
    free(best);
    return st == AF_OK ? af_trainer_run_due(t, err) : st;
}

/* ---- what is due ---- */

/* Every n steps (below 1: that share of all steps); a per-epoch count spreads that many over each
 * epoch. */
static bool due(const af_trainer *t, double n, int64_t per_epoch)
{
    const int64_t every = af_run_progress_every(&t->progress, n);
    if (per_epoch > 0)
        return af_run_progress_part(&t->progress, per_epoch);
    return every > 0 && t->progress.step % every == 0;
}

static bool log_due(const af_trainer *t)
{
    return due(t, t->run->logging_steps, 0) || t->progress.step == t->progress.steps;
}

static bool eval_due(const af_trainer *t)
{
    const af_run_progress *p = &t->progress;
    const af_run_config *r = t->run;
    const double at = r->eval_steps > 0 ? (double)p->step : af_run_progress_epoch(p);
    if (!t->data.eval_items || r->eval_strategy == AF_WHEN_NO)
        return false;
    if (p->step == p->steps)
        return true;
    const bool epochs = r->eval_steps == 0 && r->evals_per_epoch == 0;
    return at >= r->eval_delay && due(t, r->eval_steps, epochs ? 1 : r->evals_per_epoch);
}

static bool samples_due(const af_trainer *t)
{
    const int64_t step = t->progress.step;
    return step == 0 || (due(t, t->run->generate_samples_steps, 0) && step < t->progress.steps);
}

/* What the largest rank holds; t->rank_memory has all. */
static af_status share_memory(af_trainer *t, uint64_t *most, af_error *err)
{
    const int n = af_comm_size(t->comm);
    *most = af_run_model_on_cpu(&t->model) ? af_resident_bytes() : t->step.plan.total;
    if (!t->comm)
        return AF_OK;
    if (!t->rank_memory)
        t->rank_memory = af_calloc((uint64_t)n, sizeof *t->rank_memory);
    if (!t->rank_memory)
        return af_fail_nomem(err, "ranks", (uint64_t)n * sizeof *most);
    const af_status st = af_comm_all_gather(t->comm, most, t->rank_memory, sizeof *most, err);
    for (int i = 0; i < n; i++)
        *most = AF_MAX(*most, t->rank_memory[i]);
    return st;
}

/* Logs the last step, with the mean loss since the previous log line. */
static af_status log_step(af_trainer *t, af_error *err)
{
    af_run_progress *p = &t->progress;
    uint64_t memory = 0;
    const af_status known = share_memory(t, &memory, err);
    if (known != AF_OK)
        return known;
    const af_step_result *r = &p->last;
    const double seconds = p->last_seconds;
    const af_train_step s = {
        .step = p->step,
        .steps = p->steps,
        .epoch = r->epoch,
        .loss = p->loss_sum / (double)p->loss_count,
        .grad_norm = r->grad_norm,
        .learning_rate = af_run_progress_lr(p, p->step - 1),
        .tok_s = seconds > 0 ? (double)r->tokens / seconds : 0,
        .step_ms = seconds * 1e3,
        .eta_s = p->seconds / (double)p->step * (double)(p->steps - p->step),
        .tokens = r->tokens,
        .supervised = r->supervised,
        .memory = memory,
        .eval_loss = NAN,
        .margin = af_pref_metrics_margin(&p->pref),
        .accuracy = af_pref_metrics_accuracy(&p->pref),
    };
    af_metric_list more = af_pref_metrics_list(&p->pref);
    if (!isnan(r->router_loss))
        af_metric_list_add(&more, "aux_loss", r->router_loss);
    p->loss_sum = 0;
    p->loss_count = 0;
    af_pref_metrics_reset(&p->pref);
    if (isnan(p->first_loss))
        p->first_loss = s.loss;
    p->last_loss = s.loss;
    if (!af_trainer_writes(t))
        return AF_OK;
    const af_status st = af_metrics_step(
        &t->output.metrics, &s, r->padded,
        &(af_rank_memory){t->rank_memory, t->comm ? af_comm_size(t->comm) : 0}, &more, err);
    if (st == AF_OK && t->hooks && t->hooks->step)
        t->hooks->step(t->hooks->user, &s);
    return st;
}

bool af_trainer_stops(const af_trainer *t)
{
    return t->comm ? t->stop : af_run_stop_requested(t->hooks);
}

af_status af_trainer_agree_stop(af_trainer *t, af_error *err)
{
    t->stop |= t->comm && af_run_stop_requested(t->asked);
    return af_ranks_any(t->comm, &t->stop, err);
}

bool af_trainer_out_of_patience(const af_trainer *t)
{
    const int64_t patience = t->run->early_stopping_patience;
    return patience > 0 && t->progress.evals_without_gain >= patience;
}

/* Counts steps in a row after which the last logged loss was too high. */
static void watch_loss(af_trainer *t)
{
    af_run_progress *p = &t->progress;
    const double most = t->run->loss_watchdog_threshold;
    p->losses_above = most > 0 && p->last_loss > most ? p->losses_above + 1 : 0;
}

bool af_trainer_loss_too_high(const af_trainer *t)
{
    return t->run->loss_watchdog_threshold > 0 &&
           t->progress.losses_above >= t->run->loss_watchdog_patience;
}

bool af_trainer_done(const af_trainer *t)
{
    return t->progress.step >= t->progress.steps || af_trainer_out_of_patience(t) ||
           af_trainer_loss_too_high(t);
}

/* Evaluates, logs, and counts gains. *keep: the run needs a checkpoint of this step. */
static af_status evaluate_due(af_trainer *t, bool *keep, bool *whole, af_error *err)
{
    double loss, accuracy, value;
    const double start = af_seconds_now();
    if (t->progress.step == 0)
        af_run_log(t->hooks,
                   "evaluating the base model on %" PRId64 " records before the first step",
                   t->data.eval_items);
    af_status st = af_trainer_evaluate(t, &loss, &accuracy, whole, err);
    if (st == AF_OK && *whole)
        st = af_trainer_best_metric(t->run, loss, accuracy, &t->pref.eval_metrics, &value, err);
    if (st != AF_OK || !*whole)
        return st;
    af_run_progress *p = &t->progress;
    t->eval_loss = loss;
    const bool better = af_run_progress_judge(p, t->run, value);
    *keep = better && (t->run->load_best || t->run->save_strategy == AF_WHEN_BEST);
    if (!af_trainer_writes(t))
        return AF_OK;
    const af_metric_list more = af_pref_metrics_list(&t->pref.eval_metrics);
    st = af_metrics_eval(&t->output.metrics, loss, accuracy, af_seconds_now() - start,
                         t->data.eval_items, &more, err);
    if (st == AF_OK && t->hooks && t->hooks->step)
        t->hooks->step(t->hooks->user,
                       &(af_train_step){
                           .step = p->step,
                           .steps = p->steps,
                           .loss = NAN,
                           .eval_loss = loss,
                           .margin = af_pref_metrics_margin(&t->pref.eval_metrics),
                           .accuracy = af_run_scores(t->run)
                                           ? accuracy
                                           : af_pref_metrics_accuracy(&t->pref.eval_metrics),
                       });
    return st;
}

/* Waits for a checkpoint in writing first: it reads the host's copy of the adapter. */
static af_status ask_samples(af_trainer *t, bool *whole, af_error *err)
{
    const af_samples samples = samples_of(t);
    if (!t->prompts || !af_trainer_writes(t))
        return AF_OK;
    af_status st = af_saver_wait(t->output.saver, err);
    if (st == AF_OK)
        st = af_graph_average(t->step.graph, true, err);
    if (st == AF_OK)
        st = af_samples_ask(&samples, NULL, whole, err);
    const af_status back = af_graph_average(t->step.graph, false, st == AF_OK ? err : NULL);
    return st == AF_OK ? back : st;
}

af_status af_trainer_save(af_trainer *t, af_error *err)
{
    char *state = NULL;
    if (!af_trainer_writes(t))
        return af_checkpoint_send(&t->step, err);
    af_status st = af_metrics_state_text(&t->output.metrics, false, &state, err);
    if (st == AF_OK) /* what a schedule-free run gives is the average */
        st = af_graph_average(t->step.graph, true, err);
    if (st == AF_OK)
        st = af_saver_save(t->output.saver,
                           &(af_checkpoint_source){.step = &t->step,
                                                   .progress = &t->progress,
                                                   .chat_template = t->data.chat_template,
                                                   .trainer_state = state},
                           err);
    free(state);
    if (!af_graph_taken(t->step.graph))
        return st;
    af_saver_wait_read(t->output.saver);
    const af_status back = af_graph_average(t->step.graph, false, st == AF_OK ? err : NULL);
    return st == AF_OK ? back : st;
}

/* A stop leaves work pending: the checkpoint records it, and the resumed run begins with it. The
 * checkpoint comes last, so that a run resumed from it finds everything its step has written. */
af_status af_trainer_run_due(af_trainer *t, af_error *err)
{
    af_run_progress *p = &t->progress;
    bool keep = false, whole = true; /* nothing to keep before the first step */
    af_status st = AF_OK;
    if (p->pending == AF_PENDING_NOTHING) /* done before the run was resumed */
        return AF_OK;
    if (p->pending == AF_PENDING_EVAL) {
        if (eval_due(t))
            AF_TRY(evaluate_due(t, &keep, &whole, err));
        if (!whole)
            return AF_OK;
        if (af_trainer_out_of_patience(t) && p->loss_count > 0) /* this was the last step */
            AF_TRY(log_step(t, err));
        p->pending = AF_PENDING_SAMPLES;
    }
    if (p->pending == AF_PENDING_SAMPLES && samples_due(t))
        AF_TRY(ask_samples(t, &whole, err));
    if (!whole)
        return AF_OK;
    p->pending = AF_PENDING_NOTHING;
    keep |=
        p->step > 0 && p->step < p->steps && due(t, t->run->save_steps, t->run->saves_per_epoch);
    if (keep)
        AF_TRY(af_trainer_save(t, err));
    if (af_trainer_writes(t))
        af_trainer_report_due(t, keep || !isnan(t->eval_loss));
done:
    return st;
}

af_status af_trainer_advance(af_trainer *t, af_error *err)
{
    af_step_result r;
    af_run_progress *p = &t->progress;
    const double start = af_seconds_now();
    af_status st = af_saver_failed(t->output.saver) ? af_saver_wait(t->output.saver, err) : AF_OK;
    if (st == AF_OK)
        st = af_trainer_step(t, &r, err);
    if (st != AF_OK)
        return st;
    if (!r.finite)
        return af_trainer_explain_nonfinite(t, &r, err);
    t->eval_loss = NAN;
    p->last = r;
    p->last_seconds = af_seconds_now() - start;
    p->pending = AF_PENDING_EVAL;
    p->step++;
    p->micro += p->micro_per_step;
    p->tokens += r.tokens;
    p->supervised += r.supervised;
    p->padded += r.padded;
    p->seconds += p->last_seconds;
    p->loss_sum += r.loss;
    p->loss_count++;
    if (log_due(t))
        st = log_step(t, err);
    watch_loss(t);
    if (st == AF_OK)
        st = af_trainer_sync(t, err);
    if (st == AF_OK)
        st = af_trainer_agree_stop(t, err);
    return st == AF_OK ? af_trainer_run_due(t, err) : st;
}

af_status af_trainer_write_weights(const af_trainer *t, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_run_files_claim_result(dir, err));
    AF_TRY(af_trained_write(&t->step, dir, err));
    AF_TRY(af_run_folder_texts(&t->model, t->data.chat_template, dir, t->hooks, err));
    st = af_run_files_seal(dir, false, err);
done:
    return st;
}

/* ---- the end ---- */

static bool ends_with_best(const af_trainer *t)
{
    return t->run->load_best && t->progress.best_step > 0;
}

/* The best model, where the run asks for it, else the last: both are in a checkpoint, unless the
 * run has none. */
static af_status write_result(af_trainer *t, af_error *err)
{
    const char *output = t->output.dir;
    char from[4096];
    const bool best = ends_with_best(t);
    snprintf(from, sizeof from, "%s/checkpoint-%" PRId64, output,
             best ? t->progress.best_step : t->progress.step);
    if (!best && t->run->save_strategy == AF_WHEN_NO)
        return af_trained_write(&t->step, output, err);
    if (!best) /* it has just been written */
        return af_checkpoint_copy_model(from, output, err);
    af_run_log(t->hooks, "the best evaluation was at step %" PRId64 ": writing that model",
               t->progress.best_step);
    const af_status st = af_checkpoint_verify(from, err);
    if (st != AF_OK) /* damaged, or removed meanwhile */
        return af_fail_prefix(st, err,
                              "cannot write the best model of the run "
                              "(load_best_model_at_end: false writes the last one)");
    return af_checkpoint_copy_model(from, output, err);
}

af_status af_trainer_finish(af_trainer *t, bool *whole, af_error *err)
{
    af_status st = AF_OK;
    const char *output = t->output.dir;
    const af_samples samples = samples_of(t);
    char *state = NULL, *text = NULL;
    af_unsynced_dir *unsynced = NULL;
    *whole = true;
    if (!af_trainer_writes(t))
        return t->run->save_strategy == AF_WHEN_NO && !ends_with_best(t)
                   ? af_trained_send(&t->step, err)
                   : AF_OK;
    AF_TRY(af_run_files_claim_result(output, err));
    unsynced = af_unsynced_begin(output, AF_UNSYNCED_NAMES);
    AF_TRY(write_result(t, err));
    af_log_time("result");
    AF_TRY(af_metrics_state_text(&t->output.metrics, true, &state, err));
    AF_TRY(af_run_folder_write(output, "trainer_state.json", state, err));
    AF_TRY(af_metrics_results(&t->output.metrics, err));
    const uint64_t clock = af_graph_clock(t->step.graph);
    af_step_graph_drop(&t->step); /* the samples come from what was written */
    AF_TRY(af_run_folder_texts(&t->model, t->data.chat_template, output, t->hooks, err));
    AF_TRY(af_samples_ask(&samples, output, whole, err));
    if (!*whole)
        goto done;
    AF_TRY(af_trainer_report(t, AF_REPORT_DONE, NULL, err));
    AF_TRY(af_run_card_write(
        &(af_report_source){
            .run = t->run, .data = &t->data, .step = &t->step, .progress = &t->progress},
        err));
    AF_TRY(af_run_progress_text(&t->progress, clock, &text, err));
    st = af_unsynced_end(unsynced, false, err); /* before what says that all is there */
    unsynced = NULL;
    if (st == AF_OK)
        st = af_run_folder_write(output, AF_RUN_FINISHED, text, err);
    if (st == AF_OK)
        st = af_run_files_seal(output, true, err);
    af_log_time("texts, report and list of files");
    if (st == AF_OK)
        af_trainer_log_end(t);
done:
    (void)!af_unsynced_end(unsynced, false, NULL); /* what there is may be used to resume */
    free(state);
    free(text);
    return st;
}
