/* test_uld.c - distillation between tokenizers: losses and gradients against TRL's GOLD, gradients
 * against differences, and runs. */
#define _DEFAULT_SOURCE
#include "train/run_folder.h"

#include "afinar/text.h"
#include "afinar/train.h"
#include "base/buf.h"
#include "base/file.h"
#include "format/weights/safetensors.h"
#include "train/uld/uld_loss.h"
#include "worse.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

enum { RECORDS = 2, TOKENS_MAX = 64 };

typedef struct gold {
    json_t *units;
    af_safetensors *file;
    const af_stored *logits[2]; /* student, teacher */
    int32_t *match;
    int64_t matched;
} gold;

/* ---- one record ---- */

typedef struct answer {
    int32_t id[TOKENS_MAX];
    int64_t row[TOKENS_MAX], end[TOKENS_MAX];
    af_uld_side side;
} answer;

static int64_t number_at(const json_t *list, size_t i)
{
    return json_integer_value(json_array_get(list, i));
}

/* The answer of record r as TRL takes it: tokens with a label, but the last where it is skipped. */
static void read_answer(answer *a, const gold *g, int teacher, size_t r, bool bayesian, bool skip)
{
    const char *const who = teacher ? "teacher" : "student";
    char key[40];
    snprintf(key, sizeof key, "%s_labels", who);
    const json_t *labels = json_array_get(json_object_get(g->units, key), r);
    snprintf(key, sizeof key, "%s_offsets", who);
    const json_t *offsets = json_array_get(json_object_get(g->units, key), r);
    const af_stored *z = g->logits[teacher];
    int64_t n = 0;
    for (size_t i = 0; i < json_array_size(labels); i++) {
        if (number_at(labels, i) == -100)
            continue;
        a->id[n] = (int32_t)number_at(labels, i);
        a->row[n] = (int64_t)i - bayesian;
        a->end[n++] = number_at(json_array_get(offsets, i), 1);
    }
    a->side = (af_uld_side){.logits = (const float *)z->data + (int64_t)r * z->dim[1] * z->dim[2],
                            .id = a->id,
                            .row = a->row,
                            .end = a->end,
                            .n = n - skip};
}

static const json_t *setting(const gold *g, const char *name, const char *key)
{
    const json_t *own =
        json_object_get(json_object_get(json_object_get(g->units, "cases"), name), key);
    return own ? own : json_object_get(json_object_get(g->units, "defaults"), key);
}

static af_uld_opts options(const gold *g, const char *name)
{
    const json_t *weight = setting(g, name, "uld_hybrid_matched_weight");
    const double share = (double)g->matched / (double)g->logits[1]->dim[2];
    const char *merge = json_string_value(setting(g, name, "uld_token_merge_strategy"));
    return (af_uld_opts){
        .student_temperature = json_number_value(setting(g, name, "uld_student_temperature")),
        .teacher_temperature = json_number_value(setting(g, name, "uld_teacher_temperature")),
        .beta = json_number_value(setting(g, name, "beta")),
        .bayesian = strcmp(merge, "bayesian") == 0,
        .extended = json_is_true(setting(g, name, "use_extended_uld")),
        .hybrid = json_is_true(setting(g, name, "uld_use_hybrid_loss")),
        .matched = json_is_number(weight) ? json_number_value(weight) : share,
        .unmatched = json_is_number(weight)
                         ? json_number_value(setting(g, name, "uld_hybrid_unmatched_weight"))
                         : 1 - share,
        .match = g->match,
        .V = g->logits[0]->dim[2],
        .W = g->logits[1]->dim[2],
    };
}

/* The distillation loss of both records, its gradient and parts. */
static double loss_of(const gold *g, const char *name, float *grad, double *parts, int threads)
{
    const af_uld_opts o = options(g, name);
    af_uld_work *w = NULL;
    af_error err = {0};
    double sum = 0, last[2];
    CHECK_OK(af_uld_work_new(&w, &o, threads, &err), err);
    for (size_t r = 0; r < RECORDS; r++) {
        static answer s, t;
        af_uld_group group[TOKENS_MAX];
        double loss;
        read_answer(&s, g, 0, r, o.bayesian,
                    json_is_true(setting(g, name, "uld_skip_student_eos")));
        read_answer(&t, g, 1, r, o.bayesian,
                    json_is_true(setting(g, name, "uld_skip_teacher_eos")));
        const int64_t n = af_uld_align(&o, &s.side, &t.side, group);
        CHECK_OK(af_uld_loss(w, &s.side, &t.side, group, n, 1.0 / RECORDS,
                             grad + (int64_t)r * g->logits[0]->dim[1] * o.V, &loss, last, &err),
                 err);
        sum += loss / RECORDS;
    }
    if (parts) /* TRL keeps those of the last record */
        memcpy(parts, last, sizeof last);
    af_uld_work_free(w);
    return sum * json_number_value(setting(g, name, "uld_distillation_weight"));
}

/* ---- the goldens ---- */

static void find_matches(gold *g)
{
    af_tokenizer *own = NULL, *other = NULL;
    af_error err = {0};
    char path[600];
    snprintf(path, sizeof path, "%s/golden/models/llama", shared_dir());
    CHECK_OK(af_tokenizer_open(&own, path, &err), err);
    snprintf(path, sizeof path, "%s/golden/preference/tokenizers/teacher", shared_dir());
    CHECK_OK(af_tokenizer_open(&other, path, &err), err);
    const int64_t W = g->logits[1]->dim[2];
    g->match = calloc((size_t)W, sizeof *g->match);
    for (int64_t i = 0; i < W; i++) {
        uint64_t len = 0;
        const char *text = af_tokenizer_token(other, (int32_t)i, &len);
        g->match[i] = text ? af_tokenizer_id(own, text, len) : -1;
        g->matched += g->match[i] >= 0;
    }
    af_tokenizer_close(own);
    af_tokenizer_close(other);
}

static void open_gold(gold *g)
{
    char path[600];
    json_error_t why;
    af_error err = {0};
    if (!shared_dir())
        skip_because("no shared goldens");
    snprintf(path, sizeof path, "%s/golden/preference/units/gold.json", shared_dir());
    *g = (gold){.units = json_load_file(path, 0, &why)};
    CHECK_MSG(g->units, "%s: %s", path, why.text);
    snprintf(path, sizeof path, "%s/golden/preference/units/gold.safetensors", shared_dir());
    CHECK_OK(af_safetensors_open(&g->file, path, &err), err);
    g->logits[0] = af_safetensors_find(g->file, "student_logits");
    g->logits[1] = af_safetensors_find(g->file, "teacher_logits");
    find_matches(g);
}

static void close_gold(gold *g)
{
    json_decref(g->units);
    af_safetensors_close(g->file);
    free(g->match);
}

static int64_t values_of(const gold *g)
{
    return g->logits[0]->dim[0] * g->logits[0]->dim[1] * g->logits[0]->dim[2];
}

static void test_groups_are_trls(void **state)
{
    (void)state;
    gold g;
    open_gold(&g);
    const af_uld_opts o = options(&g, "default");
    for (size_t r = 0; r < RECORDS; r++) {
        static answer s, t;
        af_uld_group group[TOKENS_MAX];
        const json_t *want = json_array_get(json_object_get(g.units, "groups"), r);
        const json_t *mine = json_object_get(want, "student"),
                     *theirs = json_object_get(want, "teacher");
        read_answer(&s, &g, 0, r, false, true);
        read_answer(&t, &g, 1, r, false, true);
        const int64_t n = af_uld_align(&o, &s.side, &t.side, group);
        assert_int_equal(n, json_array_size(mine));
        for (int64_t i = 0; i < n; i++) {
            const json_t *a = json_array_get(mine, (size_t)i),
                         *b = json_array_get(theirs, (size_t)i);
            assert_int_equal(group[i].student_from, number_at(a, 0));
            assert_int_equal(group[i].student_to - group[i].student_from, json_array_size(a));
            assert_int_equal(group[i].teacher_from, number_at(b, 0));
            assert_int_equal(group[i].teacher_to - group[i].teacher_from, json_array_size(b));
        }
    }
    close_gold(&g);
}

static void test_losses_and_gradients_are_trls(void **state)
{
    (void)state;
    gold g;
    size_t i;
    json_t *want;
    open_gold(&g);
    json_array_foreach(json_object_get(g.units, "results"), i, want)
    {
        const char *name = json_string_value(json_object_get(want, "case"));
        char key[40];
        double parts[2], norm = 0, most = 0;
        if (json_number_value(setting(&g, name, "uld_crossentropy_weight")) > 0)
            continue; /* the head's, which other tests know */
        float *grad = calloc((size_t)values_of(&g), sizeof *grad);
        const double loss = loss_of(&g, name, grad, parts, 1),
                     expected = json_number_value(json_object_get(want, "loss"));
        CHECK_MSG(fabs(loss - expected) <= 1e-6 * expected, "%s: %.9g, not %.9g", name, loss,
                  expected);
        if (json_object_get(want, "matched")) {
            assert_true(fabs(parts[0] - json_number_value(json_object_get(want, "matched"))) <
                        1e-5);
            assert_true(fabs(parts[1] - json_number_value(json_object_get(want, "unmatched"))) <
                        1e-5);
        }
        snprintf(key, sizeof key, "grad.%s", name);
        const af_stored *stored = af_safetensors_find(g.file, key);
        for (int64_t k = 0; k < values_of(&g); k++) {
            norm += (double)grad[k] * grad[k];
            if (stored)
                most = worse(most, fabs((double)grad[k] - ((const float *)stored->data)[k]));
        }
        norm = sqrt(norm);
        const double wanted = json_number_value(json_object_get(want, "grad_norm"));
        CHECK_MSG(fabs(norm - wanted) <= 2e-6 * wanted, "%s: norm %.9g, not %.9g", name, norm,
                  wanted);
        CHECK_MSG(most <= 2e-6 * wanted, "%s: a gradient differs by %g", name, most);
        free(grad);
    }
    close_gold(&g);
}

static void test_threads_do_not_change_a_bit(void **state)
{
    (void)state;
    gold g;
    open_gold(&g);
    float *a = calloc((size_t)values_of(&g), sizeof *a),
          *b = calloc((size_t)values_of(&g), sizeof *b);
    const double x = loss_of(&g, "hybrid", a, NULL, 1), y = loss_of(&g, "hybrid", b, NULL, 3);
    assert_true(x == y);
    assert_memory_equal(a, b, (size_t)values_of(&g) * sizeof *a);
    free(a);
    free(b);
    close_gold(&g);
}

/* ---- runs ---- */

/* A run of the tiny Qwen2; the rows of its metrics, or the words of its error. */
static json_t *run_in(const char *name, const char *teacher, const char *more, const char *words)
{
    af_buf b = {0};
    af_error err = {0};
    char path[300], *text;
    uint64_t size;
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    af_buf_printf(&b,
                  "base_model: %s/models/qwen2\nteacher_model: %s/%s\noutput_dir: %s/%s\n"
                  "datasets: [{path: %s/preference/data/texts.jsonl}]\nadapter: lora\nlora_r: 4\n"
                  "device: %s\nbf16: false\nlogging_steps: 1\nseed: 3\n%s",
                  golden_dir(), golden_dir(), teacher, dir, name, golden_dir(), test_device(),
                  more);
    CHECK_OK(af_file_write(path, b.data, b.len, &err), err);
    af_buf_clear(&b);
    const af_status st = af_train(path, NULL, 0, NULL, NULL, &err);
    CHECK_MSG(words ? st != AF_OK && strstr(err.msg, words) : st == AF_OK, "%s: %s", name, err.msg);
    if (words)
        return NULL;
    json_t *rows = json_array();
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", dir, name);
    CHECK_OK(af_file_read(&text, &size, path, 1 << 24, &err), err);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
        json_array_append_new(rows, json_loadb(line, (size_t)(end - line), 0, NULL));
    free(text);
    return rows;
}

static double value(const json_t *rows, size_t i, const char *key)
{
    return json_number_value(json_object_get(json_array_get(rows, i), key));
}

static const char other[] = "gguf_models/llama/hf";

/* The distance between a model and itself is nothing, whatever the variant. */
static void test_a_model_is_its_own_teacher(void **state)
{
    (void)state;
    static const char *const more[] = {
        "kd_uld: true\nmax_steps: 1\n",
        "kd_uld: true\nmax_steps: 1\nuld_token_merge_strategy: bayesian\n"
        "uld_use_hybrid_loss: true\nuld_skip_student_eos: false\nuld_skip_teacher_eos: false\n"};
    for (int i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof name, "own-%d", i);
        json_t *rows = run_in(name, "models/qwen2", more[i], NULL);
        CHECK_MSG(fabs(value(rows, 0, "kl")) < 1e-5, "%d: %g", i, value(rows, 0, "kl"));
        json_decref(rows);
    }
}

static void test_a_student_follows_another_tokenizer(void **state)
{
    (void)state;
    json_t *rows = run_in("follows", other,
                          "kd_uld: true\nmax_steps: 24\nmicro_batch_size: 4\nlearning_rate: 0.01\n"
                          "uld_token_merge_strategy: bayesian\n",
                          NULL);
    double first = 0, last = 0;
    for (size_t i = 0; i < 4; i++) {
        first += value(rows, i, "kl");
        last += value(rows, 20 + i, "kl");
    }
    CHECK_MSG(last < 0.8 * first, "%g, then %g", first, last);
    json_decref(rows);
}

static void test_accumulation_is_exact(void **state)
{
    (void)state;
    static const char more[] =
        "kd_uld: true\nkd_ce_alpha: 0.3\nmax_steps: 3\nlearning_rate: 0.01\n";
    char one[400], many[400];
    snprintf(one, sizeof one, "%smicro_batch_size: 4\n", more);
    snprintf(many, sizeof many, "%smicro_batch_size: 1\ngradient_accumulation_steps: 4\n", more);
    json_t *a = run_in("one", other, one, NULL), *b = run_in("many", other, many, NULL);
    for (size_t i = 0; i < 3; i++) {
        assert_true(fabs(value(a, i, "loss") - value(b, i, "loss")) < 1e-5);
        assert_true(fabs(value(a, i, "grad_norm") - value(b, i, "grad_norm")) < 1e-5);
        assert_true(fabs(value(a, i, "loss") - 0.3 * value(a, i, "ce") - value(a, i, "kl")) < 1e-5);
    }
    json_decref(a);
    json_decref(b);
}

static void test_contradictions_are_refused(void **state)
{
    (void)state;
    assert_null(run_in("no", other, "", "or set kd_uld: true"));
    assert_null(
        run_in("no", other, "kd_uld: true\nkd_temperature: 2\n", "uld_student_temperature"));
    assert_null(run_in("no", other, "kd_uld: true\nkd_beta: 1\n", "only uld_use_hybrid_loss"));
    assert_null(run_in("no", other, "uld_student_temperature: 2\n", "without 'kd_uld: true'"));
    assert_null(run_in("no", other,
                       "kd_uld: true\nuld_use_hybrid_loss: true\nuld_hybrid_matched_weight: 1\n",
                       "give both"));
    assert_null(run_in("no", other, "kd_uld: true\nkd_logits: x\n", "needs the teacher itself"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_are_trls),
        cmocka_unit_test(test_losses_and_gradients_are_trls),
        cmocka_unit_test(test_threads_do_not_change_a_bit),
        cmocka_unit_test(test_a_model_is_its_own_teacher),
        cmocka_unit_test(test_a_student_follows_another_tokenizer),
        cmocka_unit_test(test_accumulation_is_exact),
        cmocka_unit_test(test_contradictions_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
