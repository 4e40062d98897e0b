/* generate.c - prompt processing and single-token generation, processor time: our half of
 * generate.py. Development only, built by hand:
 *
 *   cc -O2 -Iinclude tools/bench/generate.c build/libafinar.a -ljansson -lyaml \
 *     -lutf8proc -lpcre2-8 -lz -lm -lpthread -ldl
 *
 *   generate MODEL PROMPT NEW TIMES THREADS f32|bf16
 *
 * One JSON object: the best of TIMES of each; "first" is opening the model to its first token. */
#define _POSIX_C_SOURCE 200809L
#include "afinar/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

typedef struct watch {
    double first, last;
    int tokens;
} watch;

static bool tick(void *user, int sequence, int32_t id, const char *text, uint64_t len)
{
    watch *w = user;
    (void)sequence, (void)text, (void)len;
    if (id < 0)
        return true;
    w->last = now(CLOCK_PROCESS_CPUTIME_ID);
    w->first = w->tokens++ ? w->first : w->last;
    return true;
}

int main(int argc, char **argv)
{
    af_error err = {0};
    af_model *m;
    if (argc != 7)
        return 2;
    const int64_t P = atoll(argv[2]), N = atoll(argv[3]);
    const double cpu = now(CLOCK_PROCESS_CPUTIME_ID), wall = now(CLOCK_MONOTONIC);
    const af_model_opts mo = {
        .device = "cpu", .threads = atoi(argv[5]), .bf16 = !strcmp(argv[6], "bf16")};
    if (af_model_open(&m, argv[1], &mo, &err) != AF_OK)
        return fprintf(stderr, "%s\n", err.msg), 1;
    int32_t *ids = calloc((size_t)P + 2, sizeof *ids);
    double load_cpu = 0, load_wall = 0, prompt = 1e30, token = 1e30;
    for (int k = 0; k <= atoi(argv[4]); k++) {
        watch w = {0};
        af_generated out;
        const int64_t n = k ? P : 1;
        for (int64_t i = 0; i < n; i++) /* another beginning each time: no cache is reused */
            ids[i] = (int32_t)((i * 7919 + 13 * k + 100) % af_model_vocab(m));
        const af_generate_opts o = {.prompt = (const int32_t *const[]){ids},
                                    .prompt_len = &n,
                                    .sequences = 1,
                                    .max_new = k ? N : 1,
                                    .ids_only = true,
                                    .ignore_eos = true,
                                    .hook = tick,
                                    .user = &w};
        const double from = now(CLOCK_PROCESS_CPUTIME_ID);
        if (af_model_generate(m, &o, &out, &err) != AF_OK)
            return fprintf(stderr, "%s\n", err.msg), 1;
        af_generated_clear(&out);
        if (k == 0) {
            load_cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
            load_wall = now(CLOCK_MONOTONIC) - wall;
            continue;
        }
        const double p = w.first - from, t = (w.last - w.first) / (double)(N - 1);
        prompt = p < prompt ? p : prompt;
        token = t < token ? t : token;
    }
    printf("{\"first_ms\": %.1f, \"first_wall_ms\": %.1f, \"prompt_ms\": %.2f, \"token_ms\": "
           "%.3f}\n",
           load_cpu, load_wall, prompt, token);
    free(ids);
    af_model_close(m);
    return 0;
}
