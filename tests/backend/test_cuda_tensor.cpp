/* test_cuda_tensor.cpp - kernels with tensor cores, asynchronous copies and shared memory, compiled
 * for the host (host/dev.cuh) next to sums in double. As test_cuda_host.cpp, for bf16. Clusters are
 * of one block here; several, and the order of a real tensor core's sums, are test_cuda_ops.c's. */
#include "host/case_grouped.h"
#include "host/case_products.h"

int main()
{
    product_cases();
    grouped_cases();
    printf("%d failed\n", failures);
    return failures ? 1 : 0;
}
