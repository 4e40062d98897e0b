/* test_states_8bit.c - Lion, RMSprop and AdEMAMix with 8-bit moments against bitsandbytes. */
#include "optimizer_trainer.h"

#include <math.h>

enum { N = 13 * 321 };

typedef struct one_matrix {
    af_graph *g;
    af_device *d;
    af_tensor *p, *x;
} one_matrix;

static void open_matrix(one_matrix *t, af_optimizer_kind kind, af_dtype type)
{
    open_graph(&t->g, &t->d, 2);
    t->p = af_graph_param(t->g, "p", type, 2, (int64_t[]){13, 321});
    t->x = af_graph_input(t->g, "x", type, 2, (int64_t[]){13, 321});
    learn(t->g, t->d, af_sum_all(t->g, af_mul(t->g, t->p, t->x)),
          &(af_optimizer_opts){.kind = kind, .weight_decay = 0.1});
    for (int i = 0; i < N; i++)
        af_st(t->p, i, formula(i, 0, 0));
}

static void five_steps(one_matrix *t)
{
    static const float size[] = {1, 0.125f, 0.015625f, 0.001953125f};
    for (int s = 1; s <= 5; s++) {
        for (int i = 0; i < N; i++)
            af_st(t->x, i, formula(i, 2, s) * size[i % 4]);
        run_graph(t->g, AF_RUN_STEP);
    }
}

static const uint8_t *codes_of(const af_graph *g, const char *name)
{
    for (int i = 0; i < g->n_tensors; i++)
        if (strcmp(g->tensors[i]->name, name) == 0)
            return g->tensors[i]->data;
    fail_msg("no state '%s'", name);
    return NULL;
}

static void test_states_are_those_of_bitsandbytes(void **state)
{
    static const struct {
        const char *name;
        af_optimizer_kind kind;
        const char *codes[3];
    } cases[] = {
        {"lion-8bit", AF_OPTIMIZER_LION_8BIT, {"optimizer.0.m8"}},
        {"rmsprop-8bit", AF_OPTIMIZER_RMSPROP_8BIT, {"optimizer.0.v8"}},
        {"ademamix-8bit",
         AF_OPTIMIZER_ADEMAMIX_8BIT,
         {"optimizer.0.m8", "optimizer.0.slow8", "optimizer.0.v8"}},
    };
    (void)state;
    for (size_t c = 0; c < 2 * AF_LEN(cases); c++) {
        char file[40];
        one_matrix t;
        int off = 0, flipped = 0, n = 0;
        while (n < 3 && cases[c / 2].codes[n])
            n++;
        snprintf(file, sizeof file, "%s.f32", cases[c / 2].name);
        float *want = load(file, N * sizeof(float));
        snprintf(file, sizeof file, "%s.u8", cases[c / 2].name);
        uint8_t *codes = load(file, (size_t)n * N);
        open_matrix(&t, cases[c / 2].kind, c % 2 ? AF_DTYPE_F64 : AF_DTYPE_F32);
        five_steps(&t);
        for (int i = 0; i < N; i++)
            off += fabs(af_ld(t.p, i) - (double)want[i]) > 1e-6;
        for (int k = 0; k < n; k++) {
            const uint8_t *ours = codes_of(t.g, cases[c / 2].codes[k]);
            for (int i = 0; i < N; i++) {
                CHECK_MSG(abs(ours[i] - codes[k * N + i]) <= 1, "%s: code %d of '%s'",
                          cases[c / 2].name, i, cases[c / 2].codes[k]);
                flipped += ours[i] != codes[k * N + i];
            }
        }
        /* a value on the border of two codes may round to either */
        CHECK_MSG(off <= 8 && flipped <= 8, "%s (%s): %d values and %d codes differ",
                  cases[c / 2].name, c % 2 ? "f64" : "f32", off, flipped);
        close_graph(t.g, t.d);
        free(want);
        free(codes);
    }
}

/* Neither values nor codes nor scales. */
static void test_a_bad_gradient_changes_nothing(void **state)
{
    static const af_optimizer_kind kinds[] = {AF_OPTIMIZER_LION_8BIT, AF_OPTIMIZER_RMSPROP_8BIT,
                                              AF_OPTIMIZER_ADEMAMIX_8BIT};
    (void)state;
    for (size_t k = 0; k < 2 * AF_LEN(kinds); k++) {
        one_matrix t, plain;
        open_matrix(&t, kinds[k / 2], k % 2 ? AF_DTYPE_F64 : AF_DTYPE_F32);
        open_matrix(&plain, kinds[k / 2], k % 2 ? AF_DTYPE_F64 : AF_DTYPE_F32);
        five_steps(&t);
        five_steps(&plain);
        af_st(t.x, 9, NAN);
        run_graph(t.g, AF_RUN_STEP);
        for (int i = 0; i < t.g->n_tensors; i++) {
            const af_tensor *a = t.g->tensors[i], *b = plain.g->tensors[i];
            if (a->role == AF_ROLE_STATE || a == t.p)
                assert_memory_equal(a->data, b->data, af_tensor_bytes(a));
        }
        close_graph(t.g, t.d);
        close_graph(plain.g, plain.d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_are_those_of_bitsandbytes),
        cmocka_unit_test(test_a_bad_gradient_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
