/* test_distill_runs.c - distillation from a teacher in the same process: runs against PyTorch, and
 * the divergences against sums in double. */
#define _DEFAULT_SOURCE
#include "train/run_folder.h"

#include "afinar/model.h"
#include "afinar/train.h"
#include "base/buf.h"
#include "base/file.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

static af_status train_text(const char *text, af_error *err)
{
    char path[256];
    af_train_result result;
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    assert_int_equal(af_file_write(path, text, strlen(text), err), AF_OK);
    return af_train(path, NULL, 0, NULL, &result, err);
}

static json_t *read_metrics(const char *name)
{
    char path[300], *text;
    uint64_t size;
    af_error err = {0};
    json_t *rows = json_array();
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", dir, name);
    CHECK_OK(af_file_read(&text, &size, path, 1 << 24, &err), err);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
        json_array_append_new(rows, json_loadb(line, (size_t)(end - line), 0, NULL));
    free(text);
    return rows;
}

static double value(const json_t *row, const char *key)
{
    CHECK_MSG(json_is_number(json_object_get(row, key)), "no %s", key);
    return json_number_value(json_object_get(row, key));
}

/* ---- the golden run ---- */

/* The run `name` of the goldens; `teacher` names its key and what is in the folder of goldens.
 * chunk: kd_chunk_size, of micro-batches whose lengths differ. */
static void follow_pytorch(const char *name, const char *teacher, const char *more, int chunk)
{
    static size_t runs;
    const char *g = shared_dir();
    char path[600];
    af_buf b = {0};
    af_error err = {0};
    json_error_t why;
    if (!g)
        skip_because("no shared goldens");
    if (!test_takes(runs++))
        return;
    af_buf_printf(&b,
                  "base_model: %s/golden/models/llama\nadapter: lora\nlora_model_dir: "
                  "%s/golden/preference/runs/initial/llama\ndatasets: [{path: "
                  "%s/golden/models/data/train_tokens.jsonl}]\noutput_dir: %s/%s\n"
                  "kd_chunk_size: %d\noverwrite_output_dir: true\n",
                  g, g, g, dir, name, chunk);
    af_buf_printf(&b, teacher, g);
    af_buf_printf(
        &b,
        "distill_kl_weight: 0.5\ndistill_ce_weight: 0.5\n"
        "distill_temperature: 2\n%smicro_batch_size: 2\n"
        "gradient_accumulation_steps: 2\nmax_steps: 10\nlearning_rate: 0.002\nwarmup_steps: 2\n"
        "weight_decay: 0.01\nweight_decay_on: all\nmax_grad_norm: 1\nshuffle: false\n"
        "bf16: false\nlogging_steps: 1\ndevice: %s\n",
        more, test_device());
    char *text = af_buf_take(&b);
    CHECK_OK(train_text(text, &err), err);
    free(text);
    snprintf(path, sizeof path, "%s/golden/preference/runs/%s/trajectory.json", g, name);
    json_t *want = json_load_file(path, 0, &why), *rows = read_metrics(name);
    const json_t *steps = json_object_get(want, "steps");
    assert_int_equal(json_array_size(rows), json_array_size(steps));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *a = json_array_get(rows, i), *s = json_array_get(steps, i);
        assert_true(fabs(value(a, "loss") - value(s, "loss")) <= 5e-6);
        assert_true(fabs(value(a, "grad_norm") - value(s, "grad_norm")) <= 2e-6);
        assert_true(fabs(value(a, "ce") - value(s, "ce")) <= 5e-6);
        assert_true(fabs(value(a, "kl") - value(s, "kd")) <= 1e-5);
    }
    json_decref(want);
    json_decref(rows);
}

static void test_a_run_follows_pytorch(void **state)
{
    (void)state;
    follow_pytorch("distill-jsd", "teacher_model: %s/golden/models/runs/llama/teacher\n",
                   "kd_beta: 0.5\n", 0);
}

/* Distributions of some rows at a time, where they do not fill the last part. */
static void test_chunks_follow_pytorch(void **state)
{
    (void)state;
    static const char *const file =
        "kd_logits: %s/golden/preference/runs/distill-topk/capture.safetensors\n";
    follow_pytorch("distill-jsd", "teacher_model: %s/golden/models/runs/llama/teacher\n",
                   "kd_beta: 0.5\n", 27);
    follow_pytorch("distill-topk-norm", file, "kd_normalize_topk: true\n", 50);
}

static void test_runs_from_a_capture_follow_pytorch(void **state)
{
    (void)state;
    static const char *const file =
        "kd_logits: %s/golden/preference/runs/distill-topk/capture.safetensors\n";
    follow_pytorch("distill-topk", file, "", 0);
    follow_pytorch("distill-topk-norm", file, "kd_normalize_topk: true\n", 0);
}

/* ---- by hand ---- */

enum { TOKENS = 12, VOCAB = 512 };
static const int32_t ids[TOKENS] = {510, 82, 270, 198, 39, 290, 403, 274, 75, 72, 511, 198};
enum { MASKED = 4 }; /* the first tokens carry no loss */

static void write_record(void)
{
    af_buf b = {0};
    af_error err = {0};
    char path[300];
    snprintf(path, sizeof path, "%s/tokens.jsonl", dir);
    af_buf_str(&b, "{\"input_ids\": [");
    for (int i = 0; i < TOKENS; i++)
        af_buf_printf(&b, "%s%d", i ? ", " : "", ids[i]);
    af_buf_str(&b, "], \"labels\": [");
    for (int i = 0; i < TOKENS; i++)
        af_buf_printf(&b, "%s%d", i ? ", " : "", i < MASKED ? -100 : ids[i]);
    af_buf_str(&b, "]}\n");
    CHECK_OK(af_file_write(path, b.data, b.len, &err), err);
    af_buf_clear(&b);
}

static void run_in(const char *name, const char *base, const char *more, af_status expected,
                   const char *words)
{
    af_buf b = {0};
    af_error err = {0};
    af_buf_printf(&b,
                  "base_model: %s\noutput_dir: %s/%s\ndatasets: [{path: %s/tokens.jsonl}]\n"
                  "device: %s\nbf16: false\nlogging_steps: 1\n%s",
                  base, dir, name, dir, test_device(), more);
    char *text = af_buf_take(&b);
    const af_status st = train_text(text, &err);
    CHECK_MSG(st == expected, "%s: status %d, %s", name, (int)st, err.msg);
    CHECK_MSG(!words || strstr(err.msg, words), "no '%s' in: %s", words, err.msg);
    free(text);
}

static void shares_of(const char *path, double temperature, double *out)
{
    af_model *m = NULL;
    af_error err = {0};
    static float logits[TOKENS * VOCAB];
    CHECK_OK(af_model_open(&m, path, &(af_model_opts){.device = "cpu"}, &err), err);
    CHECK_OK(af_model_logits_of(m, ids, TOKENS, logits, &err), err);
    for (int i = 0; i < TOKENS; i++) {
        double sum = 0;
        for (int v = 0; v < VOCAB; v++)
            sum += exp(logits[i * VOCAB + v] / temperature);
        for (int v = 0; v < VOCAB; v++)
            out[i * VOCAB + v] = exp(logits[i * VOCAB + v] / temperature) / sum;
    }
    af_model_close(m);
}

static double divergence(const double *p, const double *q, double beta)
{
    double sum = 0;
    for (int v = 0; v < VOCAB; v++) {
        const double m = (1 - beta) * p[v] + beta * q[v];
        sum += beta == 0   ? q[v] * log(q[v] / p[v])
               : beta == 1 ? p[v] * log(p[v] / q[v])
                           : beta * q[v] * log(q[v] / m) + (1 - beta) * p[v] * log(p[v] / m);
    }
    return sum;
}

static void test_divergences_are_their_formulas(void **state)
{
    (void)state;
    static const double betas[] = {0, 0.3, 1};
    static double p[TOKENS * VOCAB], q[TOKENS * VOCAB];
    char base[300], teacher[300], more[900];
    snprintf(base, sizeof base, "%s/models/qwen2", golden_dir());
    snprintf(teacher, sizeof teacher, "%s/teacher", dir);
    write_record();
    run_in("teacher", base, "max_steps: 4\nlearning_rate: 0.003\nwarmup_steps: 0\n", AF_OK, NULL);
    shares_of(base, 1.5, p);
    shares_of(teacher, 1.5, q);
    for (int k = 0; k < 3; k++) {
        char name[32];
        double want = 0;
        snprintf(name, sizeof name, "student-%d", k);
        snprintf(more, sizeof more,
                 "teacher_model: %s\nkd_temperature: 1.5\nkd_beta: %g\nkd_ce_alpha: 0.25\n"
                 "max_steps: 1\nadapter: lora\n",
                 teacher, betas[k]);
        run_in(name, base, more, AF_OK, NULL);
        for (int i = MASKED - 1; i + 1 < TOKENS; i++) /* rows that predict a label */
            want += divergence(p + i * VOCAB, q + i * VOCAB, betas[k]);
        want *= 1.5 * 1.5 / (TOKENS - MASKED);
        json_t *rows = read_metrics(name);
        const json_t *row = json_array_get(rows, 0);
        CHECK_MSG(fabs(value(row, "kl") - want) < 1e-5 * want + 1e-7, "beta %g: %.9g, not %.9g",
                  betas[k], value(row, "kl"), want);
        assert_true(fabs(value(row, "loss") - 0.25 * value(row, "ce") - value(row, "kl")) < 1e-6);
        json_decref(rows);
    }
}

static void test_a_student_follows_its_teacher(void **state)
{
    (void)state;
    char base[300], more[900];
    snprintf(base, sizeof base, "%s/models/qwen2", golden_dir());
    snprintf(more, sizeof more,
             "teacher_model: %s/teacher\nteacher_load_in_4bit: true\nmax_steps: 30\n"
             "learning_rate: 0.01\nadapter: lora\n",
             dir);
    run_in("follows", base, more, AF_OK, NULL);
    json_t *rows = read_metrics("follows");
    assert_true(value(json_array_get(rows, 29), "kl") < 0.2 * value(json_array_get(rows, 0), "kl"));
    json_decref(rows);
}

/* The base under an adapter as teacher: the same numbers whether its weights are shared or read
 * again from another folder. */
static void test_a_shared_base_changes_nothing(void **state)
{
    (void)state;
    char base[300], copy[300], file[400], more[900], target[400];
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json", "chat_template.jinja"};
    af_error err = {0};
    snprintf(base, sizeof base, "%s/models/qwen2", golden_dir());
    snprintf(copy, sizeof copy, "%s/copy", dir);
    CHECK_OK(af_dir_make(copy, &err), err);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *text;
        uint64_t size;
        snprintf(file, sizeof file, "%s/%s", base, files[i]);
        snprintf(target, sizeof target, "%s/%s", copy, files[i]);
        CHECK_OK(af_file_read(&text, &size, file, 1 << 24, &err), err);
        CHECK_OK(af_file_write(target, text, size, &err), err);
        free(text);
    }
    run_in("tuned", base, "max_steps: 3\nlearning_rate: 0.01\nadapter: lora\nwarmup_steps: 0\n",
           AF_OK, NULL);
    for (int own = 0; own < 2; own++) {
        snprintf(more, sizeof more,
                 "teacher_model: %s\nteacher_adapter: %s/tuned\nmax_steps: 3\nadapter: lora\n"
                 "learning_rate: 0.01\nseed: 3\n",
                 own ? copy : base, dir);
        run_in(own ? "apart" : "shared", base, more, AF_OK, NULL);
    }
    json_t *a = read_metrics("shared"), *b = read_metrics("apart");
    for (size_t i = 0; i < 3; i++) {
        assert_true(value(json_array_get(a, i), "kl") > 0);
        assert_true(value(json_array_get(a, i), "kl") == value(json_array_get(b, i), "kl"));
        assert_true(value(json_array_get(a, i), "grad_norm") ==
                    value(json_array_get(b, i), "grad_norm"));
    }
    json_decref(a);
    json_decref(b);
}

/* Activations of a step, by its plan; large ones, next to what GEMMs need to work in. */
static double planned(const char *chunk, const char *checkpointing)
{
    char path[300], *text = NULL;
    const char *const set[] = {chunk, checkpointing, "threads=1", "micro_batch_size=32"};
    af_error err = {0};
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    CHECK_OK(af_train_plan(path, set, AF_LEN(set), 0, true, &text, &err), err);
    json_t *plan = json_loads(text, 0, NULL);
    const double bytes = value(json_object_get(plan, "arenas"), "activations");
    json_decref(plan);
    free(text);
    return bytes;
}

/* Full fine-tuning trains the head, too: its gradient is a sum over the parts. */
static void test_chunks_change_only_the_memory(void **state)
{
    (void)state;
    char base[300], more[900];
    snprintf(base, sizeof base, "%s/models/qwen2", golden_dir());
    for (int chunk = 0; chunk < 6; chunk += 5) {
        snprintf(more, sizeof more,
                 "teacher_model: %s/teacher\nmax_steps: 3\nlearning_rate: 0.001\nseed: 3\n"
                 "sequence_len: 64\nkd_beta: 0.3\nkd_ce_alpha: 0.5\nwarmup_steps: 0\n"
                 "val_set_size: 0\nkd_chunk_size: %d\n",
                 dir, chunk);
        run_in(chunk ? "in-chunks" : "at-once", base, more, AF_OK, NULL);
    }
    json_t *a = read_metrics("at-once"), *b = read_metrics("in-chunks");
    for (size_t i = 0; i < 3; i++) {
        static const char *const keys[] = {"loss", "kl", "ce", "grad_norm"};
        for (size_t k = 0; k < AF_LEN(keys); k++) {
            const double x = value(json_array_get(a, i), keys[k]);
            const double y = value(json_array_get(b, i), keys[k]);
            CHECK_MSG(x > 0 && fabs(x - y) <= 2e-6 * x, "%s of step %zu: %.9g, in chunks %.9g",
                      keys[k], i + 1, x, y);
        }
    }
    json_decref(a);
    json_decref(b);
    static const char *const modes[] = {"gradient_checkpointing=false",
                                        "gradient_checkpointing=true"};
    for (size_t i = 0; i < AF_LEN(modes); i++) {
        const double all = planned("kd_chunk_size=0", modes[i]);
        const double some = planned("kd_chunk_size=8", modes[i]);
        CHECK_MSG(some < 0.4 * all, "%g bytes in chunks, %g at once", some, all);
    }
}

static int64_t records_left = INT64_MAX; /* until a capture is stopped */

static bool stop_now(void *user)
{
    (void)user;
    return records_left-- <= 0;
}

static void capture(const char *base, const char *more, const char *file, af_status expected,
                    const char *words, af_capture_result *r)
{
    char path[256];
    af_buf b = {0};
    af_error err = {0};
    snprintf(path, sizeof path, "%s/capture.yaml", dir);
    af_buf_printf(&b,
                  "base_model: %s\noutput_dir: %s/none\ndatasets: [{path: %s/tokens.jsonl}]\n"
                  "device: %s\nbf16: false\nteacher_model: %s/teacher\n%s",
                  base, dir, dir, test_device(), dir, more);
    CHECK_OK(af_file_write(path, b.data, b.len, &err), err);
    af_buf_clear(&b);
    const af_train_hooks hooks = {.stop = stop_now};
    const af_status st = af_distill_capture(path, NULL, 0, file, false, &hooks, r, &err);
    CHECK_MSG(st == expected, "status %d, %s", (int)st, err.msg);
    CHECK_MSG(!words || strstr(err.msg, words), "no '%s' in: %s", words, err.msg);
}

/* With all tokens in the file, training with it is training with the teacher; f16 is the rest. */
static void test_a_capture_is_its_teacher(void **state)
{
    (void)state;
    static const char *const betas[] = {"0", "0.3", "1"};
    char base[300], file[300], more[900], name[32];
    af_capture_result r;
    snprintf(base, sizeof base, "%s/models/qwen2", golden_dir());
    snprintf(file, sizeof file, "%s/all.safetensors", dir);
    capture(base, "kd_topk: 4096\n", file, AF_OK, NULL, &r);
    assert_int_equal(r.k, VOCAB);
    assert_int_equal(r.positions, TOKENS - MASKED);
    capture(base, "", file, AF_EUSAGE, "exists", NULL);
    for (int k = 0; k < 3; k++) {
        json_t *rows[2];
        for (int own = 0; own < 2; own++) {
            snprintf(name, sizeof name, "%s-%d", own ? "online" : "offline", k);
            snprintf(more, sizeof more,
                     "%s: %s/%s\nkd_temperature: 1.5\nkd_beta: %s\nmax_steps: 3\nadapter: lora\n",
                     own ? "teacher_model" : "kd_logits", dir, own ? "teacher" : "all.safetensors",
                     betas[k]);
            run_in(name, base, more, AF_OK, NULL);
            rows[own] = read_metrics(name);
        }
        for (size_t i = 0; i < 3; i++) {
            const double a = value(json_array_get(rows[0], i), "kl"),
                         b = value(json_array_get(rows[1], i), "kl");
            CHECK_MSG(fabs(a - b) < 5e-3 * b, "beta %s: %.9g, not %.9g", betas[k], a, b);
        }
        json_decref(rows[0]);
        json_decref(rows[1]);
    }
}

static void test_a_killed_capture_goes_on(void **state)
{
    (void)state;
    char base[300], file[300], part[310], tokens[300], *text[2], *whole;
    uint64_t size[2], bytes;
    af_error err = {0};
    af_capture_result r;
    snprintf(base, sizeof base, "%s/models/qwen2", golden_dir());
    snprintf(tokens, sizeof tokens, "%s/tokens.jsonl", dir);
    CHECK_OK(af_file_read(&whole, &bytes, tokens, 1 << 20, &err), err);
    for (int i = 0; i < 3; i++)
        CHECK_OK(af_file_append(tokens, whole, bytes, false, &err), err);
    snprintf(file, sizeof file, "%s/first.safetensors", dir);
    capture(base, "", file, AF_OK, NULL, &r);
    assert_int_equal(r.k, 64);
    CHECK_OK(af_file_read(&text[0], &size[0], file, 1 << 24, &err), err);
    const uint64_t position = 64 * 4 + 4; /* below 65536 tokens; 32 bytes more above */
    assert_true(position + 32 <= 300);
    assert_true(size[0] < 4 * (TOKENS - MASKED) * position + 1024);
    snprintf(file, sizeof file, "%s/second.safetensors", dir);
    snprintf(part, sizeof part, "%s.part", file);
    CHECK_OK(af_file_write(part, "another\n", 8, &err), err);
    capture(base, "", file, AF_EUSAGE, "another teacher, data or kd_topk", NULL);
    CHECK_OK(af_file_write(part, "", 0, &err), err); /* killed as soon as it was there */
    records_left = 2;
    capture(base, "", file, AF_ESTOPPED, "stopped after 2 of 4 records", NULL);
    records_left = INT64_MAX;
    assert_false(af_file_exists(file));
    CHECK_OK(af_file_append(part, "half of a record", 16, false, &err), err);
    capture(base, "", file, AF_OK, NULL, &r);
    assert_int_equal(r.resumed, 2);
    assert_false(af_file_exists(part));
    CHECK_OK(af_file_read(&text[1], &size[1], file, 1 << 24, &err), err);
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(text[0], text[1], size[0]);
    /* of other data */
    char more[400];
    CHECK_OK(af_file_write(tokens, whole, bytes, &err), err);
    snprintf(more, sizeof more, "kd_logits: %s\nadapter: lora\nmax_steps: 1\n", file);
    run_in("no", base, more, AF_EUSAGE, "was captured from other tokens than this run's");
    snprintf(more, sizeof more, "kd_logits: %s\nkd_topk: 65\n", file);
    run_in("no", base, more, AF_EUSAGE, "the capture has 64 tokens");
    free(text[0]);
    free(text[1]);
    free(whole);
}

static void test_contradictions_are_refused(void **state)
{
    (void)state;
    char base[300], more[900];
    snprintf(base, sizeof base, "%s/models/qwen2", golden_dir());
    snprintf(more, sizeof more, "teacher_model: %s\nkd_alpha: 0\n", base);
    run_in("no", base, more, AF_EUSAGE, "the teacher would have no effect");
    snprintf(more, sizeof more, "teacher_model: %s\ntask_type: SEQ_CLS\n", base);
    run_in("no", base, more, AF_EUSAGE, "distillation goes with training on tokens");
    run_in("no", base, "kd_beta: 0.5\n", AF_EUSAGE, "without 'teacher_model' or 'kd_logits'");
    run_in("no", base, "kd_chunk_size: 8\n", AF_EUSAGE,
           "without 'teacher_model', 'kd_logits' or 'use_asft_loss'");
    snprintf(more, sizeof more, "teacher_model: %s\nkd_uld: true\nkd_chunk_size: 8\n", base);
    run_in("no", base, more, AF_EUSAGE, "kd_chunk_size has no effect with kd_uld");
    snprintf(more, sizeof more, "teacher_model: %s\nkd_topk: 8\n", base);
    run_in("no", base, more, AF_EUSAGE, "afinar distill capture");
    snprintf(more, sizeof more, "kd_logits: %s/model.safetensors\n", base);
    run_in("no", base, more, AF_EFORMAT, "is not a capture of a teacher");
    snprintf(more, sizeof more, "teacher_model: %s/gguf_models/llama/hf\n", golden_dir());
    run_in("no", base, more, AF_EUSAGE, "their vocabularies may differ only in rows that pad them");
    snprintf(more, sizeof more, "teacher_model: %s/nothing\n", dir);
    run_in("no", base, more, AF_EUSAGE, "there is no such folder or file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_follows_pytorch),
        cmocka_unit_test(test_runs_from_a_capture_follow_pytorch),
        cmocka_unit_test(test_chunks_follow_pytorch),
        cmocka_unit_test(test_divergences_are_their_formulas),
        cmocka_unit_test(test_a_student_follows_its_teacher),
        cmocka_unit_test(test_a_shared_base_changes_nothing),
        cmocka_unit_test(test_chunks_change_only_the_memory),
        cmocka_unit_test(test_a_capture_is_its_teacher),
        cmocka_unit_test(test_a_killed_capture_goes_on),
        cmocka_unit_test(test_contradictions_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
