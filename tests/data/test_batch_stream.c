/* test_batch_stream.c - store, order, packing and the stream: complete, deterministic, resumable.
 */
#define _DEFAULT_SOURCE
#include "test.h"

#include "base/rng.h"
#include "data/store/batch_stream.h"
#include "data/store/order.h"

#include <unistd.h>

static char dir[] = "/tmp/afinar-stream-XXXXXX";
static char path[128];

static int length_of(int64_t r) { return 1 + (int)af_rng_below(7, 1, (uint64_t)r, 40); }

/* n records; token j of record r is r*64+j, odd tokens without loss. */
static void write_store(int64_t n)
{
    af_token_writer *w;
    af_error err = {0};
    CHECK_OK(af_token_writer_open(&w, path, &err), err);
    for (int64_t r = 0; r < n; r++) {
        int32_t ids[64], labels[64];
        for (int j = 0; j < length_of(r); j++) {
            ids[j] = (int32_t)(r * 64 + j);
            labels[j] = j % 2 ? -100 : ids[j];
        }
        CHECK_OK(af_token_writer_add(w, ids, labels, length_of(r), 0, r + 1, &err), err);
    }
    CHECK_OK(af_token_writer_commit(w, "{}", &err), err);
}

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/tokens", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    af_error err;
    return af_path_remove(dir, &err) != AF_OK;
}

static void test_the_order_is_a_permutation(void **state)
{
    (void)state;
    for (int64_t n = 1; n < 70; n += 3) {
        bool seen[70] = {0};
        for (int64_t i = 0; i < n; i++) {
            const int64_t x = af_permute(5, 2, n, i);
            assert_true(x >= 0 && x < n && !seen[x]);
            seen[x] = true;
        }
    }
    int same = 0;
    for (int64_t i = 0; i < 1000; i++)
        same += af_permute(5, 0, 1000, i) == af_permute(5, 1, 1000, i);
    assert_true(same < 20);
}

/* Where n is a power of 4 the network covers exactly n values: the order is its six rounds, and so
 * a run that was interrupted finds its records again with any later version. */
static void test_the_order_is_a_feistel_network(void **state)
{
    const uint32_t key[2] = {5, 0};
    (void)state;
    for (int half = 1; half < 5; half++)
        for (uint32_t i = 0; i < 1u << 2 * half; i++) {
            const uint32_t mask = (1u << half) - 1;
            uint32_t left = i >> half, right = i & mask;
            for (uint32_t round = 0; round < 6; round++) {
                uint32_t w[4];
                af_philox(w, (uint32_t[]){right, round, 2, 0x5075}, key);
                const uint32_t next = (left ^ w[0]) & mask;
                left = right;
                right = next;
            }
            assert_int_equal(af_permute(5, 2, INT64_C(1) << 2 * half, i), left << half | right);
        }
}

static void test_packs_hold_what_fits(void **state)
{
    (void)state;
    uint32_t length[500];
    int64_t pack[500], used[500];
    for (int sequential = 0; sequential < 2; sequential++) {
        for (int i = 0; i < 500; i++)
            length[i] = (uint32_t)length_of(i);
        const int64_t rows = af_pack(pack, length, 500, 64, 5, sequential);
        memset(used, 0, sizeof used);
        int held[500] = {0};
        for (int i = 0; i < 500; i++) {
            used[pack[i]] += length[i];
            held[pack[i]]++;
        }
        int64_t total = 0;
        for (int64_t r = 0; r < rows; r++) {
            assert_true(used[r] > 0 && used[r] <= 64 && held[r] <= 5);
            total += used[r];
        }
        if (!sequential) /* best fit wastes little */
            assert_true((double)total / (double)(rows * 64) > 0.9);
    }
}

/* Every record once per epoch, labels shifted, positions from 0; a seek gives the same batch as
 * reading up to there. */
static void check_stream(int64_t n, bool packing, bool sequential, bool shuffle)
{
    af_token_store store;
    af_stream *s;
    af_error err = {0};
    write_store(n);
    CHECK_OK(af_token_store_open(&store, path, &err), err);
    const af_stream_opts o = {.count = n,
                              .micro_batch = 3,
                              .sequence_len = 64,
                              .packing = packing,
                              .sequential = sequential,
                              .shuffle = shuffle,
                              .seed = 11};
    CHECK_OK(af_stream_open(&s, &store, &o, &err), err);
    const int64_t items = af_stream_items(s);
    int *seen = calloc((size_t)n, sizeof *seen);
    const af_batch *b;
    const int64_t batches = (items + 2) / 3;
    uint64_t sums[4096] = {0};
    int64_t total = 0;
    for (int64_t m = 0; m < batches; m++) {
        CHECK_OK(af_stream_get(s, m, &b, &err), err);
        for (int64_t q = 0; q < b->sequences; q++) {
            const int64_t r = b->record[q], from = b->bounds[q];
            if (total < n)
                seen[r]++;
            total++;
            assert_int_equal(b->bounds[q + 1] - from, length_of(r));
            for (int64_t i = 0; i < length_of(r); i++) {
                assert_int_equal(b->ids[from + i], r * 64 + i);
                assert_int_equal(b->positions[from + i], i);
                const bool loss = i + 1 < length_of(r) && (i + 1) % 2 == 0;
                assert_int_equal(b->labels[from + i], loss ? r * 64 + i + 1 : -100);
            }
        }
        for (int64_t i = 0; i < b->rows; i++)
            sums[m % 4096] = sums[m % 4096] * 31 + (uint64_t)b->ids[i];
    }
    assert_true(total >= n);
    for (int64_t r = 0; !packing && r < n; r++)
        assert_int_equal(seen[r], 1);
    for (int64_t m = batches - 1; m >= 0; m -= 7) {
        uint64_t sum = 0;
        CHECK_OK(af_stream_get(s, m, &b, &err), err);
        for (int64_t i = 0; i < b->rows; i++)
            sum = sum * 31 + (uint64_t)b->ids[i];
        assert_true(sum == sums[m % 4096]);
    }
    free(seen);
    af_stream_close(s);
    af_token_store_close(&store);
}

static void test_stream_is_complete_and_resumable(void **state)
{
    (void)state;
    for (int kind = 0; kind < 8; kind++) {
        check_stream(1, kind & 1, kind & 2, kind & 4);
        check_stream(100, kind & 1, kind & 2, kind & 4);
        check_stream(5000, kind & 1, kind & 2, kind & 4);
    }
}

static void test_sequential_packing_ignores_windows(void **state)
{
    (void)state;
    const int64_t n = 5000;
    af_token_store store;
    af_stream *s;
    af_error err = {0};
    uint32_t length[5000];
    int64_t pack[5000];
    write_store(n);
    CHECK_OK(af_token_store_open(&store, path, &err), err);
    for (int64_t i = 0; i < n; i++)
        length[i] = (uint32_t)length_of(i);
    const int64_t rows = af_pack(pack, length, n, 100, 100, true);
    const af_stream_opts o = {
        .count = n, .micro_batch = 1, .sequence_len = 100, .packing = true, .sequential = true};
    CHECK_OK(af_stream_open(&s, &store, &o, &err), err);
    assert_int_equal(af_stream_items(s), rows);
    const af_batch *b;
    int64_t at = 0;
    for (int64_t m = 0; m < rows; m++) {
        CHECK_OK(af_stream_get(s, m, &b, &err), err);
        for (int64_t q = 0; q < b->sequences; q++, at++) {
            assert_int_equal(b->record[q], at);
            assert_int_equal(pack[at], m);
        }
    }
    assert_int_equal(at, n);
    af_stream_close(s);
    af_token_store_close(&store);
}

/* After a jump back, batches that are still there are not made again: the caller may have asked for
 * one already. What the test writes into it must stay. */
static void test_a_batch_stays_after_a_jump_back(void **state)
{
    enum { N = 60, MARK = 12345 };
    (void)state;
    af_token_store store;
    af_stream *s;
    af_error err = {0};
    const af_batch *b, *other;
    write_store(N);
    CHECK_OK(af_token_store_open(&store, path, &err), err);
    const af_stream_opts o = {.count = N, .micro_batch = 5, .sequence_len = 64};
    CHECK_OK(af_stream_open(&s, &store, &o, &err), err);
    for (int64_t m = 8; m < 11; m++)
        CHECK_OK(af_stream_get(s, m, &b, &err), err);
    b->ids[0] = MARK;
    CHECK_OK(af_stream_get(s, 7, &other, &err), err);
    CHECK_OK(af_stream_get(s, 10, &b, &err), err);
    af_stream_hold(s, 8);
    CHECK_OK(af_stream_get(s, 11, &other, &err), err); /* the last of the ring: after 10 */
    assert_int_equal(b->ids[0], MARK);
    af_stream_close(s);
    af_token_store_close(&store);
}

static void test_cut_store_is_refused(void **state)
{
    (void)state;
    char *bytes;
    uint64_t size;
    af_error err = {0};
    af_token_store store;
    write_store(20);
    CHECK_OK(af_file_read(&bytes, &size, path, 1 << 20, &err), err);
    for (uint64_t cut = 0; cut < size; cut += 13) {
        CHECK_OK(af_file_write(path, bytes, cut, &err), err);
        assert_int_equal(af_token_store_open(&store, path, &err), AF_EFORMAT);
    }
    free(bytes);
}

static void test_changed_store_is_refused(void **state)
{
    (void)state;
    char *bytes;
    uint64_t size;
    af_error err = {0};
    af_token_store store;
    write_store(7);
    CHECK_OK(af_file_read(&bytes, &size, path, 1 << 20, &err), err);
    for (uint64_t at = 0; at < size; at += at < 128 ? 1 : 19) {
        bytes[at] ^= (char)(1 << at % 8);
        CHECK_OK(af_file_write(path, bytes, size, &err), err);
        assert_int_equal(af_token_store_open(&store, path, &err), AF_EFORMAT);
        bytes[at] ^= (char)(1 << at % 8);
    }
    CHECK_OK(af_file_write(path, bytes, size, &err), err);
    CHECK_OK(af_token_store_open(&store, path, &err), err);
    af_token_store_close(&store);
    free(bytes);
}

/* ---- pairs that keep their ends ---- */

enum { PAIR_LIMIT = 10 };

/* Prompts of 1 to 12 tokens, answers of 1 to 10, as a reader leaves them. Token j of part k of a
 * record is r*100 + k*30 + j. */
static int part_length(int64_t r, int k)
{
    return 1 + (int)af_rng_below(9, (uint64_t)k, (uint64_t)r, k ? PAIR_LIMIT : 12);
}

static void write_pairs(int64_t n)
{
    af_token_writer *w;
    af_error err = {0};
    CHECK_OK(af_token_writer_open(&w, path, &err), err);
    for (int64_t r = 0; r < n; r++) {
        int32_t ids[3][16];
        for (int k = 0; k < 3; k++)
            for (int j = 0; j < 16; j++)
                ids[k][j] = (int32_t)(r * 100 + k * 30 + j);
        const af_pair_row row = {.prompt = ids[0],
                                 .first = ids[1],
                                 .second = ids[2],
                                 .prompt_len = part_length(r, 0),
                                 .first_len = part_length(r, 1),
                                 .second_len = part_length(r, 2)};
        CHECK_OK(af_pair_writer_add(w, &row, 0, r + 1, &err), err);
    }
    CHECK_OK(af_token_writer_commit(w, "{}", &err), err);
}

/* The last PAIR_LIMIT tokens of prompt + answer k of a record. */
static int pair_tokens(int32_t *out, int64_t r, int k)
{
    const int prompt = part_length(r, 0), all = prompt + part_length(r, k);
    const int from = AF_MAX(all - PAIR_LIMIT, 0);
    for (int i = from; i < all; i++)
        out[i - from] = (int32_t)(r * 100 + (i < prompt ? i : k * 30 + i - prompt));
    return all - from;
}

static void check_pair_sequence(const af_batch *b, int64_t q, int k, const af_answer_rows *a)
{
    int32_t want[PAIR_LIMIT];
    const int64_t r = b->record[q], answer = part_length(r, k);
    const int n = pair_tokens(want, r, k);
    assert_int_equal(b->bounds[q + 1] - b->bounds[q], n);
    for (int i = 0; i < n; i++) {
        const int32_t at = b->source ? b->source[b->bounds[q] + i] : b->bounds[q] + i;
        assert_int_equal(b->ids[at], want[i]);
        assert_int_equal(b->positions[at], i);
    }
    assert_int_equal(a->tokens, answer);
    assert_int_equal(a->prompt, n - answer);
    assert_int_equal(a->terms, answer - (n == answer)); /* nothing predicts a first token */
    for (int64_t i = 0; i < a->terms; i++)
        assert_int_equal(b->labels[a->from + i], want[n - a->terms + i]);
}

static void test_pairs_keep_their_ends(void **state)
{
    (void)state;
    enum { RECORDS = 60 };
    int shared_prompts = 0, different = 0;
    write_pairs(RECORDS);
    for (int shared = 0; shared < 2; shared++) {
        af_stream *s;
        const af_batch *b;
        af_token_store store;
        af_error err = {0};
        const af_stream_opts o = {.count = RECORDS,
                                  .micro_batch = 4,
                                  .sequence_len = PAIR_LIMIT,
                                  .pairs = {.rl = AF_RL_DPO, .shared = shared, .keep_end = true}};
        CHECK_OK(af_token_store_open(&store, path, &err), err);
        CHECK_OK(af_stream_open(&s, &store, &o, &err), err);
        for (int64_t m = 0; m < RECORDS / 4; m++) {
            CHECK_OK(af_stream_get(s, m, &b, &err), err);
            assert_int_equal(b->pairs * 2, b->sequences);
            for (int64_t i = 0; i < b->pairs; i++) {
                const af_pair_rows *p = &b->pair[i];
                check_pair_sequence(b, 2 * i, 1, &p->first);
                check_pair_sequence(b, 2 * i + 1, 2, &p->second);
                different += p->first.prompt != p->second.prompt;
            }
            shared_prompts += b->source && b->attention_rows > b->rows;
        }
        af_stream_close(s);
        af_token_store_close(&store);
    }
    assert_true(shared_prompts > 0 && different > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_order_is_a_permutation),
        cmocka_unit_test(test_the_order_is_a_feistel_network),
        cmocka_unit_test(test_packs_hold_what_fits),
        cmocka_unit_test(test_stream_is_complete_and_resumable),
        cmocka_unit_test(test_sequential_packing_ignores_windows),
        cmocka_unit_test(test_a_batch_stays_after_a_jump_back),
        cmocka_unit_test(test_pairs_keep_their_ends),
        cmocka_unit_test(test_cut_store_is_refused),
        cmocka_unit_test(test_changed_store_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
