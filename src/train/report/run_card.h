/* run_card.h - the model card of a finished run (convert/output/model_card.h). */
#ifndef AF_RUN_CARD_H
#define AF_RUN_CARD_H

#include "train/report/report.h"

/* Writes README.md into the output folder, unless somebody else's is there. */
AF_CHECKED af_status af_run_card_write(const af_report_source *s, af_error *err);
#endif
