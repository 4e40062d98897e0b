/* run_rl.c - the keys of preference training as the options of a loss, and what they must not say.
 */
#include "base/buf.h"
#include "base/log.h"
#include "train/run/freeze.h"
#include "train/run/method.h"
#include "train/run/run_keys.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#define SIMPO_BETA 2.0
#define USUAL_BETA 0.1

AF_PRINTF(4, 5)
static af_status wrong(const af_run_config *r, const char *key, af_error *err, const char *fmt, ...)
{
    char at[300], text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return af_fail(err, AF_EUSAGE, "%s: %s", af_run_key_loc(r, key, at, sizeof at), text);
}

/* ---- the losses by name ---- */

static bool fits(af_rl rl, af_pref_type t)
{
    switch (rl) {
    case AF_RL_DPO:
        return t < AF_PREF_DPO_TYPES;
    case AF_RL_IPO:
        return t == AF_PREF_IPO;
    case AF_RL_CPO:
        return t == AF_PREF_SIGMOID || t == AF_PREF_HINGE || t == AF_PREF_IPO || t == AF_PREF_SIMPO;
    case AF_RL_SIMPO:
        return t == AF_PREF_SIMPO;
    case AF_RL_KTO:
        return t == AF_PREF_KTO || t == AF_PREF_APO_ZERO_UNPAIRED;
    default:
        return false;
    }
}

static af_pref_type usual_type(af_rl rl)
{
    return rl == AF_RL_IPO     ? AF_PREF_IPO
           : rl == AF_RL_SIMPO ? AF_PREF_SIMPO
           : rl == AF_RL_KTO   ? AF_PREF_KTO
                               : AF_PREF_SIGMOID;
}

static af_status find_type(af_pref_type *out, const af_run_config *r, const char *name,
                           af_error *err)
{
    char all[300] = "";
    size_t used = 0;
    for (int t = 0; t < AF_PREF_TYPES; t++) {
        const char *known = af_pref_type_name((af_pref_type)t);
        if (!fits(r->rl, (af_pref_type)t))
            continue;
        *out = (af_pref_type)t;
        if (strcmp(known, name) == 0)
            return AF_OK;
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "", known);
    }
    return wrong(r, "dpo_loss_type", err, "'%.40s' is not a loss of 'rl: %s', which has %s", name,
                 af_key_choice_name(af_key_find("rl"), (int)r->rl), all);
}

static af_status read_weights(af_pref_opts *o, const af_run_config *r, af_error *err)
{
    const af_strings *w = &r->dpo_loss_weights;
    if (w->count && w->count != o->types)
        return wrong(r, "dpo_loss_weights", err, "dpo_loss_weights has %d numbers for %d losses",
                     w->count, o->types);
    for (int i = 0; i < o->types; i++) {
        char *end = NULL;
        o->weight[i] = w->count ? strtod(w->item[i], &end) : 1;
        if (w->count && (end == w->item[i] || *end || !isfinite(o->weight[i])))
            return wrong(r, "dpo_loss_weights", err,
                         "dpo_loss_weights has '%.40s', which is not a number", w->item[i]);
    }
    return AF_OK;
}

static af_status read_types(af_pref_opts *o, const af_run_config *r, af_error *err)
{
    const af_strings *t = &r->dpo_loss_type;
    o->types = 1;
    o->type[0] = usual_type(r->rl);
    if (t->count > AF_PREF_LIST_MAX - 1 || (t->count > 1 && r->rl != AF_RL_DPO))
        return wrong(r, "dpo_loss_type", err, "dpo_loss_type has %d losses; 'rl: %s' takes %d",
                     t->count, af_key_choice_name(af_key_find("rl"), (int)r->rl),
                     r->rl == AF_RL_DPO ? AF_PREF_LIST_MAX - 1 : 1);
    for (int i = 0; i < t->count; i++) {
        const af_status st = find_type(&o->type[i], r, t->item[i], err);
        if (st != AF_OK)
            return st;
        o->types = i + 1;
    }
    const af_status st = read_weights(o, r, err);
    if (st == AF_OK && r->dpo_ftx > 0) {
        o->type[o->types] = AF_PREF_SFT;
        o->weight[o->types++] = r->dpo_ftx;
    }
    return st;
}

static bool has_type(const af_pref_opts *o, af_pref_type type)
{
    for (int i = 0; i < o->types; i++)
        if (o->type[i] == type)
            return true;
    return false;
}

/* ---- files that do not say which training they are for ---- */

/* The kinds of TRL's trainers that have this loss; how many. */
static int rls_of_loss(af_rl out[3], const char *name)
{
    static const af_rl all[] = {AF_RL_DPO, AF_RL_CPO, AF_RL_KTO};
    int n = 0;
    for (size_t i = 0; i < AF_LEN(all); i++)
        for (int t = 0; t < AF_PREF_TYPES; t++)
            if (fits(all[i], (af_pref_type)t) && !strcmp(af_pref_type_name((af_pref_type)t), name))
                out[n++] = all[i];
    return n;
}

/* The kind that alone has one of the file's keys or its loss; NONE when there is none, or two.
 * *first: a key of the file that no supervised training has. */
static af_rl rl_of_keys(const af_run_config *r, const char **first)
{
    static const struct {
        af_key_need need;
        af_rl rl;
    } own[] = {{AF_NEED_DPO, AF_RL_DPO},
               {AF_NEED_SIMPO, AF_RL_CPO},
               {AF_NEED_CPO, AF_RL_CPO},
               {AF_NEED_KTO, AF_RL_KTO},
               {AF_NEED_REWARD, AF_RL_REWARD}};
    unsigned found = 0;
    af_rl rl = AF_RL_NONE, of_loss[3];
    for (int i = 0; i < af_keys_count; i++) {
        const af_key_need need = af_keys[i].need;
        if (r->key_line[i] <= 0 || need < AF_NEED_RL || need > AF_NEED_REWARD)
            continue;
        *first = *first ? *first : af_keys[i].name;
        for (size_t k = 0; k < AF_LEN(own); k++)
            found |= own[k].need == need ? 1u << own[k].rl : 0;
    }
    if (r->dpo_loss_type.count && rls_of_loss(of_loss, r->dpo_loss_type.item[0]) == 1)
        found |= 1u << of_loss[0];
    for (size_t k = 0; k < AF_LEN(own); k++)
        rl = found == 1u << own[k].rl ? own[k].rl : rl;
    return rl;
}

/* TRL's alphapo is its simpo without cross-entropy; alphapo_alpha shapes the rewards of both. */
void af_run_rl_alphapo(af_run_config *r)
{
    static const char *simpo[] = {"simpo"};
    const af_key *k = af_key_find("cpo_alpha");
    const af_strings *types = &r->dpo_loss_type;
    const bool fits_rl = r->rl == AF_RL_NONE || r->rl == AF_RL_CPO || r->rl == AF_RL_SIMPO;
    if (!fits_rl || types->count != 1 || strcmp(types->item[0], "alphapo") != 0)
        return;
    r->cpo_alpha = 0;
    r->key_line[k - af_keys] = af_run_key_line(r, "dpo_loss_type");
    r->key_name[k - af_keys] = k->name;
    r->dpo_loss_type = (af_strings){simpo, 1};
}

/* TRL's files do not say which of its trainers they are for: the script does. */
af_status af_run_rl_infer(af_run_config *r, af_error *err)
{
    const af_key *k = af_key_find("rl");
    const char *first = NULL, *loss = r->dpo_loss_type.count ? r->dpo_loss_type.item[0] : NULL;
    af_rl of_loss[3], rl = rl_of_keys(r, &first);
    char at[300], by[120] = "its keys";
    if (af_run_key_is_set(r, "rl") || !first)
        return AF_OK;
    if (loss && rls_of_loss(of_loss, loss) == 0)
        return wrong(
            r, "dpo_loss_type", err,
            "'%.40s' is not supported: it is not nll, the cross-entropy, not dft and not a "
            "loss of 'rl'",
            loss);
    if (rl == AF_RL_NONE && r->rl_in_name != AF_RL_NONE) {
        rl = r->rl_in_name;
        snprintf(by, sizeof by, "the name '%.100s'", r->name_with_rl);
    } else if (rl == AF_RL_NONE && loss) {
        rl = of_loss[0]; /* of the losses that DPO and CPO share, DPO's are the usual ones */
    }
    if (rl == AF_RL_NONE || r->strict)
        return wrong(r, first, err,
                     "%s is a key of several trainers, and the file does not say which: add "
                     "'rl: %s'%s",
                     first, rl == AF_RL_NONE ? "dpo" : af_key_choice_name(k, (int)rl),
                     rl == AF_RL_NONE ? " (or orpo, cpo, kto)" : "");
    af_log_write(AF_LOG_WARN,
                 "%s: the file does not say its trainer: 'rl: %s' is taken, by %s; set 'rl' for "
                 "another",
                 af_run_key_loc(r, first, at, sizeof at), af_key_choice_name(k, (int)rl), by);
    r->rl = rl;
    r->key_line[k - af_keys] = af_run_key_line(r, first);
    r->key_name[k - af_keys] = k->name;
    return AF_OK;
}

/* ---- checks ---- */

static af_status check_smoothing(const af_pref_opts *o, const af_run_config *r, af_error *err)
{
    const bool takes = has_type(o, AF_PREF_CDPO) || has_type(o, AF_PREF_ROBUST) ||
                       has_type(o, AF_PREF_EXO_PAIR) || has_type(o, AF_PREF_AOT) ||
                       has_type(o, AF_PREF_AOT_UNPAIRED) ||
                       (af_key_has_effect(r, AF_NEED_CPO) &&
                        (o->type[0] == AF_PREF_SIGMOID || o->type[0] == AF_PREF_SIMPO));
    if (has_type(o, AF_PREF_EXO_PAIR) && o->smoothing == 0)
        return wrong(r, "dpo_loss_type", err,
                     "exo_pair needs dpo_label_smoothing above 0, 0.001 for example");
    if (has_type(o, AF_PREF_ROBUST) && o->smoothing >= 0.5)
        return wrong(r, "dpo_label_smoothing", err,
                     "dpo_label_smoothing is %g: robust needs it below 0.5", o->smoothing);
    if (o->smoothing > 0 && !takes)
        return af_run_idle_key(
            r, "dpo_label_smoothing",
            "the loss has no label smoothing; cdpo, robust, exo_pair and aot have it", err);
    return AF_OK;
}

/* A reference that follows the weights in training. */
static af_status check_sync(const af_run_config *r, af_error *err)
{
    static const char *const keys[] = {"ref_model_mixup_alpha", "ref_model_sync_steps"};
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(keys) && !r->sync_ref && st == AF_OK; i++)
        if (af_run_key_is_set(r, keys[i]))
            st = af_run_idle_key(r, keys[i], "without 'sync_ref_model: true'", err);
    if (!r->sync_ref)
        return st;
    if (!af_method_trains_base(r))
        return wrong(r, "sync_ref_model", err,
                     "sync_ref_model is for full fine-tuning: the reference of an adapter is the "
                     "model without it");
    if (r->precompute_ref == AF_TRI_YES)
        return wrong(r, "sync_ref_model", err,
                     "sync_ref_model and precompute_ref_log_probs contradict each other: give one");
    if (af_method_rounding(r) != AF_ROUNDING_NEAREST)
        return wrong(r, "sync_ref_model", err,
                     "sync_ref_model does not go with 'bf16_stochastic_round' or 'kahan_sum'");
    return AF_OK;
}

static af_status check_dpo(const af_pref_opts *o, const af_run_config *r, af_error *err)
{
    static const af_pref_type scored[] = {AF_PREF_CDPO,   AF_PREF_SIGMOID, AF_PREF_SIGMOID_NORM,
                                          AF_PREF_HINGE,  AF_PREF_IPO,     AF_PREF_EXO_PAIR,
                                          AF_PREF_ROBUST, AF_PREF_DISCOPOP};
    bool any = false;
    for (size_t i = 0; i < AF_LEN(scored); i++)
        any |= has_type(o, scored[i]);
    if (o->weighting && has_type(o, AF_PREF_SFT))
        return wrong(r, "dpo_use_weighting", err,
                     "dpo_use_weighting weighs pairs, and the loss sft has none: leave one out");
    if (o->divergence != AF_F_REVERSE_KL && !any)
        return wrong(r, "f_divergence_type", err,
                     "f_divergence_type has no effect on %s: it changes sigmoid, sigmoid_norm, "
                     "hinge, ipo, exo_pair, robust and discopop",
                     af_pref_type_name(o->type[0]));
    if (o->divergence != AF_F_ALPHA && af_run_key_is_set(r, "f_alpha_divergence_coef"))
        return af_run_idle_key(r, "f_alpha_divergence_coef",
                               "f_divergence_type is not alpha_divergence", err);
    if (!has_type(o, AF_PREF_DISCOPOP) && af_run_key_is_set(r, "discopop_tau"))
        return af_run_idle_key(r, "discopop_tau", "the loss is not discopop", err);
    return check_sync(r, err);
}

static af_status check_kto(const af_pref_opts *o, const af_run_config *r, af_error *err)
{
    if (o->type[0] == AF_PREF_KTO && af_run_kl_batch(r) < 2)
        return wrong(r, r->kto_kl_batch ? "kto_kl_batch" : "micro_batch_size", err,
                     "%s is 1: KTO compares each answer with those of other records "
                     "of its micro-batch; give 2 or more, or dpo_loss_type: apo_zero_unpaired",
                     r->kto_kl_batch ? "kto_kl_batch" : "micro_batch_size");
    if (o->desirable_weight == 0 && o->undesirable_weight == 0)
        return wrong(r, "kto_desirable_weight", err,
                     "kto_desirable_weight and kto_undesirable_weight are both 0: nothing would be "
                     "learnt");
    return AF_OK;
}

static af_status check_beta(const af_run_config *r, af_error *err)
{
    if (af_run_key_is_set(r, "rl_beta") && r->rl_beta == 0)
        return wrong(r, "rl_beta", err, "rl_beta is 0: the answers would not be compared");
    if (r->rl_beta > 0 && r->orpo_alpha > 0 && r->rl_beta != r->orpo_alpha)
        return wrong(r, "orpo_alpha", err,
                     "orpo_alpha %g and rl_beta %g contradict each other: give one", r->orpo_alpha,
                     r->rl_beta);
    return AF_OK;
}

/* Keys of supervised training that do not go with pairs. */
static af_status check_others(const af_run_config *r, af_error *err)
{
    const char *rl = af_key_choice_name(af_key_find("rl"), (int)r->rl);
    if (r->stage == AF_STAGE_PRETRAINING)
        return wrong(r, "stage", err,
                     "'stage: pt' trains on plain text, 'rl: %s' on preferences: "
                     "give one",
                     rl);
    if (r->rl == AF_RL_REWARD && (r->router_logits || r->router_loss_coef > 0))
        return wrong(r, r->router_logits ? "output_router_logits" : "router_aux_loss_coef", err,
                     "the auxiliary loss of routers is not added to 'rl: reward': leave it out");
    if (r->train_on_inputs == AF_TRI_YES && af_run_key_is_set(r, "train_on_inputs"))
        return wrong(r, "train_on_inputs", err,
                     "train_on_inputs has no effect with 'rl: %s': answers are compared, not "
                     "prompts",
                     rl);
    return AF_OK;
}

bool af_run_compares(const af_run_config *r)
{
    return r->rl != AF_RL_NONE && r->rl != AF_RL_REWARD;
}

bool af_run_weighs_by_entropy(const af_run_config *r) { return r->eaft || r->eaft_third; }

bool af_run_weighs_tokens(const af_run_config *r)
{
    return r->dft || r->asft || af_run_weighs_by_entropy(r);
}

const char *af_run_teacher(const af_run_config *r)
{
    return r->asft ? r->base_model : r->teacher_model;
}

bool af_run_keeps_end(const af_run_config *r)
{
    return r->truncation == AF_TRUNCATION_KEEP_END &&
           (r->rl == AF_RL_NONE || r->rl == AF_RL_DPO || r->rl == AF_RL_IPO);
}

bool af_run_has_kl_rows(const af_run_config *r)
{
    const char *unpaired = af_pref_type_name(AF_PREF_APO_ZERO_UNPAIRED);
    return r->rl == AF_RL_KTO &&
           (!r->dpo_loss_type.count || strcmp(r->dpo_loss_type.item[0], unpaired) != 0);
}

int64_t af_run_kl_batch(const af_run_config *r)
{
    return r->kto_kl_batch ? r->kto_kl_batch : r->micro_batch_size;
}

af_status af_run_pref_opts(af_pref_opts *out, const af_run_config *r, af_error *err)
{
    const double given = r->rl == AF_RL_ORPO && r->orpo_alpha > 0 ? r->orpo_alpha : r->rl_beta;
    const bool simpo = r->rl == AF_RL_SIMPO;
    *out = (af_pref_opts){
        .rl = r->rl,
        .beta = given > 0 ? given
                : simpo   ? SIMPO_BETA
                          : USUAL_BETA,
        .smoothing = r->dpo_label_smoothing,
        .ld_alpha = r->ld_alpha,
        .divergence = r->f_divergence,
        .divergence_coef = r->f_alpha_coef,
        .weighting = r->dpo_use_weighting,
        .discopop_tau = r->discopop_tau,
        .simpo_gamma = r->simpo_gamma,
        .cpo_alpha = af_run_key_is_set(r, "cpo_alpha") ? r->cpo_alpha
                     : simpo                           ? 0
                                                       : 1,
        .alpha = r->alphapo_alpha,
        .desirable_weight = r->kto_desirable_weight,
        .undesirable_weight = r->kto_undesirable_weight,
    };
    return read_types(out, r, err);
}

af_status af_run_rl_check(const af_run_config *r, af_error *err)
{
    af_pref_opts o;
    af_status st = AF_OK;
    if (r->rl == AF_RL_NONE)
        return AF_OK;
    AF_TRY(check_others(r, err));
    if (r->rl == AF_RL_REWARD)
        return AF_OK;
    AF_TRY(check_beta(r, err));
    AF_TRY(af_run_pref_opts(&o, r, err));
    AF_TRY(check_smoothing(&o, r, err));
    if (r->rl == AF_RL_KTO)
        AF_TRY(check_kto(&o, r, err));
    if (r->rl == AF_RL_DPO || r->rl == AF_RL_IPO)
        AF_TRY(check_dpo(&o, r, err));
done:
    return st;
}
