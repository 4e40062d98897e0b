/* driver.c - NVIDIA's libraries and their entry points, in words a user can act on. */
#define _GNU_SOURCE
#include "backend/cuda/driver.h"
#include "backend/cuda/library.h"

#include <dlfcn.h>

typedef struct entry {
    const char *name;
    size_t at;
    bool optional;
} entry;

static const entry driver_entries[] = {
    {"cuInit", offsetof(af_driver, init), 0},
    {"cuDriverGetVersion", offsetof(af_driver, driver_version), 0},
    {"cuGetErrorName", offsetof(af_driver, error_name), 0},
    {"cuGetErrorString", offsetof(af_driver, error_string), 0},
    {"cuDeviceGetCount", offsetof(af_driver, device_count), 0},
    {"cuDeviceGet", offsetof(af_driver, device_get), 0},
    {"cuDeviceGetName", offsetof(af_driver, device_name), 0},
    {"cuDeviceGetAttribute", offsetof(af_driver, device_attribute), 0},
    {"cuDeviceTotalMem_v2", offsetof(af_driver, device_memory), 0},
    {"cuDevicePrimaryCtxRetain", offsetof(af_driver, context_retain), 0},
    {"cuDevicePrimaryCtxRelease_v2", offsetof(af_driver, context_release), 0},
    {"cuCtxSetCurrent", offsetof(af_driver, context_set), 0},
    {"cuCtxSynchronize", offsetof(af_driver, context_sync), 0},
    {"cuStreamCreate", offsetof(af_driver, stream_new), 0},
    {"cuStreamDestroy_v2", offsetof(af_driver, stream_free), 0},
    {"cuStreamSynchronize", offsetof(af_driver, stream_sync), 0},
    {"cuStreamWaitEvent", offsetof(af_driver, stream_wait), 0},
    {"cuStreamBeginCapture_v2", offsetof(af_driver, capture_begin), 0},
    {"cuStreamEndCapture", offsetof(af_driver, capture_end), 0},
    {"cuGraphInstantiateWithFlags", offsetof(af_driver, graph_instantiate), 0},
    {"cuGraphLaunch", offsetof(af_driver, graph_launch), 0},
    {"cuGraphUpload", offsetof(af_driver, graph_upload), 0},
    {"cuGraphDestroy", offsetof(af_driver, graph_free), 0},
    {"cuGraphExecDestroy", offsetof(af_driver, graph_exec_free), 0},
    {"cuEventCreate", offsetof(af_driver, event_new), 0},
    {"cuEventDestroy_v2", offsetof(af_driver, event_free), 0},
    {"cuEventRecord", offsetof(af_driver, event_record), 0},
    {"cuEventSynchronize", offsetof(af_driver, event_sync), 0},
    {"cuEventQuery", offsetof(af_driver, event_query), 0},
    {"cuEventElapsedTime", offsetof(af_driver, event_elapsed), 0},
    {"cuModuleLoadData", offsetof(af_driver, module_load), 0},
    {"cuModuleUnload", offsetof(af_driver, module_unload), 0},
    {"cuModuleGetFunction", offsetof(af_driver, module_function), 0},
    {"cuFuncSetAttribute", offsetof(af_driver, func_set), 0},
    {"cuFuncGetAttribute", offsetof(af_driver, func_get), 0},
    {"cuFuncGetParamInfo", offsetof(af_driver, func_param), 1},
    {"cuTensorMapEncodeTiled", offsetof(af_driver, tensor_map), 1},
    {"cuLaunchKernel", offsetof(af_driver, launch), 0},
    {"cuLaunchKernelEx", offsetof(af_driver, launch_with), 1},
    {"cuMemAlloc_v2", offsetof(af_driver, mem_alloc), 0},
    {"cuMemFree_v2", offsetof(af_driver, mem_free), 0},
    {"cuMemGetInfo_v2", offsetof(af_driver, mem_info), 0},
    {"cuMemHostAlloc", offsetof(af_driver, host_alloc), 0},
    {"cuMemFreeHost", offsetof(af_driver, host_free), 0},
    {"cuMemcpyHtoDAsync_v2", offsetof(af_driver, copy_up), 0},
    {"cuMemcpyDtoHAsync_v2", offsetof(af_driver, copy_down), 0},
    {"cuMemcpyDtoDAsync_v2", offsetof(af_driver, copy_inside), 0},
    {"cuMemcpy2DAsync_v2", offsetof(af_driver, copy_2d), 0},
    {"cuMemsetD8Async", offsetof(af_driver, fill), 0},
};

static const entry nvrtc_entries[] = {
    {"nvrtcVersion", offsetof(af_nvrtc, version), 0},
    {"nvrtcCreateProgram", offsetof(af_nvrtc, create), 0},
    {"nvrtcDestroyProgram", offsetof(af_nvrtc, destroy), 0},
    {"nvrtcCompileProgram", offsetof(af_nvrtc, compile), 0},
    {"nvrtcGetProgramLogSize", offsetof(af_nvrtc, log_size), 0},
    {"nvrtcGetProgramLog", offsetof(af_nvrtc, log), 0},
    {"nvrtcGetCUBINSize", offsetof(af_nvrtc, cubin_size), 0},
    {"nvrtcGetCUBIN", offsetof(af_nvrtc, cubin), 0},
};

static const entry lt_entries[] = {
    {"cublasLtCreate", offsetof(af_lt_api, create), 0},
    {"cublasLtDestroy", offsetof(af_lt_api, destroy), 0},
    {"cublasLtGetVersion", offsetof(af_lt_api, version), 0},
    {"cublasLtMatmulDescCreate", offsetof(af_lt_api, desc_new), 0},
    {"cublasLtMatmulDescDestroy", offsetof(af_lt_api, desc_free), 0},
    {"cublasLtMatmulDescSetAttribute", offsetof(af_lt_api, desc_set), 0},
    {"cublasLtMatrixLayoutCreate", offsetof(af_lt_api, layout_new), 0},
    {"cublasLtMatrixLayoutDestroy", offsetof(af_lt_api, layout_free), 0},
    {"cublasLtMatrixLayoutSetAttribute", offsetof(af_lt_api, layout_set), 0},
    {"cublasLtMatmulPreferenceCreate", offsetof(af_lt_api, pref_new), 0},
    {"cublasLtMatmulPreferenceDestroy", offsetof(af_lt_api, pref_free), 0},
    {"cublasLtMatmulPreferenceSetAttribute", offsetof(af_lt_api, pref_set), 0},
    {"cublasLtMatmulAlgoGetHeuristic", offsetof(af_lt_api, heuristic), 0},
    {"cublasLtMatmulAlgoCheck", offsetof(af_lt_api, algo_check), 0},
    {"cublasLtMatmulAlgoConfigGetAttribute", offsetof(af_lt_api, algo_get), 0},
    {"cublasLtMatmul", offsetof(af_lt_api, matmul), 0},
};

static const entry cudnn_entries[] = {
    {"cudnnGetVersion", offsetof(af_cudnn_api, version), 0},
    {"cudnnCreate", offsetof(af_cudnn_api, create), 0},
    {"cudnnDestroy", offsetof(af_cudnn_api, destroy), 0},
    {"cudnnSetStream", offsetof(af_cudnn_api, stream_set), 0},
    {"cudnnBackendCreateDescriptor", offsetof(af_cudnn_api, desc_new), 0},
    {"cudnnBackendDestroyDescriptor", offsetof(af_cudnn_api, desc_free), 0},
    {"cudnnBackendFinalize", offsetof(af_cudnn_api, desc_finalize), 0},
    {"cudnnBackendSetAttribute", offsetof(af_cudnn_api, desc_set), 0},
    {"cudnnBackendGetAttribute", offsetof(af_cudnn_api, desc_get), 0},
    {"cudnnBackendExecute", offsetof(af_cudnn_api, execute), 0},
    {"cudnnGetLastErrorString", offsetof(af_cudnn_api, last_error), 0},
};

static af_status resolve(void *lib, void *table, const entry *e, size_t n, const char *lib_name,
                         af_error *err)
{
    for (size_t i = 0; i < n; i++) {
        void *p = dlsym(lib, e[i].name);
        if (!p && !e[i].optional)
            return af_fail(err, AF_EDEVICE, "%s has no function %s: it is too old", lib_name,
                           e[i].name);
        memcpy((char *)table + e[i].at, &p, sizeof p);
    }
    return AF_OK;
}

af_status af_cu_check(const af_driver *drv, int result, const char *call, const char *what,
                      af_error *err)
{
    if (result == AF_CU_OK)
        return AF_OK;
    const char *name = "?", *text = "";
    drv->error_name(result, &name);
    drv->error_string(result, &text);
    return af_fail(err, result == AF_CU_NO_MEMORY ? AF_ENOMEM : AF_EDEVICE,
                   "%s failed for %s: %s (%s)", call, what, name ? name : "?", text ? text : "");
}

enum { OLDEST_DRIVER = 12000 };

af_status af_driver_open(af_driver *out, af_error *err)
{
    af_driver d = {0};
    af_status st = AF_OK;
    int version = 0, count = 0;
    d.lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!d.lib)
        return af_fail_subject(err, AF_EDEVICE, "driver",
                               "no NVIDIA driver: libcuda.so.1 cannot be loaded");
    AF_TRY(resolve(d.lib, &d, driver_entries, AF_LEN(driver_entries), "libcuda.so.1", err));
    const int started = d.init(0);
    if (started == AF_CU_NO_DEVICE)
        AF_TRY(af_fail(err, AF_EDEVICE, "the NVIDIA driver is there, but it sees no GPU"));
    AF_TRY(af_cu_check(&d, started, "cuInit", "the NVIDIA driver", err));
    AF_TRY(af_cu_check(&d, d.driver_version(&version), "cuDriverGetVersion", "the driver", err));
    if (version < OLDEST_DRIVER)
        AF_TRY(af_fail(err, AF_EDEVICE,
                       "the NVIDIA driver is too old: it speaks CUDA %d.%d, afinar needs %d.%d",
                       version / 1000, version % 1000 / 10, OLDEST_DRIVER / 1000,
                       OLDEST_DRIVER % 1000 / 10));
    AF_TRY(af_cu_check(&d, d.device_count(&count), "cuDeviceGetCount", "the driver", err));
    if (count < 1)
        AF_TRY(af_fail(err, AF_EDEVICE, "the NVIDIA driver is there, but it sees no GPU"));
    *out = d;
done:
    return st; /* libcuda stays loaded: it does not survive being unloaded */
}

/* Versions of CUDA, and of cuDNN, whose entry points these are. */
static const int cuda_majors[] = {13, 12, 0}, cudnn_majors[] = {9, 0};

af_status af_nvrtc_open(af_nvrtc *out, int cuda, af_error *err)
{
    af_nvrtc n = {0};
    char hint[AF_LIBRARY_HINT];
    n.lib = af_library_open("libnvrtc", cuda_majors, true, cuda);
    if (!n.lib)
        return af_fail(err, AF_EDEVICE, "NVRTC was not found; `%s` brings it",
                       af_library_hint(hint, cuda, false, true, false));
    af_status st = resolve(n.lib, &n, nvrtc_entries, AF_LEN(nvrtc_entries), "libnvrtc", err);
    if (st == AF_OK && n.version(&n.major, &n.minor) != 0)
        st = af_fail(err, AF_EDEVICE, "nvrtcVersion failed");
    if (st == AF_OK)
        *out = n;
    return st;
}

af_status af_lt_api_open(af_lt_api *out, int cuda, af_error *err)
{
    af_lt_api a = {0};
    char hint[AF_LIBRARY_HINT];
    a.lib = af_library_open("libcublasLt", cuda_majors, true, cuda);
    if (!a.lib)
        return af_fail(err, AF_EDEVICE, "cuBLASLt was not found; `%s` brings it",
                       af_library_hint(hint, cuda, true, false, false));
    const af_status st = resolve(a.lib, &a, lt_entries, AF_LEN(lt_entries), "libcublasLt", err);
    if (st == AF_OK)
        *out = a;
    return st;
}

af_status af_cudnn_api_open(af_cudnn_api *out, int cuda, af_error *err)
{
    af_cudnn_api a = {0};
    char hint[AF_LIBRARY_HINT];
    a.lib = af_library_open("libcudnn", cudnn_majors, false, cuda);
    if (!a.lib)
        return af_fail(err, AF_EDEVICE, "cuDNN 9 was not found; `%s` brings it",
                       af_library_hint(hint, cuda, false, false, true));
    const af_status st =
        resolve(a.lib, &a, cudnn_entries, AF_LEN(cudnn_entries), "libcudnn.so.9", err);
    if (st == AF_OK)
        *out = a;
    return st;
}
