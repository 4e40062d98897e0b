/* gpu_rates.c - see gpu_rates.h. */
#include "backend/cuda/gpu_rates.h"
#include "backend/cuda/cuda_test.h"
#include "backend/cuda/driver.h"

enum { MEASURED = 90, RESERVED = 1024 /* bytes of shared memory the system takes per block */ };

/* By architecture. mma: full rate; half of it where GeForce names say so. */
typedef struct arch_rates {
    int arch, sms;
    int shared_sm, threads_sm, blocks_sm;
    double clock, mma, mma_fp8, exponents;
    double l2_bytes, dram, l2_size; /* dram: bytes per second */
} arch_rates;

static const arch_rates table[] = {
    /* A100 */
    {80, 108, 167936, 2048, 32, 1.41e9, 2048, 0, 16, 4096, 1.56e12, 40e6},
    /* RTX 3090, A6000 */
    {86, 84, 102400, 1536, 16, 1.70e9, 1024, 0, 16, 1536, 0.94e12, 6e6},
    /* RTX 4090, L40S */
    {89, 128, 102400, 1536, 24, 2.50e9, 1024, 2048, 16, 2048, 1.01e12, 72e6},
    /* H100, H200: what mma.sync reached on an H200, not wgmma */
    {90, 132, 233472, 2048, 32, 1.75e9, 1700, 3400, 16, 5120, 3.35e12, 50e6},
    /* B200: as above, not tcgen05 */
    {100, 148, 233472, 2048, 32, 1.85e9, 1700, 3400, 16, 6144, 8.0e12, 126e6},
    /* RTX 5090, RTX PRO 6000 */
    {120, 170, 102400, 1536, 24, 2.40e9, 1024, 2048, 16, 3072, 1.79e12, 96e6},
};

/* The newest of the table that is not newer: 87 counts as 86, 121 as 120. */
static const arch_rates *rates_for(int arch)
{
    const arch_rates *r = &table[0];
    for (size_t i = 0; i < AF_LEN(table); i++)
        if (table[i].arch <= arch)
            r = &table[i];
    return r;
}

/* GeForce cards and the L40 (not the L40S) add in f32 at half the rate. */
static bool half_rate(const char *name)
{
    const char *l40 = strstr(name, "L40");
    return strstr(name, "GeForce") || strstr(name, "TITAN") || (l40 && l40[3] != 'S');
}

af_gpu_rates af_gpu_rates_of(int arch, int sms, int shared_block, const char *name)
{
    const arch_rates *r = rates_for(arch);
    const double rate = half_rate(name) ? 0.5 : 1, size = sms > 0 ? (double)sms / r->sms : 1;
    return (af_gpu_rates){.arch = arch,
                          .sms = sms > 0 ? sms : r->sms,
                          .shared_block = shared_block,
                          .shared_sm = AF_MAX(r->shared_sm, shared_block + RESERVED),
                          .threads_sm = r->threads_sm,
                          .blocks_sm = r->blocks_sm,
                          .registers_sm = 65536,
                          .clock = r->clock,
                          .mma = r->mma * rate,
                          .mma_fp8 = r->mma_fp8 * rate,
                          .exponents = r->exponents,
                          .l2_bytes = r->l2_bytes * size,
                          .dram_bytes = r->dram / r->clock,
                          .l2_size = r->l2_size,
                          .latency = 700};
}

static int attribute(const af_cuda *cu, int which)
{
    int v = 0, device = 0;
    if (cu->drv->device_get(&device, cu->ordinal) || cu->drv->device_attribute(&v, which, device))
        return 0;
    return AF_MAX(v, 0);
}

af_gpu_rates af_gpu_rates_read(const af_cuda *cu)
{
    af_gpu_rates g = af_gpu_rates_of(cu->arch, cu->sms, cu->smem_max, cu->name);
    if (cu->test &&
        cu->test->model_tiles) /* of the GPU that is played, not of the one that plays */
        return g;
    const int shared = attribute(cu, AF_CU_ATTR_SMEM_SM),
              threads = attribute(cu, AF_CU_ATTR_THREADS_SM),
              registers = attribute(cu, AF_CU_ATTR_REGISTERS_SM),
              clock = attribute(cu, AF_CU_ATTR_CLOCK), l2 = attribute(cu, AF_CU_ATTR_L2),
              memory = attribute(cu, AF_CU_ATTR_MEMORY_CLOCK), bus = attribute(cu, AF_CU_ATTR_BUS);
    g.shared_sm = shared ? shared : g.shared_sm;
    g.threads_sm = threads ? threads : g.threads_sm;
    g.registers_sm = registers ? registers : g.registers_sm;
    g.l2_size = l2 ? (double)l2 : g.l2_size;
    const double dram = g.dram_bytes * g.clock;
    g.clock = clock ? (double)clock * 1e3 : g.clock;
    /* two transfers per clock; kHz and bits */
    g.dram_bytes = (memory && bus ? 2e3 * (double)memory * (double)bus / 8 : dram) / g.clock;
    return g;
}

int af_gpu_resident(const af_gpu_rates *g, int threads, int registers, int shared)
{
    if (shared > g->shared_block || shared + RESERVED > g->shared_sm || threads > 1024)
        return 0;
    const int by_shared = g->shared_sm / (shared + RESERVED), by_threads = g->threads_sm / threads,
              by_registers = g->registers_sm / (threads * registers);
    return AF_MIN(AF_MIN(by_shared, by_threads), AF_MIN(by_registers, g->blocks_sm));
}

bool af_gpu_measured(int arch) { return arch == MEASURED; }

bool af_gpu_modelled(const af_cuda *cu)
{
    return !af_gpu_measured(cu->arch) || (cu->test && cu->test->model_tiles);
}
