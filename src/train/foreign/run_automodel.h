/* run_automodel.h - what the two halves of the reader of NeMo AutoModel's files share. */
#ifndef AF_RUN_AUTOMODEL_H
#define AF_RUN_AUTOMODEL_H

#include "train/foreign/nested.h"

/* The last part of a '_target_' ("torch.optim.AdamW": AdamW), also of a name in its place; "" where
 * there is none. */
const char *af_automodel_target(const af_yaml *n);
/* Whether the file is for sequence classification. */
bool af_automodel_classifies(const af_yaml *root);
/* A scalar that is a number above 0. */
bool af_automodel_positive(const af_yaml *n);
/* run_automodel_data.c: `dataset`, and all 'validation_dataset...' of the root. */
AF_CHECKED af_status af_automodel_put_data(af_translation *t, const af_yaml *n, int line);
AF_CHECKED af_status af_automodel_put_tests(af_translation *t);
/* seq_length and packed_sequence. */
AF_CHECKED af_status af_automodel_put_length(af_translation *t, const af_yaml *packed, int line);
/* run_automodel_peft.c: `peft`. */
AF_CHECKED af_status af_automodel_put_peft(af_translation *t, const af_yaml *n, int line);
#endif
