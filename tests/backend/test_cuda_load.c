/* test_cuda_load.c - weights quantised on the device while they are loaded: codes, scales and
 * dequantised values are the host codec's, byte for byte (that codec is compared with bitsandbytes'
 * own bytes by test_codec_bnb). Without a GPU the launches are checked over the fake driver. */
#include "test.h"

#include "backend/fake_driver.h"
#include "model/coded/bnb_weight.h"
#include "tensor/half.h"

#include <math.h>

static af_device *gpu;

typedef struct loaded {
    af_graph *g;
    af_tensor *w, *y;
    af_quant q;
} loaded;

/* y = x w', so that w has memory and a reader. */
static void record(loaded *l, af_dtype type, int64_t rows, int64_t cols)
{
    af_error err = {0};
    const int64_t scales = (rows * cols + 63) / 64, outer = (scales + 255) / 256;
    CHECK_OK(af_graph_new(&l->g, &err), err);
    const af_dtype compute = type == AF_DTYPE_NF4 ? AF_DTYPE_BF16 : type;
    af_tensor *x = af_graph_input(l->g, "x", compute, 2, (int64_t[]){3, cols});
    l->w = af_graph_weight(l->g, "w", type, 2, (int64_t[]){rows, cols});
    if (type == AF_DTYPE_NF4) {
        l->q = (af_quant){.block = 64, .nested_block = 256, .round = AF_DTYPE_BF16};
        l->q.absmax = af_graph_weight(l->g, "absmax", AF_DTYPE_U8, 1, &scales);
        l->q.nested = af_graph_weight(l->g, "nested", AF_DTYPE_F32, 1, &outer);
        l->w->quant = &l->q;
    }
    l->y = af_linear(l->g, x, &(af_linear_opts){.pieces = 1, .weight = {l->w}});
    af_graph_output(l->g, l->y);
    CHECK_OK(af_graph_status(l->g, &err), err);
}

/* Normal values, and everything odd: a block of zeros, subnormals, values at the thresholds, one
 * huge outlier. */
static uint16_t *make_rows(int64_t n)
{
    uint16_t *rows = calloc((size_t)n, sizeof *rows);
    uint64_t h = 88172645463325252u;
    for (int64_t i = 0; i < n; i++) {
        h = h * 6364136223846793005u + 1442695040888963407u;
        const float u = (float)(h >> 40) / 8388608.0f - 1.0f;
        float v = 0.02f * u * (1.0f + fabsf(u));
        if (i / 64 % 97 == 3)
            v = 0;
        else if (i / 64 % 97 == 5)
            v = u * 1e-39f;
        else if (i / 64 % 97 == 7)
            v = i % 64 == 0 ? 1.0f : (float)(i % 64) / 64.0f;
        else if (i == 1000)
            v = 40.0f;
        rows[i] = af_bf16_from_f32(v);
    }
    return rows;
}

static bool same_bytes(const loaded *l, af_tensor *t, const void *want, const char *what)
{
    af_error err = {0};
    uint64_t from, to; /* all of it, or the piece of a rank */
    af_tensor_piece(t, &from, &to);
    const uint64_t n = to - from;
    uint8_t *have = calloc(1, n + 1);
    CHECK_OK(af_tensor_read_piece(l->g, t, have, &err), err);
    uint64_t wrong = 0, first = 0;
    for (uint64_t i = n; i-- > 0;)
        if (have[i] != ((const uint8_t *)want)[from + i]) {
            wrong++;
            first = i;
        }
    if (wrong)
        print_error("%s: %d of %d bytes differ, the first is %d\n", what, (int)wrong, (int)n,
                    (int)first);
    free(have);
    return wrong == 0;
}

static int check_codes(const loaded *l, const af_bnb_weight *want)
{
    return !same_bytes(l, l->w, want->codes, "codes") +
           !same_bytes(l, l->q.absmax, want->absmax, "scales") +
           !same_bytes(l, l->q.nested, want->nested, "nested scales");
}

/* A rank keeps its piece of what is written, which may be nothing. */
static int write_whole(const loaded *l, const af_bnb_weight *want)
{
    af_error err = {0};
    af_tensor *t[] = {l->w, l->q.absmax, l->q.nested};
    const void *data[] = {want->codes, want->absmax, want->nested};
    for (int i = 0; i < 3; i++)
        CHECK_OK(af_tensor_write(l->g, t[i], data[i], af_tensor_bytes(t[i]), &err), err);
    return check_codes(l, want);
}

static af_status no_swap(void *user, const af_swap *s, int n, void *stream, af_error *err)
{
    return (void)user, (void)s, (void)n, (void)stream, (void)err, AF_OK;
}

/* rank of ranks: 0 of 1 has all. */
static int load_case(af_device *d, af_dtype type, int64_t rows, int64_t cols, int rank, int ranks)
{
    af_error err = {0};
    loaded l = {0};
    af_bnb_weight want = {0};
    const int64_t n = rows * cols;
    uint16_t *x = make_rows(n);
    float *f = calloc((size_t)n, sizeof *f), *values = calloc((size_t)n, sizeof *values);
    int bad = 0;
    record(&l, type, rows, cols);
    if (ranks > 1)
        af_graph_set_shard(l.g, rank, ranks, AF_SHARD_WEIGHTS);
    CHECK_OK(af_graph_prepare(l.g, d, &err), err);
    af_graph_set_exchange(l.g, &(af_exchange){.swap = no_swap});
    for (int64_t i = 0; i < n; i++)
        f[i] = af_f32_from_bf16(x[i]);
    CHECK_OK(af_bnb_weight_make(&want, AF_DTYPE_NF4, f, n, cols,
                                type == AF_DTYPE_F32 ? AF_DTYPE_F32 : AF_DTYPE_BF16, &err),
             err);
    if (ranks > 1)
        bad += write_whole(&l, &want);
    CHECK_OK(d->ops->write_nf4(d, l.g, l.w, x, &err), err);
    CHECK_OK(af_graph_run(l.g, AF_RUN_FORWARD, &err), err);
    if (d == gpu && type == AF_DTYPE_NF4) {
        bad += check_codes(&l, &want);
        if (memcmp(&l.q.offset, &want.offset, sizeof want.offset) != 0) {
            print_error("offset %a, not %a\n", (double)l.q.offset, (double)want.offset);
            bad++;
        }
    } else if (d == gpu) {
        af_bnb_weight_decode(&want, 0, n, values);
        for (int64_t i = 0; i < n && type == AF_DTYPE_BF16; i++)
            x[i] = af_bf16_from_f32(values[i]);
        bad += !same_bytes(&l, l.w, type == AF_DTYPE_BF16 ? (void *)x : (void *)values, "values");
    }
    if (bad)
        print_error("%s of %d x %d, rank %d of %d\n", af_dtype_name(type), (int)rows, (int)cols,
                    rank, ranks);
    af_bnb_weight_clear(&want);
    af_graph_free(l.g);
    free(x);
    free(f);
    free(values);
    return bad;
}

static int all_cases(af_device *d)
{
    static const af_dtype types[] = {AF_DTYPE_NF4, AF_DTYPE_BF16, AF_DTYPE_F32};
    static const int64_t shape[][2] = {{64, 64}, {96, 160}, {33, 128}, {7, 36}, {700, 896}, {5, 7}};
    int bad = 0;
    for (size_t t = 0; t < AF_LEN(types); t++)
        for (size_t i = 0; i < AF_LEN(shape); i++)
            if (types[t] != AF_DTYPE_NF4 || shape[i][0] * shape[i][1] % 2 == 0)
                bad += load_case(d, types[t], shape[i][0], shape[i][1], 0, 1);
    for (size_t i = 0; i < AF_LEN(shape); i++)
        for (int rank = 0; rank < 4 && shape[i][0] * shape[i][1] % 2 == 0; rank++)
            bad += load_case(d, AF_DTYPE_NF4, shape[i][0], shape[i][1], rank, 4);
    return bad;
}

static void test_bytes_are_those_of_the_host(void **state)
{
    af_error err = {0};
    (void)state;
    if (af_device_open(&gpu, "cuda", 0, &err) != AF_OK) {
        print_message("SKIPPED: %s\n", err.msg);
        skip_because("no GPU");
    }
    const int bad = all_cases(gpu);
    af_device_close(gpu);
    gpu = NULL;
    assert_int_equal(bad, 0);
}

static void test_launches_fit_their_kernels(void **state)
{
    af_device *d = open_fake();
    (void)state;
    assert_int_equal(all_cases(d), 0);
    assert_true(seen.launches > 0);
    af_device_close(d);
    drop_kept();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_launches_fit_their_kernels),
                                       cmocka_unit_test(test_bytes_are_those_of_the_host)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
