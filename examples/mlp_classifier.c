/* mlp_classifier.c - a small network (2 -> 32 -> 32 -> 3) that classifies three spiral arms.
 *
 * The data is generated here. Training draws one batch per step; afterwards new points are
 * classified, and the program fails when fewer than 97 % are right.
 * Usage: example_mlp_classifier [STEPS]  (with fewer than the default, accuracy is not checked) */
#include "afinar/graph.h"
#include "afinar/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ARMS = 3, BATCH = 96, HIDDEN = 32, STEPS = 600, TESTS = 20 };
#define WANTED 0.97

typedef struct network {
    af_graph *g;
    af_tensor *x, *labels, *logits, *loss;
    af_tensor *param[6];
} network;

static double uniform(uint64_t *state) /* [0, 1): xorshift */
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (double)(*state >> 11) / 9007199254740992.0;
}

/* A batch of points on the arms, with some noise. */
static void draw(uint64_t *state, float (*x)[2], int32_t *label)
{
    for (int i = 0; i < BATCH; i++) {
        const double r = 0.1 + 0.9 * uniform(state);
        label[i] = i % ARMS;
        const double turn = 4 * r + label[i] * 2.0943951 + 0.2 * (uniform(state) - 0.5);
        x[i][0] = (float)(r * sin(turn));
        x[i][1] = (float)(r * cos(turn));
    }
}

static af_tensor *layer(network *n, af_tensor *x, int64_t in, int64_t out, int at)
{
    n->param[at] = af_graph_param(n->g, "weight", AF_DTYPE_F32, 2, (int64_t[]){in, out});
    n->param[at + 1] = af_graph_param(n->g, "bias", AF_DTYPE_F32, 1, &out);
    af_tensor_set_group(n->param[at + 1], 1, false); /* biases do not decay */
    return af_add(n->g, af_matmul(n->g, x, n->param[at], AF_MATMUL_NN), n->param[at + 1]);
}

static af_status build(network *n, af_device *device, af_error *err)
{
    const af_status st = af_graph_new(&n->g, err);
    if (st != AF_OK)
        return st;
    af_graph *g = n->g;
    n->x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){BATCH, 2});
    n->labels = af_graph_input(g, "labels", AF_DTYPE_I32, 1, (int64_t[]){BATCH});
    af_tensor *h = af_silu(g, layer(n, n->x, 2, HIDDEN, 0));
    h = af_silu(g, layer(n, h, HIDDEN, HIDDEN, 2));
    n->logits = layer(n, h, HIDDEN, ARMS, 4);
    n->loss = af_cross_entropy(g, n->logits, n->labels, 0);
    af_graph_output(g, n->logits);
    af_graph_backward(g, n->loss);
    af_graph_optimizer(
        g,
        &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW, .weight_decay = 0.01, .max_grad_norm = 1});
    return af_graph_prepare(g, device, err);
}

/* Weights uniform in +-sqrt(3 / inputs); biases stay zero. */
static af_status init(network *n, uint64_t *state, af_error *err)
{
    float v[HIDDEN * HIDDEN];
    for (int k = 0; k < 6; k += 2) {
        const int64_t count = af_tensor_count(n->param[k]);
        const double range = sqrt(3.0 / (double)af_tensor_dim(n->param[k], 0));
        for (int64_t i = 0; i < count; i++)
            v[i] = (float)(range * (2 * uniform(state) - 1));
        const af_status st =
            af_tensor_write(n->g, n->param[k], v, (uint64_t)count * sizeof v[0], err);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}

static af_status feed(network *n, uint64_t *state, int32_t *label, int what, af_error *err)
{
    float x[BATCH][2];
    draw(state, x, label);
    af_status st = af_tensor_write(n->g, n->x, x, sizeof x, err);
    st = st ? st : af_tensor_write(n->g, n->labels, label, BATCH * sizeof *label, err);
    return st ? st : af_graph_run(n->g, what, err);
}

static af_status train(network *n, long steps, uint64_t *state, af_error *err)
{
    int32_t label[BATCH];
    af_schedule rate;
    af_status st = af_schedule_init(
        &rate, &(af_schedule_opts){.name = "cosine", .peak = 0.01, .steps = steps}, err);
    for (long s = 0; s < steps && !st; s++) {
        float loss;
        af_graph_set_learning_rate(n->g, af_schedule_lr(&rate, s));
        st = feed(n, state, label, AF_RUN_STEP, err);
        if (!st && s % 100 == 0 && (st = af_tensor_read(n->g, n->loss, &loss, 4, err)) == AF_OK)
            printf("step %4ld  loss %.4f\n", s, loss);
    }
    return st;
}

static af_status test(network *n, uint64_t *state, double *accuracy, af_error *err)
{
    float logits[BATCH][ARMS];
    int32_t label[BATCH];
    int right = 0;
    for (int k = 0; k < TESTS; k++) {
        af_status st = feed(n, state, label, AF_RUN_FORWARD, err);
        st = st ? st : af_tensor_read(n->g, n->logits, logits, sizeof logits, err);
        if (st != AF_OK)
            return st;
        for (int i = 0; i < BATCH; i++) {
            int best = 0;
            for (int c = 1; c < ARMS; c++)
                best = logits[i][c] > logits[i][best] ? c : best;
            right += best == label[i];
        }
    }
    *accuracy = (double)right / (TESTS * BATCH);
    return AF_OK;
}

int main(int argc, char **argv)
{
    const long steps = argc > 1 ? strtol(argv[1], NULL, 10) : STEPS;
    uint64_t state = 88172645463325252u;
    af_error err = {0};
    af_device *device = NULL;
    network n = {0};
    double accuracy = 0;
    af_status st = af_device_open(&device, "cpu", 0, &err);
    st = st ? st : build(&n, device, &err);
    st = st ? st : init(&n, &state, &err);
    st = st ? st : train(&n, steps, &state, &err);
    st = st ? st : test(&n, &state, &accuracy, &err);
    af_graph_free(n.g);
    af_device_close(device);
    if (st != AF_OK) {
        fprintf(stderr, "mlp_classifier: %s\n", err.msg);
        return 1;
    }
    printf("accuracy on %d new points: %.1f %%\n", TESTS * BATCH, 100 * accuracy);
    if (steps >= STEPS && accuracy < WANTED) {
        fprintf(stderr, "mlp_classifier: expected at least %.0f %%\n", 100 * WANTED);
        return 1;
    }
    return 0;
}
