/* config_rope.h - another scaling of the rotary positions than the config has. */
#ifndef AF_CONFIG_ROPE_H
#define AF_CONFIG_ROPE_H

#include "format/config/hf_config.h"

#include <jansson.h>

typedef struct af_rope_change {
    char name[320];    /* begins messages: "run.yaml:12: rope_scaling" */
    json_t *scaling;   /* as rope_scaling has it */
    int64_t positions; /* new max_position_embeddings; 0 = those of the model */
} af_rope_change;

/* In a config that was read: rope_scaling, or rope_parameters where it has that. NULL: nothing is
 * changed. */
AF_CHECKED af_status af_rope_change_config(af_hf_config *c, const af_rope_change *r, af_error *err);
/* In the file config.json of a folder. */
AF_CHECKED af_status af_rope_change_file(const char *dir, const af_rope_change *r, af_error *err);
#endif
