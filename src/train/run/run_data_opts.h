/* run_data_opts.h - what a run file says about its datasets, for those who read them. */
#ifndef AF_RUN_DATA_OPTS_H
#define AF_RUN_DATA_OPTS_H

#include "train/run/run_config.h"

/* `model`: the resolved folder or file. Everything is borrowed from both. */
af_data_opts af_run_data_opts(const af_run_config *run, const char *model);
#endif
