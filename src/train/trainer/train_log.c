/* train_log.c - what a run logs before its first step and after its last. */
#include "train/report/next_steps.h"
#include "train/run/method.h"
#include "train/run/run_qat.h"
#include "train/step/memory_fit.h"
#include "train/step/resident.h"
#include "train/step/setting_warnings.h"
#include "train/trainer/trainer.h"

#include <jansson.h>

static double mib(uint64_t bytes) { return (double)bytes / 0x1p20; }

/* What a run does not do to a mixture of experts although it might be expected. */
static void log_experts(const af_trainer *t)
{
    int64_t n = 0;
    for (int i = 0; i < t->model.spec->tensors && t->model.adapter; i++) {
        const af_tensor_spec *s = &t->model.spec->tensor[i];
        const bool experts =
            s->module >= 0 && af_module_is_experts(&t->model.spec->module[s->module]);
        n += experts && !t->model.adapter->module[s->module].rank
                 ? s->dim[0] * s->dim[1] * s->dim[2]
                 : 0;
    }
    if (n == 0)
        return;
    af_run_log(t->hooks,
               "note: the adapter does not cover the experts (%.1f M weights; see "
               "lora_target_parameters)",
               (double)n / 1e6);
}

/* Adapters that PEFT will not load. */
static void log_lost(const af_trainer *t)
{
    const af_model_spec *s = t->model.spec;
    int lost = -1;
    for (int i = 0; i < s->modules && lost < 0 && t->model.adapter; i++)
        if (t->model.adapter->module[i].rank && af_method_lost_in_peft(s, &s->module[i]))
            lost = i;
    if (lost < 0)
        return;
    if (s->module[lost].group == AF_GROUP_OUT)
        af_run_log(t->hooks,
                   "note: PEFT refuses adapters on '%s' of Mamba layers and will not load them",
                   s->module[lost].path);
    else
        af_run_log(t->hooks,
                   "note: PEFT takes targets like '%s' of this model for its experts and will "
                   "not load their adapters",
                   s->module[lost].path);
}

/* Which products are in FP8, and which are not. */
static void log_fp8(const af_trainer *t)
{
    const af_fp8_plan *p = &t->step.fp8;
    if (!p->use)
        return;
    const int used = af_fp8_plan_in(p, AF_FP8_USED), slower = af_fp8_plan_in(p, AF_FP8_SLOWER);
    af_run_log(t->hooks,
               "fp8: %d of %d groups of projections%s; error against f64 up to %.2f %% forward, "
               "%.2f %% backward (limit %.0f %%)",
               used, p->count,
               af_run_model_on_cpu(&t->model) ? ", emulated (a CPU does not gain by it)" : "",
               100 * af_fp8_plan_error(p, 0), 100 * af_fp8_plan_error(p, 1),
               100 * AF_FP8_ERROR_MAX);
    if (slower)
        af_run_log(t->hooks, "fp8: %d groups stay as they are, which is faster for their sizes",
                   slower);
    for (int i = 0; i < p->count; i++)
        if (p->group[i].state == AF_FP8_BROKE)
            af_run_log(t->hooks,
                       "fp8: '%s' is computed without FP8: its error is %.2f %% forward, %.2f %% "
                       "backward",
                       p->group[i].name, 100 * p->group[i].error[0], 100 * p->group[i].error[1]);
}

/* New tokens, and what trains them. */
static void log_tokens(const af_trainer *t)
{
    const af_token_edits *e = &t->model.tokens.edits;
    const af_adapter *a = t->model.adapter;
    if (t->run->tokenizer_config)
        af_run_log(t->hooks, "tokenizer of '%s': %" PRId64 " tokens%s", t->run->tokenizer_config,
                   e->size, af_loader_is_grown(t->model.loader) ? ", the vocabulary grows" : "");
    if (t->run->token_overrides)
        af_run_log(t->hooks, "%d token%s another text (added_tokens_overrides)%s",
                   t->run->token_overrides->count,
                   t->run->token_overrides->count > 1 ? "s have" : " has",
                   a && (a->tokens[0].count || a->tokens[1].count) && !t->run->trainable_tokens
                       ? "; their rows are trained"
                       : "");
    if (!e->added)
        return;
    const bool head =
        a && t->run->chat_template_path && !t->model.spec->tied && !a->tokens[AF_TOKENS_HEAD].count;
    af_run_log(t->hooks, "%d new token%s: '%s'%s is %" PRId64 "%s; %s", e->added,
               e->added > 1 ? "s" : "", e->text[0], e->added > 1 ? ", ..." : "", e->ids[0],
               af_loader_is_grown(t->model.loader) ? ", the vocabulary grows" : "",
               head && a->tokens[AF_TOKENS_EMBED].count && !t->run->trainable_tokens
                   ? "their rows of the embedding and the whole head are trained, as in TRL"
               : a && (a->tokens[0].count || a->tokens[1].count) && !t->run->trainable_tokens
                   ? "their rows are trained (trainable_token_indices; all rows: "
                     "lora_modules_to_save: [embed_tokens, lm_head])"
               : a && !e->used_count ? "it only pads, and is not trained"
               : a                   ? "they are trained as the run file says"
                                     : "they are trained with the model");
}

static void log_schedule(const af_trainer *t)
{
    const af_schedule_opts *o = &t->progress.schedule.o;
    const char *name = t->run->lr_scheduler, *end = "_with_min_lr";
    const size_t n = strlen(name), tail = strlen(end);
    if (o->warmup > t->progress.steps)
        af_run_warn(t->hooks, "the warm-up of %" PRId64 " steps is longer than the run of %" PRId64,
                    o->warmup, t->progress.steps);
    else if (t->progress.schedule.kind == AF_SCHEDULE_WSD &&
             o->warmup + o->decay_steps > t->progress.steps)
        af_run_warn(t->hooks,
                    "the warm-up of %" PRId64 " steps and the decay of %" PRId64
                    " are longer than the run of %" PRId64
                    ", which does not reach its learning_rate",
                    o->warmup, o->decay_steps, t->progress.steps);
    if (n > tail && strcmp(name + n - tail, end) == 0 && o->min_ratio == 0)
        af_run_warn(t->hooks, "lr_scheduler '%s' ends at 0: set cosine_min_lr_ratio or min_lr",
                    name);
}

/* Valid settings that are probably mistakes. */
static void log_doubtful(const af_trainer *t)
{
    af_warn_settings(&t->model);
    af_warn_data(t->run, t->model.path, &t->data.counts);
    const int64_t rows = af_stream_items(t->data.stream);
    const int64_t batch = t->run->micro_batch_size * t->progress.micro_per_step;
    if (batch > rows)
        af_run_warn(t->hooks,
                    "a step takes %" PRId64
                    " rows (micro_batch_size x gradient_accumulation_steps), but there are "
                    "only %" PRId64 ": rows are repeated within a step",
                    batch, rows);
    log_schedule(t);
    const int64_t context = af_spec_context(t->model.spec);
    if (context > 0 && (int64_t)t->data.store.longest > context)
        af_run_warn(t->hooks,
                    "the longest record has %" PRId64 " tokens, the model's context is %" PRId64,
                    (int64_t)t->data.store.longest, context);
}

/* KTO weighs its two kinds of answers: TRL recommends to bring their products with their numbers
 * into a ratio of 1 to 1.33. */
static void log_kto(const af_trainer *t)
{
    const double good = (double)t->data.counts.desirable, bad = (double)t->data.counts.undesirable,
                 most = 1.33;
    if (t->run->rl != AF_RL_KTO)
        return;
    if (good == 0 || bad == 0) {
        af_run_warn(t->hooks, "every answer is %s: KTO needs both kinds",
                    good > 0 ? "desirable" : "undesirable");
        return;
    }
    const double least = bad * t->run->kto_undesirable_weight / good;
    af_run_log(
        t->hooks,
        "data: %.0f desirable and %.0f undesirable answers; a kto_desirable_weight from %.2f "
        "to %.2f suits them, it is %g",
        good, bad, least, least * most, t->run->kto_desirable_weight);
}

void af_trainer_log_start(const af_trainer *t)
{
    const char *no_gpu = af_device_no_gpu(t->model.device);
    af_run_log(t->hooks, "device: %s, computing in %s%s%s", af_device_text(t->model.device),
               af_dtype_name(t->model.compute), *no_gpu ? "; no GPU is used: " : "", no_gpu);
    char loss[40] = ""; /* of tokens: scores have one per text */
    if (!af_run_scores(t->run))
        snprintf(loss, sizeof loss, ", %" PRIu64 " with loss", t->data.store.supervised);
    af_run_log(t->hooks, "data: %" PRId64 " records, %" PRIu64 " tokens%s; %" PRId64 " steps",
               t->data.store.records, af_run_data_tokens(&t->data, t->run), loss,
               t->progress.steps);
    if (t->data.eval_items)
        af_run_log(t->hooks,
                   t->data.eval_own_store ? "data: evaluated on %" PRId64
                                            " records of test_datasets"
                                          : "data: evaluated on %" PRId64 " held-out records",
                   t->data.eval_items);
    if (t->data.counts.truncated || t->data.counts.dropped)
        af_run_log(t->hooks,
                   "data: %" PRId64 " records truncated (%" PRId64
                   " lost their end-of-turn token), %" PRId64 " dropped",
                   t->data.counts.truncated, t->data.counts.lost_eot, t->data.counts.dropped);
    if (t->data.counts.left_out)
        af_run_log(t->hooks,
                   "data: %" PRId64
                   " records left out: shorter than min_sample_len, or there before",
                   t->data.counts.left_out);
    log_kto(t);
    const af_plan_info *p = &t->step.plan;
    char mode[AF_MEMORY_MODE_NAME];
    af_run_log(t->hooks,
               "memory: %.1f MiB planned (weights %.1f + %.1f mapped, trained %.1f, activations "
               "%.1f), recompute %s",
               mib(p->total), mib(p->weights), mib(p->bound), mib(p->params + p->grads + p->state),
               mib(p->activations), af_memory_mode_name(&t->step, t->step.memory_mode, mode));
    if (af_run_model_on_cpu(&t->model))
        af_run_log(t->hooks, "memory: %.1f MiB resident expected",
                   mib(af_memory_resident(&t->step, &t->step.plan)));
    if (t->prompts)
        af_run_log(t->hooks, "memory: %.1f MiB %s while samples are generated",
                   mib(t->step.prompts_bytes),
                   af_run_model_on_cpu(&t->model) ? "of these" : "more, if free,");
    log_fp8(t);
    log_experts(t);
    log_lost(t);
    log_tokens(t);
    log_doubtful(t);
}

/* Where things are, and what to do with them. */
static void log_next(const af_trainer *t)
{
    const char *dir = t->run->output_dir;
    af_buf b = {0};
    af_run_log(t->hooks, "%s: %s/%s", t->model.adapter ? "adapter" : "model", dir,
               t->model.adapter ? "adapter_model.safetensors" : "model.safetensors");
    if (af_run_qat_name(t->run))
        af_run_log(t->hooks, "note: its weights are not rounded: quantize them to %s",
                   af_run_qat_name(t->run));
    af_run_log(t->hooks, "report: %s/report.html", dir);
    af_next_commands(&b, t->run, &t->model, af_trainer_is_chat(t));
    af_run_log(t->hooks, "next:");
    for (char *line = b.bad ? NULL : b.data, *end; line && *line; line = end + 1) {
        end = strchr(line, '\n');
        *end = '\0';
        af_run_log(t->hooks, "  %s", line);
    }
    af_buf_clear(&b);
}

void af_trainer_log_end(const af_trainer *t)
{
    const af_run_progress *p = &t->progress;
    const double peak = mib(af_resident_peak()),
                 expected = mib(af_memory_resident(&t->step, &t->step.plan));
    af_run_log(t->hooks,
               "done: %" PRId64
               " steps in %.1f s, loss %.5f -> %.5f, %.0f tokens/s; results in '%s'",
               p->step, p->seconds, p->first_loss, p->last_loss,
               p->seconds > 0 ? (double)p->tokens / p->seconds : 0, t->run->output_dir);
    if (af_run_model_on_cpu(&t->model))
        af_run_log(t->hooks, "memory: %.1f MiB peak resident, %.1f expected (%+.1f %%)", peak,
                   expected, (peak / expected - 1) * 100);
    if (t->comm && t->sent_steps)
        af_run_log(t->hooks, "ranks: this one sent %.3f MB per step (%" PRIu64 " bytes)",
                   (double)af_step_graph_sent(&t->step) / (double)t->sent_steps / 1e6,
                   af_step_graph_sent(&t->step) / (uint64_t)t->sent_steps);
    log_next(t);
}
