/* linear_regression.c - y = 3 a - 2 b + 0.5, found from 64 noisy points: the whole library in one
 * page. Usage: example_linear_regression [STEPS] */
#include "afinar/graph.h"

#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 64 };

static int fail(const af_error *err)
{
    fprintf(stderr, "linear_regression: %s\n", err->msg);
    return 1;
}

int main(int argc, char **argv)
{
    const long steps = argc > 1 ? strtol(argv[1], NULL, 10) : 500;
    af_error err = {0};
    af_device *device = NULL;
    af_graph *g = NULL;
    if (af_device_open(&device, "cpu", 1, &err) != AF_OK || af_graph_new(&g, &err) != AF_OK)
        return fail(&err);

    /* record: the prediction, the loss, its gradient, the update */
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){POINTS, 2});
    af_tensor *t = af_graph_input(g, "t", AF_DTYPE_F32, 2, (int64_t[]){POINTS, 1});
    af_tensor *w = af_graph_param(g, "w", AF_DTYPE_F32, 2, (int64_t[]){2, 1});
    af_tensor *b = af_graph_param(g, "b", AF_DTYPE_F32, 1, (int64_t[]){1});
    af_tensor *loss = af_mse(g, af_add(g, af_matmul(g, x, w, AF_MATMUL_NN), b), t);
    af_graph_backward(g, loss);
    af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW});
    if (af_graph_prepare(g, device, &err) != AF_OK) /* the only place that allocates */
        return fail(&err);

    float xs[POINTS][2], ts[POINTS], found[2], bias, last = 0;
    for (int i = 0; i < POINTS; i++) {
        xs[i][0] = (float)(i % 8) / 4.0f - 1.0f;
        xs[i][1] = (float)(i / 8) / 4.0f - 1.0f;
        ts[i] = 3.0f * xs[i][0] - 2.0f * xs[i][1] + 0.5f + 0.01f * (float)(i * 37 % 11 - 5);
    }
    af_status st = af_tensor_write(g, x, xs, sizeof xs, &err);
    st = st ? st : af_tensor_write(g, t, ts, sizeof ts, &err);
    af_graph_set_learning_rate(g, 0.05);
    for (long i = 0; i < steps && !st; i++)
        st = af_graph_run(g, AF_RUN_STEP, &err);
    st = st ? st : af_tensor_read(g, w, found, sizeof found, &err);
    st = st ? st : af_tensor_read(g, b, &bias, sizeof bias, &err);
    st = st ? st : af_tensor_read(g, loss, &last, sizeof last, &err);
    if (st != AF_OK)
        return fail(&err);
    printf("y = %.3f a + %.3f b + %.3f, loss %.6f after %ld steps\n", found[0], found[1], bias,
           last, steps);
    af_graph_free(g);
    af_device_close(device);
    return 0;
}
