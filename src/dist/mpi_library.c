/* mpi_library.c - names, places and the two ABIs. */
#define _GNU_SOURCE /* dladdr */
#include "dist/mpi_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

enum { TAG = 26, SERIALIZED = 2, STATUS_BYTES = 128, VERSION_BYTES = 8192 };

/* Values of MPICH's ABI (mpich.org/abi), the same since 2013. */
enum { MPICH_WORLD = 0x44000000, MPICH_BYTE = 0x4c00010d, MPICH_ERRORS_RETURN = 0x54000001 };

typedef int init_fn(int *, char ***, int, int *);
typedef int version_fn(char *, int *);
typedef int finalize_fn(void);
typedef int ask_number(int, int *);
typedef int ask_object(void *, int *);
typedef int handler_number(int, int);
typedef int handler_object(void *, void *);
typedef int send_number(const void *, int, int, int, int, int, int *);
typedef int send_object(const void *, int, void *, int, int, void *, void **);
typedef int receive_number(void *, int, int, int, int, int, int *);
typedef int receive_object(void *, int, void *, int, int, void *, void **);
typedef int test_number(int *, int *, void *);
typedef int test_object(void **, int *, void *);
typedef int count_number(const void *, int, int *);
typedef int count_object(const void *, void *, int *);

struct af_mpi {
    bool objects; /* handles are addresses: Open MPI */
    void *world, *byte, *errors_return;
    int rank, size;
    char name[96];
    finalize_fn *finalize;
    union {
        send_number *number;
        send_object *object;
    } send;
    union {
        receive_number *number;
        receive_object *object;
    } receive;
    union {
        test_number *number;
        test_object *object;
    } test;
    union {
        count_number *number;
        count_object *object;
    } count;
};

/* ---- finding ---- */

static const char *const openmpi_names[] = {"libmpi.so.40", "libmpi.so"};
static const char *const mpich_names[] = {"libmpi.so.12", "libmpich.so.12", "libmpich.so",
                                          "libmpi.so"};

static void *open_file(const char *path)
{
    /* global: plugins of Open MPI look for its symbols */
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

static bool is_openmpi(void *lib) { return dlsym(lib, "ompi_mpi_comm_world") != NULL; }

/* "/opt/mpi" when the process that started this one is /opt/mpi/bin/mpirun (or its helper). */
static bool launcher_prefix(char out[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/%ld/exe", (long)getppid());
    const ssize_t n = readlink(link, out, PATH_MAX - 1);
    if (n <= 0)
        return false;
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    if (!slash || slash - out < 5 || strncmp(slash - 4, "/bin", 4) != 0)
        return false;
    slash[-4] = '\0';
    return true;
}

static void *open_named(const char *name)
{
    static const char *const folders[] = {"lib", "lib64"};
    char prefix[PATH_MAX], path[PATH_MAX + 64];
    void *lib = NULL;
    const bool known = launcher_prefix(prefix);
    for (size_t i = 0; i < AF_LEN(folders) && known && !lib; i++) {
        snprintf(path, sizeof path, "%s/%s/%s", prefix, folders[i], name);
        lib = access(path, R_OK) == 0 ? open_file(path) : NULL;
    }
    return lib ? lib : open_file(name);
}

/* The first of the names that loads and has the ABI. */
static void *open_abi(bool openmpi)
{
    const char *const *names = openmpi ? openmpi_names : mpich_names;
    const size_t n = openmpi ? AF_LEN(openmpi_names) : AF_LEN(mpich_names);
    for (size_t i = 0; i < n; i++) {
        void *lib = open_named(names[i]);
        if (lib && dlsym(lib, "MPI_Init_thread") && is_openmpi(lib) == openmpi)
            return lib;
        if (lib)
            dlclose(lib);
    }
    return NULL;
}

static af_status find_library(void **out, const af_launcher *l, af_error *err)
{
    const char *file = getenv("AFINAR_MPI_LIB");
    if (file && *file) {
        *out = open_file(file);
        return *out ? AF_OK
                    : af_fail_subject(err, AF_EUNSUPPORTED, "dist_backend",
                                      "AFINAR_MPI_LIB: %.300s", dlerror());
    }
    /* mpirun of one library cannot start programs of the other; srun serves both */
    const bool pmix = getenv("PMIX_RANK") != NULL;
    const bool openmpi = l->kind == AF_LAUNCHER_OMPI || (l->kind != AF_LAUNCHER_PMI && pmix);
    *out = open_abi(openmpi);
    if (!*out && l->kind != AF_LAUNCHER_OMPI && l->kind != AF_LAUNCHER_PMI)
        *out = open_abi(!openmpi);
    return *out ? AF_OK
                : af_fail_subject(err, AF_EUNSUPPORTED, "dist_backend",
                                  "the MPI library of the launcher is not found (%s): install it, "
                                  "name its file in AFINAR_MPI_LIB, or use dist_backend: tcp",
                                  openmpi ? "Open MPI, libmpi.so.40"
                                          : "MPICH, libmpi.so.12 or libmpich.so.12");
}

/* ---- functions ---- */

/* All functions that are needed, or the name of the first that is missing. */
static const char *take_functions(af_mpi *m, void *lib)
{
    const struct {
        const char *name;
        void *to;
    } wanted[] = {
        {"MPI_Finalize", &m->finalize}, {"MPI_Isend", &m->send},      {"MPI_Irecv", &m->receive},
        {"MPI_Test", &m->test},         {"MPI_Get_count", &m->count},
    };
    for (size_t i = 0; i < AF_LEN(wanted); i++) {
        void *f = dlsym(lib, wanted[i].name);
        if (!f)
            return wanted[i].name;
        memcpy(wanted[i].to, &f, sizeof f); /* a function pointer from an object pointer: POSIX */
    }
    m->objects = is_openmpi(lib);
    if (m->objects) {
        m->world = dlsym(lib, "ompi_mpi_comm_world");
        m->byte = dlsym(lib, "ompi_mpi_byte");
        m->errors_return = dlsym(lib, "ompi_mpi_errors_return");
        if (!m->byte || !m->errors_return)
            return "ompi_mpi_byte";
    }
    return NULL;
}

static bool ask(const af_mpi *m, void *lib, const char *name, int *out)
{
    union {
        void *p;
        ask_number *number;
        ask_object *object;
    } f = {dlsym(lib, name)};
    return f.p && (m->objects ? f.object(m->world, out) : f.number(MPICH_WORLD, out)) == 0;
}

/* Errors come back as values: what MPI prints by itself names no rank. */
static void return_errors(const af_mpi *m, void *lib)
{
    union {
        void *p;
        handler_number *number;
        handler_object *object;
    } f = {dlsym(lib, "MPI_Comm_set_errhandler")};
    if (f.p)
        (void)(m->objects ? f.object(m->world, m->errors_return)
                          : f.number(MPICH_WORLD, MPICH_ERRORS_RETURN));
}

static void take_name(af_mpi *m, void *lib)
{
    union {
        void *p;
        version_fn *f;
    } ask_version = {dlsym(lib, "MPI_Get_library_version")};
    char *text = af_calloc(VERSION_BYTES, 1);
    int n = 0;
    snprintf(m->name, sizeof m->name, "%s", m->objects ? "Open MPI" : "MPICH");
    if (ask_version.p && text && ask_version.f(text, &n) == 0) {
        for (char *c = text; *c && *c != '\n'; c++)
            *c = *c == '\t' ? ' ' : *c;
        snprintf(m->name, sizeof m->name, "%.*s", (int)strcspn(text, "\n,"), text);
    }
    free(text);
}

static af_status start(af_mpi *m, void *lib, const af_launcher *l, af_error *err)
{
    union {
        void *p;
        init_fn *f;
    } init = {dlsym(lib, "MPI_Init_thread")};
    int provided = 0;
    const char *missing = take_functions(m, lib);
    if (missing)
        return af_fail_subject(err, AF_EUNSUPPORTED, "dist_backend",
                               "the MPI library has no %s: use dist_backend: tcp", missing);
    if (init.f(NULL, NULL, SERIALIZED, &provided) != 0)
        return af_fail_subject(err, AF_EIO, "dist_backend", "MPI_Init_thread failed");
    return_errors(m, lib);
    take_name(m, lib);
    if (!ask(m, lib, "MPI_Comm_rank", &m->rank) || !ask(m, lib, "MPI_Comm_size", &m->size))
        return af_fail_subject(err, AF_EIO, "dist_backend", "MPI does not say which rank this is");
    if (m->rank != l->rank || m->size != l->size)
        return af_fail_subject(err, AF_EUSAGE, "dist_backend",
                               "%s says rank %d of %d, the launcher rank %d of %d: the library is "
                               "not the launcher's; name its file in AFINAR_MPI_LIB, or use "
                               "dist_backend: tcp",
                               m->name, m->rank, m->size, l->rank, l->size);
    return AF_OK;
}

af_status af_mpi_library_open(af_mpi **out, const af_launcher *l, af_error *err)
{
    void *lib = NULL;
    af_status st = find_library(&lib, l, err);
    if (st != AF_OK)
        return st;
    af_mpi *m = af_calloc(1, sizeof *m);
    if (!m)
        return af_fail_nomem(err, "MPI", sizeof *m);
    st = start(m, lib, l, err);
    if (st == AF_OK)
        *out = m;
    else
        free(m);
    return st;
}

void af_mpi_library_close(af_mpi *m, bool finalize)
{
    if (m && finalize)
        (void)m->finalize();
    free(m);
}

const char *af_mpi_library_name(const af_mpi *m) { return m->name; }

bool af_mpi_send(af_mpi *m, const void *from, int bytes, int to, af_mpi_request *r)
{
    return 0 == (m->objects
                     ? m->send.object(from, bytes, m->byte, to, TAG, m->world, &r->object)
                     : m->send.number(from, bytes, MPICH_BYTE, to, TAG, MPICH_WORLD, &r->number));
}

bool af_mpi_receive(af_mpi *m, void *to, int bytes, int from, af_mpi_request *r)
{
    return 0 == (m->objects ? m->receive.object(to, bytes, m->byte, from, TAG, m->world, &r->object)
                            : m->receive.number(to, bytes, MPICH_BYTE, from, TAG, MPICH_WORLD,
                                                &r->number));
}

bool af_mpi_test(af_mpi *m, af_mpi_request *r, bool *done, int *bytes)
{
    _Alignas(16) uint8_t status[STATUS_BYTES] = {0}; /* 24 bytes at most in both */
    int flag = 0;
    const int rc = m->objects ? m->test.object(&r->object, &flag, status)
                              : m->test.number(&r->number, &flag, status);
    *done = flag != 0;
    if (rc != 0 || !flag)
        return rc == 0;
    return 0 == (m->objects ? m->count.object(status, m->byte, bytes)
                            : m->count.number(status, MPICH_BYTE, bytes));
}
