/* arch_fit.h - may a model of unknown type be run as llama? */
#ifndef AF_ARCH_FIT_H
#define AF_ARCH_FIT_H

#include "format/config/hf_config.h"

/* AF_OK (with a warning that says so) when every key of the config is one that llama has, or says
 * nothing about the computation; else an error that names the key. */
AF_CHECKED af_status af_arch_fits_llama(const af_hf_config *c, af_error *err);
#endif
