/* test_decode_shared.c - what sequences share: pages of prompts that begin alike, and a batch with
 * rows of different adapters. Nothing of it changes a bit of any answer. */
#include "decode_case.h"

#include "base/file.h"
#include "decode/decode_pages.h"
#include "model/model_state.h"

static af_decoder *open_with(af_model *m, bool shared, int64_t tokens)
{
    af_decoder *d = NULL;
    af_error err = {0};
    const af_decoder_opts o = {
        .context = 512, .sequences = 8, .tokens = tokens, .keep_no_text = !shared};
    CHECK_OK(af_decoder_open(&d, m, &o, &err), err);
    return d;
}

/* `len` tokens, of which the first `same` are those of every request. */
static void request(decode_case *c, int k, int64_t len, int64_t same, int64_t V)
{
    case_request(c, k, V);
    c->len = c->r.count = len;
    for (int64_t i = 0; i < len; i++)
        c->prompt[i] = (int32_t)((i * 13 + (i < same ? 0 : k * 29 + 5)) % V);
    c->r.prompt_logprobs = false;
}

static void test_a_shared_prefix_changes_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        af_compute compute;
    } cases[] = {{"llama3_tiny", AF_COMPUTE_F32},
                 {"llama3_tiny", AF_COMPUTE_BF16},
                 {"gemma2_tiny", AF_COMPUTE_F32}, /* a window, a soft cap */
                 {"mistral_tiny", AF_COMPUTE_F32}};
    static const int64_t lens[] = {129, 128, 257, 300, 385, 400, 131};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        static decode_case a, b;
        af_model *m = decode_open(cases[i].model, cases[i].compute);
        if (!m)
            continue;
        af_decoder *shared = open_with(m, true, 0), *apart = open_with(m, false, 0);
        uint64_t found = 0;
        for (int k = 0; k < (int)AF_LEN(lens); k++) {
            request(&a, k, lens[k], lens[k] - (k % 3), af_model_vocab(m));
            b = a;
            case_submit(shared, &a);
            case_finish(shared);
            case_submit(apart, &b);
            case_finish(apart);
            case_same(&a, &b, cases[i].model);
            assert_true(b.prefix == 0 && a.prefix % 128 == 0 && a.prefix < a.len);
            found += (uint64_t)a.prefix;
        }
        assert_int_equal(af_decoder_count(shared).prefix_tokens, found);
        assert_true(af_decoder_count(shared).prefix_tokens >= 128 * 8);
        assert_int_equal(af_decoder_count(apart).prefix_tokens, 0);
        assert_int_equal(af_decoder_count(shared).pages_free, af_decoder_count(shared).pages);
        af_decoder_close(shared);
        af_decoder_close(apart);
        af_model_close(m);
    }
}

/* Few pages: requests wait for each other, kept ones are taken; cancelled ones give theirs back. */
static void test_pages_come_back(void **state)
{
    (void)state;
    enum { N = 6 };
    static decode_case many[N], alone;
    af_error err = {0};
    af_model *m = decode_open("llama3_tiny", AF_COMPUTE_F32);
    if (!m)
        return;
    af_decoder *d = open_with(m, true, 512); /* 4 pages */
    int64_t active;
    assert_int_equal(af_decoder_count(d).pages, 4);
    for (int round = 0; round < 2; round++)
        for (int k = 0; k < N; k++) {
            request(&many[k], k, 200 + 20 * k, 128 * (k % 2), af_model_vocab(m));
            case_submit(d, &many[k]);
        }
    CHECK_OK(af_decoder_step(d, &active, &err), err);
    assert_true(af_decoder_count(d).running < N && af_decoder_count(d).waiting > 0);
    for (uint64_t t = 1; t <= N; t++) /* the first round, running or waiting */
        af_decoder_cancel(d, t);
    case_finish(d);
    assert_int_equal(af_decoder_count(d).pages_free, 4);
    af_decoder *fresh = open_with(m, false, 0);
    for (int k = 0; k < N; k++) {
        request(&alone, k, 200 + 20 * k, 128 * (k % 2), af_model_vocab(m));
        case_submit(fresh, &alone);
        case_finish(fresh);
        case_same(&many[k], &alone, "few pages");
    }
    af_decoder_close(d);
    af_decoder_close(fresh);
    af_model_close(m);
}

static void test_pages_are_taken_by_age(void **state)
{
    (void)state;
    af_error err = {0};
    af_decode_pages p;
    const int32_t x[4] = {1, 2, 3, 4}, y[4] = {1, 2, 5, 6};
    int32_t got[4];
    CHECK_OK(af_decode_pages_init(&p, 3, 2, &err), err);
    const int32_t a = af_decode_pages_take(&p), b = af_decode_pages_take(&p);
    af_decode_pages_keep(&p, a, -1, x, 7);
    af_decode_pages_keep(&p, b, a, x + 2, 7);
    af_decode_pages_release(&p, b);
    af_decode_pages_release(&p, a);
    assert_int_equal(p.free, 3);
    assert_int_equal(af_decode_pages_match(&p, x, 4, 8, got), 0); /* another owner */
    assert_int_equal(af_decode_pages_match(&p, y, 4, 7, got), 1);
    assert_int_equal(got[0], a);
    assert_int_equal(af_decode_pages_match(&p, x, 4, 7, got), 2);
    assert_int_equal(p.page[a].users, 2);
    af_decode_pages_release(&p, a);
    af_decode_pages_release(&p, b);
    af_decode_pages_release(&p, a);
    const int32_t c = af_decode_pages_take(&p); /* the one that holds nothing */
    assert_true(c != a && c != b);
    assert_int_equal(af_decode_pages_take(&p), b); /* released first */
    assert_int_equal(af_decode_pages_match(&p, x, 4, 7, got), 1);
    af_decode_pages_clear(&p);
}

/* A page counts only when all of its tokens are asked for. */
static void test_parts_of_a_page_do_not_match(void **state)
{
    (void)state;
    af_error err = {0};
    af_decode_pages p;
    const int32_t x[6] = {1, 2, 3, 4, 5, 6};
    int32_t got[6], before = -1;
    CHECK_OK(af_decode_pages_init(&p, 3, 2, &err), err);
    for (int i = 0; i < 3; i++) {
        const int32_t page = af_decode_pages_take(&p);
        af_decode_pages_keep(&p, page, before, x + 2 * i, 7);
        before = page;
    }
    for (int64_t n = 0; n <= 6; n++)
        assert_int_equal(af_decode_pages_match(&p, x, n, 7, got), n / 2);
    af_decode_pages_clear(&p);
}

/* ---- adapters ---- */

typedef enum adapter_kind { PLAIN, RSLORA, DORA, BIAS } adapter_kind;

/* A folder with an adapter whose B is not zero, nor are its biases; its magnitudes are not those of
 * the base. */
static void make_adapter(char *dir, size_t size, af_model *m, int rank, const char *targets,
                         uint64_t seed, adapter_kind kind)
{
    af_error err = {0};
    af_adapter *a;
    const af_adapter_config c = {.r = rank,
                                 .alpha = 2 * rank,
                                 .target_regex = targets,
                                 .rslora = kind == RSLORA,
                                 .dora = kind == DORA,
                                 .lora_bias = kind == BIAS,
                                 .base_model = m->path};
    CHECK_OK(af_adapter_new(&a, &c, af_loader_spec(m->loader), m->loader, seed, &err), err);
    for (int i = 0; i < a->spec->modules; i++)
        for (int64_t k = 0; k < af_adapter_b_count(&a->spec->module[i], a->module[i].rank); k++)
            a->module[i].b[k] =
                (float)((double)((k * 7919 + (int64_t)seed * 31 + i) % 101) / 500 - 0.1);
    for (int i = 0; i < a->spec->modules; i++)
        for (int64_t k = 0; a->module[i].rank && k < a->spec->module[i].out; k++) {
            if (kind == DORA)
                a->module[i].magnitude[k] *= 1 + (float)(k % 5) / 10;
            if (kind == BIAS)
                a->module[i].bias[k] = (float)(k % 7) / 20 - 0.1F;
        }
    snprintf(dir, size, "/tmp/af_decode_XXXXXX");
    assert_non_null(mkdtemp(dir));
    CHECK_OK(af_adapter_write(a, dir, &err), err);
    af_adapter_free(a);
}

static void test_rows_of_different_adapters(void **state)
{
    (void)state;
    enum { N = 12, ADAPTERS = 4 };
    static decode_case among[N], alone, plain;
    static const char *const targets[ADAPTERS] = {"all-linear", ".*\\.(q|v)_proj", ".*_proj",
                                                  ".*\\.(k|up)_proj"};
    static const int ranks[ADAPTERS] = {4, 8, 16, 3};
    static const adapter_kind kinds[ADAPTERS] = {PLAIN, RSLORA, DORA, BIAS};
    char dir[ADAPTERS][4096];
    af_error err = {0};
    af_model *m = decode_open("llama3_tiny", AF_COMPUTE_F32);
    if (!m)
        return;
    const int64_t V = af_model_vocab(m);
    af_decoder *d = open_with(m, true, 0);
    int id[ADAPTERS], differs = 0, other;
    int64_t active;
    for (int i = 0; i < ADAPTERS; i++)
        make_adapter(dir[i], sizeof dir[i], m, ranks[i], targets[i], (uint64_t)i + 1, kinds[i]);
    CHECK_OK(af_decoder_add_adapter(d, "one", dir[0], &id[0], &err), err);
    assert_int_equal(af_decoder_add_adapter(d, "one", dir[1], &id[1], &err), AF_EUSAGE);
    for (int k = 0; k < N; k++) {
        case_request(&among[k], k, V);
        among[k].r.adapter = k % 2 ? id[0] : 0;
        case_submit(d, &among[k]);
    }
    CHECK_OK(af_decoder_step(d, &active, &err), err);
    /* while requests run: caches move into a graph with space for more */
    CHECK_OK(af_decoder_add_adapter(d, "two", dir[1], &id[1], &err), err);
    CHECK_OK(af_decoder_add_adapter(d, "three", dir[2], &id[2], &err), err);
    CHECK_OK(af_decoder_add_adapter(d, "four", dir[3], &id[3], &err), err);
    assert_int_equal(af_decoder_remove_adapter(d, id[0], &err), AF_EUSAGE);
    static decode_case later[N];
    for (int k = 0; k < N; k++) {
        case_request(&later[k], k, V);
        later[k].r.adapter = id[k % ADAPTERS];
        case_submit(d, &later[k]);
    }
    case_finish(d);
    af_decoder *single = open_with(m, false, 0);
    for (int k = 0; k < 2 * N; k++) {
        const decode_case *c = k < N ? &among[k] : &later[k - N];
        const int i = c->r.adapter - 1;
        case_request(&plain, k % N, V);
        case_request(&alone, k % N, V);
        case_submit(single, &plain);
        case_finish(single);
        if (i >= 0)
            CHECK_OK(af_decoder_add_adapter(single, "a", dir[i], &other, &err), err);
        alone.r.adapter = i >= 0 ? other : 0;
        case_submit(single, &alone);
        case_finish(single);
        case_same(c, &alone, "adapters");
        differs += i >= 0 && alone.logprob[0] != plain.logprob[0];
        if (i >= 0)
            CHECK_OK(af_decoder_remove_adapter(single, other, &err), err);
    }
    assert_int_equal(differs, N / 2 + N);
    assert_int_equal(af_decoder_find_adapter(d, "two"), id[1]);
    CHECK_OK(af_decoder_remove_adapter(d, id[1], &err), err);
    assert_int_equal(af_decoder_find_adapter(d, "two"), -1);
    af_decoder_close(single);
    af_decoder_close(d);
    af_model_close(m);
    for (int i = 0; i < ADAPTERS; i++)
        CHECK_OK(af_path_remove(dir[i], &err), err);
}

/* Log-probability of `id` after the prompt by a model that was opened with the adapter. */
static double logprob_with(af_model *with, const decode_case *c, int32_t id)
{
    af_error err = {0};
    double sum = 0;
    float *logits = calloc((size_t)(c->len * c->V), sizeof *logits);
    CHECK_OK(af_model_logits_of(with, c->prompt, c->len, logits, &err), err);
    const float *last = logits + (c->len - 1) * c->V;
    for (int64_t i = 0; i < c->V; i++)
        sum += exp((double)last[i]);
    const double p = (double)last[id] - log(sum);
    free(logits);
    return p;
}

/* A decoder's adapter gives what the model does that was opened with it: the tokens of generate,
 * and the log-probabilities of its logits. */
static void check_adapter(const char *name, af_compute compute, adapter_kind kind, double most)
{
    static decode_case c;
    char dir[4096];
    af_error err = {0};
    af_model *m = decode_open(name, compute), *with;
    if (!m)
        return;
    int id;
    make_adapter(dir, sizeof dir, m, 6, "all-linear", 9, kind);
    CHECK_OK(af_model_open(&with, m->path,
                           &(af_model_opts){.device = case_device(),
                                            .threads = 2,
                                            .compute = compute,
                                            .adapter = {dir},
                                            .adapter_weight = {1},
                                            .adapters = 1},
                           &err),
             err);
    af_decoder *d = open_with(m, true, 0);
    CHECK_OK(af_decoder_add_adapter(d, "a", dir, &id, &err), err);
    case_request(&c, 6, af_model_vocab(m));
    c.r.adapter = id;
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
    CHECK_OK(af_model_generate(with, &o, &r, &err), err);
    assert_memory_equal(r.ids, c.id, (size_t)c.count * sizeof *r.ids);
    const double want = logprob_with(with, &c, c.id[0]), off = fabs(want - c.logprob[0]);
    CHECK_MSG(off < most, "%s, kind %d: %.9g, not %.9g", name, (int)kind, c.logprob[0], want);
    af_generated_clear(&r);
    af_decoder_close(d);
    af_model_close(with);
    af_model_close(m);
    CHECK_OK(af_path_remove(dir, &err), err);
}

static void test_adapters_compute_what_the_model_does(void **state)
{
    (void)state;
    static const adapter_kind kinds[] = {PLAIN, RSLORA, DORA, BIAS};
    for (size_t i = 0; i < AF_LEN(kinds); i++) {
        check_adapter("llama3_tiny", AF_COMPUTE_F32, kinds[i], 2e-5);
        check_adapter("qwen2_tiny", AF_COMPUTE_F32, kinds[i], 2e-5); /* has biases */
        check_adapter("qwen2_tiny", AF_COMPUTE_BF16, kinds[i], 0.1);
    }
}

static void test_embeddings(void **state)
{
    (void)state;
    enum { N = 300 };
    static decode_case c;
    af_error err = {0};
    af_model *m = decode_open("llama3_tiny", AF_COMPUTE_F32);
    if (!m)
        return;
    af_decoder *d = open_with(m, true, 0);
    const int64_t D = af_decoder_width(d);
    float *x = calloc((size_t)(5 * D), sizeof *x), *last = x + D, *cls = x + 2 * D,
          *mean = x + 3 * D, *part = x + 4 * D;
    case_request(&c, 11, af_model_vocab(m));
    int64_t active;
    case_submit(d, &c);
    CHECK_OK(af_decoder_step(d, &active, &err), err); /* while a request runs */
    CHECK_OK(af_decoder_embed(d, c.prompt, N, 0, AF_POOLING_LAST, last, &err), err);
    CHECK_OK(af_decoder_embed(d, c.prompt, N, 0, AF_POOLING_CLS, cls, &err), err);
    CHECK_OK(af_decoder_embed(d, c.prompt, N, 0, AF_POOLING_MEAN, mean, &err), err);
    CHECK_OK(af_decoder_embed(d, c.prompt, 1, 0, AF_POOLING_LAST, part, &err), err);
    assert_memory_equal(cls, part, (size_t)D * sizeof *x);
    double *sum = calloc((size_t)D, sizeof *sum);
    for (int64_t n = 1; n <= N; n += 1) { /* the last state of a beginning is a row of the whole */
        CHECK_OK(af_decoder_embed(d, c.prompt, n, 0, AF_POOLING_LAST, part, &err), err);
        for (int64_t i = 0; i < D; i++)
            sum[i] += part[i];
    }
    assert_memory_equal(part, last, (size_t)D * sizeof *x);
    for (int64_t i = 0; i < D; i++)
        CHECK_MSG(fabs(sum[i] / N - mean[i]) < 1e-5, "%g, not %g", mean[i], sum[i] / N);
    assert_int_equal(af_decoder_embed(d, c.prompt, 600, 0, AF_POOLING_LAST, part, &err), AF_EUSAGE);
    case_finish(d);
    assert_int_equal(af_decoder_count(d).pages_free, af_decoder_count(d).pages);
    free(sum);
    free(x);
    af_decoder_close(d);
    af_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_shared_prefix_changes_nothing),
        cmocka_unit_test(test_pages_come_back),
        cmocka_unit_test(test_pages_are_taken_by_age),
        cmocka_unit_test(test_parts_of_a_page_do_not_match),
        cmocka_unit_test(test_rows_of_different_adapters),
        cmocka_unit_test(test_adapters_compute_what_the_model_does),
        cmocka_unit_test(test_embeddings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
