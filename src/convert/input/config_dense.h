/* config_dense.h - the keys of config.json that only some dense families have. */
#ifndef AF_CONFIG_DENSE_H
#define AF_CONFIG_DENSE_H

#include "format/config/hf_config.h"

#include <jansson.h>

void af_config_dense(json_t *o, const af_hf_config *c);
#endif
