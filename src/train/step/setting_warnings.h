/* setting_warnings.h - settings that are valid but probably a mistake, one line each. */
#ifndef AF_SETTING_WARNINGS_H
#define AF_SETTING_WARNINGS_H

#include "train/step/run_model.h"

/* sequence_len beyond the model's context, and a learning rate far from those of its method. */
void af_warn_settings(const af_run_model *m);
/* Records that are cut, most of them or all; and pairs without the template of a chat model. */
void af_warn_data(const af_run_config *run, const char *model, const af_data_counts *c);
#endif
