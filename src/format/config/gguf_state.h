/* gguf_state.h - what families with state layers have in the metadata of GGUF files. */
#ifndef AF_GGUF_STATE_H
#define AF_GGUF_STATE_H

#include "format/config/hf_config_check.h"

/* Kinds of layers, heads of keys and values, sizes of states and routers; after the sizes that
 * every family has. */
AF_CHECKED af_status af_config_gguf_state(af_hf_config *c, const af_gguf *g, const char *arch,
                                          af_error *err);
/* The first number of a key that may be an array with one for each layer. */
int64_t af_gguf_first_int(const af_gguf *g, const char *key, int64_t absent);
/* gguf_gemma4.c: layers of two kinds with sizes of their own. */
AF_CHECKED af_status af_config_gguf_gemma4(af_hf_config *c, const af_gguf *g, af_error *err);
#endif
