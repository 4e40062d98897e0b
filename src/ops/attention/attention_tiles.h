/* attention_tiles.h - the versions of attention_tiles.c, or NULL when they do not serve a node. */
#ifndef AF_ATTENTION_TILES_H
#define AF_ATTENTION_TILES_H

#include "ops/common/cpu_fast.h"

af_fast_chooser af_attention_tiles, af_attention_bwd_tiles;
#endif
