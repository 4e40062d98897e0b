/* compile.h - from texts to networks. Each leaves the root rule in r->root. */
#ifndef AF_GRAMMAR_COMPILE_H
#define AF_GRAMMAR_COMPILE_H

#include "grammar/rtn.h"

AF_CHECKED af_status af_gbnf_compile(af_rtn *r, const char *text, uint64_t len, af_error *err);
AF_CHECKED af_status af_schema_text_compile(af_rtn *r, const char *text, uint64_t len,
                                            af_error *err);
/* The texts that a regular expression (pattern.h) matches from end to end. */
AF_CHECKED af_status af_regex_compile(af_rtn *r, const char *text, uint64_t len, af_error *err);
/* Any JSON object. */
AF_CHECKED af_status af_json_object_compile(af_rtn *r, af_error *err);
#endif
