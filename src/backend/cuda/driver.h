/* driver.h - NVIDIA's libraries by dlopen: the few dozen entry points we use, declared by us.
 *
 * No toolkit is needed to build. Handles are plain pointers and device addresses are void *: both
 * have the ABI of NVIDIA's own types on 64-bit Linux. A table is filled once, when a device is
 * opened; tests fill one with fakes. */
#ifndef AF_DRIVER_H
#define AF_DRIVER_H

#include "base/base.h"

typedef struct af_copy2d { /* CUDA_MEMCPY2D */
    size_t src_x, src_y;
    unsigned src_kind;
    const void *src_host;
    void *src_device, *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    unsigned dst_kind;
    void *dst_host, *dst_device, *dst_array;
    size_t dst_pitch;
    size_t width, height;
} af_copy2d;

enum {
    AF_CU_OK = 0,
    AF_CU_INVALID_VALUE = 1,
    AF_CU_NO_MEMORY = 2,
    AF_CU_NO_DEVICE = 100,
    AF_CU_NO_BINARY = 209,
    AF_CU_NOT_READY = 600,
    AF_CU_CAPTURE_FIRST = 900, /* 900 .. 908: capture was refused */
    AF_CU_CAPTURE_LAST = 908,
    AF_CU_KIND_HOST = 1,
    AF_CU_KIND_DEVICE = 2,
    AF_CU_ATTR_CLOCK = 13, /* kHz */
    AF_CU_ATTR_SMS = 16,
    AF_CU_ATTR_MEMORY_CLOCK = 36, /* kHz */
    AF_CU_ATTR_BUS = 37,          /* bits */
    AF_CU_ATTR_L2 = 38,           /* bytes */
    AF_CU_ATTR_THREADS_SM = 39,
    AF_CU_ATTR_MAJOR = 75,
    AF_CU_ATTR_MINOR = 76,
    AF_CU_ATTR_SMEM_SM = 81,
    AF_CU_ATTR_REGISTERS_SM = 82,
    AF_CU_ATTR_SMEM = 97,
    AF_CU_FUNC_BINARY = 6,
    AF_CU_FUNC_SMEM = 8,
    AF_CU_STREAM_NON_BLOCKING = 1,
    AF_CU_EVENT_NO_TIMING = 2,
    AF_CU_CAPTURE_THREAD = 1,
    AF_CU_MAP_BF16 = 9,
    AF_CU_MAP_SWIZZLE_128 = 3,
    AF_CU_MAP_L2_256 = 3, /* bytes a miss brings */
};

/* CUlaunchConfig, with one attribute. */
typedef struct af_cu_attribute {
    int id, unused;
    union {
        int on;
        uint8_t bytes[64];
    } value;
} af_cu_attribute;
typedef struct af_cu_launch {
    unsigned grid[3], block[3], shared;
    void *stream;
    af_cu_attribute *attribute;
    unsigned attributes;
} af_cu_launch;
enum {
    AF_CU_TOGETHER = 2, /* CU_LAUNCH_ATTRIBUTE_COOPERATIVE */
    AF_CU_OVERLAP = 6,  /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
};

/* libcuda.so.1; every function returns a CUresult. */
struct af_driver {
    int (*init)(unsigned flags);
    int (*driver_version)(int *version);
    int (*error_name)(int error, const char **name);
    int (*error_string)(int error, const char **text);
    int (*device_count)(int *count);
    int (*device_get)(int *device, int ordinal);
    int (*device_name)(char *name, int len, int device);
    int (*device_attribute)(int *value, int attribute, int device);
    int (*device_memory)(size_t *bytes, int device);
    int (*context_retain)(void **context, int device);
    int (*context_release)(int device);
    int (*context_set)(void *context);
    int (*context_sync)(void);
    int (*stream_new)(void **stream, unsigned flags);
    int (*stream_free)(void *stream);
    int (*stream_sync)(void *stream);
    int (*stream_wait)(void *stream, void *event, unsigned flags);
    int (*capture_begin)(void *stream, int mode);
    int (*capture_end)(void *stream, void **graph);
    int (*graph_instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*graph_launch)(void *exec, void *stream);
    int (*graph_upload)(void *exec, void *stream);
    int (*graph_free)(void *graph);
    int (*graph_exec_free)(void *exec);
    int (*event_new)(void **event, unsigned flags);
    int (*event_free)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_sync)(void *event);
    int (*event_query)(void *event);
    int (*event_elapsed)(float *ms, void *start, void *end);
    int (*module_load)(void **module, const void *image);
    int (*module_unload)(void *module);
    int (*module_function)(void **func, void *module, const char *name);
    int (*func_set)(void *func, int attribute, int value);
    int (*func_get)(int *value, int attribute, void *func);
    int (*func_param)(void *func, size_t index, size_t *offset, size_t *size); /* may be NULL */
    /* may be NULL */
    int (*tensor_map)(void *map, int type, unsigned rank, void *data, const uint64_t *dim,
                      const uint64_t *pitch, const unsigned *box, const unsigned *every,
                      int interleave, int swizzle, int l2, int fill);
    int (*launch)(void *func, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned smem, void *stream, void **args, void **extra);
    int (*launch_with)(const af_cu_launch *config, void *func, void **args, void **extra);
    int (*mem_alloc)(void **p, size_t bytes);
    int (*mem_free)(void *p);
    int (*mem_info)(size_t *unused, size_t *total);
    int (*host_alloc)(void **p, size_t bytes, unsigned flags);
    int (*host_free)(void *p);
    int (*copy_up)(void *to, const void *from, size_t bytes, void *stream);
    int (*copy_down)(void *to, const void *from, size_t bytes, void *stream);
    int (*copy_inside)(void *to, const void *from, size_t bytes, void *stream);
    int (*copy_2d)(const af_copy2d *c, void *stream);
    int (*fill)(void *p, unsigned char byte, size_t n, void *stream);
    void *lib;
};
typedef struct af_driver af_driver;

/* Loads libcuda and initialises it. The message of AF_EDEVICE tells no driver, a driver older
 * than CUDA 12 and no GPU apart. */
AF_CHECKED af_status af_driver_open(af_driver *out, af_error *err);

/* AF_OK, or AF_EDEVICE (AF_ENOMEM for memory) naming the call and what it was for. */
AF_CHECKED af_status af_cu_check(const af_driver *drv, int result, const char *call,
                                 const char *what, af_error *err);

/* The libraries below are optional (library.h says where they are searched). `cuda` is the driver's
 * version, 12040 for 12.4, or 0 for any; the message of AF_EDEVICE has the command that brings what
 * is missing. */

/* libnvrtc: CUDA C++ to machine code. */
typedef struct af_nvrtc {
    int (*version)(int *major, int *minor);
    int (*create)(void **prog, const char *source, const char *name, int n_headers,
                  const char *const *headers, const char *const *header_names);
    int (*destroy)(void **prog);
    int (*compile)(void *prog, int n_options, const char *const *options);
    int (*log_size)(void *prog, size_t *size);
    int (*log)(void *prog, char *log);
    int (*cubin_size)(void *prog, size_t *size);
    int (*cubin)(void *prog, char *cubin);
    void *lib;
    int major, minor;
    bool quick; /* tests: code that compiles fast and runs slowly */
} af_nvrtc;
AF_CHECKED af_status af_nvrtc_open(af_nvrtc *out, int cuda, af_error *err);

/* libcublasLt. Statuses are cublasStatus_t. */
typedef struct af_lt_algo {
    uint64_t data[8];
} af_lt_algo;

typedef struct af_lt_result {
    af_lt_algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} af_lt_result;

typedef struct af_lt_api {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    size_t (*version)(void);
    int (*desc_new)(void **desc, int compute, int scale);
    int (*desc_free)(void *desc);
    int (*desc_set)(void *desc, int attribute, const void *value, size_t size);
    int (*layout_new)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld);
    int (*layout_free)(void *layout);
    int (*layout_set)(void *layout, int attribute, const void *value, size_t size);
    int (*pref_new)(void **pref);
    int (*pref_free)(void *pref);
    int (*pref_set)(void *pref, int attribute, const void *value, size_t size);
    int (*heuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *pref,
                     int wanted, af_lt_result *results, int *found);
    int (*algo_check)(void *handle, void *desc, void *a, void *b, void *c, void *d,
                      const af_lt_algo *algo, af_lt_result *result);
    int (*algo_get)(const af_lt_algo *algo, int attribute, void *value, size_t size,
                    size_t *written);
    int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *la,
                  const void *b, void *lb, const void *beta, const void *c, void *lc, void *d,
                  void *ld, const af_lt_algo *algo, void *work, size_t work_bytes, void *stream);
    void *lib;
} af_lt_api;
AF_CHECKED af_status af_lt_api_open(af_lt_api *out, int cuda, af_error *err);

/* libcudnn 9: descriptors are set up attribute by attribute (cudnn.h). Statuses are cudnnStatus_t.
 */
typedef struct af_cudnn_api {
    size_t (*version)(void);
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*stream_set)(void *handle, void *stream);
    int (*desc_new)(int kind, void **desc);
    int (*desc_free)(void *desc);
    int (*desc_finalize)(void *desc);
    int (*desc_set)(void *desc, int name, int type, int64_t n, const void *values);
    int (*desc_get)(void *desc, int name, int type, int64_t wanted, int64_t *found, void *values);
    int (*execute)(void *handle, void *plan, void *pack);
    void (*last_error)(char *text, size_t size);
    void *lib;
} af_cudnn_api;
AF_CHECKED af_status af_cudnn_api_open(af_cudnn_api *out, int cuda, af_error *err);
#endif
