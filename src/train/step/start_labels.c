/* start_labels.c - see start_labels.h. */
#include "train/step/start_labels.h"
#include "base/file.h"
#include "format/config/hf_config.h"
#include "format/text/json_text.h"
#include "model/adapter.h"
#include "model/adapter_config.h"
#include "model/labels/label_loss.h"
#include "train/run/run_keys.h"

#include <jansson.h>
#include <stdlib.h>

/* What the run begins with: the adapter that it continues, else its base. */
typedef struct start {
    json_t *json; /* with id2label and problem_type; NULL = it says nothing */
    int64_t labels;
} start;

static af_status read_adapter(start *s, const char *dir, af_error *err)
{
    af_status st = af_adapter_labels(&s->labels, dir, err);
    char *path = af_path_join(dir, "adapter_config.json");
    json_t *config = NULL;
    if (st == AF_OK && !path)
        st = af_fail_nomem(err, "a path", strlen(dir));
    if (st == AF_OK && s->labels)
        st = af_json_read_file(&config, path, err);
    s->json = json_incref(json_object_get(config, AF_LABELS_KEY));
    json_decref(config);
    free(path);
    return st;
}

static void read_base(start *s, const char *model)
{
    af_hf_config c = {0};
    if (af_model_config(&c, model, NULL) != AF_OK) /* said where it is opened */
        return;
    s->labels = c.labels;
    s->json = c.labels ? json_incref(c.raw) : NULL;
    af_hf_config_clear(&c);
}

static af_problem problem_of(const json_t *json)
{
    const char *kind = json_string_value(json_object_get(json, "problem_type"));
    const af_key_choice *c = af_key_find("problem_type")->choices->names;
    while (kind && c->name && strcmp(c->name, kind) != 0)
        c++;
    return kind && c->name ? (af_problem)c->value : AF_PROBLEM_AUTO;
}

static af_status take_names(af_label_opts *o, const json_t *json, af_arena *mem, af_error *err)
{
    const json_t *names = json_object_get(json, "id2label");
    const char **list = af_arena_take(mem, (uint64_t)o->count * sizeof *list);
    if (!list)
        return af_fail_nomem(err, "labels", (uint64_t)o->count * sizeof *list);
    for (int64_t i = 0; i < o->count; i++) {
        char key[32];
        snprintf(key, sizeof key, "%" PRId64, i);
        const char *name = json_string_value(json_object_get(names, key));
        if (!name)
            return AF_OK; /* numbers, then */
        list[i] = af_arena_strdup(mem, name);
        if (!list[i])
            return af_fail_nomem(err, "labels", strlen(name));
    }
    o->name = list;
    o->names = (int)o->count;
    return AF_OK;
}

static af_status check_smoothing(const af_label_opts *o, const af_run_config *r, af_error *err)
{
    char at[300];
    if (o->smoothing == 0 || af_problem_of(o) == AF_PROBLEM_SINGLE)
        return AF_OK;
    return af_fail(err, AF_EUSAGE,
                   "%s: label_smoothing_factor is for texts of one class each, and problem_type is "
                   "%s: leave it out",
                   af_run_key_loc(r, "label_smoothing_factor", at, sizeof at),
                   af_key_choice_name(af_key_find("problem_type"), (int)af_problem_of(o)));
}

af_status af_start_labels(af_label_opts *out, const af_run_config *r, const char *model,
                          af_arena *mem, af_error *err)
{
    enum { USUAL = 2 };
    start s = {0};
    af_status st = AF_OK;
    *out = (af_label_opts){0};
    if (!af_run_scores(r))
        return AF_OK;
    *out = af_run_labels(r);
    if (r->rl == AF_RL_REWARD)
        return AF_OK;
    if (r->lora_model_dir)
        AF_TRY(read_adapter(&s, r->lora_model_dir, err));
    if (!s.labels)
        read_base(&s, model);
    if (!out->count)
        out->count = s.labels ? s.labels : USUAL;
    if (s.labels != out->count) /* another head */
        goto done;
    if (out->problem == AF_PROBLEM_AUTO && out->count > 1)
        out->problem = problem_of(s.json);
    if (!out->names && s.json)
        AF_TRY(take_names(out, s.json, mem, err));
done:
    json_decref(s.json);
    return st == AF_OK ? check_smoothing(out, r, err) : st;
}
