/* run_labels.c - the keys of models that give scores: task_type SEQ_CLS and 'rl: reward'. */
#include "base/buf.h"
#include "model/labels/label_loss.h"
#include "train/run/run_keys.h"

bool af_run_scores(const af_run_config *r)
{
    return r->task == AF_TASK_LABELS || r->rl == AF_RL_REWARD;
}

af_rl af_run_rl(const af_run_config *r)
{
    return r->rl == AF_RL_NONE && r->task == AF_TASK_LABELS ? AF_RL_LABELS : r->rl;
}

af_label_opts af_run_labels(const af_run_config *r)
{
    if (r->rl == AF_RL_REWARD)
        return (af_label_opts){.count = 1, .problem = AF_PROBLEM_REGRESSION};
    return (af_label_opts){.count = r->num_labels ? r->num_labels : r->class_names.count,
                           .problem = r->problem,
                           .name = r->class_names.item,
                           .names = r->class_names.count,
                           .smoothing = r->label_smoothing};
}

const char *af_run_label_text(const af_label_opts *o, af_arena *mem)
{
    af_buf b = {0};
    const char *copy = NULL;
    for (int pass = 0; pass < 2; pass++) {
        af_buf_printf(&b, "%s\"%s\": {", pass ? "}, " : "{", pass ? "label2id" : "id2label");
        for (int64_t i = 0; i < o->count; i++) {
            char usual[40];
            snprintf(usual, sizeof usual, "LABEL_%" PRId64, i);
            const char *name = i < o->names ? o->name[i] : usual;
            if (pass) {
                af_buf_str(&b, i ? ", " : "");
                af_put_quoted(&b, name);
                af_buf_printf(&b, ": %" PRId64, i);
            } else {
                af_buf_printf(&b, "%s\"%" PRId64 "\": ", i ? ", " : "", i);
                af_put_quoted(&b, name);
            }
        }
    }
    af_buf_printf(&b, "}, \"problem_type\": \"%s\"}",
                  af_key_choice_name(af_key_find("problem_type"), (int)af_problem_of(o)));
    if (!b.bad)
        copy = af_arena_strndup(mem, b.data, b.len);
    af_buf_clear(&b);
    return copy;
}

static af_status wrong(const af_run_config *r, const char *key, af_error *err, const char *why)
{
    char at[300];
    return af_fail(err, AF_EUSAGE, "%s: %s", af_run_key_loc(r, key, at, sizeof at), why);
}

static af_status check_names(const af_run_config *r, af_error *err)
{
    const af_strings *n = &r->class_names;
    char at[300];
    if (n->count && r->num_labels && n->count != r->num_labels)
        return af_fail(err, AF_EUSAGE, "%s: class_names has %d names, and num_labels is %" PRId64,
                       af_run_key_loc(r, "class_names", at, sizeof at), n->count, r->num_labels);
    for (int i = 0; i < n->count; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(n->item[i], n->item[k]) == 0)
                return af_fail(err, AF_EUSAGE, "%s: class_names has '%.60s' twice",
                               af_run_key_loc(r, "class_names", at, sizeof at), n->item[i]);
    return AF_OK;
}

af_status af_run_labels_check(const af_run_config *r, af_error *err)
{
    const int64_t count = af_run_labels(r).count;
    const char *teacher = r->kd_logits ? "kd_logits" : r->teacher_model ? "teacher_model" : NULL;
    if (teacher && (af_run_scores(r) || r->rl != AF_RL_NONE))
        return wrong(r, teacher, err,
                     "distillation goes with training on tokens, not with 'rl' or 'task_type: "
                     "SEQ_CLS'");
    if (teacher && r->kd_alpha == 0)
        return wrong(r, "kd_alpha", err, "kd_alpha is 0: the teacher would have no effect");
    if (r->kd_uld && r->kd_logits)
        return wrong(r, "kd_uld", err,
                     "kd_uld needs the teacher itself, and 'kd_logits' is a file");
    if (r->kd_uld && af_run_key_is_set(r, "kd_temperature"))
        return wrong(r, "kd_temperature", err,
                     "with kd_uld the two temperatures are uld_student_temperature and "
                     "uld_teacher_temperature");
    if (r->kd_uld && r->kd_chunk_size)
        return wrong(r, "kd_chunk_size", err,
                     "kd_chunk_size has no effect with kd_uld: its logits pass through the host");
    if (r->kd_uld && !r->uld_hybrid && af_run_key_is_set(r, "kd_beta"))
        return wrong(r, "kd_beta", err,
                     "kd_beta has no effect: only uld_use_hybrid_loss has a divergence");
    if (r->uld_hybrid && (r->uld_matched >= 0) != (r->uld_unmatched >= 0))
        return wrong(
            r, r->uld_matched >= 0 ? "uld_hybrid_matched_weight" : "uld_hybrid_unmatched_weight",
            err, "give both uld_hybrid_matched_weight and uld_hybrid_unmatched_weight");
    if (!af_run_scores(r))
        return AF_OK;
    if (r->task == AF_TASK_LABELS && r->rl != AF_RL_NONE && r->rl != AF_RL_REWARD)
        return wrong(r, "task_type", err,
                     "task_type SEQ_CLS gives scores, and 'rl' compares answers token by token: "
                     "only 'rl: reward' goes with it");
    if (r->problem == AF_PROBLEM_SINGLE && count == 1)
        return wrong(r, "problem_type", err,
                     "single_label_classification needs two labels or more (num_labels is 1)");
    if (r->generate_samples.count)
        return wrong(r, "generate_samples", err,
                     "generate_samples needs a model of tokens, and this run trains scores");
    return check_names(r, err);
}
