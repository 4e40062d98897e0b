/* lowrank_model.h - a tall matrix, a wide one and a vector under an optimizer with projected
 * gradients, and what such optimizers have in common. Before it comes `formula`, the values of
 * tests/golden/ops/make_*.py. */
#ifndef AF_TEST_LOWRANK_MODEL_H
#define AF_TEST_LOWRANK_MODEL_H

#include "backend/cpu/cpu.h"
#include "ops/optim/optimizer.h"
#include "worse.h"

#include <math.h>

enum { P = 3, TALL = 24 * 7, WIDE = 7 * 24, MATRICES = TALL + WIDE, VECTOR = 13, STEPS = 5 };

typedef struct model {
    af_graph *g;
    af_device *d;
    af_tensor *p[P], *x[P];
} model;

static void open_model(model *t, const af_optimizer_opts *o, bool twin, int threads)
{
    static const int64_t dim[P][2] = {{24, 7}, {7, 24}, {VECTOR, 1}};
    const af_dtype type = twin ? AF_DTYPE_F64 : AF_DTYPE_F32;
    af_error err = {0};
    af_tensor *loss = NULL;
    CHECK_OK(af_graph_new(&t->g, &err), err);
    CHECK_OK(af_cpu_open(&t->d, threads, &err), err);
    for (int k = 0; k < P; k++) {
        char name[2][4];
        snprintf(name[0], sizeof name[0], "p%d", k);
        snprintf(name[1], sizeof name[1], "x%d", k);
        t->p[k] = af_graph_param(t->g, name[0], type, k < 2 ? 2 : 1, dim[k]);
        t->x[k] = af_graph_input(t->g, name[1], type, k < 2 ? 2 : 1, dim[k]);
        af_tensor *y = af_sum_all(t->g, af_mul(t->g, t->p[k], t->x[k]));
        loss = loss ? af_add(t->g, loss, y) : y;
    }
    af_graph_backward(t->g, loss);
    af_graph_optimizer(t->g, o);
    CHECK_OK(af_graph_prepare(t->g, t->d, &err), err);
    af_graph_set_learning_rate(t->g, 0.01);
    for (int k = 0; k < P; k++)
        for (int64_t i = 0; i < af_count(t->p[k]); i++)
            af_st(t->p[k], i, formula(i, k, 0));
}

static void close_model(model *t)
{
    af_graph_free(t->g);
    af_device_close(t->d);
}

static void step(model *t, int number, double size)
{
    af_error err = {0};
    for (int k = 0; k < P; k++)
        for (int64_t i = 0; i < af_count(t->x[k]); i++)
            af_st(t->x[k], i, formula(i, k + P, number) * size);
    CHECK_OK(af_graph_run(t->g, AF_RUN_STEP, &err), err);
}

static double value(const model *t, int i)
{
    return i < TALL ? af_ld(t->p[0], i) : af_ld(t->p[1], i - TALL);
}

/* Updates of the package with each of the options, in golden/ops/NAME; sizes: of the gradients. */
static void check_package(const char *name, const af_optimizer_opts *const *cases, int count,
                          const double *sizes, double limit)
{
    char path[4096];
    float want[MATRICES];
    snprintf(path, sizeof path, "%s/ops/%s", golden_dir(), name);
    FILE *f = fopen(path, "rb");
    CHECK_MSG(f != NULL, "%s cannot be read", path);
    for (int c = 0; c < count; c++) {
        assert_int_equal(fread(want, 1, sizeof want, f), sizeof want);
        for (int twin = 0; twin < 2; twin++) {
            model t;
            double worst = 0;
            open_model(&t, cases[c], twin, 2);
            for (int s = 1; s <= STEPS; s++)
                step(&t, s, sizes[s - 1]);
            for (int i = 0; i < MATRICES; i++)
                worst = worse(worst, fabs(value(&t, i) - (double)want[i]));
            CHECK_MSG(worst < limit, "case %d (%s): %.3g from the package", c, twin ? "f64" : "f32",
                      worst);
            close_model(&t);
        }
    }
    fclose(f);
}

/* Vectors and matrices outside the model learn as with AdamW. */
static void check_others_learn_with_adamw(const af_optimizer_opts *o)
{
    af_optimizer_opts adamw = *o;
    adamw.kind = AF_OPTIMIZER_ADAMW;
    model t[2];
    open_model(&t[0], o, false, 2);
    open_model(&t[1], &adamw, false, 2);
    for (int s = 1; s <= 3; s++) {
        step(&t[0], s, 1);
        step(&t[1], s, 1);
    }
    for (int i = 0; i < VECTOR; i++)
        assert_true(fabs(af_ld(t[0].p[2], i) - af_ld(t[1].p[2], i)) < 1e-7);
    close_model(&t[0]);
    close_model(&t[1]);
}

/* Two steps, the state and the count moved to a new graph, and two more: the bits of four. */
static void check_resumes(const af_optimizer_opts *o)
{
    model t[2];
    open_model(&t[0], o, false, 2);
    open_model(&t[1], o, false, 2);
    step(&t[0], 1, 1);
    step(&t[0], 2, 3);
    for (int i = 0; i < t[0].g->n_tensors; i++) {
        const af_tensor *from = t[0].g->tensors[i];
        if (from->role == AF_ROLE_STATE || from->role == AF_ROLE_PARAM)
            memcpy(t[1].g->tensors[i]->data, from->data, af_tensor_bytes(from));
    }
    af_graph_set_step(t[1].g, 3);
    for (int k = 0; k < 2; k++) {
        step(&t[k], 3, 1);
        step(&t[k], 4, 5);
    }
    for (int k = 0; k < P; k++)
        assert_memory_equal(t[0].p[k]->data, t[1].p[k]->data, af_tensor_bytes(t[0].p[k]));
    close_model(&t[0]);
    close_model(&t[1]);
}

/* Each matrix of a parameter that is several has moments and a norm of its own. */
static void check_parts(const af_optimizer_opts *o)
{
    const int64_t n = MATRICES, part[2][2] = {{24, 7}, {7, 24}};
    af_error err = {0};
    model apart;
    af_graph *g = NULL;
    af_device *d = NULL;
    double worst = 0;
    open_model(&apart, o, false, 2);
    CHECK_OK(af_graph_new(&g, &err), err);
    CHECK_OK(af_cpu_open(&d, 2, &err), err);
    af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, 1, &n);
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 1, &n);
    af_param_parts(g, p, 2, part);
    af_graph_backward(g, af_sum_all(g, af_mul(g, p, x)));
    af_graph_optimizer(g, o);
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    af_graph_set_learning_rate(g, 0.01);
    for (int i = 0; i < MATRICES; i++)
        af_st(p, i, value(&apart, i));
    for (int s = 1; s <= 3; s++) {
        step(&apart, s, s);
        for (int i = 0; i < MATRICES; i++)
            af_st(x, i, af_ld(apart.x[i >= TALL], i >= TALL ? i - TALL : i));
        CHECK_OK(af_graph_run(g, AF_RUN_STEP, &err), err);
    }
    for (int i = 0; i < MATRICES; i++)
        worst = worse(worst, fabs(af_ld(p, i) - value(&apart, i)));
    CHECK_MSG(worst < 1e-7, "%.3g", worst);
    close_model(&apart);
    af_graph_free(g);
    af_device_close(d);
}
#endif
