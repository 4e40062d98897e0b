/* json_text.h - JSON files of model folders, to be changed and written again. */
#ifndef AF_JSON_TEXT_H
#define AF_JSON_TEXT_H

#include "base/base.h"

#include <jansson.h>

/* Parses n bytes of JSON, of the file `path` for messages. Where a number is too large for an
 * integer ("no limit" as 10^30) it becomes a real one, and only it. *out: json_decref. */
AF_CHECKED af_status af_json_parse(json_t **out, const char *text, uint64_t n, const char *path,
                                   af_error *err);
#endif
