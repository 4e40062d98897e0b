/* nccl.c - NCCL's few entry points, declared by us. */
#include "backend/cuda/driver.h"
#include "backend/cuda/library.h"
#include "dist/comm_device.h"

#include <dlfcn.h>

enum { NCCL_BYTES = 0 /* ncclInt8 */, NCCL_ID_BYTES = 128 };

typedef struct nccl_id { /* ncclUniqueId, passed by value */
    char bytes[NCCL_ID_BYTES];
} nccl_id;

typedef struct nccl {
    int (*version)(int *version);
    int (*new_id)(nccl_id *id);
    int (*init)(void **comm, int size, nccl_id id, int rank);
    int (*destroy)(void *comm);
    int (*abort)(void *comm);
    const char *(*error_text)(int error);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *from, size_t n, int type, int peer, void *comm, void *stream);
    int (*receive)(void *to, size_t n, int type, int peer, void *comm, void *stream);
    int (*broadcast)(const void *from, void *to, size_t n, int type, int root, void *comm,
                     void *stream);
    int (*all_gather)(const void *from, void *to, size_t n, int type, void *comm, void *stream);
} nccl;

static const struct {
    const char *name;
    size_t place;
} entries[] = {
    {"ncclGetVersion", offsetof(nccl, version)},
    {"ncclGetUniqueId", offsetof(nccl, new_id)},
    {"ncclCommInitRank", offsetof(nccl, init)},
    {"ncclCommDestroy", offsetof(nccl, destroy)},
    {"ncclCommAbort", offsetof(nccl, abort)},
    {"ncclGetErrorString", offsetof(nccl, error_text)},
    {"ncclGroupStart", offsetof(nccl, group_start)},
    {"ncclGroupEnd", offsetof(nccl, group_end)},
    {"ncclSend", offsetof(nccl, send)},
    {"ncclRecv", offsetof(nccl, receive)},
    {"ncclBroadcast", offsetof(nccl, broadcast)},
    {"ncclAllGather", offsetof(nccl, all_gather)},
};

struct af_comm_device {
    nccl lib;
    void *comm;
    af_comm *host;
    af_cuda *cu;
    int rank, size;
    char name[32];
};

static af_status open_library(af_comm_device *d, af_error *err)
{
    static const int majors[] = {2, 0};
    const int cuda = d->cu->cuda;
    int v = 0;
    void *lib = af_library_open("libnccl", majors, 0, cuda);
    if (!lib)
        return af_fail_subject(err, AF_EDEVICE, "dist_backend",
                               "NCCL (libnccl.so.2) is not found, which ranks on GPUs need: pip "
                               "install --target ~/.local/share/afinar/cuda nvidia-nccl-cu%d, or "
                               "use dist_backend: tcp",
                               cuda && cuda < 13000 ? 12 : 13);
    for (size_t i = 0; i < AF_LEN(entries); i++) {
        void *f = dlsym(lib, entries[i].name);
        if (!f)
            return af_fail_subject(err, AF_EDEVICE, "dist_backend", "libnccl.so.2 has no %s",
                                   entries[i].name);
        memcpy((char *)&d->lib + entries[i].place, &f, sizeof f);
    }
    if (d->lib.version(&v) == 0) /* 2.9 and newer: 22907 */
        snprintf(d->name, sizeof d->name, "NCCL %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return AF_OK;
}

static af_status check(const af_comm_device *d, int result, const char *call, af_error *err)
{
    if (result == 0)
        return AF_OK;
    if (af_comm_failed(d->host)) /* the watch knows more than NCCL */
        return af_comm_barrier(d->host, err);
    return af_fail_subject(err, AF_EDEVICE, "nccl", "%s: %s (%s; NCCL_DEBUG=WARN prints more)",
                           call, d->lib.error_text(result), d->name);
}

static af_status join(af_comm_device *d, af_error *err)
{
    nccl_id id = {{0}};
    af_status st = AF_OK;
    const af_driver *drv = d->cu->drv;
    AF_TRY(af_cu_check(drv, drv->context_set(d->cu->context), "cuCtxSetCurrent", "NCCL", err));
    if (d->rank == 0)
        AF_TRY(check(d, d->lib.new_id(&id), "ncclGetUniqueId", err));
    AF_TRY(af_comm_broadcast(d->host, &id, sizeof id, 0, err));
    af_comm_wait_begin(d->host);
    const int result = d->lib.init(&d->comm, d->size, id, d->rank);
    af_comm_wait_end(d->host);
    AF_TRY(check(d, result, "ncclCommInitRank", err));
done:
    return st;
}

af_status af_comm_device_for(af_comm_device **out, af_comm *c, af_device *device, af_error *err)
{
    const uint8_t gpu = !device->ops->host;
    *out = NULL;
    if (!af_comm_wants_nccl(c))
        return AF_OK;
    const af_status st = af_comm_agree(c, "the kind of device", &gpu, sizeof gpu, err);
    return st == AF_OK && gpu ? af_comm_device_open(out, c, (af_cuda *)device, err) : st;
}

af_status af_comm_device_open(af_comm_device **out, af_comm *c, af_cuda *cu, af_error *err)
{
    *out = NULL;
    if (!c)
        return AF_OK;
    af_comm_device *d = af_calloc(1, sizeof *d);
    if (!d)
        return af_fail_nomem(err, "NCCL", sizeof *d);
    *d = (af_comm_device){
        .host = c, .cu = cu, .rank = af_comm_rank(c), .size = af_comm_size(c), .name = "NCCL"};
    af_status st = AF_OK;
    AF_TRY(open_library(d, err));
    AF_TRY(join(d, err));
    *out = d;
    d = NULL;
done:
    af_comm_device_close(d);
    return st;
}

void af_comm_device_close(af_comm_device *d)
{
    if (!d)
        return;
    if (d->comm)
        (void)(af_comm_failed(d->host) ? d->lib.abort(d->comm) : d->lib.destroy(d->comm));
    free(d);
}

const char *af_comm_device_name(const af_comm_device *d) { return d->name; }

static void *stream_of(const af_comm_device *d, void *stream)
{
    return stream ? stream : d->cu->stream;
}

af_status af_comm_device_broadcast(af_comm_device *d, void *buf, uint64_t bytes, int root,
                                   void *stream, af_error *err)
{
    if (bytes == 0)
        return AF_OK;
    return check(d,
                 d->lib.broadcast(buf, buf, bytes, NCCL_BYTES, root, d->comm, stream_of(d, stream)),
                 "ncclBroadcast", err);
}

af_status af_comm_device_all_gather(af_comm_device *d, const void *mine, void *all, uint64_t bytes,
                                    void *stream, af_error *err)
{
    if (bytes == 0)
        return AF_OK;
    return check(d, d->lib.all_gather(mine, all, bytes, NCCL_BYTES, d->comm, stream_of(d, stream)),
                 "ncclAllGather", err);
}

/* One message each way with `peer`, inside a group. */
static int both_ways(af_comm_device *d, int peer, const void *send, void *recv, uint64_t bytes,
                     void *stream)
{
    const int sent = d->lib.send(send, bytes, NCCL_BYTES, peer, d->comm, stream);
    const int received = d->lib.receive(recv, bytes, NCCL_BYTES, peer, d->comm, stream);
    return sent ? sent : received;
}

af_status af_comm_device_all_to_all(af_comm_device *d, const void *send, void *recv, uint64_t bytes,
                                    void *stream, af_error *err)
{
    if (bytes == 0)
        return AF_OK;
    int result = d->lib.group_start(), first = 0;
    for (int r = 0; r < d->size && result == 0 && first == 0; r++)
        first = both_ways(d, r, (const char *)send + (uint64_t)r * bytes,
                          (char *)recv + (uint64_t)r * bytes, bytes, stream_of(d, stream));
    result = result ? result : d->lib.group_end();
    return check(d, first ? first : result, "ncclSend", err);
}

af_status af_comm_device_swap(af_comm_device *d, const af_swap *s, int n, void *stream,
                              af_error *err)
{
    int result = d->lib.group_start(), first = 0;
    stream = stream_of(d, stream);
    for (int i = 0; i < n && result == 0 && first == 0; i++) {
        if (s[i].send_bytes)
            first = d->lib.send(s[i].send, s[i].send_bytes, NCCL_BYTES, s[i].peer, d->comm, stream);
        if (s[i].recv_bytes && first == 0)
            first =
                d->lib.receive(s[i].recv, s[i].recv_bytes, NCCL_BYTES, s[i].peer, d->comm, stream);
    }
    result = result ? result : d->lib.group_end();
    return check(d, first ? first : result, "ncclSend", err);
}
