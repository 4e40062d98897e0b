/* shards.c - see shards.h.
 *
 * Recursive halving: with the neighbour at distance 1 a rank exchanges what the other side will
 * own, keeps the rest, and continues with distance 2. After each exchange a kept element is the sum
 * of a whole subtree, so that the levels are added in tree order. Gathering is the same backwards.
 */
#include "dist/shards.h"

enum { PIECE = 1 << 20 }; /* bytes of a message */

void af_shard_cuts(int64_t *cut, int ranks, int64_t count, int64_t unit)
{
    const int64_t units = (count + unit - 1) / unit, each = (units + ranks - 1) / ranks;
    for (int r = 0; r <= ranks; r++)
        cut[r] = AF_MIN(r * each * unit, count);
}

/* What is done with a message for shard `kept`. */
typedef void took(void *v, const void *from, uint64_t bytes);

static void add(void *v, const void *from, uint64_t bytes)
{
    float *to = v;
    const float *x = from;
    for (uint64_t i = 0; i < bytes / sizeof *to; i++)
        to[i] += x[i];
}

static void put(void *v, const void *from, uint64_t bytes) { memcpy(v, from, bytes); }

typedef struct swap {
    af_comm *c;
    uint8_t *v, *out, *in; /* the vector; two messages */
    uint64_t size;
    const int64_t *cut;
    took *take;
} swap;

static uint64_t shard_bytes(const swap *s, int shard)
{
    return (uint64_t)(s->cut[shard + 1] - s->cut[shard]) * s->size;
}

/* Sends shard `given` to the peer and takes what it sends of shard `kept`; the longer one counts.
 */
static af_status swap_shards(const swap *s, int peer, int given, int kept, af_error *err)
{
    const uint64_t out = shard_bytes(s, given), in = shard_bytes(s, kept);
    const uint8_t *from = s->v + (uint64_t)s->cut[given] * s->size;
    uint8_t *to = s->v + (uint64_t)s->cut[kept] * s->size;
    af_status st = AF_OK;
    for (uint64_t at = 0; at < AF_MAX(out, in) && st == AF_OK; at += PIECE) {
        const uint64_t n = AF_MIN(AF_MAX(out, in) - at, (uint64_t)PIECE);
        const uint64_t send = at < out ? AF_MIN(n, out - at) : 0;
        const uint64_t get = at < in ? AF_MIN(n, in - at) : 0;
        memcpy(s->out, from + at, send);
        memset(s->out + send, 0, n - send);
        st = af_comm_exchange(s->c, peer, s->out, s->in, n, err);
        if (st == AF_OK && get)
            s->take(to + at, s->in, get);
    }
    return st;
}

/* One level: the shards that this rank still works on differ from the peer's in this bit. */
static af_status level(const swap *s, int bit, bool gives_own, af_error *err)
{
    const int size = af_comm_size(s->c), me = af_comm_rank(s->c);
    af_status st = AF_OK;
    for (int high = 0; high < size && st == AF_OK; high += 2 * bit) {
        const int own = high | (me & (2 * bit - 1)), other = own ^ bit;
        st = swap_shards(s, me ^ bit, gives_own ? own : other, gives_own ? other : own, err);
    }
    return st;
}

static af_status begin(swap *s, af_error *err)
{
    const int size = af_comm_size(s->c);
    assert((size & (size - 1)) == 0);
    (void)size;
    s->out = malloc(2 * (size_t)PIECE);
    if (!s->out)
        return af_fail_nomem(err, "messages between ranks", 2 * (uint64_t)PIECE);
    s->in = s->out + PIECE;
    return AF_OK;
}

af_status af_reduce_scatter(af_comm *c, float *v, const int64_t *cut, af_error *err)
{
    swap s = {.c = c, .v = (uint8_t *)v, .size = sizeof *v, .cut = cut, .take = add};
    af_status st = af_comm_size(c) > 1 ? begin(&s, err) : AF_OK;
    for (int bit = 1; bit < af_comm_size(c) && st == AF_OK; bit *= 2)
        st = level(&s, bit, false, err);
    free(s.out);
    return st;
}

af_status af_gather_shards(af_comm *c, void *v, uint64_t size, const int64_t *cut, af_error *err)
{
    swap s = {.c = c, .v = v, .size = size, .cut = cut, .take = put};
    af_status st = af_comm_size(c) > 1 ? begin(&s, err) : AF_OK;
    for (int bit = af_comm_size(c) / 2; bit > 0 && st == AF_OK; bit /= 2)
        st = level(&s, bit, true, err);
    free(s.out);
    return st;
}

af_status af_send_to_first(af_comm *c, int from, const void *mine, void *to, uint64_t bytes,
                           af_error *err)
{
    const int me = af_comm_rank(c);
    af_status st = AF_OK;
    if (from == 0 || (me != 0 && me != from)) {
        if (me == 0 && bytes)
            memmove(to, mine, bytes);
        return AF_OK;
    }
    uint8_t *m = malloc(2 * (size_t)PIECE);
    if (!m)
        return af_fail_nomem(err, "messages between ranks", 2 * (uint64_t)PIECE);
    memset(m, 0, PIECE);
    for (uint64_t at = 0; at < bytes && st == AF_OK; at += PIECE) {
        const uint64_t n = AF_MIN(bytes - at, (uint64_t)PIECE);
        if (me == from)
            memcpy(m, (const uint8_t *)mine + at, n);
        st = af_comm_exchange(c, me == 0 ? from : 0, m, m + PIECE, n, err);
        if (st == AF_OK && me == 0)
            memcpy((uint8_t *)to + at, m + PIECE, n);
    }
    free(m);
    return st;
}

uint64_t af_shards_sent(const int64_t *cut, int rank, int ranks, int distance, uint64_t size)
{
    uint64_t sum = 0;
    for (int bit = distance; bit < ranks; bit *= 2)
        for (int high = 0; high < ranks; high += 2 * bit) {
            const int own = high | (rank & (2 * bit - 1)), other = own ^ bit;
            sum += (uint64_t)AF_MAX(cut[own + 1] - cut[own], cut[other + 1] - cut[other]) * size;
        }
    return sum;
}
