/* decode_adapters.c - adapters that requests choose. */
#include "decode/decoder.h"

af_status af_decoder_add_adapter(af_decoder *d, const char *name, const char *folder, int *id,
                                 af_error *err)
{
    (void)id;
    return af_fail(err, d && name && folder ? AF_EUNSUPPORTED : AF_EUSAGE,
                   "adapters cannot be chosen per request");
}

af_status af_decoder_remove_adapter(af_decoder *d, int id, af_error *err)
{
    (void)d;
    return af_fail(err, AF_EUSAGE, "there is no adapter %d", id);
}

int af_decoder_find_adapter(const af_decoder *d, const char *name)
{
    (void)d;
    (void)name;
    return -1;
}
