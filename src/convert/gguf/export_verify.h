/* export_verify.h - does the written file compute what the model computes? */
#ifndef AF_EXPORT_VERIFY_H
#define AF_EXPORT_VERIFY_H

#include "afinar/convert.h"

/* Runs sample prompts through the source (with its adapter) and through the written file, and
 * compares logits; `bits`: bits per weight of the file. */
AF_CHECKED af_status af_export_verify(const char *model, const char *adapter, const char *written,
                                      double bits, int threads, af_verify_result *out,
                                      af_error *err);
#endif
