/* pair_reader.c - preference records: what is dropped, what is wrong, and in which order KTO takes
 * pairs apart. TRL's rules: a row is dropped when its prompt alone fills sequence_len, a row of a
 * reward model when one of its sequences is longer; whatever else is too long is cut at its end.
 * With truncation_mode keep_end it is cut at its begin, and none is dropped. */
#include "data/shape/pair_form.h"
#include "data/store/record_reader.h"

/* An error for `data check`, which looks for what would train wrongly; elsewhere a warning. */
AF_PRINTF(3, 4)
static af_status fault(af_record_reader *d, af_warning_kind kind, const char *fmt, ...)
{
    char why[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    if (d->mode == AF_READ_CHECK)
        return af_source_loc_fail(&d->loc, d->err, "%s", why);
    af_record_warn(&d->loc, kind, "%s", why);
    return AF_OK;
}

static af_status check_pair(af_record_reader *d, const af_record_job *j)
{
    const af_fields *f = &d->source->field;
    af_status st = AF_OK;
    for (int i = 0; i < j->item.conversations; i++)
        AF_TRY(af_record_reader_check_ids(d, &j->row[i]));
    if (j->item.equal)
        AF_TRY(
            fault(d, AF_WARNING_SAME_PAIR, "\"%s\" and \"%s\" are equal", f->chosen, f->rejected));
    if (j->prompt.split)
        AF_TRY(fault(d, AF_WARNING_PROMPT,
                     "the prompt is not how %s: the chat template renders it differently "
                     "without the answer",
                     j->item.conversations == 2 ? "both rows begin" : "the row begins"));
    else if (j->prompt.merged && d->mode == AF_READ_CHECK)
        af_record_warn(&d->loc, AF_WARNING_PROMPT,
                       "the end of the prompt and the begin of an answer are one token");
done:
    return st;
}

static bool loses_turn_end(const af_record_reader *d, const af_row *r, int64_t limit)
{
    for (int64_t i = limit; i < r->count; i++)
        if (af_renderer_is_eot(d->renderer, r->ids[i]))
            return true;
    return false;
}

/* Whether a record stays, by the lengths of its rows. */
static af_status fits(af_record_reader *d, const af_row *row, const int64_t *prompt, int rows,
                      bool *keep)
{
    const af_data_opts *o = d->pipeline->o;
    const int64_t limit = o->sequence_len;
    const bool whole = o->rl == AF_RL_REWARD || o->excess == AF_EXCESS_DROP;
    bool lost = false; /* its end of turn; a record counts once */
    af_data_counts *c = &d->warnings.counts;
    af_status st = AF_OK;
    *keep = true;
    for (int i = 0; i < rows && *keep; i++) {
        const int64_t n = row[i].count, before = prompt[i];
        if (limit > 0 && n > limit && o->excess == AF_EXCESS_ERROR)
            return af_source_loc_fail(&d->loc, d->err,
                                      "%" PRId64 " tokens, but sequence_len is %" PRId64
                                      " and excess_length_strategy is error",
                                      n, limit);
        if (n == before) {
            AF_TRY(fault(d, AF_WARNING_NOTHING, "an answer has no token"));
            c->nothing_to_learn++;
            *keep = false;
        } else if (limit > 0 && (whole ? n > limit : before >= limit && !o->keep_end)) {
            if (!whole)
                AF_TRY(fault(d, AF_WARNING_TRUNCATED,
                             "an answer is cut away: its prompt has %" PRId64
                             " tokens and sequence_len is %" PRId64,
                             before, limit));
            c->dropped++;
            *keep = false;
        } else if (limit > 0 && n > limit) {
            c->truncated += i == 0 || row[0].count <= limit;
            const bool loses = !o->keep_end && loses_turn_end(d, &row[i], limit);
            c->lost_eot += !lost && loses;
            lost |= loses;
        } else if (row[i].cut) {
            c->truncated += i == 0 || !row[0].cut;
            c->lost_eot += !lost && row[i].lost_end;
            lost |= row[i].lost_end;
        }
    }
done:
    return st;
}

/* min_sample_len and dataset_exact_deduplication look at both rows; with `more`, which is the label
 * of an answer, the margin of a pair or the classes of a text. */
static af_status filter(af_record_reader *d, const af_row *row, int rows, const float *more,
                        int values, bool *keep)
{
    af_row joined = {0};
    af_status st = AF_OK;
    for (int i = 0; i < rows; i++) {
        const af_encoding e = {.ids = row[i].ids, .count = row[i].count};
        AF_TRY(af_row_append(&joined, &e, i == 0, d->err));
    }
    AF_TRY(af_row_filter_take(&d->filter, &joined, more, (uint64_t)values * sizeof *more, keep,
                              d->err));
    d->warnings.counts.left_out += !*keep;
done:
    af_row_clear(&joined);
    return st;
}

/* Keeps the first tokens of a row, or its last ones. */
static void cut_row(af_row *r, int64_t left, bool end)
{
    r->ids += end ? r->count - left : 0;
    r->labels += end ? r->count - left : 0;
    r->count = left;
}

/* A record that stays: `rows` of one prompt. */
static af_status emit(af_record_reader *d, const af_item *item, af_row *row, const int64_t *prompt,
                      int rows, bool label)
{
    const int64_t limit = d->pipeline->o->sequence_len;
    const int64_t most = limit > 0 ? limit : INT64_MAX;
    const bool end = d->pipeline->o->keep_end, two = rows == 2;
    const int64_t n[2] = {row[0].count - prompt[0], two ? row[1].count - prompt[1] : 0};
    const int64_t lost[2] = {end ? AF_MAX(n[0] - most, 0) : 0, end ? AF_MAX(n[1] - most, 0) : 0};
    const af_pair_row pair = {.prompt = row[0].ids,
                              .first = row[0].ids + prompt[0] + lost[0],
                              .second = two ? row[1].ids + prompt[1] + lost[1] : NULL,
                              .prompt_len = prompt[0],
                              .first_len = AF_MIN(n[0], most),
                              .second_len = AF_MIN(n[1], most),
                              .label = label,
                              .margin = item ? item->margin : 0};
    af_row cut[2] = {row[0], two ? row[1] : (af_row){0}};
    af_data_counts *c = &d->warnings.counts;
    const bool labelled = d->pipeline->o->rl == AF_RL_KTO;
    for (int i = 0; d->mode != AF_READ_PREVIEW && i < rows; i++)
        cut_row(&cut[i], AF_MIN(cut[i].count, most), end);
    c->desirable += labelled && label;
    c->undesirable += labelled && !label;
    af_example e = {.file = d->loc.file,
                    .source = d->file,
                    .dataset = d->dataset,
                    .line = d->loc.line,
                    .record = d->loc.number,
                    .shape = labelled ? AF_SHAPE_KTO : AF_SHAPE_PREFERENCE,
                    .rows = rows,
                    .row = cut,
                    .label = label,
                    .pair = &pair};
    char *text = NULL;
    af_status st = AF_OK;
    if (d->mode == AF_READ_PREVIEW) {
        AF_TRY(af_tokenizer_decode(d->pipeline->tokenizer, &text, &e.prompt_len, pair.prompt,
                                   pair.prompt_len, false, d->err));
        e.prompt = text;
    }
    af_record_reader_count(d, &e);
    AF_TRY(af_record_reader_emit(d, &e));
done:
    free(text);
    return st;
}

/* --- KTO: a pair taken apart ----------------------------------------------------------------- */

static void held_row_clear(af_held_row *h)
{
    af_row_clear(&h->row);
    free(h->file);
    *h = (af_held_row){0};
}

void af_pair_held_clear(af_record_reader *d)
{
    for (int64_t i = 0; i < d->held_count; i++)
        held_row_clear(&d->held[i]);
    free(d->held);
    d->held = NULL;
    d->held_count = d->unpaired = 0;
}

static af_status emit_one(af_record_reader *d, af_row *row, int64_t tokens, bool label)
{
    const int64_t prompt[2] = {tokens};
    const float more = label;
    bool keep = true;
    af_status st = AF_OK;
    if (d->mode != AF_READ_PREVIEW)
        AF_TRY(fits(d, row, prompt, 1, &keep));
    if (d->mode != AF_READ_PREVIEW && keep)
        AF_TRY(filter(d, row, 1, &more, 1, &keep));
    if (keep)
        AF_TRY(emit(d, NULL, row, prompt, 1, label));
done:
    return st;
}

af_status af_pair_emit_held(af_record_reader *d)
{
    const af_source_loc loc = d->loc;
    const int file = d->file, dataset = d->dataset;
    af_status st = AF_OK;
    for (int64_t i = 0; i < d->held_count; i++) {
        af_held_row *h = &d->held[i];
        d->loc = h->loc;
        d->file = h->source;
        d->dataset = h->dataset;
        if (st == AF_OK && !d->ended)
            st = emit_one(d, &h->row, h->prompt, false);
        held_row_clear(h);
    }
    d->held_count = d->unpaired = 0;
    d->loc = loc;
    d->file = file;
    d->dataset = dataset;
    return st;
}

static af_status copy_row(af_row *out, const af_row *r, af_error *err)
{
    const af_encoding e = {.ids = r->ids, .count = r->count};
    const af_status st = af_row_append(out, &e, true, err);
    if (st != AF_OK)
        return st;
    memcpy(out->labels, r->labels, (uint64_t)r->count * sizeof *r->labels);
    out->cut = r->cut;
    out->lost_end = r->lost_end;
    out->len = r->len;
    out->text = r->text ? af_calloc(r->len + 1, 1) : NULL;
    if (r->text && !out->text)
        return af_fail_nomem(err, "a record", r->len);
    if (r->text)
        memcpy(out->text, r->text, r->len + 1);
    return AF_OK;
}

static af_status hold(af_record_reader *d, af_record_job *j)
{
    if (!d->held)
        d->held = af_calloc(AF_UNPAIR_BLOCK, sizeof *d->held);
    if (!d->held)
        return af_fail_nomem(d->err, "records", AF_UNPAIR_BLOCK * sizeof *d->held);
    af_held_row *h = &d->held[d->held_count++];
    *h = (af_held_row){
        .loc = d->loc, .source = d->file, .dataset = d->dataset, .prompt = j->prompt.tokens[1]};
    h->loc.file = h->file = af_strdup(d->loc.file);
    if (!h->file)
        return af_fail_nomem(d->err, "a record", strlen(d->loc.file) + 1);
    const af_status st = copy_row(&h->row, &j->row[1], d->err);
    if (st != AF_OK)
        return st;
    return ++d->unpaired == AF_UNPAIR_BLOCK ? af_pair_emit_held(d) : AF_OK;
}

/* --- texts with labels ----------------------------------------------------------------------- */

static af_status emit_text(af_record_reader *d, af_record_job *j)
{
    const int64_t limit = d->pipeline->o->sequence_len, n = j->row[0].count;
    af_data_counts *c = &d->warnings.counts;
    bool keep = true;
    af_status st = AF_OK;
    af_row *row = &j->row[0];
    int32_t *bits = af_calloc((uint64_t)j->item.targets, sizeof *bits);
    if (!bits)
        return af_fail_nomem(d->err, "labels", (uint64_t)j->item.targets * sizeof *bits);
    memcpy(bits, j->item.target, (uint64_t)j->item.targets * sizeof *bits);
    AF_TRY(af_record_reader_check_ids(d, row));
    if (n == 0)
        AF_TRY(af_source_loc_fail(&d->loc, d->err, "field \"%s\" has no token",
                                  d->source->field.text));
    if (d->mode != AF_READ_PREVIEW && limit > 0 && n > limit) {
        if (d->pipeline->o->excess == AF_EXCESS_ERROR)
            AF_TRY(fits(d, row, (int64_t[]){0}, 1, &keep)); /* the error */
        keep = d->pipeline->o->excess == AF_EXCESS_TRUNCATE;
        c->truncated += keep;
        c->dropped += !keep;
        row->count = limit;
    }
    if (d->mode != AF_READ_PREVIEW && keep)
        AF_TRY(filter(d, row, 1, j->item.target, j->item.targets, &keep));
    const af_pair_row pair = {
        .first = row->ids, .first_len = row->count, .second = bits, .second_len = j->item.targets};
    const af_example e = {.file = d->loc.file,
                          .source = d->file,
                          .dataset = d->dataset,
                          .line = d->loc.line,
                          .record = d->loc.number,
                          .shape = AF_SHAPE_CLASSES,
                          .rows = 1,
                          .row = row,
                          .target = j->item.target,
                          .targets = j->item.targets,
                          .pair = &pair};
    if (keep)
        af_record_reader_count(d, &e);
    if (keep)
        AF_TRY(af_record_reader_emit(d, &e));
done:
    row->count = n; /* the record may be taken again */
    free(bits);
    return st;
}

/* --- all ------------------------------------------------------------------------------------- */

af_status af_pair_emit(af_record_reader *d, af_record_job *j)
{
    af_status st = AF_OK;
    bool keep = true;
    const af_item *item = &j->item;
    if (d->pipeline->o->rl == AF_RL_LABELS)
        return emit_text(d, j);
    AF_TRY(check_pair(d, j));
    if (d->pipeline->o->rl == AF_RL_KTO) {
        const bool pair = item->conversations == 2;
        AF_TRY(emit_one(d, &j->row[0], j->prompt.tokens[0], pair || item->label));
        if (pair && !d->ended)
            AF_TRY(hold(d, j));
        return AF_OK;
    }
    if (d->mode != AF_READ_PREVIEW)
        AF_TRY(fits(d, j->row, j->prompt.tokens, 2, &keep));
    if (d->mode != AF_READ_PREVIEW && keep)
        AF_TRY(filter(d, j->row, 2, &item->margin, 1, &keep));
    if (keep)
        AF_TRY(emit(d, item, j->row, j->prompt.tokens, 2, false));
done:
    return st;
}
