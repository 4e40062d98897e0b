/* library.c - a list of places, tried in order. */
#define _GNU_SOURCE
#include "backend/cuda/library.h"
#include "base/base.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Wheels for CUDA 12 have a folder per library (nvidia/cublas/lib), those for 13 share one
 * (nvidia/cu13/lib). */
#define WHEELS "nvidia/*/lib"
#define SITE   "lib/python3*/site-packages/" WHEELS

typedef struct place {
    const char *variable; /* root in the environment; NULL: `pattern` is absolute */
    const char *pattern;
} place;

static const place places[] = {
    {"CUDA_HOME", "lib64"},
    {"CUDA_HOME", "lib"},
    {NULL, "/usr/local/cuda/lib64"},
    {NULL, "/usr/local/cuda*/lib64"},
    {NULL, "/usr/local/cuda*/targets/*/lib"},
    {NULL, "/opt/cuda/lib64"},
    {NULL, "/usr/local/cuda*/lib"},
    {"", SITE}, /* of the environment the program lies in */
    {"VIRTUAL_ENV", SITE},
    {"CONDA_PREFIX", "lib"},
    {"CONDA_PREFIX", "targets/*/lib"},
    {"CONDA_PREFIX", SITE},
    {"XDG_DATA_HOME", "afinar/cuda/" WHEELS},
    {"HOME", ".local/share/afinar/cuda/" WHEELS},
    {"HOME", ".local/" SITE},
    {NULL, "/usr/local/lib/python3*/dist-packages/" WHEELS},
    {NULL, "/usr/local/lib/python3*/site-packages/" WHEELS},
    {NULL, "/usr/lib/python3*/dist-packages/" WHEELS},
    {NULL, "/opt/*/lib/python3*/site-packages/" WHEELS},
    {NULL, "/opt/conda/lib"},
};

static void *open_matching(const char *pattern)
{
    glob_t found = {0};
    void *lib = NULL;
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = found.gl_pathc; i-- > 0 && !lib;) /* the newest version comes last */
            lib = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
    return lib;
}

/* "/x/venv" when the program is /x/venv/bin/afinar. */
static bool program_prefix(char out[AF_LIBRARY_PATH])
{
    const ssize_t n = readlink("/proc/self/exe", out, AF_LIBRARY_PATH - 1);
    if (n <= 0)
        return false;
    out[n] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(out, '/');
        if (!slash)
            return false;
        *slash = '\0';
    }
    return out[0] != '\0';
}

static void *open_in_folders(const char *list, const char *name)
{
    char path[AF_LIBRARY_PATH];
    void *lib = NULL;
    while (*list && !lib) {
        const size_t n = strcspn(list, ":");
        const int len = snprintf(path, sizeof path, "%.*s/%s", (int)n, list, name);
        if (n > 0 && len > 0 && (size_t)len < sizeof path)
            lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        list += n + (list[n] == ':');
    }
    return lib;
}

static void *open_in_place(const place *p, const char *name)
{
    char pattern[AF_LIBRARY_PATH], prefix[AF_LIBRARY_PATH];
    const char *root = !p->variable             ? ""
                       : p->variable[0]         ? getenv(p->variable)
                       : program_prefix(prefix) ? prefix
                                                : NULL;
    if (!root || (p->variable && root[0] != '/'))
        return NULL;
    const int n = snprintf(pattern, sizeof pattern, "%s%s%s/%s", root, p->variable ? "/" : "",
                           p->pattern, name);
    return n > 0 && (size_t)n < sizeof pattern ? open_matching(pattern) : NULL;
}

void *af_library_open(const char *stem, const int *majors, int by_cuda, int cuda)
{
    const char *only = getenv("AFINAR_CUDA_LIBS");
    char name[2][64];
    int n = 0;
    void *lib = NULL;
    for (; *majors && n < 2; majors++)
        if (!by_cuda || !cuda || *majors <= cuda / 1000)
            snprintf(name[n++], sizeof name[0], "%s.so.%d", stem, *majors);
    for (int i = 0; i < n && !lib; i++)
        lib =
            only && *only ? open_in_folders(only, name[i]) : dlopen(name[i], RTLD_NOW | RTLD_LOCAL);
    if (only && *only)
        return lib;
    for (size_t p = 0; p < AF_LEN(places) && !lib; p++)
        for (int i = 0; i < n && !lib; i++)
            lib = open_in_place(&places[p], name[i]);
    return lib;
}

const char *af_library_file(void *function)
{
    Dl_info info;
    return function && dladdr(function, &info) && info.dli_fname ? info.dli_fname : "";
}

const char *af_library_hint(char out[AF_LIBRARY_HINT], int cuda, int cublas, int nvrtc, int cudnn)
{
    const char *data = getenv("XDG_DATA_HOME");
    const bool old = cuda && cuda < 13000;
    const bool own = data && data[0] == '/' && strlen(data) < 80;
    snprintf(out, AF_LIBRARY_HINT, "pip install --target %s/afinar/cuda%s%s%s",
             own ? data : "~/.local/share",
             !cublas ? ""
             : old   ? " nvidia-cublas-cu12"
                     : " nvidia-cublas",
             !nvrtc ? ""
             : old  ? " nvidia-cuda-nvrtc-cu12"
                    : " nvidia-cuda-nvrtc",
             !cudnn ? ""
             : old  ? " nvidia-cudnn-cu12"
                    : " nvidia-cudnn-cu13");
    return out;
}
