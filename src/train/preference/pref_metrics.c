/* pref_metrics.c - see pref_metrics.h. */
#include "train/preference/pref_metrics.h"

#include <math.h>

bool af_pref_metric_of(af_pref_metric m, af_rl rl)
{
    const bool pairs = rl == AF_RL_DPO || rl == AF_RL_IPO,
               free_of_reference = rl == AF_RL_ORPO || rl == AF_RL_CPO || rl == AF_RL_SIMPO;
    switch (m) {
    case AF_METRIC_KL:
        return rl == AF_RL_KTO;
    case AF_METRIC_LOG_ODDS_CHOSEN:
    case AF_METRIC_LOG_ODDS_RATIO:
        return rl == AF_RL_ORPO;
    case AF_METRIC_NLL:
        return free_of_reference;
    case AF_METRIC_ENTROPY:
        return pairs || rl == AF_RL_KTO;
    case AF_METRIC_TOKEN_ACCURACY:
        return pairs;
    case AF_METRIC_ACCURACIES:
        return pairs || free_of_reference;
    case AF_METRIC_LOGITS_CHOSEN:
    case AF_METRIC_LOGITS_REJECTED:
    case AF_METRIC_LOGPS_CHOSEN:
    case AF_METRIC_LOGPS_REJECTED:
    case AF_METRIC_CHOSEN:
    case AF_METRIC_MARGINS:
    case AF_METRIC_REJECTED:
        return pairs || free_of_reference || rl == AF_RL_KTO;
    case AF_METRIC_MARGIN:
    case AF_METRIC_MAX_REWARD:
    case AF_METRIC_MEAN_REWARD:
    case AF_METRIC_MIN_REWARD:
        return rl == AF_RL_REWARD;
    case AF_METRIC_F1:
    case AF_METRIC_MSE:
        return rl == AF_RL_LABELS;
    default: /* of distillation, while it trains; accuracy */
        return false;
    }
}

const char *af_pref_metric_name(af_pref_metric m)
{
    static const char *const name[] = {
        [AF_METRIC_CE] = "ce",
        [AF_METRIC_ENTROPY] = "entropy",
        [AF_METRIC_KL] = "kl",
        [AF_METRIC_LOG_ODDS_CHOSEN] = "log_odds_chosen",
        [AF_METRIC_LOG_ODDS_RATIO] = "log_odds_ratio",
        [AF_METRIC_LOGITS_CHOSEN] = "logits/chosen",
        [AF_METRIC_LOGITS_REJECTED] = "logits/rejected",
        [AF_METRIC_LOGPS_CHOSEN] = "logps/chosen",
        [AF_METRIC_LOGPS_REJECTED] = "logps/rejected",
        [AF_METRIC_TOKEN_ACCURACY] = "mean_token_accuracy",
        [AF_METRIC_NLL] = "nll_loss",
        [AF_METRIC_ACCURACIES] = "rewards/accuracies",
        [AF_METRIC_CHOSEN] = "rewards/chosen",
        [AF_METRIC_MARGINS] = "rewards/margins",
        [AF_METRIC_REJECTED] = "rewards/rejected",
        [AF_METRIC_ACCURACY] = "accuracy",
        [AF_METRIC_F1] = "f1",
        [AF_METRIC_MARGIN] = "margin",
        [AF_METRIC_MAX_REWARD] = "max_reward",
        [AF_METRIC_MEAN_REWARD] = "mean_reward",
        [AF_METRIC_MIN_REWARD] = "min_reward",
        [AF_METRIC_MSE] = "mse",
    };
    return name[m];
}

void af_pref_metrics_add_mean(af_pref_metrics *m, af_pref_metric which, double value, int64_t of)
{
    const int64_t weight = m->pooled ? of : 1;
    m->sum[which] += (double)weight * value;
    m->count[which] += weight;
}

void af_pref_metrics_add(af_pref_metrics *m, af_pref_metric which, double value)
{
    af_pref_metrics_add_mean(m, which, value, 1);
}

void af_pref_metrics_add_extreme(af_pref_metrics *m, af_pref_metric which, double value, bool most)
{
    const bool first = !m->count[which],
               beats = most ? value > m->sum[which] : value < m->sum[which];
    if (!m->pooled)
        af_pref_metrics_add(m, which, value);
    else if (first || beats)
        m->sum[which] = value;
    if (m->pooled)
        m->count[which] = 1;
}

void af_pref_metrics_pool_margins(af_pref_metrics *m)
{
    const bool both = m->count[AF_METRIC_CHOSEN] && m->count[AF_METRIC_REJECTED];
    m->count[AF_METRIC_MARGINS] = both;
    m->sum[AF_METRIC_MARGINS] = both ? af_pref_metrics_mean(m, AF_METRIC_CHOSEN) -
                                           af_pref_metrics_mean(m, AF_METRIC_REJECTED)
                                     : 0;
}

double af_pref_metrics_mean(const af_pref_metrics *m, af_pref_metric which)
{
    return m->count[which] ? m->sum[which] / (double)m->count[which] : NAN;
}

static double either(const af_pref_metrics *m, af_pref_metric a, af_pref_metric b)
{
    return af_pref_metrics_mean(m, m->count[a] ? a : b);
}

double af_pref_metrics_margin(const af_pref_metrics *m)
{
    return either(m, AF_METRIC_MARGINS, AF_METRIC_MARGIN);
}

double af_pref_metrics_accuracy(const af_pref_metrics *m)
{
    return either(m, AF_METRIC_ACCURACIES, AF_METRIC_ACCURACY);
}

void af_pref_metrics_reset(af_pref_metrics *m)
{
    *m = (af_pref_metrics){.tokens = m->tokens, .pooled = m->pooled};
}

void af_metric_list_add(af_metric_list *l, const char *name, double value)
{
    l->name[l->count] = name;
    l->value[l->count++] = value;
}

af_metric_list af_pref_metrics_list(const af_pref_metrics *m)
{
    af_metric_list l = {0};
    for (int i = 0; i < AF_PREF_METRICS; i++)
        if (m->count[i])
            af_metric_list_add(&l, af_pref_metric_name((af_pref_metric)i),
                               af_pref_metrics_mean(m, (af_pref_metric)i));
    if (m->tokens)
        af_metric_list_add(&l, "num_tokens", (double)m->tokens);
    return l;
}
