/* digest.c - the SHA-256 of a file while it is written: a second thread reads what is there
 * already. Hashing takes about as long as writing to the page cache: this way it costs no time. */
#define _GNU_SOURCE /* pread, sync_file_range */
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { CHUNK = 1 << 18, START = 8 << 20 };

struct af_digest {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    int fd;
    uint64_t there; /* bytes that may be read */
    bool ended;     /* no more come */
    bool bad;       /* cannot be read, or is not wanted */
    af_sha256 sum;
    uint8_t part[CHUNK];
};

/* How many bytes after `done` are there; 0 at the end. */
static uint64_t wait_more(af_digest *d, uint64_t done)
{
    pthread_mutex_lock(&d->lock);
    while (d->there == done && !d->ended)
        pthread_cond_wait(&d->more, &d->lock);
    const uint64_t n = d->bad ? 0 : d->there - done;
    pthread_mutex_unlock(&d->lock);
    return n;
}

static void *digest_main(void *arg)
{
    af_digest *d = arg;
    uint64_t done = 0, begun = 0, n;
    while ((n = wait_more(d, done)) > 0) {
        const ssize_t r = pread(d->fd, d->part, AF_MIN(n, CHUNK), (off_t)done);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0) {
            pthread_mutex_lock(&d->lock);
            d->bad = true;
            pthread_mutex_unlock(&d->lock);
            break;
        }
        af_sha256_add(&d->sum, d->part, (uint64_t)r);
        done += (uint64_t)r;
        if (done - begun >= START) {
            (void)sync_file_range(d->fd, (off_t)begun, (off_t)(done - begun),
                                  SYNC_FILE_RANGE_WRITE);
            begun = done;
        }
    }
    return NULL;
}

af_digest *af_digest_begin(int fd)
{
    af_digest *d = af_calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->fd = fd;
    af_sha256_init(&d->sum);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->more, NULL);
    if (pthread_create(&d->thread, NULL, digest_main, d) == 0)
        return d;
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->more);
    free(d);
    return NULL;
}

void af_digest_reach(af_digest *d, uint64_t size)
{
    pthread_mutex_lock(&d->lock);
    d->there = size;
    pthread_cond_signal(&d->more);
    pthread_mutex_unlock(&d->lock);
}

bool af_digest_end(af_digest *d, char hex[65])
{
    if (!d)
        return false;
    pthread_mutex_lock(&d->lock);
    d->ended = true;
    d->bad |= !hex;
    pthread_cond_signal(&d->more);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    const bool good = !d->bad;
    if (good)
        af_sha256_hex(&d->sum, hex);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->more);
    free(d);
    return good;
}
