/* library.h - where NVIDIA's libraries lie: the system, toolkits, pip's wheels, conda.
 *
 * Nothing is needed at build time and little at run time: a driver and the shipped machine code are
 * enough to train. What else is installed is found here, by name and major version. */
#ifndef AF_LIBRARY_H
#define AF_LIBRARY_H

#include <stddef.h>

enum { AF_LIBRARY_PATH = 1024, AF_LIBRARY_HINT = 224 };

/* Opens stem.so.MAJOR, e.g. "libcublasLt": the first of `majors` (ends with 0) that is found and
 * loads. `cuda` is the driver's version (12040), 0 = unknown: libraries of a newer CUDA are left
 * out where `by_cuda` says that `majors` are versions of CUDA. NULL when there is none.
 *
 * Order: the folders in $AFINAR_CUDA_LIBS and no others when it is set; else the loader's own path,
 * $CUDA_HOME, toolkits under /usr/local and /opt, the Python environment the program lies in,
 * $VIRTUAL_ENV, $CONDA_PREFIX, ~/.local/share/afinar/cuda (`pip install --target`), pip's user
 * folder and the system's Pythons. */
void *af_library_open(const char *stem, const int *majors, int by_cuda, int cuda);

/* The file a function of a library was loaded from; "" when that is not known. */
const char *af_library_file(void *function);

/* The one command that brings wheels with these libraries where af_library_open finds them; CUDA 12
 * or 13 as the driver (`cuda`, 0 = unknown) needs. Returns `out`. */
const char *af_library_hint(char out[AF_LIBRARY_HINT], int cuda, int cublas, int nvrtc, int cudnn);
#endif
