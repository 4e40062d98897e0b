/* custom_loss.c - trains a LoRA adapter with a custom loss: cross-entropy plus a z-loss, which
 * keeps the logits small (PaLM, Chowdhery et al. 2022, section 5):
 *
 *     loss = mean(-log p[label]) + 1e-4 * mean(log(sum(exp(logits)))^2)
 *
 * usage: example_custom_loss MODEL TEXT.txt OUTPUT_DIR [steps] */
#include <afinar/afinar.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 256, RANK = 8 };

static af_error err;

static void check(af_status st)
{
    if (st == AF_OK)
        return;
    fprintf(stderr, "custom_loss: %s\n", err.msg);
    exit(1);
}

/* The first MiB of the file as token ids. */
static af_encoding read_tokens(af_model *m, const char *path)
{
    static char text[1 << 20];
    const af_tokenizer *tokenizer;
    af_encoding e = {0};
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(1);
    }
    const size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    check(af_model_tokenizer(m, &tokenizer, &err));
    check(af_tokenizer_encode(tokenizer, &e, text, n, true, &err));
    if (e.count < 2) /* a token has loss when there is one before it */
        check(af_fail(&err, AF_EUSAGE, "%s has %lld tokens, at least 2 are needed", path,
                      (long long)e.count));
    return e;
}

/* x [N][V] logits, labels [N] -> [1] */
static af_tensor *our_loss(af_graph *g, af_tensor *x, af_tensor *labels)
{
    x = af_cast(g, x, AF_DTYPE_F32);
    /* logits - log_softmax(logits) is log(sum(exp(logits))) in every column: take the first */
    af_tensor *lse = af_slice(g, af_sub(g, x, af_log_softmax(g, x)), 1, 0, 1);
    af_tensor *z = af_mean_all(g, af_mul(g, lse, lse));
    return af_add(g, af_cross_entropy(g, x, labels, 0), af_scale(g, z, 1e-4));
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: %s MODEL TEXT.txt OUTPUT_DIR [steps]\n", argv[0]);
        return 2;
    }
    const int steps = argc > 4 ? atoi(argv[4]) : 50;
    af_model *m;
    af_model_graph *r;
    check(af_model_open(&m, argv[1], &(af_model_opts){.device = "auto"}, &err));
    af_encoding tokens = read_tokens(m, argv[2]);

    const af_record_opts o = {.rows = ROWS, .lora_r = RANK, .seed = 1};
    check(af_model_record(&r, m, &o, &err));
    af_graph *g = af_model_graph_graph(r);
    af_tensor *loss = our_loss(g, af_model_graph_logits(r), af_model_graph_labels(r));
    af_graph_output(g, loss);
    af_graph_backward(g, loss);
    af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW, .max_grad_norm = 1});
    check(af_model_graph_prepare(r, &err)); /* the only place that allocates */

    af_graph_set_learning_rate(g, 1e-3);
    for (int step = 0; step < steps; step++) {
        const int64_t windows = (tokens.count + ROWS - 1) / ROWS, at = step % windows * ROWS;
        const int64_t left = tokens.count - at;
        const af_token_row row = {tokens.ids + at, tokens.ids + at, left < ROWS ? left : ROWS};
        float value;
        check(af_model_graph_feed(r, &row, 1, &err));
        check(af_graph_run(g, AF_RUN_STEP, &err));
        check(af_tensor_read(g, loss, &value, sizeof value, &err));
        printf("step %d loss %.4f\n", step + 1, (double)value);
    }
    check(af_model_graph_save(r, argv[3], &err)); /* a PEFT folder */
    printf("wrote %s\n", argv[3]);
    af_model_graph_free(r);
    af_encoding_clear(&tokens);
    af_model_close(m);
    return 0;
}
