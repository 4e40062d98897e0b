/* pref_loss.h - preference losses and their gradients, on log-probabilities of whole answers.
 *
 * All of it runs on the host in double: the graph gives the log-probability of every answer token,
 * these functions give the loss and its derivative by each answer's sum. Formulas and names are
 * those of TRL 1.16; a is the log-probability minus the reference's, b beta, e label_smoothing. */
#ifndef AF_PREF_LOSS_H
#define AF_PREF_LOSS_H

#include "data/read/data_opts.h"

typedef enum af_pref_type {
    AF_PREF_SIGMOID,
    AF_PREF_HINGE,
    AF_PREF_IPO,
    AF_PREF_ROBUST,
    AF_PREF_EXO_PAIR,
    AF_PREF_NCA_PAIR,
    AF_PREF_BCO_PAIR,
    AF_PREF_SPPO_HARD,
    AF_PREF_AOT,
    AF_PREF_AOT_UNPAIRED,
    AF_PREF_APO_ZERO,
    AF_PREF_APO_DOWN,
    AF_PREF_DISCOPOP,
    AF_PREF_SIGMOID_NORM,
    AF_PREF_CDPO, /* sigmoid with label smoothing: of TRL before 1.0, and of LLaMA-Factory */
    AF_PREF_SFT,
    AF_PREF_DPO_TYPES,
    /* of CPO, besides sigmoid, hinge and ipo */
    AF_PREF_SIMPO = AF_PREF_DPO_TYPES,
    /* of KTO */
    AF_PREF_KTO,
    AF_PREF_APO_ZERO_UNPAIRED,
    AF_PREF_TYPES,
} af_pref_type;

typedef enum af_f_divergence {
    AF_F_REVERSE_KL,
    AF_F_FORWARD_KL,
    AF_F_JS,
    AF_F_ALPHA,
} af_f_divergence;

enum { AF_PREF_LIST_MAX = 16 };

typedef struct af_pref_opts {
    af_rl rl;
    double beta;
    af_pref_type type[AF_PREF_LIST_MAX]; /* DPO: their weighted sum; the others have one */
    double weight[AF_PREF_LIST_MAX];
    int types;
    double smoothing;
    double ld_alpha; /* weight of tokens after the length of the shorter answer; 1 = none */
    af_f_divergence divergence;
    double divergence_coef; /* of AF_F_ALPHA */
    bool weighting;         /* WPO */
    double discopop_tau;
    double simpo_gamma, cpo_alpha, alpha; /* alpha: AlphaPO; 0 = none */
    double desirable_weight, undesirable_weight;
    double center_coef; /* reward */
} af_pref_opts;

/* One answer. logp is the sum over its tokens (ld_alpha applied); for ORPO, and for CPO with ipo or
 * simpo, their mean. */
typedef struct af_pref_answer {
    double logp, ref;
    double tokens; /* of the answer */
    double weight; /* WPO: exp of the mean of logp - log sum p^2; without it 1 */
    double grad;   /* result: d loss / d logp */
    double reward; /* result */
} af_pref_answer;

typedef struct af_pref_pair {
    af_pref_answer chosen, rejected;
    double margin; /* reward */
    int64_t rank;  /* scratch */
} af_pref_pair;

/* Results over a micro-batch, besides the answers' own. */
typedef struct af_pref_result {
    double loss;
    double nll_grad;                        /* d loss / d nll */
    double log_odds_ratio, log_odds_chosen; /* ORPO */
} af_pref_result;

/* `nll`: mean cross-entropy that the loss adds: DPO's sft, ORPO and CPO. */
void af_pref_loss(const af_pref_opts *o, af_pref_pair *p, int64_t n, double nll,
                  af_pref_result *out);

/* KTO: a row with its label, and the KL row that goes with it (logp and ref). */
typedef struct af_kto_row {
    af_pref_answer answer;
    double kl_logp, kl_ref;
    bool desirable;
} af_kto_row;
/* *kl: max(0, mean(kl_logp - kl_ref)). Returns the mean loss. */
double af_kto_loss(const af_pref_opts *o, af_kto_row *r, int64_t n, double *kl);

/* Scores of a reward model: logp of each answer is its score, grad and reward are set. Returns the
 * mean loss. */
double af_reward_loss(const af_pref_opts *o, af_pref_pair *p, int64_t n);

/* "sigmoid", "hinge", ...; NULL beyond the last. */
const char *af_pref_type_name(af_pref_type t);
/* Whether the loss adds a cross-entropy of its own. */
bool af_pref_has_nll(const af_pref_opts *o);
/* Whether logp is the mean over tokens, not the sum. */
bool af_pref_takes_means(const af_pref_opts *o);
/* Whether the loss compares with a reference. */
bool af_pref_has_reference(af_rl rl);
#endif
