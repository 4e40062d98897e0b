/* convert_report.c - see convert_report.h. */
#include "convert/output/convert_report.h"

#include "base/arena_owner.h"
#include "tensor/codec_vec.h"

#include <math.h>

af_status af_convert_report_new(af_convert_report **out, int rows_max, af_error *err)
{
    af_convert_report *r = af_arena_owner_new(sizeof *r);
    if (r)
        r->row = af_arena_take(af_arena_of(r), (uint64_t)AF_MAX(rows_max, 1) * sizeof *r->row);
    if (!r || !r->row) {
        af_convert_report_free(r);
        return af_fail_nomem(err, "a report", (uint64_t)rows_max * sizeof *r->row);
    }
    r->note = "";
    *out = r;
    return AF_OK;
}

void af_convert_report_free(af_convert_report *r) { af_arena_owner_free(r); }

af_convert_row *af_convert_report_add(af_convert_report *r, const char *name, const char *type,
                                      int64_t count, uint64_t bytes)
{
    const char *copy = af_arena_strdup(af_arena_of(r), name);
    if (!copy)
        return NULL;
    r->row[r->rows] = (af_convert_row){.name = copy, .type = type, .count = count, .bytes = bytes};
    return &r->row[r->rows++];
}

void af_convert_report_finish(af_convert_report *r)
{
    r->params = 0;
    r->bytes = 0;
    for (int i = 0; i < r->rows; i++) {
        r->params += r->row[i].count;
        r->bytes += r->row[i].bytes;
    }
    r->bits_per_weight = r->params ? (double)r->bytes * 8 / (double)r->params : 0;
}

/* In f32 over short runs of sixteen sums side by side, in double over the runs: relative errors of
 * 1e-6, at the speed of memory. */
void af_error_sums_measure(af_error_sums *s, const float *was, const float *is, int64_t n)
{
    enum { QUADS = 4, LANES = 4 * QUADS, RUN = 1024 };
    const af_iquad clear = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};
    af_quad most[QUADS] = {{0}};
    for (int64_t from = 0; from < n; from += RUN) {
        const int64_t end = AF_MIN(from + RUN, n);
        af_quad diff2[QUADS] = {{0}}, value2[QUADS] = {{0}};
        int64_t i = from;
        for (; i + LANES <= end; i += LANES)
            for (int k = 0; k < QUADS; k++) {
                const af_quad v = af_quad_at(was + i + 4 * k), d = v - af_quad_at(is + i + 4 * k);
                diff2[k] += d * d;
                value2[k] += v * v;
                most[k] = af_quad_max((af_quad)((af_iquad)d & clear), most[k]);
            }
        for (; i < end; i++) {
            const float d = fabsf(was[i] - is[i]);
            diff2[0][0] += d * d;
            value2[0][0] += was[i] * was[i];
            most[0][0] = d > most[0][0] ? d : most[0][0];
        }
        const af_quad d2 = (diff2[0] + diff2[1]) + (diff2[2] + diff2[3]);
        const af_quad v2 = (value2[0] + value2[1]) + (value2[2] + value2[3]);
        for (int k = 0; k < 4; k++) {
            s->diff2 += (double)d2[k];
            s->value2 += (double)v2[k];
        }
    }
    for (int k = 0; k < LANES; k++)
        s->max_abs = AF_MAX(s->max_abs, (double)most[k / 4][k % 4]);
}

void af_error_sums_add(af_error_sums *to, const af_error_sums *from)
{
    to->diff2 += from->diff2;
    to->value2 += from->value2;
    to->max_abs = AF_MAX(to->max_abs, from->max_abs);
}

af_status af_error_sums_check(const af_error_sums *s, const char *name, af_dtype type,
                              af_error *err)
{
    if (isfinite(s->diff2 + s->value2))
        return AF_OK;
    return af_fail(err, AF_EFORMAT,
                   "'%s' has values that are not finite, or larger than %s can hold", name,
                   af_dtype_name(type));
}

void af_error_sums_report(const af_error_sums *s, af_convert_row *row)
{
    row->lossy = true;
    row->rel_rms = s->value2 > 0 ? sqrt(s->diff2 / s->value2) : 0;
    row->max_abs = s->max_abs;
}
