/* record_pick.c - see record_pick.h. */
#include "data/store/record_pick.h"

#include "base/file.h"
#include "data/read/records.h"
#include "data/store/order.h"

#include <math.h>

enum { PICK_STREAM = 0x7069636b };

static af_status count_file(int64_t *records, const char *path, const char *ds_type, af_error *err)
{
    af_status st = AF_OK;
    af_records *r = NULL;
    af_records_kind kind;
    AF_TRY(af_records_kind_of(&kind, path, ds_type, err));
    if (kind == AF_RECORDS_TEXT) {
        st = af_fail(err, AF_EUNSUPPORTED,
                     "%s: a part of a plain text file is not supported: it has no records", path);
        goto done;
    }
    AF_TRY(af_records_open(&r, path, kind, err));
    if (af_records_count(r) >= 0) {
        *records += af_records_count(r);
        goto done;
    }
    for (bool end = false; !end;) {
        af_record rec = {0};
        AF_TRY(af_records_next(r, &rec, err));
        end = !rec.json;
        *records += !end;
        json_decref(rec.json);
    }
done:
    af_records_close(r);
    return st;
}

static bool needs_count(const af_data_source *s)
{
    return s->slice.percent || (s->slice.has_from && s->slice.from < 0) ||
           (s->slice.has_to && s->slice.to < 0) || s->num_samples || s->weight != 1 ||
           s->first_share > 0 || s->fraction > 0 || s->shards > 1;
}

/* A part of the records in random order, as Dataset.shuffle().shard() of Hugging Face gives it. */
static af_status take_shard(af_record_pick *out, const af_data_source *s, const char *run_path,
                            af_error *err)
{
    char at[300];
    const int64_t n = out->to - out->from, parts = AF_MAX(s->shards, 1);
    if (s->shard >= parts || (s->shards && (s->num_samples || s->weight != 1 || s->fraction > 0)))
        return af_fail(err, AF_EUSAGE, "%s: %s", af_data_source_loc(at, run_path, s->line),
                       s->shard >= parts
                           ? "'shards_idx' must be below 'shards'"
                           : "'shards' goes without 'num_samples', 'weight' and 'fraction'");
    if (parts == 1)
        return AF_OK;
    out->first = n / parts * s->shard + AF_MIN(s->shard, n % parts);
    out->take = n / parts + (s->shard < n % parts);
    return out->take > 0 ? AF_OK
                         : af_fail(err, AF_EUSAGE,
                                   "%s: 'shards' leaves none of the %" PRId64 " records of %s",
                                   af_data_source_loc(at, run_path, s->line), n, s->path);
}

af_status af_record_pick_open(af_record_pick *out, const af_data_source *s, const char *run_path,
                              char *const *files, int count, af_error *err)
{
    char at[300];
    int64_t n = INT64_MAX;
    *out = (af_record_pick){.to = n, .take = -1, .seed = s->seed};
    if (!s->slice.given && !s->max_samples && !needs_count(s))
        return take_shard(out, s, run_path, err);
    if (needs_count(s) || s->slice.given) {
        n = 0;
        for (int i = 0; i < count; i++) {
            const af_status st = count_file(&n, files[i], s->ds_type, err);
            if (st != AF_OK)
                return st;
        }
    }
    af_data_slice_bounds(&s->slice, n, &out->from, &out->to);
    if (s->slice.given && out->from >= out->to)
        return af_fail(err, AF_EUSAGE, "%s: %s takes none of the %" PRId64 " records of %s",
                       af_data_source_loc(at, run_path, s->split_line),
                       s->slice.skips ? "skip" : "split", n, s->path);
    if (s->first_share > 0 && s->first_share < 1)
        out->to = out->from + (int64_t)((double)(out->to - out->from) * s->first_share);
    if (s->first_share > 0 && out->from >= out->to)
        return af_fail(err, AF_EUSAGE,
                       "%s: a share of %g takes none of the %" PRId64 " records of %s",
                       af_data_source_loc(at, run_path, s->line), s->first_share, n, s->path);
    const af_status st = take_shard(out, s, run_path, err);
    if (st != AF_OK)
        return st;
    if (s->num_samples)
        out->take = s->num_samples;
    else if (s->weight != 1)
        out->take = (int64_t)((double)(out->to - out->from) * s->weight);
    if (s->max_samples && out->take >= 0)
        out->take = AF_MIN(out->take, s->max_samples);
    else if (s->max_samples && out->to - out->from > s->max_samples)
        out->to = out->from + s->max_samples;
    return AF_OK;
}

static af_status count_taken(int64_t *out, const af_data_source *s, const char *run_path,
                             af_error *err)
{
    char **files = NULL;
    int n = 0, held_out;
    af_record_pick pick = {0};
    af_status st = af_data_source_files(s, run_path, &files, &n, &held_out, err);
    if (st == AF_OK)
        st = af_record_pick_open(&pick, s, run_path, files, n, err);
    af_names_free(files, n);
    *out = pick.to - pick.from;
    return st;
}

af_status af_record_pick_fractions(af_data_source *s, int count, const char *run_path,
                                   af_error *err)
{
    char at[300];
    double sum = 0, total = INFINITY;
    for (int i = 0; i < count; i++)
        sum += s[i].fraction;
    for (int i = 0; i < count && sum > 0; i++) {
        int64_t n = 0;
        if (s[i].fraction == 0 || s[i].continued || s[i].num_samples || s[i].weight != 1)
            return af_fail(err, AF_EUSAGE,
                           "%s: 'fraction' is for all datasets or none, without 'weight', "
                           "'num_samples' and sums of splits",
                           af_data_source_loc(at, run_path, s[i].line));
        const af_status st = count_taken(&n, &s[i], run_path, err);
        if (st != AF_OK)
            return st;
        total = fmin(total, (double)n / (s[i].fraction / sum));
    }
    for (int i = 0; i < count && sum > 0; i++) {
        s[i].max_samples = (int64_t)nearbyint(s[i].fraction / sum * total);
        if (s[i].max_samples == 0)
            return af_fail(err, AF_EUSAGE, "%s: 'fraction' leaves no record of %s",
                           af_data_source_loc(at, run_path, s[i].line), s[i].path);
        s[i].fraction = 0; /* done */
    }
    return AF_OK;
}

int64_t af_record_pick_times(const af_record_pick *p, int64_t i)
{
    if (i < p->from || i >= p->to)
        return 0;
    if (p->take < 0)
        return 1;
    const int64_t n = p->to - p->from,
                  at = af_permute(p->seed, PICK_STREAM, n, i - p->from) - p->first;
    return p->take / n + (at >= 0 && at < p->take % n);
}
