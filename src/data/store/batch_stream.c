/* batch_stream.c - items of epochs to micro-batches; a thread makes the next one while this one is
 * used. */
#include "data/store/batch_stream.h"
#include "data/store/order.h"

#include <pthread.h>
#include <stdlib.h>

enum { AHEAD = 4, MOST_PER_PACK = 1024, RESIDENT_MAX = 64 << 20 };

/* A window of records of one epoch, packed: records sorted by pack, and where each pack begins. */
typedef struct window {
    int64_t epoch, first,
        next; /* records first .. next-1 of the epoch's order; epoch -1 = nothing here yet */
    int64_t packs, from[AF_PACK_WINDOW + 1];
    int64_t place[AF_PACK_WINDOW]; /* of a record among those of the stream, in file order */
} window;

struct af_stream {
    const af_token_store *store;
    af_stream_opts o;
    int64_t most_per_item, items_first;
    uint32_t longest, shortest; /* rows of a record */
    uint32_t longest_apart;     /* of a pair in two copies */
    uint64_t touched;           /* bytes of the store that may have become resident, at most */
    window win;
    /* where an item was found last, so that going on is cheap */
    int64_t epoch, epoch_start; /* global number of the epoch's first item */
    int64_t win_start;          /* number inside the epoch of the window's first pack */
    /* the ring */
    af_batch *slot;
    int64_t *made;      /* which micro-batch lies in a slot; -1 = none */
    int64_t ring;       /* slots */
    int64_t hold, next; /* the oldest that must stay; the next to make */
    bool quit, running;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static int64_t place_at(const af_stream *s, int64_t epoch, int64_t i)
{
    return s->o.shuffle ? af_permute(s->o.seed, (uint64_t)epoch, s->o.count, i) : i;
}

static int64_t record_of(const af_stream *s, int64_t place)
{
    return s->o.subset ? s->o.subset[place] : s->o.first + place;
}

static af_pair_source pair_source(const af_stream *s)
{
    return (af_pair_source){.store = s->store,
                            .subset = s->o.subset,
                            .first = s->o.first,
                            .count = s->o.count,
                            .limit = s->o.sequence_len,
                            .layout = s->o.pairs};
}

/* Rows that the record at a place takes in a batch. */
static uint32_t rows_of(const af_stream *s, int64_t place)
{
    if (!s->o.pairs.rl)
        return s->store->index[record_of(s, place)].count;
    const af_pair_source pairs = pair_source(s);
    return (uint32_t)af_pair_batch_rows(&pairs, place);
}

/* A row of sequential packing may not end at a window's border: the last one is left to the next
 * window. */
static int64_t whole_packs(const af_stream *s, const int64_t *pack, int64_t *n, int64_t packs)
{
    if (!s->o.packing || !s->o.sequential || s->win.first + *n == s->o.count)
        return packs;
    while (pack[*n - 1] == packs - 1)
        --*n;
    return packs - 1;
}

static void load_window(af_stream *s, int64_t epoch, int64_t first)
{
    window *w = &s->win;
    if (w->epoch == epoch && w->first == first)
        return;
    uint32_t length[AF_PACK_WINDOW];
    int64_t rec[AF_PACK_WINDOW], pack[AF_PACK_WINDOW], at[AF_PACK_WINDOW + 1];
    int64_t n = AF_MIN(s->o.count - first, (int64_t)AF_PACK_WINDOW);
    w->epoch = epoch;
    w->first = first;
    for (int64_t i = 0; i < n; i++) {
        rec[i] = place_at(s, epoch, first + i);
        length[i] = rows_of(s, rec[i]);
        pack[i] = i;
    }
    w->packs = s->o.packing
                   ? af_pack(pack, length, n, s->o.sequence_len, s->most_per_item, s->o.sequential)
                   : n;
    w->packs = whole_packs(s, pack, &n, w->packs);
    w->next = first + n;
    memset(w->from, 0, sizeof w->from);
    for (int64_t i = 0; i < n; i++)
        w->from[pack[i] + 1]++;
    for (int64_t p = 0; p < w->packs; p++)
        w->from[p + 1] += w->from[p];
    memcpy(at, w->from, sizeof at);
    for (int64_t i = 0; i < n; i++)
        w->place[at[pack[i]]++] = rec[i];
}

/* Finds global item `item`: afterwards its window is loaded; returns its pack in there. */
static int64_t find_item(af_stream *s, int64_t item)
{
    if (item < s->epoch_start) {
        s->epoch = s->epoch_start = 0;
        s->win_start = 0;
        load_window(s, 0, 0);
    } else if (item < s->epoch_start + s->win_start) {
        s->win_start = 0;
        load_window(s, s->epoch, 0);
    }
    for (;;) {
        const int64_t inside = item - s->epoch_start - s->win_start;
        if (inside < s->win.packs)
            return inside;
        s->win_start += s->win.packs;
        if (s->win.next < s->o.count) {
            load_window(s, s->epoch, s->win.next);
        } else {
            s->epoch_start += s->win_start;
            s->win_start = 0;
            s->epoch++;
            load_window(s, s->epoch, 0);
        }
    }
}

static void add_record(const af_stream *s, af_batch *b, int64_t place)
{
    if (s->o.pairs.rl) {
        const af_pair_source pairs = pair_source(s);
        af_pair_batch_add(&pairs, b, place);
        return;
    }
    const int64_t record = record_of(s, place);
    const uint32_t *word = af_token_words(s->store, record);
    const int64_t n = s->store->index[record].count, at = b->rows;
    for (int64_t i = 0; i < n; i++) {
        b->ids[at + i] = (int32_t)(word[i] & ~AF_TOKEN_NO_LOSS);
        b->positions[at + i] = (int32_t)i;
        const bool loss = i + 1 < n && !(word[i + 1] & AF_TOKEN_NO_LOSS);
        b->labels[at + i] = loss ? (int32_t)word[i + 1] : -100;
        b->supervised += loss;
    }
    b->record[b->sequences++] = record;
    b->rows += n;
    b->bounds[b->sequences] = (int32_t)b->rows;
}

static void make(af_stream *s, af_batch *b, int64_t m)
{
    const int64_t world = AF_MAX(s->o.world, 1);
    b->rows = b->sequences = b->supervised = b->longest = b->pairs = b->attention_rows = 0;
    b->items = s->o.micro_batch;
    for (int64_t i = 0; i < s->o.micro_batch; i++) {
        const int64_t before = b->rows;
        const int64_t pack = find_item(s, (m * world + s->o.rank) * s->o.micro_batch + i);
        if (i == 0)
            b->epoch = s->epoch;
        for (int64_t k = s->win.from[pack]; k < s->win.from[pack + 1]; k++)
            add_record(s, b, s->win.place[k]);
        b->longest = AF_MAX(b->longest, b->rows - before);
    }
    /* a fault maps up to 64 KiB around it; what was read is released, or a large store would
     * become resident as a whole */
    s->touched += ((uint64_t)b->sequences << 16) + (uint64_t)b->rows * sizeof(uint32_t);
    if (s->touched > RESIDENT_MAX) {
        af_map_forget(&s->store->map, 0, s->store->map.size);
        s->touched = 0;
    }
}

static void *read_ahead(void *arg)
{
    af_stream *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->quit) {
        if (s->next >= s->hold + s->ring) { /* the caller still reads the other slots */
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        const int64_t m = s->next;
        if (s->made[m % s->ring] == m) { /* from before a jump; the caller may have it */
            s->next++;
            continue;
        }
        af_batch *b = &s->slot[m % s->ring];
        s->made[m % s->ring] = -1;
        pthread_mutex_unlock(&s->lock);
        make(s, b, m);
        pthread_mutex_lock(&s->lock);
        if (s->next == m) { /* no seek was requested meanwhile */
            s->made[m % s->ring] = m;
            s->next = m + 1;
            pthread_cond_broadcast(&s->changed);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

af_status af_stream_get(af_stream *s, int64_t m, const af_batch **out, af_error *err)
{
    if (m < 0 || m >= INT64_MAX / AF_MAX(s->o.world, 1) / AF_MAX(s->o.micro_batch, 1) - 1)
        return af_fail(err, AF_EUSAGE, "micro-batch %" PRId64 " does not exist", m);
    pthread_mutex_lock(&s->lock);
    if (m < s->hold || m >= s->hold + s->ring)
        s->hold = m;
    if (s->made[m % s->ring] != m && (m < s->next || m >= s->next + s->ring))
        s->next = m; /* a jump: resume, or a second look */
    pthread_cond_broadcast(&s->changed);
    while (s->made[m % s->ring] != m)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    *out = &s->slot[m % s->ring];
    return AF_OK;
}

static bool make_slots(af_stream *s)
{
    const uint64_t sequences = (uint64_t)af_stream_sequences_max(s);
    const uint64_t longest =
        s->o.packing ? AF_MAX((uint64_t)s->o.sequence_len, s->longest) : s->longest;
    const uint64_t rows = (uint64_t)s->o.micro_batch * longest;
    s->slot = af_calloc((uint64_t)s->ring, sizeof *s->slot);
    s->made = af_calloc((uint64_t)s->ring, sizeof *s->made);
    for (int64_t i = 0; s->slot && s->made && i < s->ring; i++) {
        af_batch *b = &s->slot[i];
        s->made[i] = -1;
        b->ids = af_calloc(rows, sizeof *b->ids);
        b->labels = af_calloc(rows, sizeof *b->labels);
        b->positions = af_calloc(rows, sizeof *b->positions);
        b->bounds = af_calloc(sequences + 1, sizeof *b->bounds);
        b->record = af_calloc(sequences, sizeof *b->record);
        b->pair = s->o.pairs.rl ? af_calloc(sequences, sizeof *b->pair) : NULL;
        b->source = s->o.pairs.shared
                        ? af_calloc((uint64_t)(s->o.micro_batch * af_stream_attention_max(s)),
                                    sizeof *b->source)
                        : NULL;
        if ((s->o.pairs.rl && !b->pair) || (s->o.pairs.shared && !b->source) || !b->ids ||
            !b->labels || !b->positions || !b->bounds || !b->record)
            return false;
    }
    return s->slot && s->made;
}

/* The rows of the longest and the shortest record. */
static af_status measure(af_stream *s, af_error *err)
{
    s->longest = s->store->longest;
    s->shortest = s->store->shortest;
    if (!s->o.pairs.rl)
        return AF_OK;
    const af_pair_source pairs = pair_source(s);
    af_pair_source apart = pairs;
    apart.layout.shared = false;
    s->longest = s->longest_apart = 0;
    s->shortest = UINT32_MAX;
    for (int64_t i = 0; i < s->o.count; i++) {
        af_pair_row row;
        const af_status st = af_pair_row_read(&row, s->store, record_of(s, i), err);
        if (st != AF_OK)
            return st;
        const uint32_t rows = (uint32_t)af_pair_batch_rows(&pairs, i);
        s->longest = AF_MAX(s->longest, rows);
        s->shortest = AF_MIN(s->shortest, rows);
        s->longest_apart = AF_MAX(s->longest_apart, (uint32_t)af_pair_batch_rows(&apart, i));
    }
    return AF_OK;
}

static af_status check_opts(const af_token_store *t, const af_stream_opts *o, af_error *err)
{
    if (o->count < 1)
        return af_fail(err, AF_EUSAGE, "the dataset has no records left to use");
    if (!o->packing || o->pairs.rl) /* a pair longer than a row has one of its own */
        return AF_OK;
    if ((int64_t)t->longest > o->sequence_len)
        return af_fail(err, AF_EUSAGE, "a record has %u tokens, more than sequence_len %" PRId64,
                       t->longest, o->sequence_len);
    return AF_OK;
}

/* Items of epoch 0, by walking its windows. */
static int64_t count_items(af_stream *s)
{
    int64_t n = 0;
    for (int64_t first = 0; first < s->o.count; first = s->win.next) {
        load_window(s, 0, first);
        n += s->win.packs;
    }
    return n;
}

af_status af_stream_open(af_stream **out, const af_token_store *store, const af_stream_opts *o,
                         af_error *err)
{
    af_status st = check_opts(store, o, err);
    if (st != AF_OK)
        return st;
    af_stream *s = af_calloc(1, sizeof *s);
    if (!s)
        return af_fail_nomem(err, "the batch stream", sizeof *s);
    s->store = store;
    s->o = *o;
    s->ring = AF_MAX(o->ahead, AHEAD);
    s->win.epoch = -1;
    st = measure(s, err);
    if (st != AF_OK) {
        free(s);
        return st;
    }
    s->most_per_item =
        o->packing ? AF_MIN((int64_t)MOST_PER_PACK, o->sequence_len / AF_MAX(s->shortest, 1u)) : 1;
    s->most_per_item = AF_MAX(s->most_per_item, INT64_C(1));
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->items_first = count_items(s);
    load_window(s, 0, 0);
    if (!make_slots(s) || pthread_create(&s->thread, NULL, read_ahead, s) != 0) {
        af_stream_close(s);
        return af_fail_nomem(err, "the batch stream", (uint64_t)o->micro_batch * s->longest * 12);
    }
    s->running = true;
    *out = s;
    return AF_OK;
}

void af_stream_close(af_stream *s)
{
    if (!s)
        return;
    if (s->running) {
        pthread_mutex_lock(&s->lock);
        s->quit = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    for (int64_t i = 0; s->slot && i < s->ring; i++) {
        free(s->slot[i].ids);
        free(s->slot[i].labels);
        free(s->slot[i].positions);
        free(s->slot[i].bounds);
        free(s->slot[i].record);
        free(s->slot[i].pair);
        free(s->slot[i].source);
    }
    free(s->slot);
    free(s->made);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}

void af_stream_hold(af_stream *s, int64_t m)
{
    pthread_mutex_lock(&s->lock);
    s->hold = m;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

int64_t af_stream_items(const af_stream *s) { return s->items_first; }

int64_t af_stream_sequences_max(const af_stream *s)
{
    return s->o.micro_batch * s->most_per_item * (s->o.pairs.rl ? 2 : 1);
}

/* A pair has at most twice its rows. */
int64_t af_stream_attention_max(const af_stream *s)
{
    return s->o.packing ? 2 * af_stream_rows_max(s) : (int64_t)s->longest_apart;
}

int64_t af_stream_rows_max(const af_stream *s)
{
    return s->o.packing ? AF_MAX(s->o.sequence_len, (int64_t)s->longest) : (int64_t)s->longest;
}
