/* cpu_poison.c - for tests: values that were not written and memory that was not requested show. */
#define _GNU_SOURCE
#include "backend/cpu/cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

static void fill_nan(const af_tensor *t)
{
    if (af_dtype_is_float(t->dtype))
        memset(t->data, 0xff, af_tensor_extent(t)); /* a NaN in every float type */
}

enum { FRONT = 4096, FRONT_BYTE = 0xa5 }; /* bytes before a workspace, that nobody may write */

/* The largest that a closed device has left for the next one: tests open thousands, and new pages
 * take longer than what is computed in them. */
static struct {
    pthread_mutex_t lock;
    uint8_t *data;
    uint64_t bytes;
} spare = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Swaps the device's for the spare one, where that is larger. */
static void swap_spare(af_cpu *cpu, bool larger)
{
    pthread_mutex_lock(&spare.lock);
    if ((spare.bytes > cpu->guarded_bytes) == larger) {
        uint8_t *const data = spare.data;
        const uint64_t bytes = spare.bytes;
        spare.data = cpu->guarded;
        spare.bytes = cpu->guarded_bytes;
        cpu->guarded = data;
        cpu->guarded_bytes = bytes;
    }
    pthread_mutex_unlock(&spare.lock);
}

enum { PATTERN = 1 << 20 }; /* bytes of the file */

/* A file of 0xff. */
static int pattern_file(void)
{
    static _Atomic int kept = -1;
    int file = kept, none = -1;
    if (file >= 0)
        return file;
    file = memfd_create("poison", MFD_CLOEXEC);
    void *bytes = file >= 0 && ftruncate(file, PATTERN) == 0
                      ? mmap(NULL, PATTERN, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                      : MAP_FAILED;
    assert(bytes != MAP_FAILED);
    memset(bytes, 0xff, PATTERN);
    munmap(bytes, PATTERN);
    if (atomic_compare_exchange_strong(&kept, &none, file))
        return file;
    close(file); /* another thread was first */
    return none;
}

/* `all` bytes that are private copies of the file, the last page without rights. */
static void *map_pattern(uint64_t all, uint64_t page)
{
    uint8_t *to = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(to != MAP_FAILED);
    for (uint64_t at = 0; at < all - page; at += PATTERN) {
        void *part = mmap(to + at, AF_MIN((uint64_t)PATTERN, all - page - at),
                          PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, pattern_file(), 0);
        assert(part != MAP_FAILED);
        (void)part;
    }
    return to;
}

/* A workspace of this size full of NaN: a node that writes or reads past what it requested crashes.
 * Nodes use a small part of what they request: the pages that the last one wrote are dropped, and
 * have the file's bytes again, which is faster than to fill them all. */
static void *guarded_work(af_cpu *cpu, uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), size = AF_ALIGN_UP(bytes, (uint64_t)64),
                   all = AF_ALIGN_UP(size + FRONT, page) + page;
    if (all > cpu->guarded_bytes)
        swap_spare(cpu, true);
    if (all > cpu->guarded_bytes) {
        af_cpu_poison_free(cpu);
        cpu->guarded = map_pattern(all, page);
        cpu->guarded_bytes = all;
    }
    if (madvise(cpu->guarded, cpu->guarded_bytes - page, MADV_DONTNEED) != 0)
        assert(!"pages that are dropped");
    uint8_t *work = cpu->guarded + cpu->guarded_bytes - page - size;
    memset(work - FRONT, FRONT_BYTE, FRONT);
    return work;
}

static void check_front(const uint8_t *work)
{
    for (int i = 1; i <= FRONT; i++)
        assert(work[-i] == FRONT_BYTE); /* a node wrote before its workspace */
}

void af_cpu_poison_free(af_cpu *cpu)
{
    swap_spare(cpu, false);
    if (cpu->guarded)
        munmap(cpu->guarded, cpu->guarded_bytes);
    cpu->guarded = NULL;
    cpu->guarded_bytes = 0;
}

void af_cpu_poison_before(af_cpu *cpu, const af_node *n)
{
    const af_cpu_op *op = n->exec;
    if (op->work && !cpu->work_apart)
        cpu->work = guarded_work(cpu, op->work(n, cpu->threads));
    for (int k = 0; k < n->n_out; k++) {
        bool aliased = n->accumulate || n->out[k]->role != AF_ROLE_ACTIVATION;
        for (int i = 0; i < n->n_in; i++) /* in place: the output's memory is an input's */
            aliased |= n->in[i]->data == n->out[k]->data;
        if (!aliased)
            fill_nan(n->out[k]);
    }
}

void af_cpu_poison_after(const af_cpu *cpu, const af_node *n)
{
    const af_cpu_op *op = n->exec;
    if (op->work && !cpu->work_apart)
        check_front(cpu->work);
    for (int k = 0; k < n->n_in; k++) {
        const af_tensor *t = n->in[k]->base ? n->in[k]->base : n->in[k];
        bool dead = t->role == AF_ROLE_ACTIVATION && t->last == n->at;
        for (int i = 0; i < n->n_out; i++)
            dead &= n->out[i]->data != t->data;
        if (dead)
            fill_nan(t);
    }
}
