/* fast_spot.c - one tile of a product: its panels, packed for the step or lying elsewhere, into
 * where its sums go. */
#include "cpu/gemm/fast_task.h"

void AF_ISA_NAME(af_spot_begin)(const task *t, int share, hand *h)
{
    h->turn = 0;
    h->then = NULL;
    h->then_row = 0;
    h->last = false;
    h->rows = own_rows(t, share);
#if defined(AF_ISA_amx)
    h->spare = h->rows + AF_GEMM_OWN / 2;
    h->waiting = (float *)h->rows;
    if (t->own && t->kind == KIND_BF16) /* a strip leaves room for them */
        h->rows = t->strips + (uint64_t)(share + 1) * B_BYTES - t->depth * BM * 2;
    h->beside = (af_amx_beside){0};
#endif
    if (t->kind != KIND_F32)
        AF_ISA_NAME(af_tile_begin)();
}

void AF_ISA_NAME(af_spot_end)(const task *t, hand *h)
{
#if defined(AF_ISA_amx)
    AF_ISA_NAME(af_amx_flush)(&h->beside.later);
#endif
    (void)h;
    if (t->kind != KIND_F32)
        AF_ISA_NAME(af_tile_end)();
}

static const uint8_t *panel_b(const task *t, const spot *o, const chunk *c)
{
    const af_packed *p = c->b->packed;
    if (!c->once)
        return o->b + c->at_b * o->width * value_bytes(t);
    return (const uint8_t *)p->panels +
           ((t->n + o->j) * p->depth + c->k * c->planes * o->width) * value_bytes(t);
}

#if defined(AF_ISA_amx)
static void find_spans(const task *t, const spot *o, const hand *h, af_amx_span s[AF_GEMM_CHUNKS])
{
    const uint8_t *rows = t->own ? h->rows : t->a + o->i * t->depth_a * 2;
    const bool full = t->rows - o->i >= BM;
    for (int i = 0; i < t->chunks; i++) {
        const chunk *q = &t->chunk[i];
        s[i] = (af_amx_span){.a = rows + q->at_a * BM * 2,
                             .b = panel_b(t, o, q),
                             .row = 64,
                             .step = BK * BM * 2,
                             .depth = pad_k(t, q->kc),
                             .planes = t->kind == KIND_PLANES ? q->planes : 0};
        if (!full && t->edge) {
            s[i].a = t->edge + q->at * BM * 2;
        } else if (q->in_place) {
            s[i].a = (const uint16_t *)q->a->data + (t->m + o->i) * q->a->ld + q->k;
            s[i].row = q->a->ld * 2;
            s[i].step = BK * 2;
        }
    }
}

/* So many k's of the next rows, where there are some to be turned, beside the products of these. */
static void turn_beside(int64_t depth, hand *h)
{
    h->beside.turn.left = h->beside.turn.to ? depth / BK : 0;
}

static void sum_amx(const task *t, const spot *o, float *c, int64_t ldc, af_tile_way way, hand *h)
{
    af_amx_span s[AF_GEMM_CHUNKS];
    find_spans(t, o, h, s);
    if (h->last)
        turn_beside(t->depth, h);
    AF_ISA_NAME(af_amx_tile)(s, t->chunks, c, ldc, way, &h->beside);
}

/* The same for whole sums of planes in a f32 C: what is added is so while the next tile is made. */
static void sum_planes(const task *t, const spot *o, float *c, int64_t ldc, af_tile_way way,
                       hand *h)
{
    af_amx_beside *w = &h->beside;
    const bool add = way == AF_TILE_ADD;
    w->fetch = c;
    w->fetch_ld = ldc;
    w->fetch_rows = BM;
    sum_amx(t, o, add ? h->sums[0] : c, add ? BN : ldc, AF_TILE_SET, h);
    if (add)
        w->later = (af_amx_later){.from = h->sums[0], .onto = c, .ld = ldc, .rows = BM};
}

/* k's [from, to) of the sums for panel q: the parts of the spans they lie in, how many. */
static int cut_spans(const task *t, const af_amx_span s[AF_GEMM_CHUNKS], int64_t q, int64_t from,
                     int64_t to, af_amx_span out[AF_GEMM_CHUNKS])
{
    int spans = 0;
    for (int i = 0; i < t->chunks; i++) {
        const chunk *c = &t->chunk[i];
        const int64_t begin = AF_MAX(from - c->at, INT64_C(0)),
                      end = AF_MIN(to - c->at, s[i].depth),
                      panel = (c->once ? c->b->packed->depth : t->depth_b) * BN * 2;
        if (begin >= end)
            continue;
        af_amx_span *x = &out[spans++];
        *x = s[i];
        x->a = (const uint8_t *)s[i].a + begin / BK * s[i].step;
        x->b = (const uint8_t *)s[i].b + q * panel + begin * BN * 2;
        x->depth = end - begin;
    }
    return spans;
}

/* Finished sums that nobody reads soon and that fill lines of the cache: written past it, those
 * need not be read first. */
static bool goes_away(const task *t)
{
    const af_gemm *g = t->g;
    return g->away && t->kind == KIND_BF16 && t->first && t->last && (uintptr_t)g->c % LINE == 0 &&
           g->ldc * af_dtype_get(g->c_dtype)->bytes % LINE == 0;
}

_Static_assert(AF_GEMM_OWN / 2 >= AF_GEMM_KC_PLANES * AF_PLANES * BM * 2, "two tiles of rows");

/* Groups of four products that a tile of planes is made of. */
static int64_t tile_groups(const task *t)
{
    int64_t groups = 0;
    for (int c = 0; c < t->chunks; c++)
        groups +=
            pad_k(t, t->chunk[c].kc) / BK * (t->chunk[c].planes == 1 ? 3 : 3 + t->chunk[c].planes);
    return groups;
}

void AF_ISA_NAME(af_spot_ahead)(const task *t, ahead *next_b, hand *h)
{
    if (t->kind != KIND_PLANES)
        return;
    const int64_t groups = tile_groups(t);
    h->beside.ahead = next_b;
    h->beside.lines = (int)((next_b->lines + groups - 1) / groups);
}

/* The rows from i on become those that are packed beside the products of so many tiles; false where
 * they must be decoded. */
static bool begin_rows(const task *t, int64_t i, int64_t tiles, hand *h)
{
    int64_t rows = 0;
    for (int c = 0; c < t->chunks; c++) {
        const chunk *q = &t->chunk[c];
        const af_operand *a = q->a;
        const int64_t blocks = pad_k(t, q->kc) / BK, m = t->m + i;
        if (a->weight || a->dtype != AF_DTYPE_F32)
            return false;
        h->next[c] = (af_planes_rows){
            .from = (const float *)a->data + (a->trans ? q->k * a->ld + m : m * a->ld + q->k),
            .ld = a->ld,
            .turned = a->trans,
            .lines = AF_MIN(t->rows - i, (int64_t)BM),
            .kc = q->kc,
            .to = (uint16_t *)h->spare + q->at_a * BM,
            .block = h->block,
            .row = a->trans ? -AF_TURN_PARTS : 0,
        };
        rows += blocks * (BM + AF_TURN_PARTS);
    }
    const int64_t groups = (tile_groups(t) + 1) / 2 * tiles; /* every other */
    h->beside.rows = h->next;
    h->beside.chunks = t->chunks;
    h->beside.each = (int)((rows + groups - 1) / groups);
    return true;
}

/* Rows of A from i on, as they are packed anywhere. */
static void pack_rows(const task *t, int64_t i, uint8_t *to, int share)
{
    for (int c = 0; c < t->chunks; c++) {
        const chunk *q = &t->chunk[c];
        const af_panels p = {to, BM, BGA, t->depth_a, q->at_a, planes_a(t)};
        AF_ISA_NAME(af_task_pack)
        (t, &p, q->a, !q->a->trans, t->m + i, AF_MIN(t->rows - i, (int64_t)BM), q->k, q->kc, share);
    }
}

_Static_assert((AF_GEMM_WIDE / BN + 1) * AF_GEMM_KC_BF16 * BM * 2 <= B_BYTES,
               "a tile of rows beside a strip");

/* Rows of a bf16 A from i on, whose stored rows are k's, to be turned. */
static af_amx_turn turn_of(const task *t, int64_t i, uint8_t *to)
{
    const chunk *c = &t->chunk[0];
    return (af_amx_turn){.from = (const uint16_t *)c->a->data + c->k * c->a->ld + t->m + i,
                         .to = (uint16_t *)to,
                         .ld = c->a->ld};
}

/* As af_spot_rows. The next rows come where these are, k's after k's, when the last tile has read
 * them (turn_beside): a second place would push this one out of the first-level cache. */
static void turn_rows(const task *t, int64_t i, int share, hand *h)
{
    af_amx_turn *next = &h->beside.turn;
    if (!next->to && t->rows - i >= BM) {
        *next = turn_of(t, i, h->rows);
        next->left = t->depth / BK;
        AF_ISA_NAME(af_amx_turned)(next);
    } else if (!next->to) {
        pack_rows(t, i, h->rows, share);
    }
    *next = (af_amx_turn){0};
    if (h->then && h->then->rows - h->then_row >= BM)
        *next = turn_of(h->then, h->then_row, h->rows);
}

void AF_ISA_NAME(af_spot_rows)(const task *t, int64_t i, int64_t tiles, int share, hand *h)
{
    uint8_t *to = h->spare;
    if (t->kind == KIND_BF16) {
        turn_rows(t, i, share, h);
        return;
    }
    if (!h->beside.rows && !begin_rows(t, i, 1, h))
        pack_rows(t, i, to, share);
    AF_ISA_NAME(af_planes_finish)(&h->beside);
    h->beside.rows = NULL;
    h->spare = h->rows;
    h->rows = to;
    if (h->then)
        begin_rows(h->then, h->then_row, tiles, h);
}

_Static_assert(AF_GEMM_OWN >= AF_GEMM_WIDE / BN * TILE * 4, "the sums of a strip of tiles");

int64_t AF_ISA_NAME(af_spot_row)(const task *t, const spot *o, int64_t n, hand *h)
{
    const af_gemm *g = t->g;
    af_amx_span s[AF_GEMM_CHUNKS], part[AF_GEMM_CHUNKS];
    const int64_t full = t->rows - o->i >= BM ? AF_MIN(n, (t->cols - o->j) / BN) : 0;
    const bool f32 = g->c_dtype == AF_DTYPE_F32, past = goes_away(t);
    if (t->kind == KIND_F32 || (f32 && !past) || g->alpha != 1.0f || g->add || g->bias ||
        (t->staged && t->kind == KIND_PLANES)) /* whose steps are sums of their own */
        return 0;
    find_spans(t, o, h, s);
    const int64_t at = (t->m + o->i) * g->ldc + t->n + o->j;
    /* planes are few k's at a time already, and their spans are deeper than their k's */
    const int64_t near = t->kind == KIND_BF16 ? (int64_t)AF_GEMM_KC_NEAR : t->depth,
                  parts = (t->depth + near - 1) / near;
    for (int64_t p = 0; p < parts; p++)
        for (int64_t q = 0; q < full; q++, h->turn ^= parts == 1) {
            float *sums = t->staged   ? t->scratch + o->i * NS + (o->j + q * BN) * BM
                          : parts > 1 ? h->waiting + q * TILE
                                      : h->sums[h->turn];
            const bool begun = p > 0 || (t->staged && !t->first);
            const int64_t from = t->depth / BK * p / parts * BK,
                          to = t->depth / BK * (p + 1) / parts * BK;
            const int spans = cut_spans(t, s, q, from, to, part);
            if (q == n - 1)
                turn_beside(to - from, h);
            AF_ISA_NAME(af_amx_tile)
            (part, spans, sums, BN, begun ? AF_TILE_CONTINUE : AF_TILE_SET, &h->beside);
            if (p == parts - 1 && (t->last || !t->staged))
                h->beside.later = (af_amx_later){
                    .from = sums,
                    .to = f32 ? NULL : (uint16_t *)g->c + at + q * BN,
                    .away = f32 ? (float *)g->c + at + q * BN : NULL,
                    .ld = g->ldc,
                    .rows = BM,
                    .past = past,
                };
        }
    return full;
}
#else
int64_t AF_ISA_NAME(af_spot_row)(const task *t, const spot *o, int64_t n, hand *h)
{
    (void)t, (void)o, (void)n, (void)h;
    return 0;
}

void AF_ISA_NAME(af_spot_ahead)(const task *t, ahead *next_b, hand *h)
{
    (void)t, (void)next_b, (void)h;
}

void AF_ISA_NAME(af_spot_rows)(const task *t, int64_t i, int64_t tiles, int share, hand *h)
{
    (void)t, (void)i, (void)tiles, (void)share, (void)h;
}
#endif

/* The sums of one tile. Chunks whose panels follow on are one sum for the tile. */
static void sum_tile(const task *t, const spot *o, float *c, int64_t ldc, af_tile_way way,
                     const af_tile_half *half)
{
    const uint8_t *a = t->a + o->i * t->depth * value_bytes(t);
    for (int i = 0, next; i < t->chunks; i = next) {
        const chunk *q = &t->chunk[i];
        int64_t depth = pad_k(t, q->kc);
        for (next = i + 1; next < t->chunks && !q->once && !t->chunk[next].once; next++)
            depth += pad_k(t, t->chunk[next].kc);
        o->tile(depth, a + q->at * tile_rows(t) * value_bytes(t), panel_b(t, o, q), c, ldc,
                i ? AF_TILE_CONTINUE : way, next == t->chunks ? half : NULL);
    }
}

/* Sums that are rounded and nothing else. */
static void rounded_tile(const task *t, const spot *o, float *s, af_tile_way way, hand *h)
{
    const af_tile_half half = {(uint16_t *)t->g->c + (t->m + o->i) * t->g->ldc + t->n + o->j,
                               t->g->ldc};
#if defined(AF_ISA_amx)
    sum_amx(t, o, s, BN, way, h);
    h->beside.later = (af_amx_later){.from = s, .to = half.to, .ld = half.ld, .rows = BM};
    h->turn ^= 1;
#else
    (void)h;
    sum_tile(t, o, s, o->width, way, &half);
#endif
}

static void plain_tile(const task *t, const spot *o, float *c, int64_t ldc, af_tile_way way,
                       hand *h)
{
#if defined(AF_ISA_amx)
    if (t->kind != KIND_F32) {
        sum_amx(t, o, c, ldc, way, h);
        return;
    }
#endif
    (void)h;
    sum_tile(t, o, c, ldc, way, NULL);
}

/* Sums that are what C shall be, or what is added to it. */
static void whole_tile(const task *t, const spot *o, float *c, int64_t ldc, af_tile_way way,
                       hand *h)
{
#if defined(AF_ISA_amx)
    if (t->kind == KIND_PLANES) {
        sum_planes(t, o, c, ldc, way, h);
        return;
    }
#endif
    plain_tile(t, o, c, ldc, way, h);
}

/* Whether the tile is several calls, which cannot add to C one by one. (AMX takes all at once.) */
static bool in_parts(const task *t)
{
#if defined(AF_ISA_amx)
    if (t->kind != KIND_F32)
        return false;
#endif
    for (int i = 0; i < t->chunks; i++)
        if (t->chunk[i].once && t->chunks > 1)
            return true;
    return false;
}

void AF_ISA_NAME(af_spot_run)(const task *t, const spot *o, hand *h)
{
    const af_gemm *g = t->g;
    const int64_t tm = tile_rows(t), r = AF_MIN(tm, t->rows - o->i),
                  c = AF_MIN((int64_t)o->width, t->cols - o->j), m = t->m + o->i, n = t->n + o->j;
    const bool f32 = g->c_dtype == AF_DTYPE_F32, plain = g->alpha == 1.0f && r == tm &&
                                                         c == o->width &&
                                                         !(g->bias && (!f32 || t->first));
    /* the scratch holds whole tiles, one by one */
    float *s = t->staged ? t->scratch + o->i * NS + o->j * tm : h->sums[h->turn];
    const af_tile_way on = t->kind == KIND_PLANES ? AF_TILE_ADD : AF_TILE_CONTINUE;
    const af_tile_way way = t->staged && !t->first ? on : AF_TILE_SET;
    const bool add = g->add || !t->first; /* as the parts of tiles are added */
    if (plain && f32 && !(add && in_parts(t))) {
        whole_tile(t, o, (float *)g->c + m * g->ldc + n, g->ldc, add ? AF_TILE_ADD : AF_TILE_SET,
                   h);
    } else if (plain && !f32 && !g->add && t->last &&
               AF_ISA_NAME(af_tile_rounds)(t->kind != KIND_F32, o->width)) {
        rounded_tile(t, o, s, way, h);
    } else {
        plain_tile(t, o, s, o->width, way, h);
        if (!t->staged || t->last)
            AF_ISA_NAME(af_gemm_store)(g, s, o->width, m, r, n, c, t->staged || t->first);
    }
}
