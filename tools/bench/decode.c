/* decode.c - steps of the batched decoder: our half of decode.py, and what a GPU is measured with.
 * Development only, built by hand:
 *
 *   cc -O2 -Iinclude tools/bench/decode.c build/libafinar.a (and the libraries of pkg-config)
 *
 *   decode MODEL DEVICE f32|bf16|nf4|f32-8 THREADS BATCH[,BATCH..] STEPS [GB_PER_S TFLOPS
 * [ADAPTER..]]
 *
 * One JSON object per batch size: the median time of a step in which every sequence makes one
 * token (processor time on the CPU, and the wall's), and the best time of a prompt of 256 tokens
 * for one sequence. With the bandwidth and the speed of a large GEMM of the same
 * run: the floor, the larger of reading every weight once and of multiplying with all of them, and
 * the ratio. Of a table of embeddings that is not the head, too, only rows are read; the head stays
 * in bf16 when the rest is in 4 bits (hidden_size and tie_word_embeddings of config.json; without
 * that file everything counts). f32-8 rounds activations to 8 bits. With adapters (folders) row i
 * takes number i % adapters. DECODE_SAMPLE="TEMPERATURE TOP_K TOP_P TOP_LOGPROBS" in the
 * environment: sampling other than the most probable token without log-probabilities. */
#define _POSIX_C_SOURCE 200809L
#include "afinar/decode.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PROMPT = 32, LONG = 256, STEPS_MAX = 4096 };

static clockid_t clock_of_steps;

static double at(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static double now(void) { return at(clock_of_steps); }

typedef struct times {
    double step, wall; /* ms */
} times;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int64_t tokens;
static af_sample_opts sample;
static int top_logprobs = -1;

static bool count(void *user, const af_decoded *t)
{
    (void)user;
    tokens += t->id >= 0;
    return true;
}

/* Weights of the table of embeddings (0: not known), and whether the head is the same. */
static double table_weights(const char *model, int64_t V, bool *tied)
{
    char path[4096], text[16384] = {0};
    snprintf(path, sizeof path, "%s/config.json", model);
    FILE *f = fopen(path, "r");
    *tied = false;
    if (!f)
        return 0;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    const char *tie = strstr(text, "\"tie_word_embeddings\""),
               *wide = strstr(text, "\"hidden_size\"");
    *tied = tie && tie[21 + strspn(tie + 21, ": \t\n")] == 't';
    return wide ? (double)V * atof(wide + strcspn(wide, ":") + 1) : 0;
}

/* A prompt of LONG tokens and its first answer: the best of three, in ms; -1 for an error. */
static double measure_prompt(af_decoder *d, int64_t V, af_error *err)
{
    int32_t ids[LONG];
    double best = -1;
    for (int k = 0; k < 3; k++) {
        uint64_t ticket;
        for (int i = 0; i < LONG; i++)
            ids[i] = (int32_t)((i * 7919 + 13 * k + 100) % V);
        const af_decode_request r = {.ids = ids,
                                     .count = LONG,
                                     .max_tokens = 1,
                                     .ignore_eos = true,
                                     .top_logprobs = -1,
                                     .token = count};
        if (af_decoder_submit(d, &r, &ticket, err) != AF_OK)
            return -1;
        const double from = now();
        for (int64_t active = 1; active > 0;)
            if (af_decoder_step(d, &active, err) != AF_OK)
                return -1;
        const double ms = now() - from;
        best = best < 0 || ms < best ? ms : best;
    }
    return best;
}

/* Median step of `batch` rows. */
static bool measure(times *out, af_decoder *d, int64_t V, int batch, int steps, int adapters,
                    af_error *err)
{
    static double ms[STEPS_MAX], wall[STEPS_MAX];
    int32_t ids[PROMPT];
    int64_t active;
    uint64_t ticket;
    for (int b = 0; b < batch; b++) {
        for (int i = 0; i < PROMPT; i++)
            ids[i] = (int32_t)((i * 7919 + 13 * b + 100) % V);
        const af_decode_request r = {.ids = ids,
                                     .count = PROMPT,
                                     .adapter = adapters ? b % adapters + 1 : 0,
                                     .max_tokens = steps + 4 * batch + 8,
                                     .sample = sample,
                                     .stream = (uint64_t)b,
                                     .ignore_eos = true,
                                     .top_logprobs = top_logprobs,
                                     .token = count};
        if (af_decoder_submit(d, &r, &ticket, err) != AF_OK)
            return false;
    }
    for (int n = 0; n < steps;) {
        tokens = 0;
        const double from = now(), wall_from = at(CLOCK_MONOTONIC);
        if (af_decoder_step(d, &active, err) != AF_OK)
            return false;
        if (tokens == batch) { /* no prompt among them */
            ms[n] = now() - from;
            wall[n++] = at(CLOCK_MONOTONIC) - wall_from;
        }
    }
    for (uint64_t t = ticket - (uint64_t)batch + 1; t <= ticket; t++)
        af_decoder_cancel(d, t);
    if (af_decoder_step(d, &active, err) != AF_OK)
        return false;
    qsort(ms, (size_t)steps, sizeof *ms, by_value);
    qsort(wall, (size_t)steps, sizeof *wall, by_value);
    *out = (times){ms[steps / 2], wall[steps / 2]};
    return true;
}

int main(int argc, char **argv)
{
    af_error err = {0};
    af_model *m;
    if (argc < 7 || atoi(argv[6]) < 1 || atoi(argv[6]) > STEPS_MAX)
        return 2;
    const char *how = getenv("DECODE_SAMPLE");
    if (how && sscanf(how, "%lf %" SCNd64 " %lf %d", &sample.temperature, &sample.top_k,
                      &sample.top_p, &top_logprobs) < 1)
        return 2;
    clock_of_steps = strcmp(argv[2], "cpu") ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID;
    const bool nf4 = !strcmp(argv[3], "nf4");
    const af_model_opts mo = {.device = argv[2],
                              .threads = atoi(argv[4]),
                              .compute =
                                  !strncmp(argv[3], "f32", 3) ? AF_COMPUTE_F32 : AF_COMPUTE_BF16,
                              .load_in_4bit = nf4,
                              .few_tokens = true};
    if (af_model_open(&m, argv[1], &mo, &err) != AF_OK)
        return fprintf(stderr, "%s\n", err.msg), 1;
    bool tied;
    const double table = table_weights(argv[1], af_model_vocab(m), &tied),
                 params = (double)af_model_params(m) - (tied ? 0 : table), /* that are read */
        each = nf4                           ? 0.5 + 1.0 / 64 + 4.0 / 16384
               : !strncmp(argv[3], "f32", 3) ? 4
                                             : 2,
                 bytes = params * each + (nf4 ? table * (2 - each) : 0),
                 gb = argc > 7 ? atof(argv[7]) : 0, tflops = argc > 8 ? atof(argv[8]) : 0;
    const int steps = atoi(argv[6]);
    for (char *text = strtok(argv[5], ","); text; text = strtok(NULL, ",")) {
        const int batch = atoi(text);
        af_decoder *d;
        const af_decoder_opts o = {.context = LONG + steps + 4 * batch + 16,
                                   .sequences = batch,
                                   .tokens =
                                       LONG + (PROMPT + steps + 4 * batch + 160) * (int64_t)batch,
                                   .keep_no_text = true,
                                   .round_activations = !strcmp(argv[3], "f32-8")};
        const double opening = at(CLOCK_MONOTONIC);
        if (af_decoder_open(&d, m, &o, &err) != AF_OK)
            return fprintf(stderr, "%s\n", err.msg), 1;
        const double open_ms = at(CLOCK_MONOTONIC) - opening;
        int adapters = 0;
        for (int i = 9; i < argc; i++) {
            char name[16];
            snprintf(name, sizeof name, "%d", i);
            if (af_decoder_add_adapter(d, name, argv[i], &adapters, &err) != AF_OK)
                return fprintf(stderr, "%s\n", err.msg), 1;
        }
        times t;
        const double prompt = measure_prompt(d, af_model_vocab(m), &err);
        if (prompt < 0 || !measure(&t, d, af_model_vocab(m), batch, steps, adapters, &err))
            return fprintf(stderr, "%s\n", err.msg), 1;
        const double ms = t.step;
        printf("{\"batch\": %d, \"adapters\": %d, \"step_ms\": %.3f, \"wall_ms\": %.3f, "
               "\"tok_s\": %.1f, \"prompt_ms\": %.3f, \"open_ms\": %.0f",
               batch, adapters, ms, t.wall, batch / ms * 1e3, prompt, open_ms);
        if (gb > 0 && tflops > 0) {
            const double read = bytes / gb / 1e6, gemm = 2 * params * batch / tflops / 1e9;
            const double least = read > gemm ? read : gemm;
            printf(", \"read_ms\": %.3f, \"gemm_ms\": %.3f, \"ratio\": %.2f", read, gemm,
                   ms / least);
        }
        printf("}\n");
        fflush(stdout);
        af_decoder_close(d);
    }
    af_model_close(m);
    return 0;
}
