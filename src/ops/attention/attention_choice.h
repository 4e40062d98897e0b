/* attention_choice.h - cuDNN instead of an own attention kernel: which nodes, and when.
 *
 * While a node is prepared it is offered (af_attention_offer, af_attention_over); when every kernel
 * is built, the family's choose decides for the whole graph. A choice holds for a shape on this
 * GPU: it is timed once, stored in the cache folder, and not timed again, so that the same machine
 * makes the same bits in every later run. Where nothing can be stored, own kernels do it. */
#ifndef AF_ATTENTION_CHOICE_H
#define AF_ATTENTION_CHOICE_H

#include "backend/cuda/cuda_graph.h"
#include "ops/attention/attention_cudnn.h"

/* A node that cuDNN may compute; the family's slot is the list of them. */
typedef struct af_dnn_use af_dnn_use;
struct af_dnn_use {
    af_alternative alternative; /* first */
    af_dnn_attention a;
    const af_node *node;
    const af_launch *own, *before;
    float scale, low; /* read when it runs */
    int64_t *at_qkv, *at_o, *at_lse;
    int32_t *length;
    void *work;
    uint64_t work_bytes;
    const af_dnn_plan *plan;
    void *pack; /* the addresses, as cuDNN expects them */
    af_dnn_use *next;
};

/* Bytes of workspace of a node that may go to cuDNN, else 0. `best`: the own kernel is Hopper's,
 * which cuDNN does not beat by a tenth; then it must be requested. */
uint64_t af_attention_dnn_work(const af_cuda *cu, const af_node *n, bool best);
/* NULL: not for cuDNN. Otherwise the steps before its work have been appended. */
af_dnn_use *af_attention_offer(af_cuda *cu, af_node *n, bool best);
/* `own`, the launch appended last, is what cuDNN may take over. */
void af_attention_over(af_cuda *cu, af_node *n, af_dnn_use *u, const af_launch *own);
extern const af_cuda_family af_cuda_attention_family;
#endif
