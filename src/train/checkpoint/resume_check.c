/* resume_check.c - how a resumed run differs from the one that wrote the checkpoint.
 *
 * Both run files are compared line by line (one key per line, as af_run_config_text writes them).
 * Where and how a run is computed and what it logs may change freely; keys that change the results
 * are logged; another optimizer would misread the stored state, and is refused. */
#include "base/buf.h"
#include "base/file.h"
#include "data/render/renderer.h"
#include "format/chat/chat_template.h"
#include "train/checkpoint/checkpoint.h"
#include "train/run/run_keys.h"

#define RUN_BYTES_MAX (UINT64_C(1) << 20)

typedef struct key_line {
    const char *key, *value;
    int key_len, value_len; /* value_len 0: no value */
} key_line;

/* The line at *text, which moves on; false at the end. */
static bool next_line(const char **text, key_line *out)
{
    const char *s = *text, *end = strchr(s, '\n'), *colon = strstr(s, ": ");
    if (!end)
        return false;
    *text = end + 1;
    const bool whole = colon && colon < end;
    *out = (key_line){s, whole ? colon + 2 : end, whole ? (int)(colon - s) : (int)(end - s),
                      whole ? (int)(end - colon - 2) : 0};
    return true;
}

static const char not_set[] = "not set";

static key_line find(const char *text, const key_line *like)
{
    key_line l;
    while (next_line(&text, &l))
        if (l.key_len == like->key_len && memcmp(l.key, like->key, (size_t)l.key_len) == 0)
            return l;
    return (key_line){like->key, not_set, like->key_len, sizeof not_set - 1};
}

static bool is_key(const key_line *l, const char *name)
{
    return (size_t)l->key_len == strlen(name) && memcmp(l->key, name, strlen(name)) == 0;
}

static bool same_value(const key_line *a, const key_line *b)
{
    return a->value_len == b->value_len && memcmp(a->value, b->value, (size_t)a->value_len) == 0;
}

static bool is_free(const key_line *l)
{
    static const char *const keys[] = {"output_dir",
                                       "run_name",
                                       "overwrite_output_dir",
                                       "logging_steps",
                                       "save_steps",
                                       "saves_per_epoch",
                                       "save_strategy",
                                       "eval_strategy",
                                       "loss_watchdog_threshold",
                                       "loss_watchdog_patience",
                                       "save_total_limit",
                                       "eval_steps",
                                       "evals_per_epoch",
                                       "early_stopping_patience",
                                       "early_stopping_threshold",
                                       "eval_delay",
                                       "load_best_model_at_end",
                                       "resume_from_checkpoint",
                                       "auto_resume_from_checkpoints",
                                       "device",
                                       "threads",
                                       "dist_backend",
                                       "zero_stage",
                                       "deepspeed",
                                       "fsdp",
                                       "fsdp_config",
                                       "ddp_timeout",
                                       "gradient_accumulation_steps", /* see below */
                                       "serve_port",
                                       "serve_host",
                                       "strict",
                                       "attention",
                                       "gradient_checkpointing",
                                       "activation_offloading",
                                       "generate_samples",
                                       "generate_samples_steps",
                                       "generate_samples_tokens",
                                       "precompute_ref_log_probs"};
    bool any = false;
    for (size_t i = 0; i < AF_LEN(keys); i++)
        any |= is_key(l, keys[i]);
    return any;
}

/* Which weights of the model are trained: a checkpoint has all of them, and those that the run does
 * not train would be the base's again. */
static bool is_choice_of_weights(const key_line *now, const key_line *then)
{
    static const char *const keys[] = {
        "unfrozen_parameters",     "freeze_parameters",    "freeze_parameters_regex",
        "freeze_parameters_ratio", "trainable_parameters", "trainable_parameters_regex",
        "freeze_trainable_layers", "freeze_extra_modules", "freeze_trainable_modules"};
    const key_line freeze = {.value = "freeze", .value_len = 6};
    for (size_t i = 0; i < AF_LEN(keys); i++)
        if (is_key(now, keys[i]))
            return true;
    return is_key(now, "adapter") && (same_value(now, &freeze) || same_value(then, &freeze));
}

/* The run leaves the key alone, and the file lacks it: the version that wrote it did not know it.
 */
static bool is_new(const af_run_config *run, const key_line *now, const key_line *then)
{
    char name[100];
    snprintf(name, sizeof name, "%.*s", now->key_len, now->key);
    return then->value == not_set && af_key_find(name) && !af_run_key_is_set(run, name);
}

/* Two run files: what is run now, and what wrote `made`, "the checkpoint" or "the run" (which is
 * complete: nothing of it is read). */
typedef struct comparison {
    const af_run_config *run;
    const af_train_hooks *hooks;
    const char *made;
    bool complete;
} comparison;

static af_status compare(const comparison *c, const key_line *now, const key_line *then,
                         af_error *err)
{
    char at[300];
    if (same_value(now, then))
        return AF_OK;
    if (is_key(now, "optimizer") && !c->complete)
        return af_fail(err, AF_EUSAGE,
                       "%s: the optimizer is %.*s, but the checkpoint has the state of %.*s",
                       af_run_key_loc(c->run, "optimizer", at, sizeof at), now->value_len,
                       now->value, then->value_len, then->value);
    if (is_choice_of_weights(now, then) && !c->complete && !is_new(c->run, now, then))
        return af_fail(err, AF_EUSAGE,
                       "%.*s is %.*s now, the checkpoint was made with %.*s: what it has learnt "
                       "elsewhere would get lost; resume with the keys it was made with",
                       now->key_len, now->key, now->value_len, now->value, then->value_len,
                       then->value);
    if (!is_free(now) && !is_new(c->run, now, then))
        af_run_log(c->hooks, "note: %.*s is %.*s now; %s was made with %.*s", now->key_len,
                   now->key, now->value_len, now->value, c->made, then->value_len, then->value);
    return AF_OK;
}

static af_status compare_texts(const comparison *c, const char *now, const char *then,
                               af_error *err)
{
    key_line l;
    af_status st = AF_OK;
    for (const char *at = now; st == AF_OK && next_line(&at, &l);) {
        const key_line old = find(then, &l);
        st = compare(c, &l, &old, err);
    }
    for (const char *at = then; st == AF_OK && next_line(&at, &l);) {
        const key_line new = find(now, &l);
        if (new.value == not_set)
            st = compare(c, &new, &l, err);
    }
    return st;
}

/* The run file has at most the name of a template's file: its text is stored with the checkpoint.
 */
static void compare_templates(const af_run_model *m, const af_run_data *d,
                              const af_train_hooks *hooks, const char *checkpoint)
{
    const af_data_counts *c = &d->counts;
    af_template *now = NULL, *then = NULL;
    bool bare;
    if (c->of_text + c->of_tokens + c->of_segments < c->records &&
        af_renderer_template(&now, &bare, m->texts, d->chat_template, NULL) == AF_OK &&
        af_template_open(&then, checkpoint, NULL) == AF_OK &&
        strcmp(af_template_source(now, NULL), af_template_source(then, NULL)) != 0)
        af_run_warn(hooks, "the chat template differs from the checkpoint's "
                           "(its chat_template.jinja)");
    af_template_close(now);
    af_template_close(then);
}

/* The run file that `dir` has, if it has one. */
static af_status compare_with(const comparison *c, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    char *path = af_path_join(dir, "run.yaml"), *now = NULL, *then = NULL;
    uint64_t size;
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    if (af_file_exists(path)) {
        AF_TRY(af_run_config_text(c->run, &now, err));
        AF_TRY(af_file_read(&then, &size, path, RUN_BYTES_MAX, err));
        AF_TRY(compare_texts(c, now, then, err));
    }
done:
    free(path);
    free(now);
    free(then);
    return st;
}

af_status af_resume_check(const af_run_model *m, const af_run_data *d, const af_train_hooks *hooks,
                          const char *checkpoint, af_error *err)
{
    const comparison c = {m->run, hooks, "the checkpoint", false};
    const af_status st = compare_with(&c, checkpoint, err);
    if (st == AF_OK)
        compare_templates(m, d, hooks, checkpoint);
    return st;
}

af_status af_resume_check_complete(const af_run_config *run, const af_train_hooks *hooks,
                                   af_error *err)
{
    const comparison c = {run, hooks, "the run", true};
    return compare_with(&c, run->output_dir, err);
}

void af_resume_check_data(const af_run_progress *p, const af_run_data *d,
                          const af_train_hooks *hooks)
{
    const af_token_store *s = &d->store;
    if (p->stored_micro_per_step && p->stored_micro_per_step != p->micro_per_step)
        af_run_warn(hooks,
                    "gradient_accumulation_steps x ranks is %" PRId64
                    " now; the checkpoint was made with %" PRId64,
                    p->micro_per_step, p->stored_micro_per_step);
    if (p->data_records >= 0 &&
        (p->data_records != s->records || p->data_tokens != (int64_t)s->tokens))
        af_run_warn(hooks,
                    "the datasets have %" PRId64 " records and %" PRIu64
                    " tokens now, the checkpoint was made with %" PRId64 " and %" PRId64
                    ": records may be repeated or skipped",
                    s->records, s->tokens, p->data_records, p->data_tokens);
}
