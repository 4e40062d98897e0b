/* optimizer_trainer.h - two parameters and any gradient for them: that of sum(p * x) is x. */
#ifndef AF_OPTIMIZER_TRAINER_H
#define AF_OPTIMIZER_TRAINER_H

#include "test.h"

#include "backend/cpu/cpu.h"
#include "ops/optim/optimizer.h"

enum { STEPS = 10, A = 3 * 17, B = 65, ALL = A + B };

/* The same numbers as in the script that made the golden files. */
static inline float formula(int64_t i, int64_t k, int64_t step)
{
    return (float)((double)((i * 7919 + step * 104729 + k * 15485863) % 2001 - 1000) / 1000.0);
}

static inline void *load(const char *name, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/ops/%s", golden_dir(), name);
    FILE *f = fopen(path, "rb");
    CHECK_MSG(f, "cannot open %s", path);
    void *data = malloc(bytes);
    CHECK_MSG(fread(data, 1, bytes, f) == bytes && fgetc(f) == EOF, "%s is not %zu bytes", path,
              bytes);
    fclose(f);
    return data;
}

static inline void open_graph(af_graph **g, af_device **d, int threads)
{
    af_error err = {0};
    CHECK_OK(af_graph_new(g, &err), err);
    CHECK_OK(af_cpu_open(d, threads, &err), err);
}

static inline void close_graph(af_graph *g, af_device *d)
{
    af_graph_free(g);
    af_device_close(d);
}

/* Ready to train with a rate of 0.01. */
static inline void learn(af_graph *g, af_device *d, af_tensor *loss, const af_optimizer_opts *o)
{
    af_error err = {0};
    af_graph_backward(g, loss);
    af_graph_optimizer(g, o);
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    af_graph_set_learning_rate(g, 0.01);
}

static inline void run_graph(af_graph *g, int what)
{
    af_error err = {0};
    CHECK_OK(af_graph_run(g, what, &err), err);
}

typedef struct trainer {
    af_graph *g;
    af_device *d;
    af_tensor *p[2], *x[2];
} trainer;

static inline void open_trainer(trainer *t, af_dtype type, const af_optimizer_opts *o, bool groups)
{
    open_graph(&t->g, &t->d, 2);
    af_graph *g = t->g;
    t->p[0] = af_graph_param(g, "a", type, 2, (int64_t[]){3, 17});
    t->p[1] = af_graph_param(g, "b", type, 1, (int64_t[]){B});
    t->x[0] = af_graph_input(g, "xa", type, 2, (int64_t[]){3, 17});
    t->x[1] = af_graph_input(g, "xb", type, 1, (int64_t[]){B});
    if (groups)
        af_tensor_set_group(t->p[1], 0.5, false);
    af_param_moment_block(t->p[0], 17); /* one per row of a, one for all of b */
    af_tensor *loss = af_add(g, af_sum_all(g, af_mul(g, t->p[0], t->x[0])),
                             af_sum_all(g, af_mul(g, t->p[1], t->x[1])));
    learn(g, t->d, loss, o);
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < af_count(t->p[k]); i++)
            af_st(t->p[k], i, formula(i, k, 0));
}

static inline void close_trainer(trainer *t) { close_graph(t->g, t->d); }

static inline void set_gradients(trainer *t, int64_t step, double factor)
{
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < af_count(t->x[k]); i++)
            af_st(t->x[k], i, formula(i, k + 2, step) * factor);
}

static inline void run(trainer *t, int what) { run_graph(t->g, what); }

static inline double value(const trainer *t, int i)
{
    return i < A ? af_ld(t->p[0], i) : af_ld(t->p[1], i - A);
}
#endif
