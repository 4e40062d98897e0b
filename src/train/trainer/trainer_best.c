/* trainer_best.c - which evaluation of a run is the best one, and its checkpoint. */
#include "train/checkpoint/best_checkpoint.h"
#include "train/step/ranks.h"
#include "train/trainer/trainer.h"

#include <math.h>

af_status af_trainer_best_metric(const af_run_config *run, double loss, double accuracy,
                                 const af_pref_metrics *metrics, double *value, af_error *err)
{
    const char *name = af_run_progress_metric(run);
    const bool tokens = !af_run_compares(run) && !af_run_scores(run);
    const char *const own[] = {"loss", "accuracy", "mean_token_accuracy"}; /* the last is TRL's */
    const double values[] = {loss, accuracy, tokens ? accuracy : NAN};
    const af_metric_list more = af_pref_metrics_list(metrics);
    char known[400] = "", at[300];
    *value = NAN;
    for (int i = 0; i < (int)AF_LEN(own) + more.count; i++) {
        const int k = i - (int)AF_LEN(own);
        const double v = k < 0 ? values[i] : more.value[k];
        const char *is = k < 0 ? own[i] : more.name[k];
        const size_t n = strlen(known);
        if (!isnan(v) && strcmp(name, is) == 0)
            *value = v;
        if (!isnan(v))
            snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", is);
    }
    return isnan(*value)
               ? af_fail(err, AF_EUSAGE,
                         "%s: metric_for_best_model is '%.60s', but evaluations of this "
                         "run have %s",
                         af_run_key_loc(run, "metric_for_best_model", at, sizeof at), name, known)
               : AF_OK;
}

af_status af_trainer_check_best_metric(const af_run_config *run, const af_run_model *model,
                                       af_error *err)
{
    af_pref_metrics all = {0};
    double any;
    if (run->val_set_size <= 0 && !run->test_datasets)
        return AF_OK;
    for (int i = 0; i < AF_PREF_METRICS; i++)
        all.count[i] = af_pref_metric_of((af_pref_metric)i, af_run_rl(run));
    const bool numbers = af_run_rl(run) == AF_RL_LABELS &&
                         af_problem_of(&model->label_opts) == AF_PROBLEM_REGRESSION;
    all.count[numbers ? AF_METRIC_F1 : AF_METRIC_MSE] = 0;
    /* rows of KTO are not compared, and numbers are not right or wrong */
    const double accuracy = run->rl == AF_RL_KTO || numbers ? NAN : 0;
    return af_trainer_best_metric(run, 0, accuracy, &all, &any, err);
}

af_status af_trainer_find_best(af_trainer *t, char **best, const char *checkpoint, af_error *err)
{
    af_run_progress *p = &t->progress;
    af_error why = {0};
    bool lost = false;
    if (!t->run->load_best || p->best_step <= 0)
        return AF_OK;
    af_status st = AF_OK;
    if (af_trainer_writes(t)) {
        st = af_best_checkpoint_find(best, p, checkpoint, &why, err);
        lost = !*best;
    }
    if (st == AF_OK)
        st = af_ranks_any(t->comm, &lost, err);
    if (st != AF_OK || !lost)
        return st;
    af_run_warn(t->hooks,
                "the best evaluation so far, of step %" PRId64
                ", does not count any more, as its checkpoint is not there: %s",
                p->best_step, why.msg);
    p->best_eval = NAN;
    p->best_step = 0;
    return AF_OK;
}
