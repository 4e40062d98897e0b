/* imatrix_collect.h - an importance matrix of a model, computed from a text. */
#ifndef AF_IMATRIX_COLLECT_H
#define AF_IMATRIX_COLLECT_H

#include "convert/quantize/imatrix.h"

typedef struct af_collect_opts {
    const char *adapter; /* PEFT folder, or NULL */
    const char *device;  /* NULL = auto */
    int64_t chunks;      /* at most this many; 0 = the whole text */
    int threads;
} af_collect_opts;

/* Runs the model over the text in chunks of AF_IMATRIX_CHUNK tokens (a rest that does not fill one
 * is left out, unless there is nothing else) and sums the squares of each linear's inputs, as
 * llama.cpp's imatrix tool does: each chunk begins with the bos token where the tokenizer adds one,
 * the head is not part of it. */
AF_CHECKED af_status af_imatrix_collect(af_imatrix *out, const char *model, const char *text,
                                        const af_collect_opts *o, af_error *err);
#endif
