/* gguf_state.h - what families with state layers, with experts and gemma4 have in the metadata of
 * GGUF files. */
#ifndef AF_GGUF_STATE_H
#define AF_GGUF_STATE_H

#include "format/config/hf_config_check.h"

/* Kinds of layers, heads of keys and values, sizes of states and routers; after the sizes that
 * every family has. */
AF_CHECKED af_status af_config_gguf_state(af_hf_config *c, const af_gguf *g, const char *arch,
                                          af_error *err);
/* gguf_experts.c: routers and shared experts of families without states. */
AF_CHECKED af_status af_config_gguf_experts(af_hf_config *c, const af_gguf *g, const char *arch,
                                            af_error *err);
/* A mixture in the words of DeepSeek; norm_absent: whether weights are divided by their sum where
 * the file says nothing. */
AF_CHECKED af_status af_config_gguf_deepseek(af_hf_config *c, const af_gguf *g, const char *arch,
                                             bool norm_absent, af_error *err);
/* The first number of a key that may be an array with one for each layer. */
int64_t af_gguf_first_int(const af_gguf *g, const char *key, int64_t absent);
/* gguf_gemma4.c: layers of two kinds with sizes of their own. */
AF_CHECKED af_status af_config_gguf_gemma4(af_hf_config *c, const af_gguf *g, af_error *err);
/* The same file: streams of gemma3n. */
AF_CHECKED af_status af_config_gguf_gemma3n(af_hf_config *c, const af_gguf *g, af_error *err);
/* Rows of gemma3n's table of inputs per layer; llama.cpp's has one for each token. */
#define AF_LAYER_VOCAB_KEY "afinar.vocab_size_per_layer_input"
#endif
