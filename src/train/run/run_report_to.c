/* run_report_to.c - the names of report_to. */
#include "train/run/run_keys.h"

#include <strings.h>

enum { IDLE = -1 };

/* 0: always so, or nothing to do. */
static const af_key_choice names[] = {
    {"tensorboard", 0},
    {"none", 0},
    {"false", 0},
    {"no", 0},
    {"all", AF_TRACKER_MLFLOW | AF_TRACKER_WANDB | AF_TRACKER_TRACKIO},
    {"mlflow", AF_TRACKER_MLFLOW},
    {"wandb", AF_TRACKER_WANDB},
    {"trackio", AF_TRACKER_TRACKIO},
    {"azure_ml", IDLE},
    {"clearml", IDLE},
    {"codecarbon", IDLE},
    {"comet_ml", IDLE},
    {"dagshub", IDLE},
    {"dvclive", IDLE},
    {"flyte", IDLE},
    {"kubeflow", IDLE},
    {"neptune", IDLE},
    {"swanlab", IDLE},
    {0}};

af_status af_run_report_to(af_run_config *r, af_error *err)
{
    char at[300];
    r->trackers = 0;
    for (int i = 0; i < r->report_to.count; i++) {
        const char *name = r->report_to.item[i];
        const af_key_choice *c = names;
        while (c->name && strcasecmp(c->name, name) != 0)
            c++;
        if (!c->name)
            return af_fail(err, AF_EUSAGE,
                           "%s: report_to '%s' is not known; it is mlflow, wandb, trackio, "
                           "tensorboard, none or all",
                           af_run_key_loc(r, "report_to", at, sizeof at), name);
        if (c->value != IDLE) {
            r->trackers |= (unsigned)c->value;
            continue;
        }
        const af_status st =
            af_run_idle_key(r, "report_to",
                            "metrics go to metrics.jsonl, TensorBoard events, "
                            "report.html, and to mlflow, wandb and trackio when asked",
                            err);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}
