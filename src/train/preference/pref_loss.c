/* pref_loss.c - see pref_loss.h. */
#include "train/preference/pref_loss.h"

#include <math.h>

static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static double log_sigmoid(double x) { return x >= 0 ? -log1p(exp(-x)) : x - log1p(exp(x)); }

/* A loss by one number: its value and its derivative. */
typedef struct slope {
    double value, by;
} slope;

/* -(1-e) ls(x) - e ls(-x) */
static slope smoothed(double x, double e)
{
    return (slope){-(1 - e) * log_sigmoid(x) - e * log_sigmoid(-x),
                   -(1 - e) * sigmoid(-x) + e * sigmoid(x)};
}

static slope hinge(double x) { return (slope){x < 1 ? 1 - x : 0, x < 1 ? -1 : 0}; }

static slope squared(double x) { return (slope){x * x, 2 * x}; }

/* [-(1-e) ls(x) + e ls(-x)] / (1-2e) */
static slope robust(double x, double e)
{
    const double over = 1 - 2 * e;
    return (slope){(-(1 - e) * log_sigmoid(x) + e * log_sigmoid(-x)) / over,
                   (-(1 - e) * sigmoid(-x) - e * sigmoid(x)) / over};
}

/* s(x) (ls(x) - log(1-e)) + s(-x) (ls(-x) - log e) */
static slope exo(double x, double e)
{
    const double p = sigmoid(x), q = sigmoid(-x);
    return (slope){p * (log_sigmoid(x) - log1p(-e)) + q * (log_sigmoid(-x) - log(e)),
                   p * q * (x - log1p(-e) + log(e))};
}

/* -ls(x) (1-m) + exp(-x) m, m = s(x / tau); the product is formed in the exponent, so that it
 * stays finite where exp(-x) alone would not. */
static slope discopop(double x, double tau)
{
    const double y = x / tau, m = sigmoid(y), rest = sigmoid(-y), by_m = m * rest / tau;
    const double part = exp(-x + log_sigmoid(y));
    return (slope){-log_sigmoid(x) * rest + part,
                   -sigmoid(-x) * rest + log_sigmoid(x) * by_m - part + part * rest / tau};
}

/* f'(ratio) of a divergence, and its derivative by the log ratio. */
static slope score(const af_pref_opts *o, double a)
{
    const double k = o->divergence_coef - 1, cut = 80;
    switch (o->divergence) {
    case AF_F_FORWARD_KL:
        return (slope){1 - exp(-a), exp(-a)};
    case AF_F_JS:
        return (slope){log(2) + log_sigmoid(a), sigmoid(-a)};
    case AF_F_ALPHA:
        if (fabs(k) < 1e-6)
            break;
        return (slope){(exp(fmin(k * a, cut)) - 1) / k, k * a > cut ? 0 : exp(k * a)};
    case AF_F_REVERSE_KL:
        break;
    }
    return (slope){a, 1};
}

/* The losses of the difference of two scores, at x = beta times it (ipo: the difference). */
static slope by_difference(const af_pref_opts *o, af_pref_type type, double d)
{
    const double b = o->beta;
    slope s;
    switch (type) {
    case AF_PREF_HINGE:
        s = hinge(b * d);
        break;
    case AF_PREF_IPO:
        return squared(d - 1 / (2 * b));
    case AF_PREF_ROBUST:
        s = robust(b * d, o->smoothing);
        break;
    case AF_PREF_CDPO:
        s = smoothed(b * d, o->smoothing);
        break;
    case AF_PREF_EXO_PAIR:
        s = exo(b * d, o->smoothing);
        break;
    case AF_PREF_DISCOPOP:
        s = discopop(b * d, o->discopop_tau);
        break;
    default: /* sigmoid and sigmoid_norm, which have no smoothing */
        s = smoothed(b * d, 0);
    }
    return (slope){s.value, b * s.by};
}

/* ---- DPO ---- */

typedef struct pair_loss {
    double value, by_chosen, by_rejected; /* by the log ratios */
} pair_loss;

static pair_loss of_scores(const af_pref_opts *o, af_pref_type type, const af_pref_pair *p)
{
    const bool mean = type == AF_PREF_IPO || type == AF_PREF_SIGMOID_NORM;
    const double nc = mean ? fmax(p->chosen.tokens, 1) : 1,
                 nr = mean ? fmax(p->rejected.tokens, 1) : 1;
    const slope c = score(o, p->chosen.logp - p->chosen.ref),
                r = score(o, p->rejected.logp - p->rejected.ref),
                s = by_difference(o, type, c.value / nc - r.value / nr);
    return (pair_loss){s.value, s.by * c.by / nc, -s.by * r.by / nr};
}

/* The losses that look at both ratios apart. */
static pair_loss of_ratios(const af_pref_opts *o, af_pref_type type, const af_pref_pair *p)
{
    const double b = o->beta, a_c = p->chosen.logp - p->chosen.ref,
                 a_r = p->rejected.logp - p->rejected.ref;
    const double x = b * a_c, y = b * a_r, s_x = sigmoid(x), s_y = sigmoid(y), d = x - y;
    const double half = 0.5 / b;
    switch (type) {
    case AF_PREF_NCA_PAIR:
        return (pair_loss){-log_sigmoid(x) - 0.5 * log_sigmoid(-x) - 0.5 * log_sigmoid(-y),
                           b * (-sigmoid(-x) + 0.5 * s_x), b * 0.5 * s_y};
    case AF_PREF_BCO_PAIR:
        return (pair_loss){-log_sigmoid(x) - log_sigmoid(-y), -b * sigmoid(-x), b * s_y};
    case AF_PREF_SPPO_HARD:
        return (pair_loss){(a_c - half) * (a_c - half) + (a_r + half) * (a_r + half),
                           2 * (a_c - half), 2 * (a_r + half)};
    case AF_PREF_APO_ZERO:
        return (pair_loss){sigmoid(-x) + s_y, -b * s_x * sigmoid(-x), b * s_y * sigmoid(-y)};
    default: { /* apo_down */
        const double bend = sigmoid(d) * sigmoid(-d);
        return (pair_loss){s_x + sigmoid(-d), b * (s_x * sigmoid(-x) - bend), b * bend};
    }
    }
}

/* Whether a comes before b in the order of values; of equal ones, and of what is not a number, the
 * first pair does. */
static bool is_before(double a, int64_t pair_a, double b, int64_t pair_b)
{
    return a < b || (!(b < a) && pair_a < pair_b);
}

/* The rank of pair k by a value of pairs: by counting, which needs no memory. */
static int64_t rank_of(const af_pref_pair *p, int64_t n, int64_t k,
                       double (*of)(const af_pref_pair *p))
{
    const double mine = of(&p[k]);
    int64_t rank = 0;
    for (int64_t i = 0; i < n; i++)
        rank += i != k && is_before(of(&p[i]), i, mine, k);
    return rank;
}

static double policy_gap(const af_pref_pair *p) { return p->chosen.logp - p->rejected.logp; }
static double reference_gap(const af_pref_pair *p) { return p->chosen.ref - p->rejected.ref; }
static double chosen_ratio(const af_pref_pair *p) { return p->chosen.logp - p->chosen.ref; }
static double rejected_ratio(const af_pref_pair *p) { return p->rejected.logp - p->rejected.ref; }

static double pair_weight(const af_pref_opts *o, const af_pref_pair *p)
{
    return o->weighting ? p->chosen.weight * p->rejected.weight : 1;
}

/* Optimal transport: values in sorted order are compared, not those of a pair. */
static double add_sorted(const af_pref_opts *o, bool unpaired, af_pref_pair *p, int64_t n,
                         double share)
{
    double (*const x_of)(const af_pref_pair *) = unpaired ? chosen_ratio : policy_gap;
    double (*const y_of)(const af_pref_pair *) = unpaired ? rejected_ratio : reference_gap;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        p[i].rank = rank_of(p, n, i, y_of);
    for (int64_t i = 0; i < n; i++) {
        const int64_t rank = rank_of(p, n, i, x_of);
        int64_t k = 0; /* the pair of this rank by the other value */
        while (k < n - 1 && p[k].rank != rank)
            k++;
        const slope s = smoothed(o->beta * (x_of(&p[i]) - y_of(&p[k])), o->smoothing);
        const double w = share * pair_weight(o, &p[rank]), by = w * o->beta * s.by;
        sum += w * s.value;
        p[i].chosen.grad += by;
        p[unpaired ? k : i].rejected.grad -= by;
    }
    return sum;
}

static double add_pairs(const af_pref_opts *o, af_pref_type type, af_pref_pair *p, int64_t n,
                        double share)
{
    const bool ratios = type == AF_PREF_NCA_PAIR || type == AF_PREF_BCO_PAIR ||
                        type == AF_PREF_SPPO_HARD || type == AF_PREF_APO_ZERO ||
                        type == AF_PREF_APO_DOWN;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const pair_loss l = ratios ? of_ratios(o, type, &p[i]) : of_scores(o, type, &p[i]);
        const double w = share * pair_weight(o, &p[i]);
        sum += w * l.value;
        p[i].chosen.grad += w * l.by_chosen;
        p[i].rejected.grad += w * l.by_rejected;
    }
    return sum;
}

static void dpo_loss(const af_pref_opts *o, af_pref_pair *p, int64_t n, double nll,
                     af_pref_result *out)
{
    for (int k = 0; k < o->types; k++) {
        const af_pref_type type = o->type[k];
        const double share = o->weight[k] / (double)n;
        if (type == AF_PREF_SFT) {
            out->loss += o->weight[k] * nll;
            out->nll_grad += o->weight[k];
        } else if (type == AF_PREF_AOT || type == AF_PREF_AOT_UNPAIRED) {
            out->loss += add_sorted(o, type == AF_PREF_AOT_UNPAIRED, p, n, share);
        } else {
            out->loss += add_pairs(o, type, p, n, share);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        p[i].chosen.reward = o->beta * chosen_ratio(&p[i]);
        p[i].rejected.reward = o->beta * rejected_ratio(&p[i]);
    }
}

/* ---- without a reference ---- */

/* log(1 - exp l), and 1 / (1 - exp l). */
static slope log_rest(double l)
{
    const double rest = -expm1(l);
    return (slope){log(rest), 1 / rest};
}

static void orpo_loss(const af_pref_opts *o, af_pref_pair *p, int64_t n, double nll,
                      af_pref_result *out)
{
    const double share = 1 / (double)n;
    out->loss = nll;
    out->nll_grad = 1;
    for (int64_t i = 0; i < n; i++) {
        af_pref_answer *c = &p[i].chosen, *r = &p[i].rejected;
        const slope rest_c = log_rest(c->logp), rest_r = log_rest(r->logp);
        const double odds = c->logp - r->logp - (rest_c.value - rest_r.value);
        const double by = -o->beta * share * sigmoid(-odds);
        out->loss -= o->beta * share * log_sigmoid(odds);
        out->log_odds_ratio += share * log_sigmoid(odds);
        out->log_odds_chosen += share * odds;
        c->grad = by * rest_c.by;
        r->grad = -by * rest_r.by;
        c->reward = o->beta * c->logp;
        r->reward = o->beta * r->logp;
    }
}

/* AlphaPO: (1 - exp(-alpha l)) / alpha. */
static slope alpha_score(double l, double alpha)
{
    return alpha != 0 ? (slope){-expm1(-alpha * l) / alpha, exp(-alpha * l)} : (slope){l, 1};
}

static void cpo_loss(const af_pref_opts *o, af_pref_pair *p, int64_t n, double nll,
                     af_pref_result *out)
{
    const af_pref_type type = o->type[0];
    const double share = 1 / (double)n, b = o->beta;
    out->loss = o->cpo_alpha != 0 ? o->cpo_alpha * nll : 0;
    out->nll_grad = o->cpo_alpha;
    for (int64_t i = 0; i < n; i++) {
        af_pref_answer *c = &p[i].chosen, *r = &p[i].rejected;
        const slope of_c = alpha_score(c->logp, o->alpha), of_r = alpha_score(r->logp, o->alpha);
        const double d = of_c.value - of_r.value - (type == AF_PREF_SIMPO ? o->simpo_gamma / b : 0);
        slope s = smoothed(b * d, o->smoothing);
        if (type == AF_PREF_HINGE || type == AF_PREF_IPO)
            s = by_difference(o, type, d);
        else
            s.by *= b;
        out->loss += share * s.value;
        c->grad = share * s.by * of_c.by;
        r->grad = -share * s.by * of_r.by;
        c->reward = b * of_c.value;
        r->reward = b * of_r.value;
    }
}

void af_pref_loss(const af_pref_opts *o, af_pref_pair *p, int64_t n, double nll,
                  af_pref_result *out)
{
    *out = (af_pref_result){0};
    for (int64_t i = 0; i < n; i++)
        p[i].chosen.grad = p[i].rejected.grad = 0;
    if (o->rl == AF_RL_ORPO)
        orpo_loss(o, p, n, nll, out);
    else if (o->rl == AF_RL_CPO || o->rl == AF_RL_SIMPO)
        cpo_loss(o, p, n, nll, out);
    else
        dpo_loss(o, p, n, nll, out);
}

double af_kto_loss(const af_pref_opts *o, af_kto_row *r, int64_t n, double *kl)
{
    const bool has_kl = o->type[0] != AF_PREF_APO_ZERO_UNPAIRED;
    double mean = 0, loss = 0;
    for (int64_t i = 0; i < n && has_kl; i++)
        mean += (r[i].kl_logp - r[i].kl_ref) / (double)n;
    *kl = fmax(mean, 0);
    for (int64_t i = 0; i < n; i++) {
        af_pref_answer *a = &r[i].answer;
        const double sign = r[i].desirable ? 1 : -1,
                     w = (r[i].desirable ? o->desirable_weight : o->undesirable_weight) / (double)n;
        const double x = sign * o->beta * (a->logp - a->ref - *kl);
        loss += w * sigmoid(-x);
        a->grad = -w * sign * o->beta * sigmoid(x) * sigmoid(-x);
        a->reward = o->beta * (a->logp - a->ref);
    }
    return loss;
}

double af_reward_loss(const af_pref_opts *o, af_pref_pair *p, int64_t n)
{
    const double share = 1 / (double)n;
    double loss = 0;
    for (int64_t i = 0; i < n; i++) {
        af_pref_answer *c = &p[i].chosen, *r = &p[i].rejected;
        const slope s = smoothed(c->logp - r->logp - p[i].margin, 0);
        const slope even = squared(c->logp + r->logp);
        loss += share * (s.value + o->center_coef * even.value);
        c->grad = share * (s.by + o->center_coef * even.by);
        r->grad = share * (-s.by + o->center_coef * even.by);
        c->reward = c->logp;
        r->reward = r->logp;
    }
    return loss;
}

/* ---- about the losses ---- */

const char *af_pref_type_name(af_pref_type t)
{
    static const char *const name[] = {
        [AF_PREF_SIGMOID] = "sigmoid",
        [AF_PREF_HINGE] = "hinge",
        [AF_PREF_IPO] = "ipo",
        [AF_PREF_ROBUST] = "robust",
        [AF_PREF_EXO_PAIR] = "exo_pair",
        [AF_PREF_NCA_PAIR] = "nca_pair",
        [AF_PREF_BCO_PAIR] = "bco_pair",
        [AF_PREF_SPPO_HARD] = "sppo_hard",
        [AF_PREF_AOT] = "aot",
        [AF_PREF_AOT_UNPAIRED] = "aot_unpaired",
        [AF_PREF_APO_ZERO] = "apo_zero",
        [AF_PREF_APO_DOWN] = "apo_down",
        [AF_PREF_DISCOPOP] = "discopop",
        [AF_PREF_SIGMOID_NORM] = "sigmoid_norm",
        [AF_PREF_CDPO] = "cdpo",
        [AF_PREF_SFT] = "sft",
        [AF_PREF_SIMPO] = "simpo",
        [AF_PREF_KTO] = "kto",
        [AF_PREF_APO_ZERO_UNPAIRED] = "apo_zero_unpaired",
    };
    return t < AF_PREF_TYPES ? name[t] : NULL;
}

bool af_pref_has_nll(const af_pref_opts *o)
{
    if (o->rl == AF_RL_ORPO)
        return true;
    if (o->rl == AF_RL_CPO || o->rl == AF_RL_SIMPO)
        return o->cpo_alpha != 0;
    for (int k = 0; k < o->types; k++)
        if (o->type[k] == AF_PREF_SFT)
            return true;
    return false;
}

bool af_pref_takes_means(const af_pref_opts *o)
{
    if (o->rl == AF_RL_ORPO)
        return true;
    return (o->rl == AF_RL_CPO || o->rl == AF_RL_SIMPO) &&
           (o->type[0] == AF_PREF_IPO || o->type[0] == AF_PREF_SIMPO);
}

bool af_pref_has_reference(af_rl rl)
{
    return rl == AF_RL_DPO || rl == AF_RL_IPO || rl == AF_RL_KTO;
}
