/* uld_teacher.c - see uld_teacher.h. */
#include "train/uld/uld_teacher.h"

#include "format/tokenizer/token_bytes.h"

#include <stdlib.h>

/* ---- lists ---- */

static af_status grow(af_uld_tokens *t, int64_t more, af_error *err)
{
    if (t->n + more <= t->room)
        return AF_OK;
    const uint64_t room = (uint64_t)(t->n + more) * 2;
    int32_t *id = af_realloc(t->id, room, sizeof *id);
    t->id = id ? id : t->id;
    int64_t *row = af_realloc(t->row, room, sizeof *row);
    t->row = row ? row : t->row;
    int64_t *end = af_realloc(t->end, room, sizeof *end);
    t->end = end ? end : t->end;
    if (!id || !row || !end)
        return af_fail_nomem(err, "tokens", room * sizeof *row);
    t->room = (int64_t)room;
    return AF_OK;
}

static af_status add_token(af_uld_tokens *t, int32_t id, int64_t row, uint64_t end, af_error *err)
{
    const af_status st = grow(t, 1, err);
    if (st != AF_OK)
        return st;
    t->id[t->n] = id;
    t->row[t->n] = row;
    t->end[t->n++] = (int64_t)end;
    return AF_OK;
}

static af_status add_id(af_uld_teacher *u, int32_t id, af_error *err)
{
    if (u->count == u->ids_room) {
        const uint64_t room = (uint64_t)u->ids_room * 2 + 256;
        int32_t *ids = af_realloc(u->ids, room, sizeof *ids);
        if (!ids)
            return af_fail_nomem(err, "tokens", room * sizeof *ids);
        u->ids = ids;
        u->ids_room = (int64_t)room;
    }
    u->ids[u->count++] = id;
    return AF_OK;
}

static af_uld_side side_of(const af_uld_tokens *t, const float *logits, int64_t from)
{
    return (af_uld_side){.logits = logits,
                         .id = t->id + from,
                         .row = t->row + from,
                         .end = t->end + from,
                         .n = t->n - from};
}

/* ---- a record as the teacher reads it ---- */

/* What the teacher's tokenizer puts before every text. */
static af_status begin_row(af_uld_teacher *u, af_error *err)
{
    af_status st = AF_OK;
    u->count = u->student.n = u->teacher.n = u->groups = 0;
    AF_TRY(af_tokenizer_encode(u->other, &u->encoding, "", 0, true, err));
    for (int64_t i = 0; i < u->encoding.count; i++)
        if (u->encoding.ids[i] != af_tokenizer_eos(u->other))
            AF_TRY(add_id(u, u->encoding.ids[i], err));
done:
    return st;
}

/* A record that was cut may end inside a character. */
static uint64_t whole_characters(const char *text, uint64_t n)
{
    uint64_t tail = 0;
    while (tail < n && tail < 3 && ((unsigned char)text[n - 1 - tail] & 0xc0) == 0x80)
        tail++;
    if (tail == n)
        return n;
    const unsigned char lead = (unsigned char)text[n - 1 - tail];
    const uint64_t wants = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    return wants > tail + 1 ? n - 1 - tail : n;
}

/* Tokens of u->text; of an answer with the bytes they end at. */
static af_status add_text(af_uld_teacher *u, bool answer, af_error *err)
{
    af_status st = AF_OK;
    const int64_t from = u->teacher.n;
    const uint64_t len = u->text.len ? whole_characters(u->text.data, u->text.len) : 0;
    uint64_t end = 0;
    AF_TRY(af_tokenizer_encode(u->other, &u->encoding, len ? u->text.data : "", len, false, err));
    for (int64_t i = 0; i < u->encoding.count; i++) {
        const int32_t id = u->encoding.ids[i];
        AF_TRY(af_tokenizer_token_bytes(u->other, id, &u->token, err));
        end += u->token.len;
        if (answer)
            AF_TRY(add_token(&u->teacher, id, u->count - u->opts.bayesian, end, err));
        AF_TRY(add_id(u, id, err));
    }
    for (int64_t i = 0; answer && end != len && i < u->encoding.count; i++)
        u->teacher.end[from + i] = u->encoding.end[i]; /* it normalises texts */
done:
    return st;
}

/* Tokens [from, to) of the batch, all with or all without a label. */
static af_status add_part(af_uld_teacher *u, const af_batch *b, int64_t from, int64_t to,
                          bool answer, af_error *err)
{
    af_status st = AF_OK;
    const int32_t eos = af_tokenizer_eos(u->own), theirs = af_tokenizer_eos(u->other);
    const int64_t s = u->student.n, t = u->teacher.n;
    const bool ends = answer && b->ids[to - 1] == eos;
    u->text.len = 0;
    for (int64_t i = from; i < to - ends; i++) {
        AF_TRY(af_tokenizer_token_bytes(u->own, b->ids[i], &u->token, err));
        af_buf_add(&u->text, u->token.data, u->token.len);
        if (answer)
            AF_TRY(add_token(&u->student, b->ids[i], i - u->opts.bayesian, u->text.len, err));
    }
    if (u->text.bad)
        AF_TRY(af_fail_nomem(err, "a record", u->text.len));
    AF_TRY(add_text(u, answer, err));
    if (ends && !u->run->uld_skip_student_eos)
        AF_TRY(add_token(&u->student, eos, to - 1 - u->opts.bayesian, u->text.len, err));
    if (ends && theirs >= 0 && !u->run->uld_skip_teacher_eos)
        AF_TRY(add_token(&u->teacher, theirs, u->count - u->opts.bayesian, u->text.len, err));
    if (ends && theirs >= 0)
        AF_TRY(add_id(u, theirs, err));
    if (!answer)
        goto done;
    const af_uld_side mine = side_of(&u->student, NULL, s), other = side_of(&u->teacher, NULL, t);
    const int64_t n = af_uld_align(&u->opts, &mine, &other, u->group + u->groups);
    for (int64_t i = u->groups; i < u->groups + n; i++) {
        u->group[i].student_from += s;
        u->group[i].student_to += s;
        u->group[i].teacher_from += t;
        u->group[i].teacher_to += t;
    }
    u->groups += n;
done:
    return st;
}

static bool is_answer(const af_batch *b, int64_t first, int64_t i)
{
    return i > first && b->labels[i - 1] != -100;
}

static af_status read_record(af_uld_teacher *u, const af_batch *b, int64_t first, int64_t end,
                             af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(begin_row(u, err));
    int64_t from = first + (b->ids[first] == af_tokenizer_bos(u->own));
    while (from < end) {
        const bool answer = is_answer(b, first, from);
        int64_t to = from;
        while (to < end && is_answer(b, first, to) == answer)
            to++;
        AF_TRY(add_part(u, b, from, to, answer, err));
        from = to;
    }
done:
    return st;
}

/* ---- losses ---- */

static af_status run_teacher(af_uld_teacher *u, af_error *err)
{
    if (u->count > u->theirs_room) {
        free(u->theirs);
        u->theirs_room = 0;
        u->theirs = af_calloc((uint64_t)u->count * (uint64_t)u->opts.W, sizeof *u->theirs);
        if (!u->theirs)
            return af_fail_nomem(err, "the teacher's logits", (uint64_t)(u->count * u->opts.W) * 4);
        u->theirs_room = u->count;
    }
    return af_model_logits_of(u->model, u->ids, u->count, u->theirs, err);
}

static af_status record_loss(af_uld_teacher *u, const af_batch *b, int64_t k, double share,
                             double *loss, af_error *err)
{
    af_status st = AF_OK;
    *loss = 0;
    AF_TRY(read_record(u, b, b->bounds[k], b->bounds[k + 1], err));
    if (!u->groups)
        return AF_OK;
    AF_TRY(run_teacher(u, err));
    const af_uld_side mine = side_of(&u->student, u->logits, 0),
                      other = side_of(&u->teacher, u->theirs, 0);
    st = af_uld_loss(u->work, &mine, &other, u->group, u->groups, share, u->grad, loss, NULL, err);
done:
    return st;
}

af_status af_uld_teacher_batch(af_uld_teacher *u, const af_batch *b, double share, double *loss,
                               af_error *err)
{
    *loss = 0;
    memset(u->grad, 0, (size_t)(u->rows * u->opts.V) * sizeof *u->grad);
    for (int64_t k = 0; k < b->sequences; k++) {
        double one;
        const af_status st = record_loss(u, b, k, share, &one, err);
        if (st != AF_OK)
            return af_fail_prefix(st, err, "the teacher, record %" PRId64, b->record[k] + 1);
        *loss += one;
    }
    return AF_OK;
}

/* ---- opening ---- */

/* Tokens that both vocabularies spell alike. */
static af_status find_matches(af_uld_teacher *u, af_error *err)
{
    const af_run_config *r = u->run;
    int64_t found = 0;
    u->match = af_calloc((uint64_t)u->opts.W, sizeof *u->match);
    if (!u->match)
        return af_fail_nomem(err, "a vocabulary", (uint64_t)u->opts.W * sizeof *u->match);
    for (int64_t i = 0; i < u->opts.W; i++) {
        uint64_t len = 0;
        const char *text = af_tokenizer_token(u->other, (int32_t)i, &len);
        const int32_t id = text ? af_tokenizer_id(u->own, text, len) : -1;
        u->match[i] = id < u->opts.V ? id : -1;
        found += u->match[i] >= 0;
    }
    u->opts.match = u->match;
    const double share = (double)found / (double)u->opts.W;
    u->opts.matched = r->uld_matched >= 0 ? r->uld_matched : share;
    u->opts.unmatched = r->uld_matched >= 0 ? r->uld_unmatched : 1 - share;
    return AF_OK;
}

static af_status open_model(af_uld_teacher *u, const af_run_model *m, af_error *err)
{
    const af_run_config *r = u->run;
    const af_model_opts o = {.device = r->device,
                             .threads = (int)r->threads,
                             .compute =
                                 m->compute == AF_DTYPE_F32 ? AF_COMPUTE_F32 : AF_COMPUTE_BF16,
                             .load_in_4bit = r->teacher_load_in_4bit,
                             .adapter = {r->teacher_adapter},
                             .adapter_weight = {1},
                             .adapters = r->teacher_adapter != NULL};
    af_status st = AF_OK;
    char *path = NULL, at[300];
    AF_TRY(af_model_resolve_whole(&path, r->teacher_model, err));
    AF_TRY(af_model_open(&u->model, path, &o, err));
    AF_TRY(af_model_tokenizer(u->model, &u->other, err));
    st = af_tokenizer_open(&u->own, m->texts, err);
done:
    free(path);
    return st == AF_OK
               ? st
               : af_fail_prefix(st, err, "%s", af_run_key_loc(r, "teacher_model", at, sizeof at));
}

af_status af_uld_teacher_open(af_uld_teacher *u, const af_run_model *m, int64_t rows, af_error *err)
{
    const af_run_config *r = m->run;
    af_status st = AF_OK;
    *u = (af_uld_teacher){.run = r, .rows = rows};
    AF_TRY(open_model(u, m, err));
    u->opts = (af_uld_opts){.student_temperature = r->uld_student_temperature,
                            .teacher_temperature = r->uld_teacher_temperature,
                            .beta = af_run_key_is_set(r, "kd_beta") ? r->kd_beta : 0.5, /* GOLD's */
                            .bayesian = r->uld_merge == AF_ULD_BAYESIAN,
                            .extended = r->uld_extended,
                            .hybrid = r->uld_hybrid,
                            .V = m->spec->vocab,
                            .W = af_model_vocab(u->model)};
    if (u->opts.hybrid)
        AF_TRY(find_matches(u, err));
    AF_TRY(af_uld_work_new(&u->work, &u->opts, (int)r->threads, err));
    const uint64_t n = (uint64_t)rows * (uint64_t)u->opts.V;
    u->logits = af_calloc(n, sizeof *u->logits);
    u->grad = af_calloc(n, sizeof *u->grad);
    u->group = af_calloc((uint64_t)rows, sizeof *u->group);
    if (!u->logits || !u->grad || !u->group)
        st = af_fail_nomem(err, "logits", n * sizeof *u->logits);
done:
    return st;
}

static void clear_tokens(af_uld_tokens *t)
{
    free(t->id);
    free(t->row);
    free(t->end);
}

void af_uld_teacher_close(af_uld_teacher *u)
{
    af_uld_work_free(u->work);
    af_model_close(u->model);
    af_tokenizer_close(u->own);
    free(u->match);
    free(u->logits);
    free(u->grad);
    free(u->theirs);
    free(u->ids);
    free(u->group);
    clear_tokens(&u->student);
    clear_tokens(&u->teacher);
    af_buf_clear(&u->text);
    af_buf_clear(&u->token);
    af_encoding_clear(&u->encoding);
    *u = (af_uld_teacher){0};
}
