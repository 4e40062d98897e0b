/* model_graph.h - the recorded forward pass of a loaded model, to attach a loss of your own.
 *
 *     af_model_graph *r;
 *     af_model_record(&r, model, &(af_record_opts){.rows = 512, .lora_r = 8}, &err);
 *     af_graph *g = af_model_graph_graph(r);
 *     af_tensor *loss = ... af_model_graph_logits(r) ...;     // any ops of graph.h
 *     af_graph_backward(g, loss);
 *     af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW});
 *     af_model_graph_prepare(r, &err);
 *     for (...) {
 *         af_model_graph_feed(r, batch, n, &err);
 *         af_graph_run(g, AF_RUN_STEP, &err);
 *     }
 *     af_model_graph_save(r, "adapter", &err);
 *
 * The model must outlive the recording and may be used for other calls meanwhile. One thread at a
 * time. Complete example: examples/custom_loss.c. Training runs with datasets, checkpoints and
 * schedules are in train.h. */
#ifndef AFINAR_MODEL_GRAPH_H
#define AFINAR_MODEL_GRAPH_H

#include "afinar/graph.h"
#include "afinar/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A forward pass over a graph of its own. */
typedef struct af_model_graph af_model_graph;

typedef struct af_record_opts {
    int64_t rows;      /* tokens per batch at most, all sequences together */
    int64_t sequences; /* per batch at most; 0 = 1 */
    /* Parameters. lora_r > 0: a new LoRA adapter of this rank on all linear layers. lora_r 0: the
     * adapter the model was opened with is trained; without one the model has no parameters. */
    int lora_r;
    double lora_alpha;   /* 0 = twice the rank */
    double lora_dropout; /* on the adapter's input, [0, 1) */
    uint64_t seed;       /* of the new adapter and of dropout */
} af_record_opts;

/* Records the layers of m up to the final norm. On success *out belongs to the caller; free it with
 * af_model_graph_free. AF_EUSAGE for options out of range, or lora_r with a model that was opened
 * with an adapter; AF_ENOMEM. */
AF_API AF_CHECKED af_status af_model_record(af_model_graph **out, af_model *m,
                                            const af_record_opts *o, af_error *err);
/* Frees the recording and its graph. NULL is allowed. */
AF_API void af_model_graph_free(af_model_graph *r);

/* The graph, to record ops into and to run. Borrowed; prepare it with af_model_graph_prepare. */
AF_API af_graph *af_model_graph_graph(af_model_graph *r);
/* Hidden states after the final norm, [rows][D] in the compute type. */
AF_API af_tensor *af_model_graph_hidden(af_model_graph *r);
/* Logits [rows][V] in the compute type, recorded at the first call. */
AF_API af_tensor *af_model_graph_logits(af_model_graph *r);
/* Labels i32 [rows] that af_model_graph_feed writes: what each row must predict, -100 = none.
 * Recorded at the first call. */
AF_API af_tensor *af_model_graph_labels(af_model_graph *r);
/* Parameter i of the adapter (0 <= i < count); NULL when out of range. */
AF_API af_tensor *af_model_graph_param(const af_model_graph *r, int i);
/* The number of parameters. */
AF_API int af_model_graph_param_count(const af_model_graph *r);

/* Prepares the graph on the model's device, loads the weights and the adapter. After it nothing
 * more can be recorded. AF_EUSAGE for a recording error, AF_ENOMEM, AF_EDEVICE, AF_EIO. */
AF_API AF_CHECKED af_status af_model_graph_prepare(af_model_graph *r, af_error *err);
/* Writes one batch: the tokens of n sequences (af_token_row; labels may be NULL), one after
 * another, and sets the number of live rows. Results of later rows are undefined. AF_EUSAGE for too
 * many tokens or sequences, or ids outside the vocabulary. */
AF_API AF_CHECKED af_status af_model_graph_feed(af_model_graph *r, const af_token_row *row, int n,
                                                af_error *err);
/* Writes the adapter with its current values as a PEFT folder. An adapter that was saved there
 * before is replaced, other files are kept (afinar/output.h). AF_EUSAGE without an adapter or for
 * files that are somebody else's, AF_EIO. */
AF_API AF_CHECKED af_status af_model_graph_save(af_model_graph *r, const char *dir, af_error *err);

#ifdef __cplusplus
}
#endif
#endif
