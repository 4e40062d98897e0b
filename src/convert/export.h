/* export.h - what others need of the export. */
#ifndef AF_EXPORT_H
#define AF_EXPORT_H

#include "base/base.h"

/* Writes the text files of a GGUF model (tokenizer, chat template, generation config) as those of a
 * model folder, into the folder `dir`. */
AF_CHECKED af_status af_export_texts(const char *gguf, const char *dir, af_error *err);
#endif
