/* attention_cost.h - which tiles of attention.cu (tensor cores without Hopper's instructions) a GPU
 * takes where that was not measured: those with the least cost by a model of the GPU, as
 * gemm_cost.h. How long sequences are is on the device only: the model takes them as equal. */
#ifndef AF_ATTENTION_COST_H
#define AF_ATTENTION_COST_H

#include "backend/cuda/gpu_rates.h"

/* AF_WARPS, AF_MT, AF_BN of attention.cu for padded heads of `ep`, one direction, with or without a
 * soft cap. */
typedef struct af_attention_tile {
    bool back;
    int ep;
    bool plain, capped; /* built without a soft cap, and with one */
    int warps, mt, bn;
    int registers; /* of a thread, at most */
} af_attention_tile;
extern const af_attention_tile af_attention_tile_list[];
extern const int af_attention_tile_count;

typedef struct af_attention_shape {
    int64_t rows, sequences;
    int heads, kv_heads, ep;
    int window; /* 0 = none */
    bool causal, capped, back;
} af_attention_shape;

typedef struct af_attention_way {
    int tile;   /* of the list; -1: none fits */
    int splits; /* blocks that share the query heads of a kv head, backward */
} af_attention_way;

int af_attention_tile_rows(const af_attention_tile *t); /* a block owns */
int af_attention_tile_shared(const af_attention_tile *t);

bool af_attention_fits(const af_gpu_rates *g, const af_attention_shape *s, af_attention_way w);
/* Clocks, of a way that fits. */
double af_attention_cost(const af_gpu_rates *g, const af_attention_shape *s, af_attention_way w);
/* The cheapest of those that fit. */
af_attention_way af_attention_choose(const af_gpu_rates *g, const af_attention_shape *s);
#endif
