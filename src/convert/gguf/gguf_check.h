/* gguf_check.h - does a GGUF file describe the model? */
#ifndef AF_GGUF_CHECK_H
#define AF_GGUF_CHECK_H

#include "model/arch/arch.h"

/* Can llama.cpp load every tensor of this model? If not, AF_EUNSUPPORTED names the key. */
AF_CHECKED af_status af_gguf_check_supported(const af_model_spec *s, af_error *err);
/* Reads the metadata of the file back and compares the model it describes with `want`. A difference
 * is AF_EUNSUPPORTED with the key of the config and both values. Weights are not looked at, but
 * rope factors are. */
AF_CHECKED af_status af_gguf_check_metadata(const af_model_spec *want, const char *path,
                                            af_error *err);
#endif
