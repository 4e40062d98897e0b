/* method_runs.h - runs with the methods of tools/golden/make_method_runs.py. */
#ifndef AF_METHOD_RUNS_H
#define AF_METHOD_RUNS_H

#include "train/run_folder.h"

#include "afinar/train.h"
#include "base/buf.h"

/* A run of the tiny Qwen2 with these lines. */
static inline void write_run(const char *path, const char *out, const char *extra)
{
    af_buf b = {0};
    af_error err = {0};
    af_buf_printf(&b,
                  "base_model: %s/models/qwen2\ndatasets: [{path: %s/models/data/train.jsonl}]\n"
                  "output_dir: %s\nmicro_batch_size: 2\ngradient_accumulation_steps: 2\n"
                  "num_epochs: 1.875\nweight_decay: 0.01\nweight_decay_on: all\n"
                  "lr_scheduler: cosine\nwarmup_steps: 3\nmax_grad_norm: 1.0\nshuffle: false\n"
                  "bf16: false\ndevice: %s\n%s",
                  golden_dir(), golden_dir(), out, test_device(), extra);
    CHECK_OK(af_file_write(path, b.data, b.len, &err), err);
    af_buf_clear(&b);
}

static inline af_status train_with(const char *extra, const af_train_hooks *hooks, af_error *err)
{
    char path[300], out[300];
    af_train_result result;
    snprintf(out, sizeof out, "%s/out", dir);
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    CHECK_OK(af_path_remove(out, err), *err);
    write_run(path, out, extra);
    return af_train(path, NULL, 0, hooks, &result, err);
}

/* AF_OK or the error. */
static inline af_status train(const char *extra, af_error *err)
{
    return train_with(extra, NULL, err);
}

/* whole: also under a sanitizer, where others are not run to their ends. */
static inline void check_steps(const char *run, bool whole, double loss_limit, double norm_limit)
{
    int done = 0;
    const af_train_hooks some = {.user = &done, .step = count_a_step, .stop = stop_when_sanitized};
    const bool all = whole || !test_sanitized;
    af_buf b = {0};
    af_error err = {0};
    json_t *keys = golden_json(run, "run.json"), *v;
    const char *key;
    json_object_foreach(keys, key, v)
    {
        char *text = json_dumps(v, JSON_ENCODE_ANY);
        af_buf_printf(&b, "%s: %s\n", key, text);
        free(text);
    }
    if (json_object_get(keys, "load_in_8bit") || strcmp(run, "asft-lora") == 0)
        af_buf_printf(&b, "lora_model_dir: %s/runs/qwen2/lora/initial_adapter\n", golden_dir());
    if (strcmp(run, "oft-continued") == 0)
        af_buf_printf(&b, "lora_model_dir: %s/runs/qwen2/%s/initial_adapter\n", golden_dir(), run);
    const af_status st = train_with(b.data, all ? NULL : &some, &err);
    CHECK_MSG(st == AF_OK || (!all && st == AF_ESTOPPED), "%s: %s", run, err.msg);
    steps_follow_golden("out", run, all ? SIZE_MAX : SANITIZED_STEPS, loss_limit, norm_limit);
    af_buf_clear(&b);
    json_decref(keys);
}

static inline void check_run_within(const char *run, double loss_limit, double norm_limit)
{
    check_steps(run, false, loss_limit, norm_limit);
}

/* The rest of six steps, resumed after three with another number of threads (of up to eight:
 * decision 0018), has their bytes. */
static inline void check_resumes(const char *lines, const char *file)
{
    char text[400], path[600], resume[700];
    af_error err = {0};
    af_train_result result;
    uint64_t whole_size, size;
    snprintf(text, sizeof text, "%slearning_rate: 1e-3\nmax_steps: 6\nsave_steps: 3\nthreads: 2\n",
             lines);
    CHECK_OK(train(text, &err), err);
    char *whole = read_output("out", file, &whole_size);
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    snprintf(resume, sizeof resume, "resume_from_checkpoint=%s/out/checkpoint-3", dir);
    CHECK_OK(af_train(path, (const char *const[]){resume, "threads=1"}, 2, NULL, &result, &err),
             err);
    char *again = read_output("out", file, &size);
    assert_int_equal(size, whole_size);
    assert_memory_equal(again, whole, size);
    free(whole);
    free(again);
}

static inline void check_run(const char *run)
{
    check_run_within(run, 1e-5, 5e-5); /* as in test_trajectories.c */
}
/* For a look at what it wrote. */
static inline void check_whole_run(const char *run) { check_steps(run, true, 1e-5, 5e-5); }
#endif
