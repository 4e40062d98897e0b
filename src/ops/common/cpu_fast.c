/* cpu_fast.c - the instruction set in use. */
#include "ops/common/cpu_fast.h"
#include "cpu/isa/features.h"

const char *af_cpu_isa(void) { return af_fast_get()->name; }

const char *af_cpu_bf16_unit(void)
{
    return af_cpu_has_amx()               ? "AMX tiles"
           : af_cpu_has_fast_bf16_pairs() ? "AVX512-BF16"
           : af_cpu_has_bf16()            ? "BFMMLA"
                                          : NULL;
}
