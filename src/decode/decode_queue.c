/* decode_queue.c - requests: checked, copied, queued, given slots and pages, cancelled. */
#include "decode/decoder.h"

#include <math.h>

void af_decode_seq_free(af_decode_seq *s)
{
    if (!s)
        return;
    free(s->ids);
    free(s->bias);
    free(s);
}

/* ---- new requests ---- */

af_status af_decode_check_ids(const af_decoder *d, const int32_t *ids, int64_t count, int adapter,
                              af_error *err)
{
    if (!ids || count < 1)
        return af_fail(err, AF_EUSAGE, "a request has no tokens");
    if (count > d->context)
        return af_fail(err, AF_EUSAGE,
                       "a prompt of %" PRId64 " tokens is longer than the context of %" PRId64,
                       count, d->context);
    if (af_decode_place(d, adapter) < -1)
        return af_fail(err, AF_EUSAGE, "there is no adapter %d", adapter);
    return af_model_check_ids(d->m, ids, count, err);
}

static af_status check(const af_decoder *d, const af_decode_request *r, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_decode_check_ids(d, r->ids, r->count, r->adapter, err));
    AF_TRY(af_sample_check(&r->sample, err));
    if (r->count >= d->context)
        return af_fail(err, AF_EUSAGE,
                       "a prompt of %" PRId64 " tokens leaves no space in a context of %" PRId64,
                       r->count, d->context);
    if (r->min_tokens < 0)
        return af_fail(err, AF_EUSAGE, "at least %" PRId64 " new tokens are not possible",
                       r->min_tokens);
    if (r->max_tokens < 0 || r->top_logprobs < -1 || r->top_logprobs > AF_TOP_LOGPROBS_MAX)
        return af_fail(err, AF_EUSAGE,
                       "%" PRId64 " new tokens or %d top log-probabilities are not possible",
                       r->max_tokens, r->top_logprobs);
    if (r->biases < 0 || (r->biases && !r->bias))
        return af_fail(err, AF_EUSAGE, "a request has %d biases, but no list of them", r->biases);
    for (int i = 0; i < r->biases; i++) {
        AF_TRY(af_model_check_ids(d->m, &r->bias[i].id, 1, err));
        if (!(r->bias[i].bias < INFINITY)) /* minus infinity forbids a token */
            return af_fail(err, AF_EUSAGE, "the bias of token %" PRId32 " is %g", r->bias[i].id,
                           r->bias[i].bias);
    }
done:
    return st;
}

static af_status new_seq(af_decode_seq **out, const af_decoder *d, const af_decode_request *r,
                         af_error *err)
{
    const int64_t left = d->context - r->count,
                  most = r->count + (r->max_tokens > 0 ? AF_MIN(r->max_tokens, left) : left);
    af_decode_seq *s = af_calloc(1, sizeof *s);
    if (s) {
        *s = (af_decode_seq){.r = *r, .count = r->count, .prompt = r->count, .most = most};
        s->ids = af_calloc((uint64_t)most, sizeof *s->ids);
        s->bias = af_calloc((uint64_t)AF_MAX(r->biases, 1), sizeof *s->bias);
    }
    if (!s || !s->ids || !s->bias) {
        af_decode_seq_free(s);
        return af_fail_nomem(err, "a request", (uint64_t)most * sizeof *s->ids);
    }
    memcpy(s->ids, r->ids, (size_t)r->count * sizeof *s->ids);
    if (r->biases)
        memcpy(s->bias, r->bias, (size_t)r->biases * sizeof *s->bias);
    s->r.ids = NULL;
    s->r.bias = NULL;
    *out = s;
    return AF_OK;
}

af_status af_decoder_submit(af_decoder *d, const af_decode_request *r, uint64_t *ticket,
                            af_error *err)
{
    AF_NEED(err, d, r, ticket);
    af_status st = AF_OK;
    af_decode_seq *s = NULL;
    AF_TRY(check(d, r, err));
    AF_TRY(new_seq(&s, d, r, err));
    *ticket = s->ticket = ++d->tickets;
    *(d->first ? &d->at_end->next : &d->first) = s;
    d->at_end = s;
    d->counts.waiting++;
done:
    return st;
}

/* ---- slots and pages ---- */

static uint64_t owner_of(const af_decoder *d, const af_decode_seq *s)
{
    const int place = af_decode_place(d, s->r.adapter);
    return place < 0 ? 0 : d->adapter[place].serial;
}

/* All pages it may need: one that ran out later could not go on, for what it has cannot be made
 * again with the same bits. */
static bool take_pages(af_decoder *d, af_decode_seq *s, int32_t *table)
{
    const int64_t need = (s->most + d->z.page - 1) / d->z.page;
    if (d->shares && !s->r.prompt_logprobs)
        s->pages = af_decode_pages_match(&d->pages, s->ids, s->prompt - 1, owner_of(d, s), table);
    s->kept = s->pages;
    if (d->pages.free < need - s->pages) {
        for (int64_t i = 0; i < s->pages; i++)
            af_decode_pages_release(&d->pages, table[i]);
        s->pages = 0;
        return false;
    }
    s->cached = s->prefix = s->pages * d->z.page;
    while (s->pages < need)
        table[s->pages++] = af_decode_pages_take(&d->pages);
    return true;
}

void af_decode_admit(af_decoder *d)
{
    for (int i = 0; i < d->slots && d->first; i++) {
        af_decode_seq *s = d->first;
        if (d->slot[i])
            continue;
        if (!take_pages(d, s, d->table + i * d->z.table))
            return;
        d->first = s->next;
        s->next = NULL;
        d->slot[i] = s;
        d->counts.waiting--;
        d->counts.running++;
        d->counts.prompt_tokens += (uint64_t)s->prompt;
        d->counts.prefix_tokens += (uint64_t)s->cached;
        af_model_watch_length(d->m, s->prompt);
    }
}

void af_decode_release(af_decoder *d, int slot)
{
    const af_decode_seq *s = d->slot[slot];
    /* the last page is the oldest: it is of no use without those before it */
    for (int64_t i = s->pages - 1; i >= 0; i--)
        af_decode_pages_release(&d->pages, d->table[slot * d->z.table + i]);
    memset(d->table + slot * d->z.table, 0, (size_t)d->z.table * sizeof *d->table);
    af_decode_seq_free(d->slot[slot]);
    d->slot[slot] = NULL;
    d->counts.running--;
}

void af_decode_keep(af_decoder *d, int slot)
{
    af_decode_seq *s = d->slot[slot];
    const int32_t *table = d->table + slot * d->z.table;
    if (!d->shares)
        return;
    for (; (s->kept + 1) * d->z.page <= AF_MIN(s->cached, s->prompt); s->kept++)
        af_decode_pages_keep(&d->pages, table[s->kept], s->kept ? table[s->kept - 1] : -1,
                             s->ids + s->kept * d->z.page, owner_of(d, s));
}

/* ---- cancelling ---- */

void af_decoder_cancel(af_decoder *d, uint64_t ticket)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    if (d->cancels == d->cancel_space) {
        const int64_t space = d->cancel_space * 2 + 16;
        uint64_t *more = af_calloc((uint64_t)space, sizeof *more);
        if (more && d->cancel)
            memcpy(more, d->cancel, (size_t)d->cancels * sizeof *more);
        if (more) {
            free(d->cancel);
            d->cancel = more;
            d->cancel_space = space;
        }
    }
    if (d->cancels < d->cancel_space)
        d->cancel[d->cancels++] = ticket;
    pthread_mutex_unlock(&d->lock);
}

static void cancel_one(af_decoder *d, uint64_t ticket)
{
    for (int i = 0; i < d->slots; i++)
        if (d->slot[i] && d->slot[i]->ticket == ticket) {
            af_decode_finish(d->slot[i], AF_DECODE_CANCELLED);
            af_decode_release(d, i);
            return;
        }
    af_decode_seq *before = NULL;
    for (af_decode_seq *s = d->first; s; before = s, s = s->next)
        if (s->ticket == ticket) {
            *(before ? &before->next : &d->first) = s->next;
            d->at_end = d->at_end == s ? before : d->at_end;
            d->counts.waiting--;
            af_decode_finish(s, AF_DECODE_CANCELLED);
            af_decode_seq_free(s);
            return;
        }
}

void af_decode_take_cancelled(af_decoder *d)
{
    for (;;) {
        pthread_mutex_lock(&d->lock);
        const uint64_t ticket = d->cancels ? d->cancel[--d->cancels] : 0;
        pthread_mutex_unlock(&d->lock);
        if (!ticket)
            return;
        cancel_one(d, ticket);
    }
}
