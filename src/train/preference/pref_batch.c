/* pref_batch.c - see pref_batch.h. */
#include "train/preference/pref_batch.h"
#include "afinar/graph.h"

#include <math.h>
#include <stdlib.h>

enum { ROW_LOSS, ROW_HIT, ROW_ENTROPY, ROW_LOGIT, ROW_SQUARES };

static af_answer_sums answer_sums(const af_answer_rows *a, int64_t shared, const float *rows)
{
    af_answer_sums s = {.terms = a->terms, .tokens = a->tokens, .prompt = a->prompt};
    for (int64_t i = 0; i < a->terms; i++) {
        const float *row = rows + (a->from + i) * AF_HEAD_STATS;
        const double logp = -(double)row[ROW_LOSS];
        *(i < shared ? &s.shared : &s.tail) += logp;
        s.hits += (double)row[ROW_HIT];
        s.entropy += (double)row[ROW_ENTROPY];
        s.logits += (double)row[ROW_LOGIT];
        s.spread += logp - (double)row[ROW_SQUARES];
    }
    return s;
}

af_pair_sums af_pair_sums_of(const af_pair_rows *p, const float *rows)
{
    const int64_t shared = AF_MIN(p->first.terms, p->second.terms);
    af_pair_sums s = {.record = p->record,
                      .first = answer_sums(&p->first, shared, rows),
                      .second = answer_sums(&p->second, shared, rows),
                      .prompt_terms = p->prompt_terms,
                      .label = p->label};
    for (int64_t i = 0; i < p->prompt_terms; i++)
        s.prompt_nll += (double)rows[(p->prompt_from + i) * AF_HEAD_STATS];
    return s;
}

af_pair_reference af_pair_reference_of(const af_pair_sums *s)
{
    return (af_pair_reference){s->first.shared, s->first.tail, s->second.shared, s->second.tail};
}

af_status af_pref_scratch_init(af_pref_scratch *s, int64_t room, af_error *err)
{
    *s = (af_pref_scratch){.pair = af_calloc((uint64_t)room, sizeof *s->pair),
                           .kto = af_calloc((uint64_t)room, sizeof *s->kto),
                           .room = room};
    return s->pair && s->kto ? AF_OK : af_fail_nomem(err, "pairs", (uint64_t)room * 256);
}

void af_pref_scratch_clear(af_pref_scratch *s)
{
    free(s->pair);
    free(s->kto);
    *s = (af_pref_scratch){0};
}

/* ---- the loss ---- */

static af_pref_answer answer_of(const af_pref_opts *o, const af_answer_sums *s, double ref,
                                double ref_tail)
{
    const double terms = (double)AF_MAX(s->terms, INT64_C(1)),
                 over = af_pref_takes_means(o) ? terms : 1;
    return (af_pref_answer){.logp = (s->shared + o->ld_alpha * s->tail) / over,
                            .ref = ref + o->ld_alpha * ref_tail,
                            .tokens = (double)s->tokens,
                            .weight = o->weighting ? exp(s->spread / terms) : 1};
}

/* Cross-entropy and rows of what the loss adds it of: chosen answers, in ORPO with their prompts.
 */
static double add_nll(const af_pref_opts *o, const af_pair_sums *s, int64_t n, double *rows)
{
    double sum = 0;
    *rows = 0;
    for (int64_t i = 0; i < n; i++) {
        sum -= s[i].first.shared + s[i].first.tail;
        *rows += (double)s[i].first.terms;
        if (o->rl == AF_RL_ORPO) {
            sum += s[i].prompt_nll;
            *rows += (double)s[i].prompt_terms;
        }
    }
    *rows = fmax(*rows, 1);
    return sum / *rows;
}

static void add_by_term(af_pref_metrics *m, af_pref_metric which, const af_pair_sums *s, int64_t n,
                        bool first, bool second, size_t offset)
{
    double sum = 0;
    int64_t terms = 0;
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < 2; k++) {
            const af_answer_sums *a = k ? &s[i].second : &s[i].first;
            if (!(k ? second : first))
                continue;
            sum += *(const double *)((const char *)a + offset);
            terms += a->terms;
        }
    af_pref_metrics_add_mean(m, which, terms > 0 ? sum / (double)terms : 0, terms);
}

static void add_pair_metrics(const af_pref_opts *o, const af_pref_pair *p, const af_pair_sums *s,
                             int64_t n, af_pref_metrics *m)
{
    double chosen = 0, rejected = 0, hits = 0, logp_c = 0, logp_r = 0;
    for (int64_t i = 0; i < n; i++) {
        chosen += p[i].chosen.reward / (double)n;
        rejected += p[i].rejected.reward / (double)n;
        hits += (double)(p[i].chosen.reward > p[i].rejected.reward) / (double)n;
        logp_c += p[i].chosen.logp / (double)n;
        logp_r += p[i].rejected.logp / (double)n;
    }
    af_pref_metrics_add_mean(m, AF_METRIC_CHOSEN, chosen, n);
    af_pref_metrics_add_mean(m, AF_METRIC_REJECTED, rejected, n);
    af_pref_metrics_add_mean(m, AF_METRIC_MARGINS, chosen - rejected, n);
    af_pref_metrics_add_mean(m, AF_METRIC_ACCURACIES, hits, n);
    af_pref_metrics_add_mean(m, AF_METRIC_LOGPS_CHOSEN, logp_c, n);
    af_pref_metrics_add_mean(m, AF_METRIC_LOGPS_REJECTED, logp_r, n);
    const size_t logits = offsetof(af_answer_sums, logits);
    add_by_term(m, AF_METRIC_LOGITS_CHOSEN, s, n, true, false, logits);
    add_by_term(m, AF_METRIC_LOGITS_REJECTED, s, n, false, true, logits);
    if (!af_pref_has_reference(o->rl))
        return;
    add_by_term(m, AF_METRIC_ENTROPY, s, n, true, true, offsetof(af_answer_sums, entropy));
    add_by_term(m, AF_METRIC_TOKEN_ACCURACY, s, n, true, false, offsetof(af_answer_sums, hits));
    for (int64_t i = 0; i < n; i++)
        m->tokens +=
            s[i].first.prompt + s[i].first.tokens + s[i].second.prompt + s[i].second.tokens;
}

/* d loss / d log-probability of a token of this answer. */
static double per_token(const af_pref_opts *o, const af_pref_answer *a, const af_answer_sums *s)
{
    return af_pref_takes_means(o) ? a->grad / (double)AF_MAX(s->terms, INT64_C(1)) : a->grad;
}

static double pair_loss(const af_pref_opts *o, af_pref_scratch *scratch, const af_pair_sums *s,
                        const af_pair_reference *ref, int64_t n, af_pair_grads *grads,
                        af_pref_metrics *m)
{
    af_pref_pair *p = scratch->pair;
    af_pref_result r;
    double rows;
    const bool has_nll = af_pref_has_nll(o);
    for (int64_t i = 0; i < n; i++) {
        const af_pair_reference f = ref ? ref[i] : (af_pair_reference){0};
        p[i] = (af_pref_pair){.chosen = answer_of(o, &s[i].first, f.first, f.first_tail),
                              .rejected = answer_of(o, &s[i].second, f.second, f.second_tail)};
    }
    const double nll = add_nll(o, s, n, &rows);
    af_pref_loss(o, p, n, has_nll ? nll : 0, &r);
    for (int64_t i = 0; grads && i < n; i++) {
        const double c = per_token(o, &p[i].chosen, &s[i].first),
                     d = per_token(o, &p[i].rejected, &s[i].second);
        const double by_nll = has_nll ? r.nll_grad / rows : 0;
        grads[i] = (af_pair_grads){.first = c,
                                   .first_tail = c * o->ld_alpha,
                                   .second = d,
                                   .second_tail = d * o->ld_alpha,
                                   .nll_first = by_nll,
                                   .nll_prompt = o->rl == AF_RL_ORPO ? by_nll : 0};
    }
    add_pair_metrics(o, p, s, n, m);
    if (o->rl == AF_RL_ORPO) {
        af_pref_metrics_add_mean(m, AF_METRIC_LOG_ODDS_RATIO, r.log_odds_ratio, n);
        af_pref_metrics_add_mean(m, AF_METRIC_LOG_ODDS_CHOSEN, r.log_odds_chosen, n);
    }
    if (!af_pref_has_reference(o->rl))
        af_pref_metrics_add_mean(m, AF_METRIC_NLL, has_nll ? nll : 0, (int64_t)rows);
    return r.loss;
}

/* ---- KTO ---- */

/* Means over the rows of one class; a class without rows has no values. */
static bool add_class(const af_kto_row *r, const af_pair_sums *s, int64_t n, bool desirable,
                      af_pref_metrics *m, double *reward)
{
    double logp = 0, logits = 0;
    int64_t terms = 0, rows = 0;
    *reward = 0;
    for (int64_t i = 0; i < n; i++) {
        if (r[i].desirable != desirable)
            continue;
        *reward += r[i].answer.reward;
        logp += r[i].answer.logp;
        logits += s[i].first.logits;
        terms += s[i].first.terms;
        rows++;
    }
    if (rows == 0)
        return false;
    *reward /= (double)rows;
    af_pref_metrics_add_mean(m, desirable ? AF_METRIC_CHOSEN : AF_METRIC_REJECTED, *reward, rows);
    af_pref_metrics_add_mean(m, desirable ? AF_METRIC_LOGPS_CHOSEN : AF_METRIC_LOGPS_REJECTED,
                             logp / (double)rows, rows);
    if (terms > 0)
        af_pref_metrics_add_mean(m, desirable ? AF_METRIC_LOGITS_CHOSEN : AF_METRIC_LOGITS_REJECTED,
                                 logits / (double)terms, terms);
    return true;
}

static void add_kto_metrics(const af_kto_row *r, const af_pair_sums *s, int64_t n, double kl,
                            af_pref_metrics *m)
{
    double chosen, rejected;
    af_pref_metrics_add_mean(m, AF_METRIC_KL, kl, n);
    add_by_term(m, AF_METRIC_ENTROPY, s, n, true, false, offsetof(af_answer_sums, entropy));
    const bool good = add_class(r, s, n, true, m, &chosen),
               bad = add_class(r, s, n, false, m, &rejected);
    if (good && bad)
        af_pref_metrics_add(m, AF_METRIC_MARGINS, chosen - rejected);
    for (int64_t i = 0; i < n; i++)
        m->tokens += s[i].first.prompt + s[i].first.tokens;
}

static double kto_loss(const af_pref_opts *o, af_pref_scratch *scratch, const af_pair_sums *s,
                       const af_pair_reference *ref, int64_t n, af_pair_grads *grads,
                       af_pref_metrics *m)
{
    af_kto_row *r = scratch->kto;
    double kl;
    for (int64_t i = 0; i < n; i++)
        r[i] = (af_kto_row){
            .answer = {.logp = s[i].first.shared + s[i].first.tail,
                       .ref = ref[i].first + ref[i].first_tail},
            .kl_logp = s[i].second.shared + s[i].second.tail,
            .kl_ref = ref[i].second + ref[i].second_tail,
            .desirable = s[i].label,
        };
    const double loss = af_kto_loss(o, r, n, &kl);
    for (int64_t i = 0; grads && i < n; i++)
        grads[i] = (af_pair_grads){.first = r[i].answer.grad, .first_tail = r[i].answer.grad};
    add_kto_metrics(r, s, n, kl, m);
    return loss;
}

double af_pref_batch_loss(const af_pref_opts *o, af_pref_scratch *s, const af_pair_sums *sums,
                          const af_pair_reference *ref, int64_t n, af_pair_grads *grads,
                          af_pref_metrics *m)
{
    assert(n <= s->room);
    return (o->rl == AF_RL_KTO ? kto_loss : pair_loss)(o, s, sums, ref, n, grads, m);
}

/* ---- weights of rows ---- */

/* A row's cross-entropy is minus its log-probability. */
static void put_weights(const af_answer_rows *a, int64_t shared, double by, double by_tail,
                        double nll, double share, float *weight)
{
    for (int64_t i = 0; i < a->terms; i++)
        weight[a->from + i] = (float)(share * (nll - (i < shared ? by : by_tail)));
}

void af_pref_batch_weights(const af_batch *b, const af_pair_grads *grads, double share,
                           float *weight)
{
    memset(weight, 0, (size_t)b->rows * sizeof *weight);
    for (int64_t k = 0; k < b->pairs; k++) {
        const af_pair_rows *p = &b->pair[k];
        const af_pair_grads *g = &grads[k];
        const int64_t shared = AF_MIN(p->first.terms, p->second.terms);
        put_weights(&p->first, shared, g->first, g->first_tail, g->nll_first, share, weight);
        put_weights(&p->second, shared, g->second, g->second_tail, 0, share, weight);
        for (int64_t i = 0; i < p->prompt_terms; i++)
            weight[p->prompt_from + i] = (float)(share * g->nll_prompt);
    }
}
