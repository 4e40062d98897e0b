/* inspect_mixed.h - what a folder and a GGUF file have in common. */
#ifndef AF_INSPECT_MIXED_H
#define AF_INSPECT_MIXED_H

#include "afinar/inspect.h"

/* Fills r->rows and the counts: tensors under their Hugging Face names, rows of the GGUF file in
 * the folder's order. Paths are resolved. */
AF_CHECKED af_status af_diff_mixed(af_diff_report *r, const char *a, const char *b, af_error *err);
#endif
