/* train.c - the loop: steps, logs, evaluations, checkpoints, and the end of a run. */
#include "afinar/train.h"
#include "base/file.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/run_folder.h"
#include "train/report/metrics.h"
#include "train/report/report.h"
#include "train/report/samples.h"
#include "train/run/method.h"

#include <jansson.h>
#include <math.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Every n steps; n = 0 with a per-epoch count spreads that many over each epoch. */
static bool due(const af_trainer *t, int64_t every, int64_t per_epoch)
{
    if (per_epoch > 0)
        every = AF_MAX(t->steps_per_epoch / per_epoch, 1);
    return every > 0 && t->progress.step % every == 0;
}

static bool on_cpu(const af_trainer *t) { return strcmp(af_device_kind(t->device), "cpu") == 0; }

static bool log_due(const af_trainer *t)
{
    return t->progress.step % t->run->logging_steps == 0 || t->progress.step == t->steps;
}

/* The last one. */
static af_status log_step(af_trainer *t, af_error *err)
{
    af_progress *p = &t->progress;
    const af_step_result *r = &p->last;
    const double seconds = p->last_seconds;
    const af_train_step s = {
        .step = p->step,
        .steps = t->steps,
        .epoch = r->epoch,
        .loss = p->loss_sum / (double)p->loss_count,
        .grad_norm = r->grad_norm,
        .learning_rate = af_schedule_lr(&t->schedule, p->step - 1),
        .tok_s = seconds > 0 ? (double)r->tokens / seconds : 0,
        .step_ms = seconds * 1e3,
        .eta_s = p->seconds / (double)p->step * (double)(t->steps - p->step),
        .tokens = r->tokens,
        .supervised = r->supervised,
        .memory = on_cpu(t) ? af_resident_bytes() : t->plan.total,
        .eval_loss = NAN,
    };
    p->loss_sum = 0;
    p->loss_count = 0;
    if (isnan(p->first_loss))
        p->first_loss = s.loss;
    p->last_loss = s.loss;
    const af_status st = af_metrics_step(t, &s, r, err);
    if (st == AF_OK && t->hooks && t->hooks->step)
        t->hooks->step(t->hooks->user, &s);
    return st;
}

static bool out_of_patience(const af_trainer *t)
{
    const int64_t patience = t->run->early_stopping_patience;
    return patience > 0 && t->progress.evals_without_gain >= patience;
}

/* Evaluates and keeps count of gains. *keep: the run wants a checkpoint of this step. */
static af_status evaluate(af_trainer *t, bool *keep, bool *whole, af_error *err)
{
    double loss, accuracy;
    const double start = now();
    af_status st = af_trainer_eval(t, &loss, &accuracy, whole, err);
    if (st != AF_OK || !*whole)
        return st;
    af_progress *p = &t->progress;
    const bool first = p->step == 0; /* what was before the run is not one of its results */
    const bool better = !first && (isnan(p->best_eval) || loss < p->best_eval);
    p->evals_without_gain = better || first ? 0 : p->evals_without_gain + 1;
    if (better) {
        p->best_eval = loss;
        p->best_step = p->step;
    }
    st = af_metrics_eval(t, loss, accuracy, now() - start, err);
    if (st == AF_OK && t->hooks && t->hooks->step)
        t->hooks->step(
            t->hooks->user,
            &(af_train_step){.step = p->step, .steps = t->steps, .loss = NAN, .eval_loss = loss});
    *keep = better && t->run->load_best;
    return st;
}

static bool eval_due(const af_trainer *t)
{
    if (!t->eval_items)
        return false;
    if (t->run->eval_steps > 0 || t->run->evals_per_epoch > 0)
        return due(t, t->run->eval_steps, t->run->evals_per_epoch) || t->progress.step == t->steps;
    return t->progress.step % t->steps_per_epoch == 0 || t->progress.step == t->steps;
}

/* Waits for a checkpoint in writing first: it reads the host's copy of the adapter. */
static af_status ask_samples(af_trainer *t, bool *whole, af_error *err)
{
    if (!t->samples)
        return AF_OK;
    const af_status st = af_saver_wait(t->saver, err);
    return st == AF_OK ? af_samples_ask(t, NULL, whole, err) : st;
}

static bool samples_due(const af_trainer *t)
{
    const int64_t step = t->progress.step;
    return step == 0 || (due(t, t->run->generate_samples_steps, 0) && step < t->steps);
}

/* What is due at the step the run stands at. A stop leaves it owed: the checkpoint says so, and the
 * resumed run begins with it. The checkpoint comes last: what a step leaves is there when a run
 * resumes behind it. */
static af_status settle(af_trainer *t, af_error *err)
{
    af_progress *p = &t->progress;
    bool keep = false, whole = true; /* there is nothing to keep before the first step */
    af_status st = AF_OK;
    if (p->pending == AF_PENDING_NOTHING) /* resumed behind it */
        return AF_OK;
    if (p->pending == AF_PENDING_EVAL) {
        if (eval_due(t))
            AF_TRY(evaluate(t, &keep, &whole, err));
        if (!whole)
            return AF_OK;
        if (out_of_patience(t) && p->loss_count > 0) /* the last one, as it turns out */
            AF_TRY(log_step(t, err));
        p->pending = AF_PENDING_SAMPLES;
    }
    if (p->pending == AF_PENDING_SAMPLES && samples_due(t))
        AF_TRY(ask_samples(t, &whole, err));
    if (!whole)
        return AF_OK;
    p->pending = AF_PENDING_NOTHING;
    keep |=
        p->step > 0 && p->step < t->steps && due(t, t->run->save_steps, t->run->saves_per_epoch);
    if (keep)
        st = af_saver_save(t->saver, t, err);
done:
    return st;
}

static af_status one_step(af_trainer *t, af_error *err)
{
    af_step_result r;
    af_progress *p = &t->progress;
    const double start = now();
    af_status st = af_trainer_step(t, &r, err);
    if (st != AF_OK)
        return st;
    if (!r.finite)
        return af_trainer_explain_nonfinite(t, &r, err);
    p->last = r;
    p->last_seconds = now() - start;
    p->pending = AF_PENDING_EVAL;
    p->step++;
    p->micro += t->run->accumulation;
    p->tokens += r.tokens;
    p->supervised += r.supervised;
    p->padded += r.padded;
    p->seconds += p->last_seconds;
    p->loss_sum += r.loss;
    p->loss_count++;
    if (log_due(t))
        st = log_step(t, err);
    return st == AF_OK ? settle(t, err) : st;
}

static bool stops(const af_trainer *t)
{
    return t->progress.pending != AF_PENDING_NOTHING ||
           (af_trainer_stop_asked(t) && t->progress.step < t->steps);
}

static af_status stop_here(af_trainer *t, af_train_result *result, af_error *err)
{
    af_status st = AF_OK;
    const int64_t step = t->progress.step;
    AF_TRY(af_saver_save(t->saver, t, err));
    AF_TRY(af_saver_wait(t->saver, err));
    result->stopped = true;
    st = af_fail(err, AF_ESTOPPED,
                 "stopped after step %" PRId64 " of %" PRId64 "%s; checkpoint-%" PRId64
                 " is in '%s'",
                 step, t->steps,
                 t->progress.pending == AF_PENDING_EVAL      ? " (it is not evaluated yet)"
                 : t->progress.pending == AF_PENDING_SAMPLES ? " (its samples are not there yet)"
                                                             : "",
                 step, t->run->output_dir);
done:
    return st;
}

static af_status loop(af_trainer *t, af_train_result *result, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(settle(t, err));
    /* a run that was killed after its last evaluation resumes at its end */
    while (!stops(t) && t->progress.step < t->steps && !out_of_patience(t))
        AF_TRY(one_step(t, err));
    if (stops(t))
        return stop_here(t, result, err);
    if (out_of_patience(t))
        af_trainer_log(t, "early stop after step %" PRId64 ": no better evaluation in %" PRId64,
                       t->progress.step, t->progress.evals_without_gain);
    AF_TRY(af_saver_save(t->saver, t, err)); /* the end is a checkpoint too */
    st = af_saver_wait(t->saver, err);
done:
    return st;
}

static double mib(uint64_t bytes) { return (double)bytes / 0x1p20; }

/* What a run does not do to a mixture of experts, and somebody may count on. bitsandbytes quantises
 * linears; the experts of a layer are one tensor in transformers 5, and stay as they are. */
static void say_experts(const af_trainer *t)
{
    int64_t n = 0;
    const char *lost = NULL;
    for (int i = 0; i < t->spec->tensors && t->adapter; i++) {
        const af_tensor_spec *s = &t->spec->tensor[i];
        n += s->ndim == 3 ? s->dim[0] * s->dim[1] * s->dim[2] : 0;
    }
    if (n == 0)
        return;
    af_trainer_log(t, "note: the adapter leaves the experts' %.1f M weights as they are",
                   (double)n / 1e6);
    if (af_method_quantises(t->run))
        af_trainer_log(t, "note: the experts are not quantised to 4 bits, as with transformers 5 "
                          "and bitsandbytes");
    for (int i = 0; i < t->spec->modules && !lost; i++)
        if (t->adapter->module[i].rank && af_method_lost_in_peft(t->spec, &t->spec->module[i]))
            lost = t->spec->module[i].path;
    if (lost)
        af_trainer_log(t,
                       "note: PEFT takes targets like '%s' of this model for its experts, and will "
                       "not load their adapters",
                       lost);
}

/* What the config asks of a training run in transformers, and this one does not do. */
static void say_left_out(const af_trainer *t)
{
    static const char *const keys[] = {"attention_dropout", "resid_pdrop", "embd_pdrop"};
    const json_t *c = af_loader_config(t->source)->raw;
    const json_t *text = json_object_get(c, "text_config");
    c = text ? text : c;
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        const double p = json_number_value(json_object_get(c, keys[i]));
        if (p > 0)
            af_trainer_log(t, "warning: the config has %s %g: the run trains without it", keys[i],
                           p);
    }
    if (t->spec->arch->moe && json_is_true(json_object_get(c, "output_router_logits")))
        af_trainer_log(t, "warning: the config has output_router_logits: the run trains without "
                          "the loss that balances the experts");
}

/* What is done as it was said, and was perhaps not meant. */
static void say_doubts(const af_trainer *t)
{
    const int64_t rows = af_stream_items(t->stream);
    const int64_t batch = t->run->micro_batch_size * t->run->accumulation;
    if (batch > rows)
        af_trainer_log(t,
                       "warning: a step takes %" PRId64
                       " rows (micro_batch_size x gradient_accumulation_steps), and there are "
                       "%" PRId64 ": they come more than once in it",
                       batch, rows);
    if (t->schedule.o.warmup > t->steps)
        af_trainer_log(
            t, "warning: the warm-up of %" PRId64 " steps is longer than the run of %" PRId64,
            t->schedule.o.warmup, t->steps);
    const int64_t context = af_spec_context(t->spec);
    if (context > 0 && (int64_t)t->store.longest > context)
        af_trainer_log(t,
                       "warning: the longest record has %" PRId64
                       " tokens, the model's context is %" PRId64,
                       (int64_t)t->store.longest, context);
}

static void say_plan(const af_trainer *t)
{
    af_trainer_log(t, "device: %s, computing in %s", af_device_text(t->device),
                   af_dtype_name(t->compute));
    af_trainer_log(t,
                   "data: %" PRId64 " records, %" PRIu64 " tokens, %" PRIu64 " with loss; %" PRId64
                   " steps",
                   t->store.records, t->store.tokens, t->store.supervised, t->steps);
    if (t->eval_items)
        af_trainer_log(t,
                       t->eval_own_store ? "data: evaluated with %" PRId64 " other records"
                                         : "data: evaluated with %" PRId64
                                           " of the records, which are held out",
                       t->eval_items);
    if (t->counts.truncated || t->counts.dropped)
        af_trainer_log(t,
                       "data: %" PRId64 " records truncated (%" PRId64
                       " lost their end-of-turn token), %" PRId64 " dropped",
                       t->counts.truncated, t->counts.lost_eot, t->counts.dropped);
    const af_plan_info *p = &t->plan;
    char way[AF_MEMORY_MODE_NAME];
    af_trainer_log(
        t,
        "memory: %.1f MiB planned (weights %.1f + %.1f mapped, trained %.1f, activations "
        "%.1f), recompute %s",
        mib(p->total), mib(p->weights), mib(p->bound), mib(p->params + p->grads + p->state),
        mib(p->activations), af_memory_mode_name(t, t->memory_mode, way));
    if (on_cpu(t))
        af_trainer_log(t, "memory: %.1f MiB resident expected",
                       mib(af_trainer_resident(t, &t->plan)));
    if (t->samples)
        af_trainer_log(t, "memory: %.1f MiB %s while samples are generated", mib(t->samples_bytes),
                       on_cpu(t) ? "of them" : "more, where they are free,");
    say_experts(t);
    say_left_out(t);
    say_doubts(t);
}

/* A run that goes on in another folder leaves its best checkpoint behind. */
static void leave_best(af_trainer *t)
{
    if (t->run->load_best && t->progress.best_step > 0)
        af_trainer_log(t, "note: the best evaluation, of step %" PRId64 ", stays in the old folder",
                       t->progress.best_step);
    if (t->run->load_best) {
        t->progress.best_eval = NAN;
        t->progress.best_step = 0;
    }
}

/* Nothing is made before everything that can be wrong has been looked at; and a folder that was
 * made for a run that does not start is taken away again. */
static af_status start(af_trainer *t, af_error *err)
{
    af_status st = AF_OK;
    char *checkpoint = NULL, *text = NULL;
    const char *output = t->run->output_dir;
    const bool absent = !af_dir_exists(output);
    bool own = false, made = false;
    AF_TRY(af_run_folder_hold(t, err));
    AF_TRY(af_run_folder_choose(t, &checkpoint, &own, err));
    t->progress.data_records = t->store.records;
    t->progress.data_tokens = (int64_t)t->store.tokens;
    if (checkpoint) {
        AF_TRY(af_resume_check(t, checkpoint, err));
        AF_TRY(af_checkpoint_load(t, checkpoint, err));
        af_resume_check_data(t);
        if (!own)
            leave_best(t);
    }
    AF_TRY(af_dir_make(output, err));
    AF_TRY(af_run_folder_hold(t, err)); /* another run may have made it in the meantime */
    made = absent;
    AF_TRY(af_run_folder_clear(output, checkpoint && own, own, err));
    if (checkpoint && own)
        AF_TRY(af_run_folder_set_aside(t, err));
    AF_TRY(af_metrics_open(t, checkpoint, err));
    AF_TRY(af_samples_open(t, err));
    AF_TRY(af_run_config_text(t->run, &text, err));
    AF_TRY(af_run_folder_write(output, "run.yaml", text, err));
    say_plan(t);
    if (checkpoint)
        af_trainer_log(t, "resumed from %s at step %" PRId64, checkpoint, t->progress.step);
done:
    if (st != AF_OK && made && af_dir_exists(output))
        (void)!af_path_remove(output, NULL);
    free(checkpoint);
    free(text);
    return st;
}

static void say_end(const af_trainer *t)
{
    const af_progress *p = &t->progress;
    const double peak = mib(af_resident_peak()), expected = mib(af_trainer_resident(t, &t->plan));
    af_trainer_log(t, "done: %" PRId64 " steps in %.1f s, loss %.5f -> %.5f, %.0f tokens/s; '%s'",
                   p->step, p->seconds, p->first_loss, p->last_loss,
                   p->seconds > 0 ? (double)p->tokens / p->seconds : 0, t->run->output_dir);
    if (on_cpu(t))
        af_trainer_log(t, "memory: %.1f MiB resident at most, %.1f expected (%+.1f %%)", peak,
                       expected, (peak / expected - 1) * 100);
}

static af_status finish(af_trainer *t, af_train_result *result, af_error *err)
{
    af_status st = AF_OK;
    bool whole;
    const char *output = t->run->output_dir;
    char *state = NULL, *text = NULL;
    if (t->run->load_best && t->progress.best_step > 0) {
        char best[4096];
        snprintf(best, sizeof best, "%s/checkpoint-%" PRId64, output, t->progress.best_step);
        af_trainer_log(t, "the best evaluation was at step %" PRId64 ": taking that one",
                       t->progress.best_step);
        st = af_checkpoint_verify(best, err);
        if (st != AF_OK) /* or it is not there any more */
            return af_fail_prefix(st, err,
                                  "the best model of the run cannot be taken "
                                  "(load_best_model_at_end: false takes the last one)");
        AF_TRY(af_checkpoint_copy_model(best, output, err));
    } else {
        AF_TRY(af_trainer_write_model(t, output, err));
    }
    AF_TRY(af_trainer_state_text(t, true, &state, err));
    AF_TRY(af_run_folder_write(output, "trainer_state.json", state, err));
    AF_TRY(af_metrics_results(t, err));
    const uint64_t clock = af_graph_clock(t->graph);
    af_trainer_drop_graph(t);            /* the samples come from what was written */
    AF_TRY(af_run_folder_texts(t, err)); /* a GGUF file's take memory to make */
    AF_TRY(af_samples_ask(t, output, &whole, err));
    result->stopped = !whole;
    if (!whole)
        AF_TRY(af_fail(err, AF_ESTOPPED,
                       "stopped after the last step, before its samples; the result is in '%s', "
                       "and resume_from_checkpoint: auto adds samples and report",
                       output));
    AF_TRY(af_samples_table(t, err));
    AF_TRY(af_report_write(t, err));
    AF_TRY(af_progress_text(&t->progress, clock, &text, err));
    AF_TRY(af_run_folder_write(output, AF_RUN_FINISHED, text, err));
    say_end(t);
done:
    free(state);
    free(text);
    return st;
}

static af_status train(const af_run_config *run, const af_train_hooks *hooks,
                       af_train_result *result, af_error *err)
{
    af_trainer t;
    af_status st = af_trainer_open(&t, run, hooks, err);
    if (st != AF_OK)
        return st;
    result->stopped = af_trainer_stop_asked(&t); /* while it was read and tokenised */
    if (result->stopped)
        AF_TRY(af_fail(err, AF_ESTOPPED, "stopped before the first step; nothing was written"));
    AF_TRY(af_saver_new(&t.saver, err));
    AF_TRY(start(&t, err));
    AF_TRY(loop(&t, result, err));
    AF_TRY(finish(&t, result, err));
done:
    result->steps = t.progress.step;
    result->first_loss = t.progress.first_loss;
    result->last_loss = t.progress.last_loss;
    result->best_eval_loss = t.progress.best_eval;
    af_saver_free(t.saver);
    t.saver = NULL;
    af_trainer_close(&t);
    return st;
}

af_status af_train(const char *run_file, const char *const *overrides, int count,
                   const af_train_hooks *hooks, af_train_result *result, af_error *err)
{
    af_run_config run = {0};
    *result = (af_train_result){.first_loss = NAN, .last_loss = NAN, .best_eval_loss = NAN};
    af_status st = af_run_config_read(&run, run_file, overrides, count, true, err);
    if (st != AF_OK)
        return st;
    if (af_run_folder_finished(&run))
        result->nothing_to_do = true;
    else
        st = train(&run, hooks, result, err);
    af_run_config_clear(&run);
    return st;
}

af_status af_train_help(char **text, af_error *err) { return af_run_keys_help(text, err); }
