/* cpu_fast.c - the instruction set in use. */
#include "ops/common/cpu_fast.h"

const char *af_cpu_isa(void) { return af_fast_get()->name; }
