/* json_text.h - JSON text and jansson's trees: the only way from one to the other.
 *
 * Jansson ignores some failed allocations: its lexer drops the byte that had no space, and a
 * json_object_set_new() of what could not be made leaves the key out. So its allocator notes each
 * failure (af_memory_note); af_json_load and af_json_dump refuse a tree that may lack something,
 * and the error that the caller then raises is AF_ENOMEM. Trees that are neither loaded nor dumped
 * are checked with af_memory_check. tools/check: no other file calls json_load* or json_dump*. */
#ifndef AF_JSON_TEXT_H
#define AF_JSON_TEXT_H

#include "base/base.h"

#include <jansson.h>

/* Parses n bytes of JSON, of the file `path` for messages. Where a number is too large for an
 * integer ("no limit" as 10^30) it becomes a real one, and only it. *out: json_decref. */
AF_CHECKED af_status af_json_parse(json_t **out, const char *text, uint64_t n, const char *path,
                                   af_error *err);
/* The same for a whole file, which Python may have written (af_json_load_python). */
AF_CHECKED af_status af_json_read_file(json_t **out, const char *path, af_error *err);
/* json_loadb and json_dumps that return NULL as well when an allocation failed, now or while the
 * tree was made. `why` may be NULL. */
json_t *af_json_load(const char *text, uint64_t n, size_t flags, json_error_t *why);
/* The same of text that Python may have written: NaN, Infinity and -Infinity, which JSON lacks, are
 * read as {"__float__": "NaN"} and so on, as transformers 5 writes them. */
json_t *af_json_load_python(const char *text, uint64_t n, size_t flags, json_error_t *why);
char *af_json_dump(const json_t *tree, size_t flags);
#endif
