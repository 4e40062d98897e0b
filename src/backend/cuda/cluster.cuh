/* cluster.cuh - blocks that add up over each other's shared memory (Hopper and later). Built with
 * AF_KS, the blocks of a cluster; 1, or an older device, is a block alone. */
#ifndef AF_CLUSTER_CUH
#define AF_CLUSTER_CUH
#include "dev.cuh"

#ifndef AF_KS
#define AF_KS 1
#endif
#if AF_KS > 1 && __CUDA_ARCH__ >= 900
#define CLUSTER __cluster_dims__(AF_KS, 1, 1)
#else
#define CLUSTER
#endif

/* Every thread of the cluster has come here, and what it wrote before is seen. */
DEV void cluster_meet()
{
#if AF_KS > 1 && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}
/* *p, an address in shared memory, in block `rank` of the cluster. */
DEV float peer(const float *p, int rank)
{
#if AF_KS > 1 && __CUDA_ARCH__ >= 900
    u32 at;
    float v;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(smem_at(p)), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
    return v;
#else
    return *p;
#endif
}
/* The sum over the blocks' own values, in order. */
DEV float cluster_sum(const float *p)
{
    float v = 0.0f;
#pragma unroll
    for (int rank = 0; rank < AF_KS; rank++)
        v += peer(p, rank);
    return v;
}
#endif
