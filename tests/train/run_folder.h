/* run_folder.h - a folder for the runs of one test program, with a token cache of its own, and what
 * a run of the tiny Qwen2 left there. */
#ifndef AF_RUN_FOLDER_H
#define AF_RUN_FOLDER_H

#include "test.h"

#include "afinar/train.h"
#include "base/file.h"

#include <jansson.h>
#include <math.h>

static char dir[] = "/tmp/afinar-train-XXXXXX";

static inline int setup(void **state)
{
    (void)state;
    return !mkdtemp(dir) || setenv("XDG_CACHE_HOME", dir, 1);
}

static inline int teardown(void **state)
{
    (void)state;
    af_error err;
    return af_path_remove(dir, &err) != AF_OK;
}

/* A file of a run's folder; free() it. */
static inline char *read_output(const char *run, const char *file, uint64_t *size)
{
    char path[600], *text;
    af_error err = {0};
    snprintf(path, sizeof path, "%s/%s/%s", dir, run, file);
    CHECK_OK(af_file_read(&text, size, path, 1 << 24, &err), err);
    return text;
}

/* The runs wrote the same file, byte for byte. */
static inline bool same_output(const char *a, const char *b, const char *file)
{
    uint64_t na, nb;
    char *x = read_output(a, file, &na), *y = read_output(b, file, &nb);
    const bool same = na == nb && memcmp(x, y, na) == 0;
    free(x);
    free(y);
    return same;
}

/* A file of the golden runs of the tiny Qwen2. */
static inline json_t *golden_json(const char *run, const char *file)
{
    char path[600];
    json_error_t why;
    snprintf(path, sizeof path, "%s/runs/qwen2/%s/%s", golden_dir(), run, file);
    json_t *j = json_load_file(path, 0, &why);
    CHECK_MSG(j, "%s: %s", path, why.text);
    return j;
}

/* A number that a run logged with its first step. */
static inline double first_metric(const char *run, const char *key)
{
    uint64_t size;
    char *text = read_output(run, "metrics.jsonl", &size);
    json_t *row = json_loadb(text, strcspn(text, "\n"), 0, NULL);
    const double value = json_number_value(json_object_get(row, key));
    json_decref(row);
    free(text);
    return value;
}

static inline double golden_gap(const json_t *row, const char *key, const json_t *step,
                                const char *its_key)
{
    return fabs(json_number_value(json_object_get(row, key)) -
                json_number_value(json_object_get(step, its_key)));
}

/* A run of which only steps are compared ends after this many under a sanitizer: later ones reach
 * nothing else. It has a checkpoint then, and no result. */
enum { SANITIZED_STEPS = 5 };
static inline void count_a_step(void *user, const af_train_step *s)
{
    (void)s;
    ++*(int *)user;
}
static inline bool stop_when_sanitized(void *user)
{
    return test_sanitized && *(const int *)user >= SANITIZED_STEPS;
}

/* Some steps of a run, at most as many as its golden has, against it. */
static inline void steps_follow_golden(const char *run, const char *golden, size_t most,
                                       double loss_limit, double norm_limit)
{
    uint64_t size;
    json_t *want = golden_json(golden, "trajectory.json");
    const json_t *steps = json_object_get(want, "steps");
    char *text = read_output(run, "metrics.jsonl", &size);
    const char *line = text;
    assert_true(json_array_size(steps) >= 2);
    for (size_t i = 0; i < AF_MIN(most, json_array_size(steps));
         i++, line = strchr(line, '\n') + 1) {
        json_t *row = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        const json_t *step = json_array_get(steps, i);
        const double loss = golden_gap(row, "loss", step, "loss"),
                     norm = golden_gap(row, "grad_norm", step, "grad_norm"),
                     lr = golden_gap(row, "learning_rate", step, "lr");
        CHECK_MSG(loss <= loss_limit && norm <= norm_limit && lr <= 1e-9,
                  "%s step %zu: loss differs by %g, norm by %g, rate by %g", golden, i + 1, loss,
                  norm, lr);
        json_decref(row);
    }
    free(text);
    json_decref(want);
}

static inline void follows_golden(const char *run, const char *golden, double loss_limit,
                                  double norm_limit)
{
    steps_follow_golden(run, golden, SIZE_MAX, loss_limit, norm_limit);
}
#endif
