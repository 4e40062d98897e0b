/* convert_report.h - filling af_convert_report, and the errors of one tensor. */
#ifndef AF_CONVERT_REPORT_H
#define AF_CONVERT_REPORT_H

#include "afinar/convert.h"
#include "base/arena.h"
#include "tensor/dtype.h"

AF_CHECKED af_status af_convert_report_new(af_convert_report **out, int rows_max, af_error *err);
/* Adds a row; the name is copied. NULL when memory is used up. */
af_convert_row *af_convert_report_add(af_convert_report *r, const char *name, const char *type,
                                      int64_t count, uint64_t bytes);
/* Totals. */
void af_convert_report_finish(af_convert_report *r);

/* Error sums of one piece; pieces are added in order, so threads do not change the result. */
typedef struct af_error_sums {
    double diff2, value2, max_abs;
} af_error_sums;
void af_error_sums_measure(af_error_sums *s, const float *was, const float *is, int64_t n);
void af_error_sums_add(af_error_sums *to, const af_error_sums *from);
/* AF_EFORMAT when a value was, or became, no finite number. */
AF_CHECKED af_status af_error_sums_check(const af_error_sums *s, const char *name, af_dtype type,
                                         af_error *err);
void af_error_sums_report(const af_error_sums *s, af_convert_row *row);
#endif
