/* attention_cudnn.h - attention as a graph of cuDNN's operations. */
#ifndef AF_ATTENTION_CUDNN_H
#define AF_ATTENTION_CUDNN_H

#include "backend/cuda/cudnn.h"

/* Tensors of the graph that have an address. */
typedef enum af_dnn_attention_id {
    AF_DNN_Q = 1,
    AF_DNN_K,
    AF_DNN_V,
    AF_DNN_O,
    AF_DNN_LSE,
    AF_DNN_LENGTH_Q,
    AF_DNN_LENGTH_K,
    AF_DNN_AT_QKV, /* where sequences start, in elements */
    AF_DNN_AT_O,
    AF_DNN_AT_LSE,
    AF_DNN_SCALE,
    AF_DNN_LOW,
    AF_DNN_LOW_CAUSAL,
} af_dnn_attention_id;

typedef struct af_dnn_attention {
    int64_t S, T; /* sequences, and a bound of the rows of one: it costs nothing */
    int64_t H, K, E;
    int64_t ld_qkv, ld_o;
} af_dnn_attention;

/* The forward pass with a causal mask, bf16, over sequences of any length up to T:
 * q, k, v: columns of rows ld_qkv apart; o: rows ld_o apart; lse f32 [N][H]. */
void af_dnn_attention_forward(af_dnn_graph *g, const af_dnn_attention *a);
#endif
