/* convert_print.h - reports of conversions. */
#ifndef AF_CLI_CONVERT_PRINT_H
#define AF_CLI_CONVERT_PRINT_H

#include "term/cli.h"

#include "afinar/convert.h"

/* A table of types with their errors (every tensor when `all`), then size and bits. */
void af_print_convert(const af_convert_report *r, const char *out, bool all);
/* The same as one JSON object; perplexities may be NULL. */
void af_print_convert_json(const af_convert_report *r, const char *out, const double *before,
                           const double *after);
#endif
