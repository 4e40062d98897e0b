/* decode_queue.c - requests: checked, copied, queued, cancelled. */
#include "decode/decoder.h"

void af_decode_seq_free(af_decode_seq *s)
{
    if (!s)
        return;
    free(s->ids);
    free(s->bias);
    free(s);
}

static af_status check(const af_decoder *d, const af_decode_request *r, af_error *err)
{
    af_status st = AF_OK;
    if (!r || !r->ids || r->count < 1)
        return af_fail(err, AF_EUSAGE, "a request has no tokens");
    AF_TRY(af_sample_check(&r->sample, err));
    AF_TRY(af_model_check_ids(d->m, r->ids, r->count, err));
    if (r->count >= d->context)
        return af_fail(err, AF_EUSAGE,
                       "a prompt of %" PRId64 " tokens leaves no space in a context of %" PRId64,
                       r->count, d->context);
    if (r->max_tokens < 0 || r->top_logprobs < -1 || r->top_logprobs > AF_TOP_LOGPROBS_MAX)
        return af_fail(err, AF_EUSAGE,
                       "%" PRId64 " new tokens or %d top log-probabilities are not possible",
                       r->max_tokens, r->top_logprobs);
    if (r->adapter != 0)
        return af_fail(err, AF_EUSAGE, "there is no adapter %d", r->adapter);
    for (int i = 0; i < r->biases; i++)
        AF_TRY(af_model_check_ids(d->m, &r->bias[i].id, 1, err));
done:
    return st;
}

af_status af_decode_seq_new(af_decode_seq **out, const af_decoder *d, const af_decode_request *r,
                            af_error *err)
{
    const int64_t room = d->context - r->count,
                  most = r->max_tokens > 0 ? AF_MIN(r->max_tokens, room) : room;
    const uint64_t space = (uint64_t)(r->count + most + 1);
    af_decode_seq *s = af_calloc(1, sizeof *s);
    if (s) {
        *s = (af_decode_seq){.r = *r, .count = r->count, .prompt = r->count};
        s->last = r->count + most;
        s->ids = af_calloc(space, sizeof *s->ids);
        s->bias = af_calloc((uint64_t)AF_MAX(r->biases, 1), sizeof *s->bias);
    }
    if (!s || !s->ids || !s->bias) {
        af_decode_seq_free(s);
        return af_fail_nomem(err, "a request", space * sizeof *s->ids);
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
    af_status st = AF_OK;
    af_decode_seq *s;
    if (!d || !ticket)
        return af_fail(err, AF_EUSAGE, "af_decoder_submit needs a decoder and a ticket");
    AF_TRY(check(d, r, err));
    AF_TRY(af_decode_seq_new(&s, d, r, err));
    *ticket = s->ticket = ++d->tickets;
    *(d->first ? &d->at_end->next : &d->first) = s;
    d->at_end = s;
    d->counts.waiting++;
done:
    return st;
}

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
