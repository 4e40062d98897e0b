/* test_pref_loss.c - preference losses against TRL 1.16 in double: loss and gradients. */
#include "test.h"

#include "train/preference/pref_batch.h"

#include <jansson.h>
#include <math.h>

enum { PAIRS_MAX = 64 };
#define TOLERANCE 1e-10

static double number(const json_t *o, const char *key, double preset)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : preset;
}

static double at(const json_t *o, const char *key, size_t i)
{
    return json_number_value(json_array_get(json_object_get(o, key), i));
}

/* The reference writes "inf" and "nan" where its own arithmetic overflows. */
static void check(const json_t *expected, double got, const char *where, const char *what)
{
    if (!json_is_number(expected))
        return;
    const double want = json_number_value(expected);
    if (fabs(got - want) > TOLERANCE * fmax(1e-3, fabs(want)))
        fail_msg("%s: %s is %.17g, expected %.17g", where, what, got, want);
}

static void check_at(const json_t *r, const char *key, size_t i, double got, const char *where)
{
    check(json_array_get(json_object_get(r, key), i), got, where, key);
}

static af_pref_type type_of(const char *name)
{
    for (int t = 0; t < AF_PREF_TYPES; t++)
        if (strcmp(af_pref_type_name((af_pref_type)t), name) == 0)
            return (af_pref_type)t;
    fail_msg("unknown loss %s", name);
    return AF_PREF_TYPES;
}

static af_f_divergence divergence_of(const char *name)
{
    return !name                                   ? AF_F_REVERSE_KL
           : strcmp(name, "forward_kl") == 0       ? AF_F_FORWARD_KL
           : strcmp(name, "js_divergence") == 0    ? AF_F_JS
           : strcmp(name, "alpha_divergence") == 0 ? AF_F_ALPHA
                                                   : AF_F_REVERSE_KL;
}

static af_pref_opts opts_of(const json_t *c, const json_t *preset, af_rl rl)
{
    const json_t *type = json_object_get(c, "loss_type");
    af_pref_opts o = {.rl = rl,
                      .beta = number(c, "beta", number(preset, "beta", 0.1)),
                      .smoothing = number(c, "label_smoothing", 0),
                      .ld_alpha = number(c, "ld_alpha", 1),
                      .divergence =
                          divergence_of(json_string_value(json_object_get(c, "f_divergence_type"))),
                      .divergence_coef = number(c, "f_alpha_divergence_coef", 0.5),
                      .weighting = json_is_true(json_object_get(c, "use_weighting")),
                      .discopop_tau = number(c, "discopop_tau", 0.05),
                      .simpo_gamma = number(c, "simpo_gamma", 0.5),
                      .cpo_alpha = number(c, "cpo_alpha", 1),
                      .alpha = number(c, "alpha", 0),
                      .desirable_weight = number(c, "desirable_weight", 1),
                      .undesirable_weight = number(c, "undesirable_weight", 1),
                      .center_coef = number(c, "center_rewards_coefficient", 0),
                      .types = 1};
    o.type[0] = rl == AF_RL_KTO ? AF_PREF_KTO : AF_PREF_SIGMOID;
    if (json_is_string(type))
        o.type[0] = type_of(json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++) {
        const json_t *w = json_object_get(c, "loss_weights");
        o.type[i] = type_of(json_string_value(json_array_get(type, i)));
        o.weight[i] = w ? json_number_value(json_array_get(w, i)) : 1;
        o.types = (int)i + 1;
    }
    return o;
}

/* The sum of a row's tokens, those after `shared` times ld_alpha; and over all of them. */
static double row_sum(const json_t *batch, const char *which, size_t i, size_t shared, double tail,
                      double *plain)
{
    const json_t *row =
        json_array_get(json_object_get(json_object_get(batch, "token_logps"), which), i);
    double sum = 0;
    for (size_t t = 0; t < json_array_size(row); t++) {
        const double v = json_number_value(json_array_get(row, t));
        sum += t < shared ? v : tail * v;
        if (plain)
            *plain += v;
    }
    return sum;
}

static double weight_of(const json_t *batch, const char *which, size_t i)
{
    const json_t *p =
        json_array_get(json_object_get(json_object_get(batch, "token_logps"), which), i);
    const json_t *q =
        json_array_get(json_object_get(json_object_get(batch, "log_sum_sq_probs"), which), i);
    double sum = 0;
    for (size_t t = 0; t < json_array_size(p); t++)
        sum += json_number_value(json_array_get(p, t)) - json_number_value(json_array_get(q, t));
    return exp(sum / fmax(1, (double)json_array_size(p)));
}

static void check_dpo(const json_t *c, const json_t *batch, const json_t *r, const json_t *preset,
                      const char *where)
{
    const af_pref_opts o = opts_of(c, preset, AF_RL_DPO);
    const size_t n = json_array_size(json_object_get(batch, "chosen_logps"));
    const bool plain = o.ld_alpha == 1;
    af_pref_pair p[PAIRS_MAX] = {0};
    af_pref_result out;
    double chosen_sum = 0, tokens = 0;
    for (size_t i = 0; i < n; i++) {
        const double nc = at(batch, "chosen_lengths", i), nr = at(batch, "rejected_lengths", i);
        const size_t m = (size_t)fmin(nc, nr);
        double all = 0;
        p[i].chosen = (af_pref_answer){row_sum(batch, "chosen", i, m, o.ld_alpha, &all),
                                       row_sum(batch, "ref_chosen", i, m, o.ld_alpha, NULL),
                                       nc,
                                       weight_of(batch, "chosen", i),
                                       0,
                                       0};
        p[i].rejected = (af_pref_answer){row_sum(batch, "rejected", i, m, o.ld_alpha, NULL),
                                         row_sum(batch, "ref_rejected", i, m, o.ld_alpha, NULL),
                                         nr,
                                         weight_of(batch, "rejected", i),
                                         0,
                                         0};
        if (plain) { /* as stored: in extreme batches the tokens do not have every digit */
            p[i].chosen.logp = at(batch, "chosen_logps", i);
            p[i].rejected.logp = at(batch, "rejected_logps", i);
            p[i].chosen.ref = at(batch, "ref_chosen_logps", i);
            p[i].rejected.ref = at(batch, "ref_rejected_logps", i);
        }
        chosen_sum += all;
        tokens += nc;
    }
    af_pref_loss(&o, p, (int64_t)n, -chosen_sum / tokens, &out);
    check(json_object_get(r, "loss"), out.loss, where, "loss");
    for (size_t i = 0; i < n && json_is_number(json_object_get(r, "loss")); i++) {
        check_at(r, "grad_chosen", i, p[i].chosen.grad - out.nll_grad / tokens, where);
        check_at(r, "grad_rejected", i, p[i].rejected.grad, where);
    }
}

static void check_kto(const json_t *c, const json_t *batch, const json_t *r, const json_t *preset,
                      const char *where)
{
    const af_pref_opts o = opts_of(c, preset, AF_RL_KTO);
    const size_t n = json_array_size(json_object_get(batch, "logps"));
    af_kto_row row[PAIRS_MAX] = {0};
    double kl;
    for (size_t i = 0; i < n; i++)
        row[i] = (af_kto_row){
            .answer = {.logp = at(batch, "logps", i), .ref = at(batch, "ref_logps", i)},
            .kl_logp = at(batch, "KL_logps", i),
            .kl_ref = at(batch, "ref_KL_logps", i),
            .desirable = json_is_true(json_array_get(json_object_get(batch, "label"), i))};
    check(json_object_get(r, "loss"), af_kto_loss(&o, row, (int64_t)n, &kl), where, "loss");
    check(json_object_get(r, "kl"), kl, where, "kl");
    for (size_t i = 0; i < n; i++)
        check_at(r, "grad_logps", i, row[i].answer.grad, where);
}

static void check_plain(const json_t *c, const json_t *batch, const json_t *r, const json_t *preset,
                        const char *where, af_rl rl)
{
    const af_pref_opts o = opts_of(c, preset, rl);
    const size_t n = json_array_size(json_object_get(batch, "chosen_logps"));
    af_pref_pair p[PAIRS_MAX] = {0};
    af_pref_result out;
    for (size_t i = 0; i < n; i++) {
        p[i].chosen.logp = at(batch, "chosen_logps", i);
        p[i].rejected.logp = at(batch, "rejected_logps", i);
    }
    af_pref_loss(&o, p, (int64_t)n, number(batch, "nll", 0), &out);
    check(json_object_get(r, "loss"), out.loss, where, "loss");
    check(json_object_get(r, "log_odds_ratio"), out.log_odds_ratio, where, "log_odds_ratio");
    check(json_object_get(r, "log_odds_chosen"), out.log_odds_chosen, where, "log_odds_chosen");
    for (size_t i = 0; i < n; i++) {
        check_at(r, "grad_chosen", i, p[i].chosen.grad, where);
        check_at(r, "grad_rejected", i, p[i].rejected.grad, where);
    }
}

static void check_reward(const json_t *c, const json_t *batch, const json_t *r,
                         const json_t *preset, const char *where)
{
    const af_pref_opts o = opts_of(c, preset, AF_RL_REWARD);
    const size_t n = json_array_size(json_object_get(batch, "chosen_rewards"));
    const bool margin = json_is_true(json_object_get(c, "margin"));
    af_pref_pair p[PAIRS_MAX] = {0};
    for (size_t i = 0; i < n; i++)
        p[i] = (af_pref_pair){.chosen.logp = at(batch, "chosen_rewards", i),
                              .rejected.logp = at(batch, "rejected_rewards", i),
                              .margin = margin ? at(batch, "margin", i) : 0};
    check(json_object_get(r, "loss"), af_reward_loss(&o, p, (int64_t)n), where, "loss");
    for (size_t i = 0; i < n; i++) {
        check_at(r, "grad_chosen", i, p[i].chosen.grad, where);
        check_at(r, "grad_rejected", i, p[i].rejected.grad, where);
    }
}

static void check_file(const char *root, const char *name, af_rl rl)
{
    char path[4096], where[256];
    snprintf(path, sizeof path, "%s/preference/units/%s.json", root, name);
    json_t *file = json_load_file(path, 0, NULL);
    const json_t *cases = json_object_get(file, "cases"),
                 *preset = json_object_get(file, "defaults");
    size_t i, k;
    json_t *r, *b;
    assert_non_null(file);
    json_array_foreach(json_object_get(file, "results"), i, r)
    {
        const char *key = json_string_value(json_object_get(r, "case"));
        const json_int_t number_of = json_integer_value(json_object_get(r, "batch"));
        const json_t *c = json_object_get(cases, key), *batch = NULL;
        json_array_foreach(json_object_get(file, "batches"), k, b)
        {
            if (json_integer_value(json_object_get(b, "batch")) == number_of)
                batch = b;
        }
        assert_non_null(batch);
        snprintf(where, sizeof where, "%s, case %s, batch %d", name, key, (int)number_of);
        if (rl == AF_RL_DPO)
            check_dpo(c, batch, r, preset, where);
        else if (rl == AF_RL_KTO)
            check_kto(c, batch, r, preset, where);
        else if (rl == AF_RL_REWARD)
            check_reward(c, batch, r, preset, where);
        else
            check_plain(c, batch, r, preset, where, rl);
    }
    assert_true(i > 0);
    json_decref(file);
}

static void check_files(const char *root)
{
    check_file(root, "dpo", AF_RL_DPO);
    check_file(root, "kto", AF_RL_KTO);
    check_file(root, "orpo", AF_RL_ORPO);
    check_file(root, "cpo", AF_RL_CPO);
    check_file(root, "reward", AF_RL_REWARD);
}

static void test_losses_are_those_of_trl(void **state)
{
    (void)state;
    check_files(golden_dir());
}

static void test_all_losses_are_those_of_trl(void **state)
{
    (void)state;
    char root[4096];
    if (!shared_dir())
        skip_because("the goldens next to the checkout are absent");
    snprintf(root, sizeof root, "%s/golden", shared_dir());
    check_files(root);
}

static double dpo_at(const af_pref_opts *o, af_pref_pair *p, int64_t n)
{
    af_pref_result r;
    af_pref_loss(o, p, n, 2.0, &r);
    return r.loss;
}

/* Every loss type: finite differences of its own value. */
static void test_gradients_are_those_of_the_losses(void **state)
{
    (void)state;
    for (int t = 0; t < AF_PREF_DPO_TYPES; t++) {
        const af_pref_opts o = {.rl = AF_RL_DPO,
                                .beta = 0.3,
                                .type = {(af_pref_type)t},
                                .weight = {0.7},
                                .types = 1,
                                .smoothing = 0.15,
                                .ld_alpha = 1,
                                .discopop_tau = 0.4};
        af_pref_pair p[3] = {{{-4, -5, 6, 1, 0, 0}, {-7, -6.2, 5, 1, 0, 0}, 0, 0},
                             {{-9, -8.1, 3, 1, 0, 0}, {-2, -2.6, 9, 1, 0, 0}, 0, 0},
                             {{-3, -3.7, 4, 1, 0, 0}, {-8, -7.1, 2, 1, 0, 0}, 0, 0}};
        for (int i = 0; i < 6; i++) {
            const double h = 1e-5;
            (void)dpo_at(&o, p, 3);
            af_pref_answer *a = i % 2 ? &p[i / 2].rejected : &p[i / 2].chosen;
            const double grad = a->grad, was = a->logp;
            a->logp = was + h;
            const double up = dpo_at(&o, p, 3);
            a->logp = was - h;
            const double down = dpo_at(&o, p, 3);
            a->logp = was;
            assert_true(fabs((up - down) / (2 * h) - grad) < 1e-7);
        }
    }
}

/* A policy far below its reference: TRL's own formula gives inf * 0 there. */
/* cDPO is the sigmoid of the pairs as they are and, for the share of the smoothing, swapped. */
static void test_cdpo_is_two_sigmoids(void **state)
{
    (void)state;
    const double e = 0.15;
    af_pref_opts o = {.rl = AF_RL_DPO,
                      .beta = 0.3,
                      .type = {AF_PREF_CDPO},
                      .weight = {1},
                      .types = 1,
                      .smoothing = e,
                      .ld_alpha = 1};
    af_pref_pair p[2] = {{{-4, -5, 6, 1, 0, 0}, {-7, -6.2, 5, 1, 0, 0}, 0, 0},
                         {{-9, -8.1, 3, 1, 0, 0}, {-2, -2.6, 9, 1, 0, 0}, 0, 0}};
    af_pref_pair swapped[2];
    for (int i = 0; i < 2; i++) {
        swapped[i] = p[i];
        swapped[i].chosen = p[i].rejected;
        swapped[i].rejected = p[i].chosen;
    }
    const double both = dpo_at(&o, p, 2);
    o.type[0] = AF_PREF_SIGMOID;
    assert_true(fabs(both - (1 - e) * dpo_at(&o, p, 2) - e * dpo_at(&o, swapped, 2)) < 1e-12);
}

static void test_discopop_stays_finite(void **state)
{
    (void)state;
    const af_pref_opts o = {.rl = AF_RL_DPO,
                            .beta = 1,
                            .type = {AF_PREF_DISCOPOP},
                            .weight = {1},
                            .types = 1,
                            .discopop_tau = 0.05};
    af_pref_pair p = {{-2000, 0, 4, 1, 0, 0}, {0, 0, 4, 1, 0, 0}, 0, 0};
    assert_true(isfinite(dpo_at(&o, &p, 1)) && isfinite(p.chosen.grad));
}

/* Metrics of an evaluation are those of one batch of all its records, however it is divided. */
static void test_pooled_metrics(void **state)
{
    enum { N = 7 };
    static const af_rl kinds[] = {AF_RL_DPO, AF_RL_KTO, AF_RL_ORPO, AF_RL_SIMPO};
    static const int blocks[] = {N, 2, 3};
    af_pair_sums s[N] = {0};
    af_pair_reference ref[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        const int64_t a = 2 + i % 4, b = 1 + i % 3;
        s[i] = (af_pair_sums){
            .first = {-2.0 * i - 1, 0, 3.0 + i, 0.5 * i, i % 3, 0, a, a, 3},
            .second = {-9.0 + i, 0, 2.0 + i, 0.25 * i, i % 2, 0, b, b, 3},
            .prompt_nll = 4 + i,
            .prompt_terms = 2,
            .label = i % 3 == 0,
        };
        ref[i] = (af_pair_reference){-1.5 * i, 0, -4 + 0.5 * i, 0};
    }
    for (size_t k = 0; k < AF_LEN(kinds); k++) {
        const af_pref_opts o = {.rl = kinds[k],
                                .beta = 0.3,
                                .types = 1,
                                .type = {kinds[k] == AF_RL_KTO     ? AF_PREF_KTO
                                         : kinds[k] == AF_RL_SIMPO ? AF_PREF_SIMPO
                                                                   : AF_PREF_SIGMOID},
                                .weight = {1},
                                .ld_alpha = 1,
                                .desirable_weight = 1,
                                .undesirable_weight = 1};
        af_metric_list want = {0};
        for (size_t w = 0; w < AF_LEN(blocks); w++) {
            af_pref_metrics m = {.pooled = true};
            af_pref_scratch scratch;
            af_error err;
            CHECK_OK(af_pref_scratch_init(&scratch, N, &err), err);
            for (int i = 0; i < N; i += blocks[w])
                (void)af_pref_batch_loss(&o, &scratch, s + i, ref + i, AF_MIN(blocks[w], N - i),
                                         NULL, &m);
            if (kinds[k] == AF_RL_KTO)
                af_pref_metrics_pool_margins(&m);
            const af_metric_list got = af_pref_metrics_list(&m);
            want = w ? want : got;
            assert_int_equal(got.count, want.count);
            for (int i = 0; i < got.count; i++)
                CHECK_MSG(fabs(got.value[i] - want.value[i]) < 1e-12 ||
                              strcmp(got.name[i], "kl") == 0, /* of its block */
                          "%s with blocks of %d: %g, not %g", got.name[i], blocks[w], got.value[i],
                          want.value[i]);
            af_pref_scratch_clear(&scratch);
        }
        assert_true(want.count >= 9);
    }
}

/* Of scores: the largest and the smallest of all, in training of each batch. */
static void test_extremes(void **state)
{
    static const double values[] = {1, -3, 2};
    af_pref_metrics all = {.pooled = true}, each = {0};
    (void)state;
    for (size_t i = 0; i < AF_LEN(values); i++) {
        af_pref_metrics_add_extreme(&all, AF_METRIC_MAX_REWARD, values[i], true);
        af_pref_metrics_add_extreme(&all, AF_METRIC_MIN_REWARD, values[i], false);
        af_pref_metrics_add_extreme(&each, AF_METRIC_MAX_REWARD, values[i], true);
    }
    assert_true(af_pref_metrics_mean(&all, AF_METRIC_MAX_REWARD) == 2);
    assert_true(af_pref_metrics_mean(&all, AF_METRIC_MIN_REWARD) == -3);
    assert_true(af_pref_metrics_mean(&each, AF_METRIC_MAX_REWARD) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses_are_those_of_trl),
        cmocka_unit_test(test_all_losses_are_those_of_trl),
        cmocka_unit_test(test_gradients_are_those_of_the_losses),
        cmocka_unit_test(test_cdpo_is_two_sigmoids),
        cmocka_unit_test(test_discopop_stays_finite),
        cmocka_unit_test(test_pooled_metrics),
        cmocka_unit_test(test_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
