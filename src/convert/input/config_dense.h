/* config_dense.h - the keys of config.json that only some families have: dense ones, those
 * with state layers, with experts or latent attention. */
#ifndef AF_CONFIG_DENSE_H
#define AF_CONFIG_DENSE_H

#include "format/config/hf_config.h"

#include <jansson.h>

void af_config_dense(json_t *o, const af_hf_config *c);
void af_config_state(json_t *o, const af_hf_config *c);
void af_config_experts(json_t *o, const af_hf_config *c);
void af_config_gemma4(json_t *o, const af_hf_config *c);
#endif
