/* test_ranks_golden.c - two ranks over TCP follow the trajectories of PyTorch, as one process does;
 * and sums of vectors over ranks are those of a tree. */
#define _GNU_SOURCE
#include "train/golden_run.h"

#include "dist/shards.h"

#include "dist/rank_env.h"

#include <sys/wait.h>

typedef void rank_work(int rank, int ranks);

/* Processes that do `work`; all must end well. */
static void run_ranks(int ranks, rank_work *work)
{
    const int port = free_port();
    fflush(NULL);
    for (int r = 0; r < ranks; r++) {
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid > 0)
            continue;
        set_number("RANK", r);
        set_number("WORLD_SIZE", ranks);
        set_number("MASTER_PORT", port);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        work(r, ranks);
        _exit(0);
    }
    for (int r = 0; r < ranks; r++) {
        int status;
        assert_true(wait(&status) > 0);
        CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a rank ended with status %x",
                  status);
    }
}

/* ---- sums ---- */

enum { N = 700001 }; /* more than one message */

static float value(int rank, int64_t i) { return (float)(1 + rank * 7) / (float)(3 + i % 1000); }

/* Halves as long as there are equal ones, then one after another. */
static float tree(int from, int n, int64_t i)
{
    float sum = value(from, i);
    if (n % 2 == 0)
        return tree(from, n / 2, i) + tree(from + n / 2, n / 2, i);
    for (int r = 1; r < n; r++)
        sum += value(from + r, i);
    return sum;
}

static void sum_vectors(int rank, int ranks)
{
    static const int64_t uneven[] = {0, 0, 100000, 650001, N}, third[] = {0, 0, 100001, N};
    af_comm *c = NULL;
    af_error err = {0};
    int64_t even[9];
    float *v = malloc(N * sizeof *v);
    if (af_comm_open(&c, &(af_comm_opts){.backend = AF_COMM_TCP, .timeout = 60}, &err) != AF_OK)
        _exit(2);
    af_shard_cuts(even, ranks, N, 64);
    for (int k = 0; k < 2; k++) {
        const int64_t *cut = k && ranks == 4 ? uneven : k && ranks == 3 ? third : even;
        for (int64_t i = 0; i < N; i++)
            v[i] = value(rank, i);
        const uint64_t before = af_comm_bytes(c);
        if (af_reduce_scatter(c, v, cut, &err) != AF_OK)
            _exit(3);
        if (af_comm_bytes(c) - before != af_shards_sent(cut, rank, ranks, 1, sizeof *v, false))
            _exit(4);
        for (int64_t i = cut[rank]; i < cut[rank + 1]; i++)
            if (v[i] != tree(0, ranks, i))
                _exit(5);
        if (af_gather_shards(c, v, sizeof *v, cut, &err) != AF_OK)
            _exit(6);
        for (int64_t i = 0; i < N; i++)
            if (v[i] != tree(0, ranks, i))
                _exit(7);
    }
    free(v);
    af_comm_close(c);
}

static void test_sums_are_those_of_a_tree(void **state)
{
    (void)state;
    run_ranks(2, sum_vectors);
    run_ranks(3, sum_vectors);
    run_ranks(4, sum_vectors);
    run_ranks(6, sum_vectors);
}

/* ---- runs ---- */

static const char *golden_name, *golden_stage;

/* Rank 0 has the rows. Accumulation is per rank: of one process, the golden's micro-batches are
 * halved instead, which is the same mean. */
static void follow(int rank, int ranks)
{
    char folder[128], out[256], metrics[300], models[512], data[600], path[256], *text;
    af_train_result result;
    af_error err = {0};
    snprintf(models, sizeof models, "%s/models", golden_dir());
    snprintf(data, sizeof data, "%s/data/train_tokens.jsonl", models);
    snprintf(folder, sizeof folder, "qwen2/%s", golden_name);
    snprintf(out, sizeof out, "%s/out-%s-%c", dir, golden_name,
             *golden_stage ? golden_stage[sizeof "zero_stage: " - 1] : '0');
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", out);
    snprintf(path, sizeof path, "%s/run-%d.yaml", dir, rank);
    json_t *run = load(golden_dir(), folder, "run.json"),
           *trajectory = load(golden_dir(), folder, "trajectory.json");
    const int64_t all = json_integer_value(json_object_get(run, "gradient_accumulation_steps"));
    const int64_t rows = json_integer_value(json_object_get(run, "micro_batch_size"));
    if (all % ranks == 0)
        json_object_set_new(run, "gradient_accumulation_steps", json_integer(all / ranks));
    else
        json_object_set_new(run, "micro_batch_size", json_integer(rows / ranks));
    text = run_file(golden_dir(), models, run, folder, "qwen2", out, data, golden_stage);
    if (af_file_write(path, text, strlen(text), &err) != AF_OK)
        _exit(2);
    const af_status st = af_train(path, NULL, 0, NULL, &result, &err);
    CHECK_MSG(st == AF_OK, "rank %d: %s", rank, err.msg);
    if (rank == 0)
        compare(folder, metrics, json_object_get(trajectory, "steps"),
                limits_of("qwen2", golden_name));
    free(text);
    json_decref(run);
    json_decref(trajectory);
}

static void test_two_ranks_follow_pytorch(void **state)
{
    (void)state;
    static const char *const names[] = {"lora", "full", "full"};
    static const char *const stages[] = {"", "zero_stage: 1\n", "zero_stage: 2\n"};
    for (size_t i = 0; i < AF_LEN(names); i++) {
        golden_name = names[i];
        golden_stage = stages[i];
        run_ranks(2, follow);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_are_those_of_a_tree),
        cmocka_unit_test(test_two_ranks_follow_pytorch),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
