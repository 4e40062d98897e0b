/* adapter_lowrank.h - the versions of adapter_lowrank.c, or NULL when they do not serve a node. */
#ifndef AF_ADAPTER_LOWRANK_H
#define AF_ADAPTER_LOWRANK_H

#include "ops/common/cpu_fast.h"

af_fast_chooser af_adapter_down_lowrank, af_adapter_g_lowrank, af_adapter_da_lowrank,
    af_adapter_db_lowrank;
#endif
