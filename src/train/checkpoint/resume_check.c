/* resume_check.c - what a resumed run says differently from the one that wrote the checkpoint.
 *
 * Both run files are compared line by line (one key a line, as af_run_config_text writes them).
 * Where and how a run is computed and what it logs may change freely; what the results depend on is
 * named; another optimizer would read the old one's state as its own, and is refused. */
#include "base/buf.h"
#include "base/file.h"
#include "data/render/renderer.h"
#include "format/chat/chat_template.h"
#include "train/checkpoint/checkpoint.h"

#define RUN_BYTES_MAX (UINT64_C(1) << 20)

typedef struct line {
    const char *key, *value;
    int key_len, value_len; /* value_len 0: the key does not stand there */
} line;

/* The line at *text, which moves on; false at the end. */
static bool next_line(const char **text, line *out)
{
    const char *s = *text, *end = strchr(s, '\n'), *colon = strstr(s, ": ");
    if (!end)
        return false;
    *text = end + 1;
    const bool whole = colon && colon < end;
    *out = (line){s, whole ? colon + 2 : end, whole ? (int)(colon - s) : (int)(end - s),
                  whole ? (int)(end - colon - 2) : 0};
    return true;
}

static line find(const char *text, const line *like)
{
    line l;
    while (next_line(&text, &l))
        if (l.key_len == like->key_len && memcmp(l.key, like->key, (size_t)l.key_len) == 0)
            return l;
    return (line){like->key, "not set", like->key_len, 7};
}

static bool is_key(const line *l, const char *name)
{
    return (size_t)l->key_len == strlen(name) && memcmp(l->key, name, strlen(name)) == 0;
}

static bool is_free(const line *l)
{
    static const char *const keys[] = {"output_dir",
                                       "run_name",
                                       "overwrite_output_dir",
                                       "logging_steps",
                                       "save_steps",
                                       "saves_per_epoch",
                                       "save_total_limit",
                                       "eval_steps",
                                       "evals_per_epoch",
                                       "early_stopping_patience",
                                       "load_best_model_at_end",
                                       "resume_from_checkpoint",
                                       "auto_resume_from_checkpoints",
                                       "device",
                                       "threads",
                                       "attention",
                                       "gradient_checkpointing",
                                       "activation_offloading",
                                       "base_model",
                                       "generate_samples",
                                       "generate_samples_steps",
                                       "generate_samples_tokens"};
    bool any = false;
    for (size_t i = 0; i < AF_LEN(keys); i++)
        any |= is_key(l, keys[i]);
    return any;
}

static af_status compare(const af_trainer *t, const line *now, const line *then, af_error *err)
{
    char at[300];
    if (now->value_len == then->value_len &&
        memcmp(now->value, then->value, (size_t)now->value_len) == 0)
        return AF_OK;
    if (is_key(now, "optimizer"))
        return af_fail(err, AF_EUSAGE,
                       "%s: the optimizer is %.*s, the checkpoint to resume from has the state of "
                       "%.*s",
                       af_run_key_loc(t->run, "optimizer", at, sizeof at), now->value_len,
                       now->value, then->value_len, then->value);
    if (!is_free(now))
        af_trainer_log(t, "note: %.*s is %.*s now; the checkpoint was made with %.*s", now->key_len,
                       now->key, now->value_len, now->value, then->value_len, then->value);
    return AF_OK;
}

static af_status compare_texts(const af_trainer *t, const char *now, const char *then,
                               af_error *err)
{
    line l;
    af_status st = AF_OK;
    for (const char *at = now; st == AF_OK && next_line(&at, &l);) {
        const line old = find(then, &l);
        st = compare(t, &l, &old, err);
    }
    for (const char *at = then; st == AF_OK && next_line(&at, &l);) {
        const line new = find(now, &l);
        if (new.value_len == 7 && memcmp(new.value, "not set", 7) == 0)
            st = compare(t, &new, &l, err);
    }
    return st;
}

/* The run file has the name of a template's file, or none: what stood in it is beside the
 * checkpoint. */
static void compare_templates(const af_trainer *t, const char *checkpoint)
{
    const af_data_counts *c = &t->counts;
    af_template *now = NULL, *then = NULL;
    af_error ignored;
    bool bare;
    if (c->of_text + c->of_tokens + c->of_segments < c->records &&
        af_renderer_template(&now, &bare, t->model_path, t->chat_template, &ignored) == AF_OK &&
        af_template_open(&then, checkpoint, &ignored) == AF_OK &&
        strcmp(af_template_source(now, NULL), af_template_source(then, NULL)) != 0)
        af_trainer_log(t, "warning: the chat template is not the one the checkpoint was made with "
                          "(chat_template.jinja beside it)");
    af_template_close(now);
    af_template_close(then);
}

af_status af_resume_check(const af_trainer *t, const char *checkpoint, af_error *err)
{
    af_status st = AF_OK;
    char *path = af_path_join(checkpoint, "run.yaml"), *now = NULL, *then = NULL;
    uint64_t size;
    if (!path)
        return af_fail_nomem(err, "a path", strlen(checkpoint));
    if (af_file_exists(path)) {
        AF_TRY(af_run_config_text(t->run, &now, err));
        AF_TRY(af_file_read(&then, &size, path, RUN_BYTES_MAX, err));
        AF_TRY(compare_texts(t, now, then, err));
    }
    compare_templates(t, checkpoint);
done:
    free(path);
    free(now);
    free(then);
    return st;
}

void af_resume_check_data(const af_trainer *t)
{
    const af_progress *p = &t->progress;
    if (p->data_records >= 0 &&
        (p->data_records != t->store.records || p->data_tokens != (int64_t)t->store.tokens))
        af_trainer_log(t,
                       "warning: the datasets have %" PRId64 " records and %" PRIu64
                       " tokens now, and had %" PRId64 " and %" PRId64
                       " when the checkpoint was made: records may come twice or not at all",
                       t->store.records, t->store.tokens, p->data_records, p->data_tokens);
}
