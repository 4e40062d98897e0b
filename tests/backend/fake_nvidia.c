/* fake_nvidia.c - one shared object with the entry points of libcuda, NVRTC, cuBLASLt and cuDNN.
 * Tests copy it under the name of each library into trees like those of toolkits, wheels and conda.
 * Nothing but versions and what the GPU is is answered: FAKE_CUDA is the driver's version,
 * FAKE_ARCH the compute capability times ten. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define STUB(f)                                                                                    \
    EXPORT int f(void);                                                                            \
    int f(void) { return 0; }

EXPORT int cuDriverGetVersion(int *v);
int cuDriverGetVersion(int *v)
{
    const char *given = getenv("FAKE_CUDA");
    *v = given ? (int)strtol(given, NULL, 10) : 13000;
    return 0;
}
EXPORT int cuDeviceGetCount(int *n);
int cuDeviceGetCount(int *n) { return *n = 1, 0; }
EXPORT int cuDeviceGetName(char *name, int len, int device);
int cuDeviceGetName(char *name, int len, int device)
{
    (void)device;
    return strncpy(name, "Fake GPU", (size_t)len), 0;
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    const char *given = getenv("FAKE_ARCH");
    const int arch = given ? (int)strtol(given, NULL, 10) : 90;
    (void)device;
    *value = attribute == 75 ? arch / 10 : attribute == 76 ? arch % 10 : 0;
    return 0;
}
EXPORT int nvrtcVersion(int *major, int *minor);
int nvrtcVersion(int *major, int *minor) { return *major = 12, *minor = 9, 0; }
EXPORT size_t cublasLtGetVersion(void);
size_t cublasLtGetVersion(void) { return 120900; }
EXPORT size_t cudnnGetVersion(void);
size_t cudnnGetVersion(void) { return 91900; }

/* clang-format off */
STUB(cuInit) STUB(cuGetErrorName) STUB(cuGetErrorString) STUB(cuDeviceGet)
STUB(cuDeviceTotalMem_v2) STUB(cuDevicePrimaryCtxRetain)
STUB(cuDevicePrimaryCtxRelease_v2) STUB(cuCtxSetCurrent) STUB(cuCtxSynchronize) STUB(cuStreamCreate)
STUB(cuStreamDestroy_v2) STUB(cuStreamSynchronize) STUB(cuStreamWaitEvent)
STUB(cuStreamBeginCapture_v2) STUB(cuStreamEndCapture) STUB(cuGraphInstantiateWithFlags)
STUB(cuGraphLaunch) STUB(cuGraphUpload) STUB(cuGraphDestroy) STUB(cuGraphExecDestroy)
STUB(cuEventCreate) STUB(cuEventDestroy_v2) STUB(cuEventRecord) STUB(cuEventSynchronize)
STUB(cuEventQuery) STUB(cuEventElapsedTime) STUB(cuModuleLoadData) STUB(cuModuleUnload)
STUB(cuModuleGetFunction) STUB(cuFuncSetAttribute) STUB(cuFuncGetAttribute) STUB(cuLaunchKernel)
STUB(cuMemAlloc_v2) STUB(cuMemFree_v2) STUB(cuMemGetInfo_v2) STUB(cuMemHostAlloc)
STUB(cuMemFreeHost) STUB(cuMemcpyHtoDAsync_v2) STUB(cuMemcpyDtoHAsync_v2) STUB(cuMemcpyDtoDAsync_v2)
STUB(cuMemcpy2DAsync_v2) STUB(cuMemsetD8Async)
STUB(nvrtcCreateProgram) STUB(nvrtcDestroyProgram) STUB(nvrtcCompileProgram)
STUB(nvrtcGetProgramLogSize) STUB(nvrtcGetProgramLog) STUB(nvrtcGetCUBINSize) STUB(nvrtcGetCUBIN)
STUB(cublasLtCreate) STUB(cublasLtDestroy) STUB(cublasLtMatmulDescCreate)
STUB(cublasLtMatmulDescDestroy) STUB(cublasLtMatmulDescSetAttribute)
STUB(cublasLtMatrixLayoutCreate)
STUB(cublasLtMatrixLayoutDestroy) STUB(cublasLtMatrixLayoutSetAttribute)
STUB(cublasLtMatmulPreferenceCreate) STUB(cublasLtMatmulPreferenceDestroy)
STUB(cublasLtMatmulPreferenceSetAttribute) STUB(cublasLtMatmulAlgoGetHeuristic)
STUB(cublasLtMatmulAlgoCheck) STUB(cublasLtMatmulAlgoConfigGetAttribute) STUB(cublasLtMatmul)
STUB(cudnnCreate) STUB(cudnnDestroy) STUB(cudnnSetStream) STUB(cudnnBackendCreateDescriptor)
STUB(cudnnBackendDestroyDescriptor) STUB(cudnnBackendFinalize) STUB(cudnnBackendSetAttribute)
STUB(cudnnBackendGetAttribute) STUB(cudnnBackendExecute) STUB(cudnnGetLastErrorString)
    /* clang-format on */
