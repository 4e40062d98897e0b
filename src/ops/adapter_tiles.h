/* adapter_tiles.h - the versions of adapter_tiles.c, or NULL when they do not serve a node. */
#ifndef AF_ADAPTER_TILES_H
#define AF_ADAPTER_TILES_H

#include "ops/cpu_fast.h"

af_fast_chooser af_adapter_down_tiles, af_adapter_g_tiles, af_adapter_da_tiles, af_adapter_db_tiles;
#endif
