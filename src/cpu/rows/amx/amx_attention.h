/* amx_attention.h - the backward half of af_attention_amx. */
#ifndef AF_AMX_ATTENTION_H
#define AF_AMX_ATTENTION_H

#include "cpu/cpu_kernels.h"
#include "cpu/gemm/amx/amx.h"

uint64_t af_attend_bwd_keys(int64_t len, int64_t E);
void af_attend_bwd_pack(const af_attend *a, int64_t from, int64_t to, void *keys);
uint64_t af_attend_bwd_work(int64_t E);
void af_attend_bwd(const af_attend *a, void *work);
#endif
