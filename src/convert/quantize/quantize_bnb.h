/* quantize_bnb.h - to a folder with bitsandbytes tensors. */
#ifndef AF_QUANTIZE_BNB_H
#define AF_QUANTIZE_BNB_H

#include "afinar/convert.h"
#include "model/model_reader.h"

/* `type` is AF_DTYPE_NF4, AF_DTYPE_FP4 or AF_DTYPE_I8. */
AF_CHECKED af_status af_quantize_bnb(af_convert_report **report, af_model_reader *in,
                                     const char *out, af_dtype type, const af_quantize_opts *o,
                                     af_error *err);
#endif
