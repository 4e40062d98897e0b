/* cpu_packs.h - frozen weights packed once, on machines that gain from it. */
#ifndef AF_CPU_PACKS_H
#define AF_CPU_PACKS_H

#include "backend/cpu/cpu.h"

/* layout decides which forms of which weights there will be; begin_run packs what was never packed
 * or has been written since. */
extern const af_cpu_family af_cpu_packs_family;

/* Whether GEMMs with rows of this type gain from it on this machine. */
bool af_cpu_packs_pay(af_dtype rows);
/* The weight in the form that this GEMM reads, or NULL. trans: its rows are columns of B. */
const struct af_packed *af_cpu_packed(const af_tensor *t, bool trans);
#endif
