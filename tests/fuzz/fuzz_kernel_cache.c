/* fuzz_kernel_cache.c - any bytes as a file of the kernel cache: a damaged one is compiled again
 * (here the compiler always fails), never loaded. */
#include "backend/cuda/kernels.h"
#include "fuzz_file.h"

static int refuse(void **prog, const char *source, const char *name, int n_headers,
                  const char *const *headers, const char *const *header_names)
{
    (void)prog, (void)source, (void)name, (void)n_headers, (void)headers, (void)header_names;
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_kernels k = {.no_pack = true, .arch = "sm_90a"};
    af_module m = {.file = "gemm.cu", .defines = "AF_T=float AF_C=float"};
    char key[65], name[80];
    k.nvrtc = (af_nvrtc){.create = refuse, .major = 13, .lib = &k};
    k.cache = (char *)fuzz_dir();
    af_module_key(&k.nvrtc, k.arch, m.file, m.defines, key);
    snprintf(name, sizeof name, "%s.cubin", key);
    (void)fuzz_put(name, data, size);
    (void)!af_module_obtain(&k, &m, NULL);
    free(m.cubin);
    return 0;
}
