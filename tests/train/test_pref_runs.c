/* test_pref_runs.c - whole preference runs against TRL 1.16, every metric of every step; and what
 * must not change such a run. */
#define _DEFAULT_SOURCE
#include "train/run_folder.h"
#include "train/weight_files.h"

#include "afinar/train.h"
#include "base/buf.h"
#include "base/file.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

/* ---- runs of the goldens ---- */

static json_t *load(const char *root, const char *name, const char *file)
{
    char path[600];
    json_error_t why;
    snprintf(path, sizeof path, "%s/preference/runs/%s/%s", root, name, file);
    json_t *j = json_load_file(path, 0, &why);
    CHECK_MSG(j, "%s: %s", path, why.text);
    return j;
}

static const char *method_of(const json_t *run)
{
    const char *trainer = json_string_value(json_object_get(run, "trainer"));
    return strcmp(trainer, "KTOTrainer") == 0    ? "kto"
           : strcmp(trainer, "ORPOTrainer") == 0 ? "orpo"
           : strcmp(trainer, "CPOTrainer") == 0  ? "cpo"
                                                 : "dpo";
}

/* TRL's own keys, as they are. */
static char *run_file(const char *root, const char *name, const json_t *run, const char *out,
                      const char *extra)
{
    static const char *const keys[] = {"per_device_train_batch_size",
                                       "gradient_accumulation_steps",
                                       "max_steps",
                                       "learning_rate",
                                       "lr_scheduler_type",
                                       "warmup_steps",
                                       "weight_decay",
                                       "max_grad_norm",
                                       "adam_beta1",
                                       "adam_beta2",
                                       "adam_epsilon",
                                       "max_length",
                                       "beta",
                                       "loss_type",
                                       "loss_weights",
                                       "desirable_weight",
                                       "undesirable_weight",
                                       "simpo_gamma",
                                       "cpo_alpha"};
    af_buf b = {0};
    af_buf_printf(&b,
                  "base_model: %s/preference/runs/%s/%s\ndatasets: [{path: "
                  "%s/preference/runs/%s/%s}]\noutput_dir: %s\nrl: %s\nshuffle: false\n"
                  "bf16: false\nweight_decay_on: all\ndevice: %s\nlogging_steps: 1\n",
                  root, name, json_string_value(json_object_get(run, "base_model")), root, name,
                  json_string_value(json_object_get(run, "data")), out, method_of(run),
                  test_device());
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *v = json_object_get(run, keys[i]);
        char *text = v && !json_is_null(v) ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
        if (text)
            af_buf_printf(&b, "%s: %s\n", keys[i], text);
        free(text);
    }
    if (json_is_object(json_object_get(run, "adapter")))
        af_buf_printf(&b, "adapter: lora\nlora_model_dir: %s/preference/runs/%s/%s\n", root, name,
                      json_string_value(json_object_get(run, "initial_adapter")));
    af_buf_str(&b, extra);
    char *text = af_buf_take(&b);
    assert_non_null(text);
    return text;
}

static af_status train_text(const char *text, const af_train_hooks *hooks, af_error *err)
{
    char path[256];
    af_train_result result;
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    assert_int_equal(af_file_write(path, text, strlen(text), err), AF_OK);
    return af_train(path, NULL, 0, hooks, &result, err);
}

/* The tolerances of the goldens' page, five times the spread of float32 implementations. */
static double tolerance(const char *run, const char *key)
{
    const bool ipo = strcmp(run, "dpo-ipo") == 0, full = strcmp(run, "dpo-full") == 0,
               means = strcmp(run, "orpo") == 0 || strcmp(run, "simpo") == 0;
    if (strcmp(key, "loss") == 0)
        return ipo ? 1e-4 : full ? 1e-5 : 2e-5;
    if (strcmp(key, "grad_norm") == 0)
        return ipo ? 2e-5 : full ? 2e-4 : 1e-4;
    if (strcmp(key, "kl") == 0)
        return 1e-4;
    if (strncmp(key, "logits/", 7) == 0)
        return 1e-7;
    if (strncmp(key, "logps/", 6) == 0)
        return means ? 5e-6 : 2e-4;
    if (strcmp(key, "rewards/accuracies") == 0 || strcmp(key, "num_tokens") == 0)
        return 0;
    if (strncmp(key, "rewards/", 8) == 0)
        return full ? 2e-5 : 5e-5;
    return strcmp(key, "lr") == 0 ? 1e-9 : 5e-6;
}

/* ORPO and CPO average logits over padding, too: the page says to skip them. */
static bool is_compared(const json_t *run, const char *key)
{
    const char *method = method_of(run);
    return strcmp(key, "step") != 0 &&
           (strncmp(key, "logits/", 7) != 0 ||
            (strcmp(method, "orpo") != 0 && strcmp(method, "cpo") != 0));
}

static json_t *read_metrics(const char *out)
{
    char path[300], *text;
    uint64_t size;
    af_error err = {0};
    json_t *rows = json_array();
    snprintf(path, sizeof path, "%s/metrics.jsonl", out);
    CHECK_OK(af_file_read(&text, &size, path, 1 << 24, &err), err);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
        json_array_append_new(rows, json_loadb(line, (size_t)(end - line), 0, NULL));
    free(text);
    return rows;
}

static void compare(const char *name, const char *out, const json_t *run, const json_t *trajectory)
{
    json_t *rows = read_metrics(out), *want;
    const json_t *steps = json_object_get(trajectory, "steps");
    size_t i;
    assert_int_equal(json_array_size(rows), json_array_size(steps));
    json_array_foreach((json_t *)steps, i, want)
    {
        const json_t *row = json_array_get(rows, i);
        const char *key;
        json_t *v;
        json_object_foreach(want, key, v)
        {
            const char *ours = strcmp(key, "lr") == 0 ? "learning_rate" : key;
            const json_t *got = json_object_get(row, ours);
            if (!is_compared(run, key))
                continue;
            CHECK_MSG(json_is_number(got), "%s step %zu: no %s", name, i + 1, ours);
            CHECK_MSG(fabs(json_number_value(got) - json_number_value(v)) <= tolerance(name, key),
                      "%s step %zu: %s is %.9g, expected %.9g", name, i + 1, ours,
                      json_number_value(got), json_number_value(v));
        }
    }
    json_decref(rows);
}

static void check_weights(const char *root, const char *name, const char *out)
{
    char want[600], got[300];
    const bool full = strcmp(name, "dpo-full") == 0;
    snprintf(want, sizeof want, "%s/preference/runs/%s/%s", root, name,
             full ? "final.safetensors" : "final_adapter/adapter_model.safetensors");
    snprintf(got, sizeof got, "%s/%s.safetensors", out, full ? "model" : "adapter_model");
    if (!af_file_exists(want))
        return; /* not all of them are in the tree */
    const double most = compare_weights(want, got).most;
    const double limit = full ? 2e-6 : strcmp(name, "dpo-ipo") == 0 ? 5e-6 : 5e-5;
    CHECK_MSG(most <= limit, "%s: weights differ by %g", name, most);
}

static void check_run(const char *root, const char *name)
{
    char out[256];
    af_error err = {0};
    snprintf(out, sizeof out, "%s/out", dir);
    json_t *run = load(root, name, "run.json"), *trajectory = load(root, name, "trajectory.json");
    char *text = run_file(root, name, run, out, "");
    CHECK_OK(af_path_remove(out, &err), err);
    CHECK_OK(train_text(text, NULL, &err), err);
    compare(name, out, run, trajectory);
    check_weights(root, name, out);
    free(text);
    json_decref(run);
    json_decref(trajectory);
}

static void test_runs_follow_trl(void **state)
{
    (void)state;
    static const char *const runs[] = {"kto", "dpo-ipo", "simpo"};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
        if (test_takes(i))
            check_run(golden_dir(), runs[i]);
}

static void test_all_runs_follow_trl(void **state)
{
    (void)state;
    static const char *const runs[] = {"dpo-lora",     "dpo-full", "dpo-mix",
                                       "dpo-continue", "orpo",     "cpo"};
    char root[512];
    if (!shared_dir())
        skip_because("no shared goldens");
    snprintf(root, sizeof root, "%s/golden", shared_dir());
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
        if (test_takes(i))
            check_run(root, runs[i]);
}

/* ---- what must not change a run ---- */

/* A run of `rl` in its own folder; extra lines come last. */
static void run_in(const char *name, const char *rl, const char *extra, const af_train_hooks *hooks,
                   af_status expected)
{
    af_buf b = {0};
    af_error err = {0};
    af_buf_printf(&b,
                  "base_model: %s/models/qwen2\ndatasets: [{path: %s/preference/data/%s.jsonl}]\n"
                  "output_dir: %s/%s\nrl: %s\nadapter: lora\nlora_r: 4\nlearning_rate: 2e-3\n"
                  "max_steps: 4\ndevice: %s\nseed: 5\n%s%s",
                  golden_dir(), golden_dir(), strcmp(rl, "kto") == 0 ? "kto" : "preferences", dir,
                  name, rl, test_device(), strstr(extra, "bf16") ? "" : "bf16: false\n", extra);
    char *text = af_buf_take(&b);
    const af_status st = train_text(text, hooks, &err);
    CHECK_MSG(st == expected, "%s: status %d, %s", name, (int)st, err.msg);
    free(text);
}

static double difference(const char *a, const char *b)
{
    char x[300], y[300];
    snprintf(x, sizeof x, "%s/%s/adapter_model.safetensors", dir, a);
    snprintf(y, sizeof y, "%s/%s/adapter_model.safetensors", dir, b);
    return compare_weights(x, y).most;
}

/* Every value but times and memory. */
static void same_metrics(const char *a, const char *b)
{
    char x[300], y[300];
    json_t *row;
    size_t i;
    snprintf(x, sizeof x, "%s/%s", dir, a);
    snprintf(y, sizeof y, "%s/%s", dir, b);
    json_t *left = read_metrics(x), *right = read_metrics(y);
    assert_int_equal(json_array_size(left), json_array_size(right));
    json_array_foreach(left, i, row)
    {
        const char *key;
        json_t *v;
        json_object_foreach(row, key, v)
        {
            const bool timed = strcmp(key, "tok_s") == 0 || strcmp(key, "step_ms") == 0 ||
                               strcmp(key, "memory_bytes") == 0 || strstr(key, "_runtime") ||
                               strstr(key, "_per_second");
            CHECK_MSG(timed || json_equal(v, json_object_get(json_array_get(right, i), key)),
                      "row %zu: %s differs", i, key);
        }
    }
    json_decref(left);
    json_decref(right);
}

static bool stop_after_two(void *user) { return *(int *)user >= 2; }

static bool stop_after_three(void *user) { return *(int *)user >= 3; }

static void count_step(void *user, const af_train_step *s)
{
    *(int *)user = isnan(s->eval_loss) ? (int)s->step : *(int *)user;
}

static void test_a_stopped_run_ends_with_the_same_bytes(void **state)
{
    (void)state;
    static const char *const kinds[] = {"dpo", "kto"};
    for (size_t i = 0; i < 2 && test_takes(i); i++) {
        char whole[16], part[16];
        int steps = 0;
        const af_train_hooks hooks = {.user = &steps, .step = count_step, .stop = stop_after_two};
        snprintf(whole, sizeof whole, "whole-%zu", i);
        snprintf(part, sizeof part, "part-%zu", i);
        static const char more[] = "micro_batch_size: 2\ngradient_accumulation_steps: 2\n"
                                   "val_set_size: 3\neval_steps: 2\nlora_dropout: 0.1\n"
                                   "disable_dropout: false\nlogging_steps: 2\n";
        run_in(whole, kinds[i], more, NULL, AF_OK);
        run_in(part, kinds[i], more, &hooks, AF_ESTOPPED);
        run_in(part, kinds[i],
               "micro_batch_size: 2\ngradient_accumulation_steps: 2\nval_set_size: 3\n"
               "eval_steps: 2\nlora_dropout: 0.1\ndisable_dropout: false\nlogging_steps: 2\n"
               "resume_from_checkpoint: auto\n",
               NULL, AF_OK);
        assert_true(difference(whole, part) == 0);
        same_metrics(whole, part);
    }
}

static void test_accumulation_is_exact(void **state)
{
    (void)state;
    static const char *const kinds[] = {"dpo", "simpo"};
    for (size_t i = 0; i < 2 && test_takes(i); i++) {
        char one[16], many[16];
        snprintf(one, sizeof one, "one-%zu", i);
        snprintf(many, sizeof many, "many-%zu", i);
        run_in(one, kinds[i], "micro_batch_size: 4\n", NULL, AF_OK);
        run_in(many, kinds[i], "micro_batch_size: 1\ngradient_accumulation_steps: 4\n", NULL,
               AF_OK);
        assert_true(difference(one, many) < 2e-6);
    }
}

/* All pairs of the data in one packed row, or one by one. */
static void test_packing_changes_nothing(void **state)
{
    (void)state;
    run_in("packed", "dpo", "sample_packing: true\nmicro_batch_size: 1\n", NULL, AF_OK);
    run_in("apart", "dpo", "micro_batch_size: 16\n", NULL, AF_OK);
    assert_true(difference("packed", "apart") < 2e-6);
}

/* The metrics of an evaluation do not depend on the micro-batches of training. */
static void test_eval_metrics_are_of_all_records(void **state)
{
    static const char *const names[] = {"eval_rewards/accuracies", "eval_rewards/margins",
                                        "eval_logps/chosen", "eval_accuracy"};
    json_t *rows[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        char out[600], more[100];
        snprintf(out, sizeof out, "pooled-%d", i);
        snprintf(more, sizeof more, "micro_batch_size: %d\nval_set_size: 5\neval_steps: 2\n",
                 i ? 2 : 5);
        run_in(out, "simpo", more, NULL, AF_OK);
        snprintf(out, sizeof out, "%s/pooled-%d", dir, i);
        rows[i] = read_metrics(out);
    }
    for (size_t k = 0; k < AF_LEN(names); k++) {
        const json_t *a = json_object_get(json_array_get(rows[0], 0), names[k]),
                     *b = json_object_get(json_array_get(rows[1], 0), names[k]);
        assert_true(json_is_number(a) && json_is_number(b));
        CHECK_MSG(fabs(json_number_value(a) - json_number_value(b)) < 1e-5, "%s: %.9g and %.9g",
                  names[k], json_number_value(a), json_number_value(b));
    }
    json_decref(rows[0]);
    json_decref(rows[1]);
}

/* KTO: answers that measure KL come from a block of records; one row a pass is then enough. */
static void test_kl_blocks(void **state)
{
    (void)state;
    run_in("usual", "kto", "micro_batch_size: 4\n", NULL, AF_OK);
    run_in("same", "kto", "micro_batch_size: 4\nkto_kl_batch: 4\n", NULL, AF_OK);
    run_in("wide", "kto", "micro_batch_size: 4\nkto_kl_batch: 1000\n", NULL, AF_OK);
    run_in("single", "kto", "micro_batch_size: 1\nkto_kl_batch: 4\n", NULL, AF_OK);
    run_in("alone", "kto", "micro_batch_size: 4\nkto_kl_batch: 1\n", NULL, AF_EUSAGE);
    assert_true(difference("usual", "same") == 0);
    assert_true(difference("usual", "wide") > 0);
}

/* TRL's trainers of preferences switch dropout off. */
static void test_dropout_is_off(void **state)
{
    (void)state;
    static const char *const kinds[] = {"dpo", "reward"};
    for (size_t i = 0; i < 2 && test_takes(i); i++) {
        char none[16], off[16], on[16];
        snprintf(none, sizeof none, "none-%zu", i);
        snprintf(off, sizeof off, "off-%zu", i);
        snprintf(on, sizeof on, "on-%zu", i);
        run_in(none, kinds[i], "", NULL, AF_OK);
        run_in(off, kinds[i], "lora_dropout: 0.3\n", NULL, AF_OK);
        run_in(on, kinds[i], "lora_dropout: 0.3\ndisable_dropout: false\n", NULL, AF_OK);
        assert_true(difference(none, off) == 0);
        assert_true(difference(none, on) > 0);
    }
}

static int references_in(const char *folder)
{
    char path[300], **names = NULL;
    int n = 0, found = 0;
    af_error err = {0};
    snprintf(path, sizeof path, "%s/afinar/tokens", folder);
    CHECK_OK(af_dir_list(&names, &n, path, &err), err);
    for (int i = 0; i < n; i++)
        found += strstr(names[i], ".reference") && names[i][0] != '.';
    af_names_free(names, n);
    return found;
}

static void note_line(void *user, const char *line)
{
    if (strstr(line, "reference: "))
        snprintf(user, 100, "%s", line);
}

/* Values of the cache have the bits of those that were just computed, whatever the run. */
static void test_kept_references_are_the_same(void **state)
{
    (void)state;
    static const char *const kinds[] = {"dpo", "kto"};
    for (size_t i = 0; i < 2 && test_takes(i); i++) {
        char live[16], first[16], second[16], line[100] = "", cache[64];
        const af_train_hooks hooks = {.user = line, .log = note_line};
        snprintf(live, sizeof live, "live-%zu", i);
        snprintf(first, sizeof first, "first-%zu", i);
        snprintf(second, sizeof second, "second-%zu", i);
        snprintf(cache, sizeof cache, "%s/cache-%zu", dir, i);
        assert_int_equal(setenv("XDG_CACHE_HOME", cache, 1), 0);
        run_in(live, kinds[i], "precompute_ref_log_probs: false\n", NULL, AF_OK);
        assert_int_equal(references_in(cache), 0);
        run_in(first, kinds[i], "", &hooks, AF_OK);
        CHECK_MSG(strstr(line, "kept in the cache"), "%s", line);
        assert_int_equal(references_in(cache), 1);
        run_in(second, kinds[i], "", &hooks, AF_OK);
        CHECK_MSG(strstr(line, "from the cache"), "%s", line);
        assert_true(difference(live, first) == 0 && difference(live, second) == 0);
        same_metrics(live, second);
        run_in("other", kinds[i], "bf16: true\n", &hooks, AF_OK);
        CHECK_MSG(strstr(line, "kept in the cache"), "%s", line); /* other values: another file */
        assert_int_equal(references_in(cache), 2);
        af_error err;
        assert_int_equal(af_path_remove(cache, &err), AF_OK);
        char other[300];
        snprintf(other, sizeof other, "%s/other", dir);
        assert_int_equal(af_path_remove(other, &err), AF_OK);
    }
    assert_int_equal(setenv("XDG_CACHE_HOME", dir, 1), 0);
}

/* A full run whose reference takes 0.6 of the weights every second step. */
static void sync_in(const char *name, const char *extra, const af_train_hooks *hooks,
                    af_status expected)
{
    char text[1200];
    af_error err = {0};
    snprintf(text, sizeof text,
             "base_model: %s/models/qwen2\ndatasets: [{path: %s/preference/data/preferences.jsonl, "
             "max_samples: 12}]\noutput_dir: %s/%s\nrl: dpo\nadapter: full\nlearning_rate: 1e-3\n"
             "lr_scheduler: linear\nmicro_batch_size: 2\ngradient_accumulation_steps: 3\n"
             "num_epochs: 4\nsequence_len: 160\nshuffle: false\nbf16: false\ndevice: %s\n"
             "sync_ref_model: true\n%s%s",
             golden_dir(), golden_dir(), dir, name, test_device(),
             strstr(extra, "ref_model_sync_steps") ? "" : "ref_model_sync_steps: 2\n", extra);
    const af_status st = train_text(text, hooks, &err);
    CHECK_MSG(st == expected, "%s: status %d, %s", name, (int)st, err.msg);
}

/* Losses of TRL 1.16 (judge_trainers.py, dpo-sync); stopped between two references, and resumed. */
static void test_a_reference_that_follows(void **state)
{
    (void)state;
    static const double trl[] = {0.693147182, 0.529123366, 0.432817757, 0.409258723,
                                 0.454515278, 0.435561091, 0.505418658, 0.499490678};
    char out[300], more[700];
    int steps = 0;
    const af_train_hooks hooks = {.user = &steps, .step = count_step, .stop = stop_after_three};
    sync_in("follows", "", NULL, AF_OK);
    snprintf(out, sizeof out, "%s/follows", dir);
    json_t *rows = read_metrics(out), *row;
    size_t i;
    assert_int_equal(json_array_size(rows), AF_LEN(trl));
    json_array_foreach(rows, i, row)
    {
        const double loss = json_number_value(json_object_get(row, "loss"));
        CHECK_MSG(fabs(loss - trl[i]) < 2e-5, "step %zu: loss %.9g, not %.9g", i + 1, loss, trl[i]);
    }
    json_decref(rows);
    char *end = more + snprintf(more, sizeof more,
                                "test_datasets: [{path: %s/preference/data/preferences.jsonl, "
                                "max_samples: 3}]\neval_steps: 1\n",
                                golden_dir());
    sync_in("sync-whole", more, NULL, AF_OK);
    sync_in("sync-part", more, &hooks, AF_ESTOPPED);
    snprintf(end, 40, "resume_from_checkpoint: auto\n");
    sync_in("sync-part", more, NULL, AF_OK);
    same_metrics("sync-whole", "sync-part");
    assert_true(same_output("sync-whole", "sync-part", "model.safetensors"));
    /* the weights are the reference: so they are for the evaluation after each step */
    snprintf(end, 100, "ref_model_mixup_alpha: 1\nref_model_sync_steps: 1\nmax_steps: 2\n");
    sync_in("sync-eval", more, NULL, AF_OK);
    uint64_t size;
    char *metrics = read_output("sync-eval", "metrics.jsonl", &size), *at = metrics;
    for (i = 0; (at = strstr(at, "\"eval_loss\": 0.69314718")); i++)
        at++;
    assert_int_equal(i, 3);
    free(metrics);
    sync_in("sync-kept", "precompute_ref_log_probs: true\n", NULL, AF_EUSAGE);
    run_in("sync-lora", "dpo", "sync_ref_model: true\n", NULL, AF_EUSAGE);
}

static void test_threads_do_not_change_a_bit(void **state)
{
    (void)state;
    run_in("threads-1", "dpo", "threads: 1\n", NULL, AF_OK);
    run_in("threads-3", "dpo", "threads: 3\n", NULL, AF_OK);
    assert_true(difference("threads-1", "threads-3") == 0);
    same_metrics("threads-1", "threads-3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_follow_trl),
        cmocka_unit_test(test_all_runs_follow_trl),
        cmocka_unit_test(test_a_stopped_run_ends_with_the_same_bytes),
        cmocka_unit_test(test_accumulation_is_exact),
        cmocka_unit_test(test_packing_changes_nothing),
        cmocka_unit_test(test_eval_metrics_are_of_all_records),
        cmocka_unit_test(test_kl_blocks),
        cmocka_unit_test(test_dropout_is_off),
        cmocka_unit_test(test_kept_references_are_the_same),
        cmocka_unit_test(test_threads_do_not_change_a_bit),
        cmocka_unit_test(test_a_reference_that_follows),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
