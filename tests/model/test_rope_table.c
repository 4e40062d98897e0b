/* test_rope_table.c - rotary frequencies and scales against transformers' float32 values (bits from
 * modeling_rope_utils of transformers 5.22). Its powf may be one unit off a correctly rounded one,
 * so a difference of one unit in the last place passes and nothing more. */
#include "test.h"

#include "model/arch/rope_table.h"

#include <math.h>

static const double short_factor[] = {1.0, 1.05, 1.2, 1.5}, long_factor[] = {1.0, 2.0, 8.0, 30.0};

static const struct {
    const char *why;
    af_rope_config c;
    int dim;
    int64_t max_positions, length;
    double scale;
    uint32_t bits[16];
} cases[] = {
    {"default",
     {.type = AF_ROPE_DEFAULT, .theta = 1e4},
     16,
     2048,
     10,
     1.0,
     {0x3f800000, 0x3ea1e89b, 0x3dcccccd, 0x3d0186e3, 0x3c23d70a, 0x3b4f3e38, 0x3a83126f,
      0x39a5cb60}},
    {"an odd part of the head",
     {.type = AF_ROPE_DEFAULT, .theta = 1e4},
     9,
     2048,
     10,
     1.0,
     {0x3f800000, 0x3e044133, 0x3c88a69b, 0x3b0d3169, 0x3991e2e1}},
    {"a large base",
     {.type = AF_ROPE_DEFAULT, .theta = 1e6},
     24,
     2048,
     10,
     1.0,
     {0x3f800000, 0x3ea1e89b, 0x3dcccccc, 0x3d0186e3, 0x3c23d709, 0x3b4f3e39, 0x3a83126f,
      0x39a5cb62, 0x38d1b713, 0x3804a2b2, 0x3727c5b0, 0x36543781}},
    {"linear",
     {.type = AF_ROPE_LINEAR, .theta = 1e4, .factor = 2.5},
     16,
     2048,
     10,
     1.0,
     {0x3ecccccd, 0x3e0186e2, 0x3d23d70a, 0x3c4f3e38, 0x3b83126e, 0x3aa5cb60, 0x39d1b718,
      0x3904a2b3}},
    {"dynamic, short",
     {.type = AF_ROPE_DYNAMIC, .theta = 1e4, .factor = 3},
     16,
     64,
     20,
     1.0,
     {0x3f800000, 0x3ea1e89b, 0x3dcccccd, 0x3d0186e3, 0x3c23d70a, 0x3b4f3e38, 0x3a83126f,
      0x39a5cb60}},
    {"dynamic, long",
     {.type = AF_ROPE_DYNAMIC, .theta = 1e4, .factor = 3},
     16,
     64,
     200,
     1.0,
     {0x3f800000, 0x3e736852, 0x3d676f36, 0x3c5c0cdf, 0x3b5139e4, 0x3a46ef36, 0x393d2620,
      0x3833d844}},
    {"llama3",
     {.type = AF_ROPE_LLAMA3,
      .theta = 5e5,
      .factor = 8,
      .low_freq_factor = 1,
      .high_freq_factor = 4,
      .original_max_position_embeddings = 256},
     32,
     131072,
     10,
     1.0,
     {0x3f800000, 0x3ee177bc, 0x3e4693b0, 0x3d945633, 0x3c2ca88b, 0x3b07a9c3, 0x3a6ef74f,
      0x39d27720, 0x39395d21, 0x38a3418d, 0x380fc8f8, 0x377d45c3, 0x36df10c4, 0x36447610,
      0x35ad07a7, 0x351864a7}},
    {"yarn",
     {.type = AF_ROPE_YARN,
      .theta = 1e4,
      .factor = 4,
      .original_max_position_embeddings = 2048,
      .beta_fast = 32,
      .beta_slow = 1,
      .truncate = true},
     32,
     8192,
     10,
     1.138629436111989,
     {0x3f800000, 0x3f0ff59a, 0x3ea1e89b, 0x3e361887, 0x3dcccccd, 0x3d4da7ff, 0x3ccb8ad3,
      0x3c45b43b, 0x3bbb3ee7, 0x3b2b1b23, 0x3a9407df, 0x39e91528, 0x3983126f, 0x39136a16,
      0x38a5cb60, 0x383a7753}},
    {"yarn, not truncated, mscale",
     {.type = AF_ROPE_YARN,
      .theta = 1e5,
      .factor = 16,
      .original_max_position_embeddings = 512,
      .beta_fast = 20,
      .beta_slow = 2,
      .mscale = 1.5,
      .mscale_all_dim = 0.7},
     32,
     8192,
     10,
     1.1857554543344309,
     {0x3f800000, 0x3ef953cf, 0x3e6f6d75, 0x3da3e666, 0x3cb84b40, 0x3b402f50, 0x3a5a7bf2,
      0x39d4ca15, 0x394f3e38, 0x38c9d75c, 0x3844948c, 0x37bf74d7, 0x373a7753, 0x36b59b1b,
      0x3630df52, 0x35ac431d}},
    {"longrope, short",
     {.type = AF_ROPE_LONGROPE,
      .theta = 1e4,
      .factor = 32,
      .original_max_position_embeddings = 128,
      .short_factor = short_factor,
      .long_factor = long_factor,
      .short_count = 4,
      .long_count = 4},
     8,
     4096,
     100,
     1.3093073414159544,
     {0x3f800000, 0x3dc30c31, 0x3c088888, 0x3a2ec33e}},
    {"longrope, long",
     {.type = AF_ROPE_LONGROPE,
      .theta = 1e4,
      .factor = 32,
      .original_max_position_embeddings = 128,
      .short_factor = short_factor,
      .long_factor = long_factor,
      .short_count = 4,
      .long_count = 4},
     8,
     4096,
     200,
     1.3093073414159544,
     {0x3f800000, 0x3d4ccccd, 0x3aa3d70a, 0x380bcf65}},
};

static void test_frequencies_are_those_of_transformers(void **state)
{
    (void)state;
    int exact = 0, all = 0;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        float f[64];
        af_rope_inv_freq(f, &cases[i].c, cases[i].dim, cases[i].max_positions, cases[i].length);
        for (int k = 0; k < (cases[i].dim + 1) / 2; k++) {
            uint32_t bits;
            memcpy(&bits, &f[k], sizeof bits);
            const int64_t off = (int64_t)bits - (int64_t)cases[i].bits[k];
            CHECK_MSG(off >= -1 && off <= 1, "%s: frequency %d is %.9g, %d units away",
                      cases[i].why, k, f[k], (int)off);
            exact += off == 0;
            all++;
        }
        CHECK_MSG(fabs(af_rope_scale(&cases[i].c) - cases[i].scale) < 1e-12, "%s: scale %.17g",
                  cases[i].why, af_rope_scale(&cases[i].c));
    }
    print_message("%d of %d frequencies to the last bit\n", exact, all);
    assert_true(exact * 10 >= all * 8);
}

static void test_gguf_factors_divide(void **state)
{
    (void)state;
    const double factor[] = {1, 2, 4, 8};
    const af_rope_config plain = {.theta = 1e4}, with = {.theta = 1e4, .freq_factor = factor};
    float a[4], b[4];
    af_rope_inv_freq(a, &plain, 8, 100, 1);
    af_rope_inv_freq(b, &with, 8, 100, 1);
    for (int i = 0; i < 4; i++)
        assert_true(b[i] == a[i] / (float)factor[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frequencies_are_those_of_transformers),
        cmocka_unit_test(test_gguf_factors_divide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
