/* export_verify.h - is what was written what was meant? */
#ifndef AF_EXPORT_VERIFY_H
#define AF_EXPORT_VERIFY_H

#include "afinar/convert.h"

/* Runs sample prompts through the source (with its adapter) and through the written file, and
 * compares logits; `bits` is how many bits a weight has in the file. */
AF_CHECKED af_status af_export_verify(const char *model, const char *adapter, const char *written,
                                      double bits, int threads, af_verify_result *out,
                                      af_error *err);
#endif
