/* fields.h - typed fields of a JSON request, and JSON text of answers.
 *
 * A field that is absent or null leaves the value as it is. Errors are AF_EUSAGE with the field's
 * name as the subject. */
#ifndef AF_SERVE_FIELDS_H
#define AF_SERVE_FIELDS_H

#include "base/buf.h"

#include <jansson.h>

/* The field, or NULL when it is absent or null. */
json_t *af_value(const json_t *o, const char *name);
/* Is it this text? */
bool af_is_word(const json_t *v, const char *word);
AF_CHECKED af_status af_value_bool(const json_t *o, const char *name, bool *v, af_error *err);
AF_CHECKED af_status af_value_int(const json_t *o, const char *name, int64_t min, int64_t max,
                                  int64_t *v, af_error *err);
AF_CHECKED af_status af_value_number(const json_t *o, const char *name, double min, double max,
                                     double *v, af_error *err);
/* Borrowed from the tree. */
AF_CHECKED af_status af_value_string(const json_t *o, const char *name, const char **v,
                                     af_error *err);
/* Fails when the field is there and of another kind than `type` (for one kind only). */
AF_CHECKED af_status af_value_type(const json_t *o, const char *name, json_type type, json_t **v,
                                   af_error *err);

/* A JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void af_out_string(af_buf *b, const char *s, uint64_t n);
void af_out_cstring(af_buf *b, const char *s); /* NULL: null */
/* A number as JSON can say it: not finite becomes null, -inf of log-probabilities -9999. */
void af_out_number(af_buf *b, double v);
void af_out_logprob(af_buf *b, double v);
void af_out_ids(af_buf *b, const int32_t *ids, int64_t n);
#endif
