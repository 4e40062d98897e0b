/* run_torchtune.h - run files of torchtune, for the files that read them. */
#ifndef AF_RUN_TORCHTUNE_H
#define AF_RUN_TORCHTUNE_H

#include "train/foreign/nested.h"

/* The last name of a component: "AdamW" of "torch.optim.AdamW"; "" when there is none. */
const char *af_torchtune_component(const af_yaml *n);

/* run_torchtune_data.c */
AF_CHECKED af_status af_torchtune_put_tokenizer(af_translation *t, const af_yaml *n, int line);
AF_CHECKED af_status af_torchtune_put_data(af_translation *t, const af_yaml *n, int line);
#endif
