/* decode_embed.c - embeddings of texts. */
#include "decode/decoder.h"

int64_t af_decoder_width(const af_decoder *d)
{
    return d ? af_loader_spec(d->m->loader)->width : 0;
}

af_status af_decoder_embed(af_decoder *d, const int32_t *ids, int64_t count, int adapter,
                           af_pooling pooling, float *out, af_error *err)
{
    (void)count;
    (void)adapter;
    (void)pooling;
    (void)out;
    return af_fail(err, d && ids ? AF_EUNSUPPORTED : AF_EUSAGE, "embeddings are not there yet");
}
