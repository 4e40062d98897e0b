/* bnb_linears.h - which tensors of a folder bitsandbytes has in codes, as transformers loads it. */
#ifndef AF_BNB_LINEARS_H
#define AF_BNB_LINEARS_H

#include "model/model_reader.h"

#include <jansson.h>

/* A linear inside the layers. Experts are one parameter for transformers 5, which it leaves alone,
 * and so are most routers: none of them is packed. */
bool af_bnb_packs(const af_model_tensor *t);

/* llm_int8_skip_modules: the matrices besides embeddings and heads that stay as they are, which
 * transformers would look for in codes where they are linears; null where there are none such. */
json_t *af_bnb_skip_modules(const af_model_reader *in);

#endif
