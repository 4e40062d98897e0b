/* adapter_stops.c - see adapter_texts.h; a file of its own, for tokenizers and templates both call
 * something a span. */
#include "format/tokenizer/tokenizer.h"
#include "model/adapter_texts.h"

af_status af_adapter_add_stops(af_tokenizer *t, const char *base, af_error *err)
{
    af_status st = AF_OK;
    af_tokenizer *b = NULL;
    int n = 0;
    if (af_tokenizer_open(&b, base, NULL) != AF_OK)
        return AF_OK; /* it has none */
    const int32_t *stops = af_tokenizer_stops(b, &n);
    for (int i = 0; i < n && st == AF_OK; i++)
        st = af_tokenizer_add_stop(t, stops[i], err);
    af_tokenizer_close(b);
    return st;
}
