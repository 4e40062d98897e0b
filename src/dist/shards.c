/* shards.c - see shards.h.
 *
 * Recursive halving: with the neighbour at distance 1 a rank exchanges what the other side will
 * own, keeps the rest, and continues with distance 2. After each exchange a kept element is the sum
 * of a whole subtree, so that the levels are added in tree order. Gathering is the same backwards.
 *
 * Numbers of ranks with an odd factor have no such halves: there every rank sends each owner its
 * piece, and the owner adds them in order. In round k the ranks whose numbers have the sum k
 * (modulo all) are pairs. The bytes are the same, the messages more. */
#include "dist/shards.h"

enum { PIECE = 1 << 20 }; /* bytes of a message */

void af_shard_cuts(int64_t *cut, int ranks, int64_t count, int64_t unit)
{
    const int64_t units = (count + unit - 1) / unit, each = (units + ranks - 1) / ranks;
    for (int r = 0; r <= ranks; r++)
        cut[r] = AF_MIN(r * each * unit, count);
}

typedef struct swap {
    af_comm *c;
    uint8_t *v, *in; /* the vector; a message to add, NULL where messages go to their place */
    uint64_t size;
    const int64_t *cut;
} swap;

static uint64_t shard_bytes(const swap *s, int shard)
{
    return (uint64_t)(s->cut[shard + 1] - s->cut[shard]) * s->size;
}

static void add(float *to, const float *x, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] += x[i];
}

/* Sends shard `given` to the peer and takes what it sends of shard `kept`. */
static af_status swap_shards(const swap *s, int peer, int given, int kept, af_error *err)
{
    const uint64_t out = shard_bytes(s, given), in = shard_bytes(s, kept);
    const uint8_t *from = s->v + (uint64_t)s->cut[given] * s->size;
    uint8_t *to = s->v + (uint64_t)s->cut[kept] * s->size;
    af_status st = AF_OK;
    for (uint64_t at = 0; at < AF_MAX(out, in) && st == AF_OK; at += PIECE) {
        const uint64_t send = at < out ? AF_MIN(out - at, (uint64_t)PIECE) : 0;
        const uint64_t get = at < in ? AF_MIN(in - at, (uint64_t)PIECE) : 0;
        st = af_comm_swap(s->c, peer, from + (send ? at : 0), send,
                          s->in ? s->in : to + (get ? at : 0), get, err);
        if (st == AF_OK && s->in)
            add((float *)(void *)(to + (get ? at : 0)), (const float *)(const void *)s->in,
                get / sizeof(float));
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

/* ---- numbers of ranks with an odd factor ---- */

static bool is_power(int n) { return (n & (n - 1)) == 0; }

static uint64_t largest_shard(const swap *s)
{
    uint64_t most = 0;
    for (int r = 0; r < af_comm_size(s->c); r++)
        most = AF_MAX(most, shard_bytes(s, r));
    return most;
}

/* Bytes of a shard's part that begins at `at`. */
static uint64_t part_bytes(const swap *s, int shard, uint64_t at)
{
    const uint64_t bytes = shard_bytes(s, shard);
    return at < bytes ? AF_MIN(bytes - at, (uint64_t)PIECE) : 0;
}

static uint8_t *part_of(const swap *s, int shard, uint64_t at)
{
    return s->v + (uint64_t)s->cut[shard] * s->size + at;
}

/* The parts at `at` of all ranks, each with each. To sum: those of this rank's shard come into
 * slots of s->in; to gather: every shard into its place. */
static af_status swap_all(const swap *s, uint64_t at, af_error *err)
{
    const int size = af_comm_size(s->c), me = af_comm_rank(s->c);
    af_status st = AF_OK;
    for (int k = 0; k < size && st == AF_OK; k++) {
        const int peer = (k - me + size) % size, given = s->in ? peer : me,
                  kept = s->in ? me : peer;
        const uint64_t send = part_bytes(s, given, at), get = part_bytes(s, kept, at);
        if (peer == me || (!send && !get))
            continue;
        uint8_t *to = s->in ? s->in + (uint64_t)peer * PIECE : s->v;
        st = af_comm_swap(s->c, peer, send ? part_of(s, given, at) : s->v, send,
                          get && !s->in ? part_of(s, kept, at) : to, get, err);
    }
    return st;
}

/* Equal runs of slots, an odd number each, one after another; the runs as a tree. */
static void add_slots(uint8_t *slots, int size, uint64_t count)
{
    int odd = size;
    while (odd % 2 == 0)
        odd /= 2;
    for (int r = 0; r < size; r++)
        if (r % odd)
            add((float *)(void *)(slots + (uint64_t)(r - r % odd) * PIECE),
                (const float *)(const void *)(slots + (uint64_t)r * PIECE), count);
    for (int step = odd; step < size; step *= 2)
        for (int r = 0; r < size; r += 2 * step)
            add((float *)(void *)(slots + (uint64_t)r * PIECE),
                (const float *)(const void *)(slots + (uint64_t)(r + step) * PIECE), count);
}

static af_status sum_all(swap *s, af_error *err)
{
    const int size = af_comm_size(s->c), me = af_comm_rank(s->c);
    const uint64_t most = largest_shard(s);
    af_status st = AF_OK;
    s->in = af_calloc((uint64_t)size, PIECE);
    if (!s->in)
        return af_fail_nomem(err, "messages between ranks", (uint64_t)size * PIECE);
    for (uint64_t at = 0; at < most && st == AF_OK; at += PIECE) {
        const uint64_t own = part_bytes(s, me, at);
        st = swap_all(s, at, err);
        if (st != AF_OK || !own)
            continue;
        memcpy(s->in + (uint64_t)me * PIECE, part_of(s, me, at), own);
        add_slots(s->in, size, own / sizeof(float));
        memcpy(part_of(s, me, at), s->in, own);
    }
    free(s->in);
    return st;
}

af_status af_reduce_scatter(af_comm *c, float *v, const int64_t *cut, af_error *err)
{
    const int size = af_comm_size(c);
    swap s = {.c = c, .v = (uint8_t *)v, .size = sizeof *v, .cut = cut};
    af_status st = AF_OK;
    if (size == 1)
        return AF_OK;
    if (!is_power(size))
        return sum_all(&s, err);
    const uint64_t most = AF_MIN(largest_shard(&s), (uint64_t)PIECE);
    s.in = malloc(AF_MAX(most, 1));
    if (!s.in)
        return af_fail_nomem(err, "messages between ranks", most);
    for (int bit = 1; bit < size && st == AF_OK; bit *= 2)
        st = level(&s, bit, false, err);
    free(s.in);
    return st;
}

af_status af_gather_shards(af_comm *c, void *v, uint64_t size, const int64_t *cut, af_error *err)
{
    const swap s = {.c = c, .v = v, .size = size, .cut = cut};
    const uint64_t most = is_power(af_comm_size(c)) ? 0 : largest_shard(&s);
    af_status st = AF_OK;
    for (uint64_t at = 0; at < most && st == AF_OK; at += PIECE)
        st = swap_all(&s, at, err);
    for (int bit = most ? 0 : af_comm_size(c) / 2; bit > 0 && st == AF_OK; bit /= 2)
        st = level(&s, bit, true, err);
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
    for (uint64_t at = 0; at < bytes && st == AF_OK; at += PIECE) {
        const uint64_t n = AF_MIN(bytes - at, (uint64_t)PIECE);
        st = me == 0 ? af_comm_swap(c, from, NULL, 0, (uint8_t *)to + at, n, err)
                     : af_comm_swap(c, 0, (const uint8_t *)mine + at, n, NULL, 0, err);
    }
    return st;
}

uint64_t af_shards_sent(const int64_t *cut, int rank, int ranks, int distance, uint64_t size,
                        bool gathers)
{
    uint64_t sum = 0;
    for (int r = 0; r < ranks && !is_power(ranks); r++) {
        const int given = gathers ? rank : r;
        if (r / distance != rank / distance)
            sum += (uint64_t)(cut[given + 1] - cut[given]) * size;
    }
    for (int bit = distance; bit < ranks && is_power(ranks); bit *= 2)
        for (int high = 0; high < ranks; high += 2 * bit) {
            const int own = high | (rank & (2 * bit - 1)), given = gathers ? own : own ^ bit;
            sum += (uint64_t)(cut[given + 1] - cut[given]) * size;
        }
    return sum;
}
