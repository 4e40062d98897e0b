/* cpu_dispatch.c - what this machine can do, and the table of kernels for it. Compiled once. */
#define _GNU_SOURCE
#include "cpu/cpu_kernels.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#include <stdatomic.h>

bool af_cpu_has_dotprod(void)
{
#if defined(__aarch64__)
    return getauxval(AT_HWCAP) >> 20 & 1; /* HWCAP_ASIMDDP */
#else
    return false;
#endif
}

bool af_cpu_has_bf16(void)
{
#if defined(__aarch64__) && defined(AT_HWCAP2)
    return getauxval(AT_HWCAP2) >> 14 & 1; /* HWCAP2_BF16 */
#else
    return false;
#endif
}

bool af_cpu_has_avx_vnni(void)
{
#if defined(__x86_64__)
    enum { AVX_VNNI = 1 << 4 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX_VNNI);
#else
    return false;
#endif
}

#if defined(__x86_64__)
static bool has_avx512_bf16(void)
{
    enum { AVX512_BF16 = 1 << 5 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX512_BF16);
}
#endif

bool af_cpu_has_fast_bf16_pairs(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx && c == signature_AMD_ecx &&
           d == signature_AMD_edx && has_avx512_bf16();
#else
    return false;
#endif
}

bool af_cpu_has_amx(void)
{
#if defined(__x86_64__)
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    enum { REQUEST = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_BF16) || !(d & AMX_TILE))
        return false;
    if (!has_avx512_bf16())
        return false;
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0; /* the kernel grants it per process */
#else
    return false;
#endif
}

#if defined(__x86_64__)
extern const af_fast af_fast_table_sse2, af_fast_table_avx2, af_fast_table_avx2vnni,
    af_fast_table_avx512, af_fast_table_avx512vnni, af_fast_table_avx512bf16, af_fast_table_amx;
static const af_fast *const tables[] = {&af_fast_table_amx,        &af_fast_table_avx512bf16,
                                        &af_fast_table_avx512vnni, &af_fast_table_avx512,
                                        &af_fast_table_avx2vnni,   &af_fast_table_avx2,
                                        &af_fast_table_sse2};
#elif defined(__aarch64__)
extern const af_fast af_fast_table_neon, af_fast_table_neondot, af_fast_table_neonbf16;
static const af_fast *const tables[] = {&af_fast_table_neonbf16, &af_fast_table_neondot,
                                        &af_fast_table_neon};
#else
extern const af_fast af_fast_table_portable;
static const af_fast *const tables[] = {&af_fast_table_portable};
#endif

/* What the machine can do does not change: detected once, with the same result in any thread. */
const af_fast *af_fast_get(void)
{
    static _Atomic(const af_fast *) found;
    const af_fast *f = atomic_load_explicit(&found, memory_order_relaxed);
    for (size_t i = 0; !f && i < AF_LEN(tables); i++)
        if (i + 1 == AF_LEN(tables) || tables[i]->usable())
            f = tables[i];
    atomic_store_explicit(&found, f, memory_order_relaxed);
    return f;
}

const af_fast *af_fast_at(int i)
{
    for (size_t t = 0; t < AF_LEN(tables); t++)
        if ((t + 1 == AF_LEN(tables) || tables[t]->usable()) && i-- == 0)
            return tables[t];
    return NULL;
}
