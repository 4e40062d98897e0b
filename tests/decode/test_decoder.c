/* test_decoder.c - the batched decoder: a request gives the same bits alone and among others,
 * equals generate, and its log-probabilities are those of the model's logits. */
#include "decode_case.h"

#include "cpu/cpu_kernels.h"
#include "decode/decoder.h"

#include <math.h>

static const char *const models[] = {"llama3_tiny", "qwen2_tiny", "gemma2_tiny", "qwen3_tiny"};

static af_decoder *open_decoder(af_model *m, int sequences)
{
    af_decoder *d = NULL;
    af_error err = {0};
    const af_decoder_opts o = {.context = 512, .sequences = sequences};
    CHECK_OK(af_decoder_open(&d, m, &o, &err), err);
    return d;
}

static void compare(const char *name, af_compute compute, int requests)
{
    static decode_case among[CASE_REQUESTS], alone;
    af_model *m = decode_open(name, compute);
    if (!m)
        return;
    const int64_t V = af_model_vocab(m);
    af_decoder *d = open_decoder(m, 32);
    for (int k = 0; k < requests; k++) {
        case_request(&among[k], k, V);
        case_submit(d, &among[k]);
    }
    case_finish(d);
    for (int k = 0; k < requests; k++) {
        char what[64];
        case_request(&alone, k, V);
        case_submit(d, &alone);
        case_finish(d);
        snprintf(what, sizeof what, "%s request %d", name, k);
        assert_int_equal(alone.count, alone.r.max_tokens);
        assert_int_equal(alone.end, AF_DECODE_LENGTH);
        assert_int_equal(alone.givens, alone.r.prompt_logprobs ? alone.len - 1 : 0);
        case_same(&among[k], &alone, what);
    }
    af_decoder_close(d);
    af_model_close(m);
}

static void test_same_bits_alone_and_among_others(void **state)
{
    (void)state;
    for (size_t i = 0; i < AF_LEN(models); i++)
        compare(models[i], AF_COMPUTE_F32, i ? 12 : CASE_REQUESTS);
    compare("llama3_tiny", AF_COMPUTE_BF16, 12);
    compare("phi3_longrope", AF_COMPUTE_F32, 5);
}

/* Numbers of sequences around those of rows in a run (256 on the CPU, 512 on a GPU). */
static void test_as_many_sequences_as_rows(void **state)
{
    (void)state;
    static const int counts[] = {254, 255, 256, 300, 510, 511, 512};
    static decode_case few, many;
    af_error err = {0};
    af_model *m = decode_open("llama3_tiny", AF_COMPUTE_F32);
    if (!m)
        return;
    af_decoder *d = open_decoder(m, 4);
    case_request(&few, 1, af_model_vocab(m));
    case_submit(d, &few);
    case_finish(d);
    af_decoder_close(d);
    for (size_t i = 0; i < AF_LEN(counts); i++) {
        d = open_decoder(m, counts[i]);
        case_request(&many, 1, af_model_vocab(m));
        case_submit(d, &many);
        case_finish(d);
        case_same(&few, &many, "sequences");
        af_decoder_close(d);
    }
    const af_decoder_opts wide = {.context = INT64_MAX}, full = {.tokens = INT64_MAX};
    assert_int_equal(af_decoder_open(&d, m, &wide, &err), AF_EUSAGE);
    assert_int_equal(af_decoder_open(&d, m, &full, &err), AF_EUSAGE);
    af_model_close(m);
}

static void test_tokens_are_those_of_generate(void **state)
{
    (void)state;
    static decode_case c;
    af_error err = {0};
    af_model *m = decode_open("llama3_tiny", AF_COMPUTE_F32);
    if (!m)
        return;
    af_decoder *d = open_decoder(m, 4);
    for (int k = 0; k < 12; k++) {
        case_request(&c, k, af_model_vocab(m));
        case_submit(d, &c);
        case_finish(d);
        const int32_t *ids = c.prompt;
        af_generated r;
        const af_generate_opts o = {.prompt = &ids,
                                    .prompt_len = &c.len,
                                    .sequences = 1,
                                    .max_new = c.r.max_tokens,
                                    .sample = c.r.sample,
                                    .ignore_eos = true,
                                    .ids_only = true};
        CHECK_OK(af_model_generate(m, &o, &r, &err), err);
        assert_int_equal(r.count, c.count);
        assert_memory_equal(r.ids, c.id, (size_t)r.count * sizeof *r.ids);
        af_generated_clear(&r);
    }
    af_decoder_close(d);
    af_model_close(m);
}

static double log_softmax(const float *x, int64_t V, int32_t id)
{
    double sum = 0;
    for (int64_t i = 0; i < V; i++)
        sum += exp((double)x[i]);
    return (double)x[id] - log(sum);
}

static void test_logprobs_are_those_of_the_logits(void **state)
{
    (void)state;
    static decode_case c;
    af_error err = {0};
    af_model *m = decode_open("llama3_tiny", AF_COMPUTE_F32);
    if (!m)
        return;
    const int64_t V = af_model_vocab(m);
    af_decoder *d = open_decoder(m, 4);
    case_request(&c, 17, V); /* 17 tokens, prompt too */
    case_submit(d, &c);
    case_finish(d);
    int32_t all[64];
    const int64_t n = c.len + c.count;
    memcpy(all, c.prompt, sizeof *all * (size_t)c.len);
    memcpy(all + c.len, c.id, sizeof *all * (size_t)c.count);
    float *logits = calloc((size_t)(n * V), sizeof *logits);
    CHECK_OK(af_model_logits_of(m, all, n, logits, &err), err);
    for (int64_t i = 1; i < n; i++) {
        const double want = log_softmax(logits + (i - 1) * V, V, all[i]),
                     got = i < c.len ? c.given[i] : c.logprob[i - c.len];
        CHECK_MSG(fabs(want - got) < 2e-5, "token %d: %.9g, not %.9g", (int)i, got, want);
    }
    free(logits);
    af_decoder_close(d);
    af_model_close(m);
}

/* Tables of positions that change with the length: each token is that of a run without a cache. */
static void test_tables_that_change_with_the_length(void **state)
{
    (void)state;
    static const char *const changing[] = {"dynamic", "phi3_longrope"}; /* both at 8 tokens */
    for (size_t k = 0; k < 2 * AF_LEN(changing); k++) {
        static decode_case c;
        af_error err = {0};
        const char *name = changing[k / 2];
        af_model *m = decode_open(name, AF_COMPUTE_F32);
        if (!m)
            continue;
        const int64_t V = af_model_vocab(m);
        af_decoder *d = open_decoder(m, 4);
        /* 3 tokens; 64: as many as one run gives log-probabilities of */
        case_request(&c, k % 2 ? 7 : 1, V);
        c.r.prompt_logprobs = k % 2;
        c.r.max_tokens = 12;
        case_submit(d, &c);
        case_finish(d);
        assert_int_equal(c.count, 12);
        memcpy(c.prompt + c.len, c.id, sizeof *c.id * (size_t)c.count);
        for (int64_t i = 0; i < c.count; i++) {
            const int64_t n = c.len + i;
            float *logits = calloc((size_t)(n * V), sizeof *logits);
            CHECK_OK(af_model_logits_of(m, c.prompt, n, logits, &err), err);
            const double want = log_softmax(logits + (n - 1) * V, V, c.id[i]);
            CHECK_MSG(fabs(want - c.logprob[i]) < 2e-5, "%s, token %d: %.9g, not %.9g", name,
                      (int)i, c.logprob[i], want);
            free(logits);
        }
        af_decoder_close(d);
        af_model_close(m);
    }
}

/* Tokens that the device draws (a GPU does, here the reference kernel) are those of the host. */
static void test_drawn_tokens_are_those_of_the_host(void **state)
{
    (void)state;
    static const af_sample_opts samples[] = {
        {0},
        {.temperature = 1},
        {.temperature = 0.8, .top_k = 30},
        {.temperature = 1.2, .top_p = 0.7},
        {.temperature = 1, .min_p = 0.1},
        {.temperature = 1.5, .top_k = 50, .top_p = 0.9, .min_p = 0.02},
        {.temperature = 1, .top_k = 1},
        {.temperature = 0.9, .repeat_penalty = 1.3}}; /* on the host */
    static decode_case c[2][24];
    af_error err = {0};
    af_model *m = decode_open("llama3_tiny", AF_COMPUTE_F32);
    if (!m)
        return;
    for (int draws = 0; draws < 2; draws++) {
        af_decoder *d = NULL;
        const af_decode_plan p = {.context = 512,
                                  .rows = 64,
                                  .pages = 96,
                                  .page = AF_PAGE_TOKENS,
                                  .slots = 24,
                                  .draws = draws};
        CHECK_OK(af_decode_open(&d, m, &p, &err), err);
        assert_int_equal(d->graph.want != NULL, draws);
        for (int k = 0; k < 24; k++) {
            case_request(&c[draws][k], k, af_model_vocab(m));
            c[draws][k].r.sample = samples[k % AF_LEN(samples)];
            c[draws][k].r.sample.seed = (uint64_t)k;
            c[draws][k].r.top_logprobs = k % 5 - 1;
            case_submit(d, &c[draws][k]);
        }
        case_finish(d);
        af_decoder_close(d);
    }
    for (int k = 0; k < 24; k++) {
        const decode_case *host = &c[0][k], *drawn = &c[1][k];
        assert_int_equal(host->count, drawn->count);
        assert_int_equal(host->end, drawn->end);
        assert_int_equal(host->givens, drawn->givens);
        assert_memory_equal(host->id, drawn->id, (size_t)host->count * sizeof *host->id);
        for (int64_t i = 0; i < host->count && k % 5; i++) {
            CHECK_MSG(fabs(host->logprob[i] - drawn->logprob[i]) < 1e-12, "request %d", k);
            CHECK_MSG(fabs(host->top[i] - drawn->top[i]) < 1e-12, "request %d", k);
        }
    }
    af_model_close(m);
}

/* Only multiples of 3, from a bias that wants 7 most. */
/* 8-bit activations: other log-probabilities, near those of f32, and the same in every batch. */
static void test_rounded_activations(void **state)
{
    (void)state;
    static decode_case c[2][12], alone;
    af_error err = {0};
    af_model *m = decode_open_at("convert/gguf_models/llama/q8_0.gguf", AF_COMPUTE_F32);
    if (!m)
        return;
    const int64_t V = af_model_vocab(m);
    double most = 0;
    for (int round = 0; round < 2; round++) {
        const af_decoder_opts o = {.context = 512, .sequences = 12, .round_activations = round};
        af_decoder *d = NULL;
        CHECK_OK(af_decoder_open(&d, m, &o, &err), err);
        for (int k = 0; k < 12; k++) {
            case_request(&c[round][k], k, V);
            case_submit(d, &c[round][k]);
        }
        case_finish(d);
        for (int k = 0; k < 12; k++) {
            case_request(&alone, k, V);
            case_submit(d, &alone);
            case_finish(d);
            case_same(&c[round][k], &alone, "rounded");
        }
        af_decoder_close(d);
    }
    for (int k = 0; k < 12; k++) /* the second token: the first is that of the prompt's run */
        if (c[0][k].id[0] == c[1][k].id[0])
            most = fmax(most, fabs(c[0][k].top[1] - c[1][k].top[1]));
    CHECK_MSG(af_fast_get()->rounds && strcmp(case_device(), "cpu") == 0 ? most > 1e-5 && most < 0.3
                                                                         : most == 0,
              "log-probabilities differ by %.3g", most);
    af_model_close(m);
}

static bool thirds(void *user, const int32_t *made, int64_t n, uint32_t *allowed)
{
    const decode_case *c = user;
    (void)made;
    for (int i = 0; i < c->V; i++)
        if (i % 3)
            allowed[i / 32] &= ~(1u << (i % 32));
    return n < 5;
}

static void test_mask_bias_and_cancel(void **state)
{
    (void)state;
    static decode_case c, other;
    af_error err = {0};
    af_model *m = decode_open("llama3_tiny", AF_COMPUTE_F32);
    if (!m)
        return;
    af_decoder *d = open_decoder(m, 4);
    case_request(&c, 2, af_model_vocab(m));
    c.r.mask = thirds;
    c.r.max_tokens = 20;
    case_submit(d, &c);
    case_finish(d);
    assert_int_equal(c.end, AF_DECODE_ERROR); /* the mask ends it */
    assert_int_equal(c.count, 5);
    for (int i = 0; i < 5; i++)
        assert_true(c.id[i] % 3 == 0);
    case_request(&c, 3, af_model_vocab(m));
    c.r.bias = &(af_logit_bias){7, 1e4};
    c.r.biases = 1;
    case_submit(d, &c);
    case_finish(d);
    for (int i = 0; i < c.count; i++)
        assert_int_equal(c.id[i], 7);
    case_request(&c, 3, af_model_vocab(m));
    case_request(&other, 4, af_model_vocab(m));
    c.stop_at = 2;
    case_submit(d, &c);
    case_submit(d, &other);
    int64_t active;
    CHECK_OK(af_decoder_step(d, &active, &err), err);
    af_decoder_cancel(d, other.ticket);
    case_finish(d);
    assert_int_equal(c.count, 2); /* the hook said no more, and got no more */
    assert_int_equal(c.calls_after, 0);
    assert_int_equal(other.end, AF_DECODE_CANCELLED);
    assert_int_equal(af_decoder_count(d).running, 0);
    af_decoder_close(d);
    af_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_alone_and_among_others),
        cmocka_unit_test(test_tokens_are_those_of_generate),
        cmocka_unit_test(test_as_many_sequences_as_rows),
        cmocka_unit_test(test_logprobs_are_those_of_the_logits),
        cmocka_unit_test(test_tables_that_change_with_the_length),
        cmocka_unit_test(test_drawn_tokens_are_those_of_the_host),
        cmocka_unit_test(test_rounded_activations),
        cmocka_unit_test(test_mask_bias_and_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
