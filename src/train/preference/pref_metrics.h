/* pref_metrics.h - what a preference run logs besides its loss, under TRL's names: in training
 * means of the values of its micro-batches since the last log line, in an evaluation (`pooled`)
 * means over all its records, whatever micro-batches they are in. */
#ifndef AF_PREF_METRICS_H
#define AF_PREF_METRICS_H

#include "data/read/data_opts.h"

typedef enum af_pref_metric {
    AF_METRIC_CE, /* distillation; its divergence is AF_METRIC_KL */
    AF_METRIC_ENTROPY,
    AF_METRIC_KL,
    AF_METRIC_LOG_ODDS_CHOSEN,
    AF_METRIC_LOG_ODDS_RATIO,
    AF_METRIC_LOGITS_CHOSEN,
    AF_METRIC_LOGITS_REJECTED,
    AF_METRIC_LOGPS_CHOSEN,
    AF_METRIC_LOGPS_REJECTED,
    AF_METRIC_TOKEN_ACCURACY,
    AF_METRIC_NLL,
    AF_METRIC_ACCURACIES,
    AF_METRIC_CHOSEN,
    AF_METRIC_MARGINS,
    AF_METRIC_REJECTED,
    /* of scores: reward models, labels */
    AF_METRIC_ACCURACY,
    AF_METRIC_F1,
    AF_METRIC_MARGIN,
    AF_METRIC_MAX_REWARD,
    AF_METRIC_MEAN_REWARD,
    AF_METRIC_MIN_REWARD,
    AF_METRIC_MSE,
    AF_PREF_METRICS
} af_pref_metric;

typedef struct af_pref_metrics {
    double sum[AF_PREF_METRICS];
    int64_t
        count[AF_PREF_METRICS]; /* micro-batches that had a value; pooled: what it is a mean of */
    bool pooled;
    int64_t tokens; /* of all sequences since the run began; 0 = not counted */
} af_pref_metrics;

/* Whether evaluations of such runs have it, next to loss and accuracy. */
bool af_pref_metric_of(af_pref_metric m, af_rl rl);
/* "rewards/chosen" */
const char *af_pref_metric_name(af_pref_metric m);
void af_pref_metrics_add(af_pref_metrics *m, af_pref_metric which, double value);
/* A value of a micro-batch that is the mean over `of` pairs, answers or tokens. */
void af_pref_metrics_add_mean(af_pref_metrics *m, af_pref_metric which, double value, int64_t of);
/* The largest (or the smallest) value in a micro-batch; pooled: of all. */
void af_pref_metrics_add_extreme(af_pref_metrics *m, af_pref_metric which, double value, bool most);
/* KTO: the difference of two such means. */
void af_pref_metrics_pool_margins(af_pref_metrics *m);
/* The mean, or NaN when no micro-batch had a value. */
double af_pref_metrics_mean(const af_pref_metrics *m, af_pref_metric which);
/* What a progress line shows, whichever of a run's metrics it is; NaN as above. */
double af_pref_metrics_margin(const af_pref_metrics *m);
double af_pref_metrics_accuracy(const af_pref_metrics *m);
/* Ready for the next log line; the count of tokens stays. */
void af_pref_metrics_reset(af_pref_metrics *m);

/* Names and values in the order they are written. */
typedef struct af_metric_list {
    const char *name[AF_PREF_METRICS + 2]; /* and num_tokens, aux_loss */
    double value[AF_PREF_METRICS + 2];
    int count;
} af_metric_list;
void af_metric_list_add(af_metric_list *l, const char *name, double value);
af_metric_list af_pref_metrics_list(const af_pref_metrics *m);
#endif
