/* test_merge_methods.c - merge methods on one tensor against plain loops over all of it, in blocks
 * of any size: no result may depend on how a tensor is cut. */
#include "convert/merge/merge_method.h"

#include "base/hash.h"
#include "base/rng.h"
#include "test.h"

#include <math.h>

enum { ROWS = 7, COLS = 9, COUNT = ROWS * COLS, MOST = 12 }; /* 9: rows begin at any p % 4 */

static float base_of[COUNT], input[MOST][COUNT];

static void read_rows(const af_merge_task *t, int64_t row, int64_t rows, float *const *x,
                      float *base)
{
    const size_t size = (size_t)(rows * COLS) * sizeof(float);
    memcpy(base, base_of + row * COLS, size);
    for (int k = 0; k < t->n; k++)
        memcpy(x[k], input[k] + row * COLS, size);
}

/* Every third entry of an input is as in the base. */
static void fill(void)
{
    for (int i = 0; i < COUNT; i++) {
        base_of[i] = (float)af_rng_normal(1, 0, (uint64_t)i);
        for (int k = 0; k < MOST; k++)
            input[k][i] = (i + k) % 3
                              ? base_of[i] + (float)af_rng_normal(1, 1 + (uint64_t)k, (uint64_t)i)
                              : base_of[i];
    }
}

static double change(int k, int i) { return (double)(input[k][i] - base_of[i]); }

static af_merge_task task_of(int n)
{
    af_merge_task t = {.name = "w", .rows = ROWS, .cols = COLS, .count = COUNT, .n = n};
    t.has_base = true;
    t.seed = 42;
    t.read = read_rows;
    t.p = (af_merge_shared){.lambda = 1, .select_topk = 1, .epsilon = 1e-5, .r = 0.1, .alpha = 0.2};
    for (int k = 0; k < n; k++)
        t.w[k] = (af_merge_weights){.weight = 1, .density = 1};
    return t;
}

/* Runs a method in blocks of one, two, all rows: the same bits, and the wanted values. */
static void check(const char *method, const af_merge_task *like, const double *want)
{
    const af_merge_method *m = af_merge_method_find(method);
    float first[COUNT] = {0};
    assert_non_null(m);
    for (int rows = 1; rows <= ROWS; rows += rows == 2 ? ROWS - 2 : 1) {
        af_merge_task t = *like;
        af_error err = {0};
        float out[COUNT + ROWS * COLS];
        t.block_rows = rows;
        t.blocks = (ROWS + rows - 1) / rows;
        if (m->prepare)
            CHECK_OK(m->prepare(&t, &err), err);
        CHECK_OK(af_merge_emit(&t, m->emit, 0, t.blocks, out, &err), err);
        free(t.equal_before);
        free(t.by_row);
        if (rows == 1)
            memcpy(first, out, sizeof first);
        for (int i = 0; i < COUNT; i++)
            CHECK_MSG(fabs(out[i] - want[i]) < 2e-6 && fabsf(out[i] - first[i]) < 1e-6f,
                      "%s, blocks of %d rows: value %d is %g, not %g", method, rows, i, out[i],
                      want[i]);
    }
}

static uint64_t stream_of(uint8_t k) { return af_fnv1a(af_fnv1a(AF_FNV_START, "w", 1), &k, 1); }

/* base + weight * (the kept changes, scaled to the L1 norm of all), summed over the models */
static void random_want(const af_merge_task *t, bool (*keep)(const af_merge_task *, int, int),
                        double *want)
{
    for (int i = 0; i < COUNT; i++)
        want[i] = base_of[i];
    for (int k = 0; k < t->n; k++) {
        double all = 0, kept = 0;
        for (int i = 0; i < COUNT; i++) {
            all += fabs(change(k, i));
            kept += keep(t, k, i) ? fabs(change(k, i)) : 0;
        }
        for (int i = 0; i < COUNT; i++)
            want[i] +=
                keep(t, k, i) ? t->w[k].weight * change(k, i) * (t->p.rescale ? all / kept : 1) : 0;
    }
}

static bool keeps_even(const af_merge_task *t, int k, int i)
{
    return (double)af_rng_f32(t->seed, stream_of((uint8_t)k), (uint64_t)i) < t->w[k].density;
}

static bool keeps_by_rank(const af_merge_task *t, int k, int i)
{
    int rank = 0;
    for (int j = i / COLS * COLS; j < (i / COLS + 1) * COLS; j++)
        rank += fabs(change(k, j)) < fabs(change(k, i)) ||
                (fabs(change(k, j)) == fabs(change(k, i)) && j < i);
    const double p =
        t->w[k].density - t->w[k].epsilon + 2 * t->w[k].epsilon * rank / (double)(COLS - 1);
    return (double)af_rng_f32(t->seed, stream_of((uint8_t)k), (uint64_t)i) < p;
}

/* A mask is a function of seed, name, model and position, not of the blocks. */
static void test_random_masks_do_not_depend_on_blocks(void **state)
{
    double want[COUNT];
    (void)state;
    for (int rescale = 0; rescale < 2; rescale++) {
        af_merge_task t = task_of(2);
        t.p.rescale = rescale;
        t.w[0] = (af_merge_weights){.weight = 0.7, .density = 0.6};
        /* exactly the number of an entry that changed: that one goes */
        t.w[1] = (af_merge_weights){.weight = 1.3};
        t.w[1].density = (double)af_rng_f32(t.seed, stream_of(1), 31);
        assert_true(change(1, 31) != 0 && t.w[1].density > 0.1 && t.w[1].density < 1);
        random_want(&t, keeps_even, want);
        check("dare_linear", &t, want);
        t.w[0].epsilon = t.w[1].epsilon = 0.2;
        t.w[1].density = 0.5;
        random_want(&t, keeps_by_rank, want);
        check("della_linear", &t, want);
    }
}

/* t = n c / (1 + (n - 1) c), c the mean cosine of the changes (Jang et al., 2024), of each row. */
static void test_model_stock_of_rows(void **state)
{
    double want[COUNT];
    (void)state;
    for (int n = 2; n <= MOST; n += 5) {
        af_merge_task t = task_of(n);
        t.p.filter_wise = true;
        for (int r = 0; r < ROWS; r++) {
            double c = 0;
            for (int a = 0; a < n; a++)
                for (int b = a + 1; b < n; b++) {
                    double aa = 0, ab = 0, bb = 0;
                    for (int i = r * COLS; i < (r + 1) * COLS; i++) {
                        aa += change(a, i) * change(a, i);
                        ab += change(a, i) * change(b, i);
                        bb += change(b, i) * change(b, i);
                    }
                    c += ab / sqrt(aa * bb) * 2 / (n * (n - 1));
                }
            const double at = n * c / (1 + (n - 1) * c);
            for (int i = r * COLS; i < (r + 1) * COLS; i++) {
                want[i] = base_of[i];
                for (int k = 0; k < n; k++)
                    want[i] += at / n * change(k, i);
            }
        }
        check("model_stock", &t, want);
    }
}

/* Each row of the changes turns by its own angle. */
static void test_nuslerp_of_rows(void **state)
{
    double want[COUNT];
    af_merge_task t = task_of(2);
    (void)state;
    t.w[1].weight = 3;
    for (int r = 0; r < ROWS; r++) {
        double aa = 0, ab = 0, bb = 0;
        for (int i = r * COLS; i < (r + 1) * COLS; i++) {
            aa += change(0, i) * change(0, i);
            ab += change(0, i) * change(1, i);
            bb += change(1, i) * change(1, i);
        }
        const double angle = acos(ab / sqrt(aa * bb));
        for (int i = r * COLS; i < (r + 1) * COLS; i++)
            want[i] =
                base_of[i] +
                (sin(0.25 * angle) * change(0, i) + sin(0.75 * angle) * change(1, i)) / sin(angle);
    }
    check("nuslerp", &t, want);
}

/* A change of one model alone is enlarged by 1 + r min(shared / alone, alpha). */
static void test_ramplus_enlarges_what_is_alone(void **state)
{
    double want[COUNT];
    af_merge_task t = task_of(2);
    (void)state;
    t.p.r = 0.5;
    for (int alpha = 0; alpha < 2; alpha++) { /* the bound, then the ratio */
        t.p.alpha = alpha ? 100 : 0.2;
        for (int i = 0; i < COUNT; i++) {
            double sum = 0;
            int many = 0, who = 0;
            for (int k = 0; k < 2; k++)
                if (change(k, i) != 0) {
                    sum += change(k, i);
                    who = k;
                    many++;
                }
            int shared = 0, alone = 0;
            for (int j = 0; j < COUNT; j++) {
                shared += change(who, j) != 0 && change(1 - who, j) != 0;
                alone += change(who, j) != 0 && change(1 - who, j) == 0;
            }
            const double grow = 1 + t.p.r * fmin((double)shared / alone, t.p.alpha);
            want[i] = base_of[i] + (many == 1 ? grow * sum : many ? sum / many : 0);
        }
        check("ramplus_tl", &t, want);
    }
}

/* Of equal variances as many are kept as select_topk allows, the first; with none, the base. */
static void test_sce_keeps_no_more_than_asked(void **state)
{
    double want[COUNT];
    af_merge_task t = task_of(2);
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        base_of[i] = 1;
        input[0][i] = 3;
        input[1][i] = 2;
    }
    t.p.select_topk = 0.25; /* 15 of 63; weights 4 : 1 of the squares */
    for (int i = 0; i < COUNT; i++)
        want[i] = i < COUNT / 4 ? 1 + (4 * 2 + 1 * 1) / 5.0 : 1;
    check("sce", &t, want);
    t.p.select_topk = 0.001;
    for (int i = 0; i < COUNT; i++)
        want[i] = 1;
    check("sce", &t, want);
    fill();
}

static int setup(void **state)
{
    (void)state;
    fill();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_masks_do_not_depend_on_blocks),
        cmocka_unit_test(test_model_stock_of_rows),
        cmocka_unit_test(test_nuslerp_of_rows),
        cmocka_unit_test(test_ramplus_enlarges_what_is_alone),
        cmocka_unit_test(test_sce_keeps_no_more_than_asked),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
