/* adapter_slim.h - the versions of adapter_slim.c, or NULL when they do not serve a node. */
#ifndef AF_ADAPTER_SLIM_H
#define AF_ADAPTER_SLIM_H

#include "ops/common/cpu_fast.h"

af_fast_chooser af_adapter_down_slim, af_adapter_g_slim, af_adapter_da_slim, af_adapter_db_slim;
#endif
