/* walk.c - see walk.h. */
#define _GNU_SOURCE /* clock_gettime */
#include "data/store/dataset_reader.h"

#include "base/log.h"
#include "base/pool.h"
#include "data/read/records.h"

#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Files of a folder that are not read are named by their number, once. */
static void say_held_out(const af_data_source *s, const char *run_path)
{
    char **files = NULL;
    int n = 0, held_out = 0;
    if (af_data_source_files(s, run_path, &files, &n, &held_out, NULL) == AF_OK && held_out)
        af_say(AF_LOG_WARN,
               "%s: %d of %d files are of other splits than train and left out; 'split' says "
               "which is meant",
               s->path, held_out, n + held_out);
    af_names_free(files, n);
}

af_status af_data_pipeline_open(af_data_pipeline *k, const af_data_opts *o, af_error *err)
{
    af_status st = AF_OK;
    *k = (af_data_pipeline){.o = o};
    AF_TRY(af_data_sources_read(&k->source, &k->sources, o, &k->mem, err));
    k->scribe = af_arena_take(&k->mem, (uint64_t)k->sources * sizeof *k->scribe);
    if (!k->scribe) {
        st = af_fail_nomem(err, "datasets", 0);
        goto done;
    }
    /* token ids need no tokenizer: that it is missing is said when it is needed */
    if (af_tokenizer_open(&k->tokenizer, o->model, &k->why) != AF_OK)
        k->tokenizer = NULL;
    for (int i = 0; i < k->sources; i++) {
        const char *given = k->source[i].chat_template;
        AF_TRY(af_renderer_init(&k->scribe[i], k->tokenizer, o->model,
                                given ? given : o->chat_template, err));
        say_held_out(&k->source[i], o->run_path);
    }
done:
    if (st != AF_OK)
        af_data_pipeline_close(k);
    return st;
}

void af_data_pipeline_close(af_data_pipeline *k)
{
    for (int i = 0; k->scribe && i < k->sources; i++)
        af_renderer_clear(&k->scribe[i]);
    af_tokenizer_close(k->tokenizer);
    af_arena_clear(&k->mem);
    *k = (af_data_pipeline){0};
}

enum {
    BATCH = 64,           /* records made ready at once, for each thread */
    BATCH_BYTES = 1 << 22 /* of their text, about */
};

/* A record on its way: any thread may make it ready, one hands it out in order. */
typedef struct job {
    json_t *record;
    af_source_loc place; /* with notes below */
    af_notes notes;
    af_item item;
    af_row row[2];
    double convert;
    af_status st;
    af_error err;
} job;

typedef struct walk {
    af_data_pipeline *k;
    af_read_mode mode;
    af_example_fn *emit;
    void *user;
    af_notes notes;
    af_read_times times;
    af_data_source *source;
    af_renderer *scribe;
    af_source_loc place;
    int file;        /* number over all datasets */
    bool tools_said; /* for this dataset */
    bool ended;
    af_pool *pool;
    af_renderer *hand; /* [threads]: copies of scribe with their own scratch */
    job *jobs;         /* [BATCH * threads] */
    int64_t waiting;   /* of them */
    af_row text;       /* plain text: tokens not yet handed out */
    int64_t text_line;
    af_error *err;
} walk;

/* --- one row -----------------------------------------------------------------------------------
 */

static int64_t supervised(const af_row *r)
{
    int64_t n = 0;
    for (int64_t i = 1; i < r->count; i++) /* nothing predicts the first token */
        n += r->labels[i] != -100;
    return n;
}

static af_status check_ids(walk *w, const af_row *r)
{
    const int64_t vocab = w->k->o->vocab;
    for (int64_t i = 0; vocab > 0 && i < r->count; i++)
        if (r->ids[i] >= vocab)
            return af_source_loc_fail(&w->place, w->err,
                                      "token id %" PRId32 ", but the model has %" PRId64 " tokens",
                                      r->ids[i], vocab);
    const int32_t bos = w->k->tokenizer ? af_tokenizer_bos(w->k->tokenizer) : -1;
    if (bos >= 0 && r->count > 1 && r->ids[0] == bos && r->ids[1] == bos) {
        w->notes.counts.double_bos++;
        af_note(&w->place, AF_NOTE_DOUBLE_BOS, "the text begins with the BOS token twice");
    }
    int64_t last = r->count;
    while (last > 1 && r->labels[last - 1] == -100)
        last--;
    if (last > 1 && !af_renderer_is_eot(w->scribe, r->ids[last - 1]) &&
        w->source->train_on_eos != AF_TRAIN_EOS_NONE &&
        !(w->scribe->chat && af_template_marks_generation(w->scribe->chat)))
        w->notes.counts.missing_eot++;
    return AF_OK;
}

/* Cuts to sequence_len. *keep is false when nothing worth training is left. */
static af_status fit(walk *w, af_row *r, bool *keep)
{
    const int64_t limit = w->k->o->sequence_len;
    af_data_counts *c = &w->notes.counts;
    *keep = true;
    if (r->count > limit && limit > 0) {
        if (w->k->o->excess == AF_EXCESS_ERROR)
            return af_source_loc_fail(&w->place, w->err,
                                      "%" PRId64 " tokens, but sequence_len is %" PRId64
                                      " and excess_length_strategy is error",
                                      r->count, limit);
        if (w->k->o->excess == AF_EXCESS_DROP) {
            c->dropped++;
            *keep = false;
            return AF_OK;
        }
        bool lost = false;
        for (int64_t i = limit; i < r->count && !lost; i++)
            lost = r->labels[i] != -100 && af_renderer_is_eot(w->scribe, r->ids[i]);
        c->truncated++;
        c->lost_eot += lost;
        r->count = limit;
    }
    if (supervised(r) == 0) {
        c->nothing_to_learn++;
        af_note(&w->place, AF_NOTE_NOTHING, "no token carries loss; record skipped");
        *keep = false;
    }
    return AF_OK;
}

static void count_rows(walk *w, const af_example *e)
{
    af_data_counts *c = &w->notes.counts;
    c->records++;
    c->of_text += e->shape == AF_SHAPE_TEXT;
    c->of_tokens += e->shape == AF_SHAPE_TOKENS;
    c->of_segments += e->shape == AF_SHAPE_SEGMENTS;
    for (int i = 0; i < e->rows; i++) {
        c->tokens += e->row[i].count;
        c->supervised += supervised(&e->row[i]);
    }
}

static af_status hand_out(walk *w, const af_example *e)
{
    if (!w->emit)
        return AF_OK;
    const double began = now();
    const af_status st = w->emit(w->user, e, w->err);
    w->times.emit += now() - began;
    if (st != AF_ESTOPPED)
        return st;
    w->ended = true;
    return AF_OK;
}

static af_status rows_out(walk *w, const af_item *item, af_row *row)
{
    af_status st = AF_OK;
    bool keep = true;
    char *prompt = NULL;
    af_example e = {.file = w->place.file,
                    .source = w->file,
                    .line = w->place.line,
                    .record = w->place.number,
                    .shape = w->source->shape,
                    .rows = item->talks,
                    .row = row,
                    .label = item->label};
    for (int i = 0; i < item->talks; i++) {
        AF_TRY(check_ids(w, &row[i]));
        if (w->mode != AF_READ_PREVIEW)
            AF_TRY(fit(w, &row[i], &keep));
        if (!keep)
            goto done;
    }
    count_rows(w, &e);
    if (item->prompt_text) {
        e.prompt = json_string_value(item->prompt_text);
        e.prompt_len = json_string_length(item->prompt_text);
    } else if (item->prompt && w->mode == AF_READ_PREVIEW) {
        AF_TRY(af_renderer_prompt(w->scribe, &prompt, &e.prompt_len, &item->talk[0],
                                  json_array_size(item->prompt), w->err));
        e.prompt = prompt;
    }
    AF_TRY(hand_out(w, &e));
done:
    free(prompt);
    return st;
}

/* --- one record --------------------------------------------------------------------------------
 */

static bool calls_tools(const af_conversation *t)
{
    for (size_t i = 0; i < json_array_size(t->messages); i++)
        if (json_array_size(json_object_get(json_array_get(t->messages, i), "tool_calls")) > 0)
            return true;
    return false;
}

static void warn_of_tools(walk *w, const af_conversation *t)
{
    const af_template *chat = w->scribe->chat;
    if (t->kind != AF_CONVERSATION_CHAT || w->tools_said || !chat)
        return;
    const bool tools = json_array_size(t->tools) > 0 && !af_template_mentions(chat, "tools");
    const bool calls = calls_tools(t) && !af_template_mentions(chat, "tool_calls");
    if (!tools && !calls)
        return;
    w->tools_said = true;
    af_note(&w->place, AF_NOTE_TOOLS, "the chat template never reads \"%s\": %s left out",
            tools ? "tools" : "tool_calls",
            tools && calls ? "tools and tool calls are" : "they are");
}

/* Shape, rendering, tokens. Touches nothing of the walk but what is constant. */
static af_status prepare(const walk *w, af_renderer *scribe, job *j)
{
    af_status st = AF_OK;
    const double began = now();
    AF_TRY(af_shape_item(&j->item, w->source, j->record, &j->place, &j->err));
    j->convert = now() - began;
    if (j->item.talks && !w->k->tokenizer && j->item.talk[0].kind != AF_CONVERSATION_TOKENS)
        return af_fail(&j->err, AF_EUSAGE, "the dataset %s needs a tokenizer: %s", j->place.file,
                       w->k->why.msg);
    for (int i = 0; i < j->item.talks; i++) {
        st = af_renderer_row(scribe, &j->row[i], &j->item.talk[i], w->source, &j->err);
        if (st != AF_OK && st != AF_ENOMEM)
            af_fail_prefix(st, &j->err, "%s:%" PRId64, j->place.file, j->place.line);
        if (st != AF_OK)
            goto done;
    }
done:
    return st;
}

static void prepare_share(void *arg, int64_t from, int64_t to, int share)
{
    walk *w = arg;
    for (int64_t i = from; i < to; i++)
        w->jobs[i].st = prepare(w, &w->hand[share], &w->jobs[i]);
}

static void job_clear(job *j)
{
    json_decref(j->record);
    af_item_clear(&j->item);
    af_row_clear(&j->row[0]);
    af_row_clear(&j->row[1]);
    af_buf_clear(&j->notes.held);
    *j = (job){0};
}

static af_status deliver(walk *w, job *j)
{
    w->place = j->place;
    w->place.notes = &w->notes;
    w->times.convert += j->convert;
    af_notes_join(&w->place, &j->notes);
    if (j->st != AF_OK)
        return af_fail(w->err, j->st, "%s", j->err.msg);
    for (int i = 0; i < j->item.talks; i++)
        warn_of_tools(w, &j->item.talk[i]);
    return j->item.talks ? rows_out(w, &j->item, j->row) : AF_OK;
}

static af_status refuse_untrainable(const walk *w)
{
    if (w->mode != AF_READ_TRAIN ||
        (w->source->shape != AF_SHAPE_PREFERENCE && w->source->shape != AF_SHAPE_KTO))
        return AF_OK;
    return af_fail(w->err, AF_EUNSUPPORTED,
                   "%s: records of shape %s are for preference training, which this build does "
                   "not have; 'afinar data preview' shows them",
                   w->place.file, af_shape_name(w->source->shape));
}

/* Behind a faulty record the next one is still worth checking. */
static af_status checked_delivery(walk *w, job *j)
{
    af_error why = {0}, *outer = w->err;
    if (w->mode != AF_READ_CHECK || !w->k->fault)
        return deliver(w, j);
    w->err = &why;
    const af_status st = deliver(w, j);
    w->err = outer;
    if (st == AF_OK)
        return AF_OK;
    if (st != AF_EFORMAT || ++w->notes.counts.errors >= AF_FAULTS_MAX)
        return af_fail(outer, st, "%s", why.msg);
    w->k->fault(w->k->fault_user, why.msg);
    return AF_OK;
}

/* Makes the waiting records ready and hands them out in order. */
static af_status run_batch(walk *w)
{
    af_status st = AF_OK;
    af_pool_run(w->pool, w->waiting, prepare_share, w);
    for (int64_t i = 0; i < w->waiting; i++) {
        if (st == AF_OK && !w->ended)
            st = checked_delivery(w, &w->jobs[i]);
        job_clear(&w->jobs[i]);
    }
    w->waiting = 0;
    return st;
}

/* Takes a record over. The first of a file says what shape the others have. */
static af_status add_job(walk *w, af_record *rec)
{
    af_status st = AF_OK;
    w->place.line = rec->line;
    w->place.number = rec->number;
    if (rec->number == 1) {
        if (!w->source->shape_given)
            w->source->shape = AF_SHAPE_AUTO;
        AF_TRY(af_shape_detect(w->source, rec->json, &w->place, w->err));
        AF_TRY(refuse_untrainable(w));
    }
    job *j = &w->jobs[w->waiting++];
    *j = (job){.record = rec->json, .place = w->place, .notes = {.hold = true}};
    j->place.notes = &j->notes;
    rec->json = NULL;
done:
    return st;
}

/* Reads as many records as are made ready together. A fault of the file comes after the records
 * before it. */
static af_status one_batch(walk *w, af_records *r, int64_t most, int64_t *records, bool *end)
{
    af_status st = AF_OK;
    af_error why = {0}, *outer = w->err;
    uint64_t bytes = 0;
    w->err = &why;
    while (st == AF_OK && w->waiting < most && bytes < BATCH_BYTES && !*end) {
        af_record rec = {0};
        const double began = now();
        st = af_records_next(r, &rec, w->err);
        w->times.read += now() - began;
        bytes += rec.bytes;
        *end = st != AF_OK || !rec.json;
        *records += rec.json != NULL;
        if (rec.json)
            st = add_job(w, &rec);
        json_decref(rec.json);
    }
    w->err = outer;
    const af_status delivered = run_batch(w);
    if (delivered != AF_OK)
        return delivered;
    return st == AF_OK || w->ended ? AF_OK : af_fail(outer, st, "%s", why.msg);
}

/* --- plain text --------------------------------------------------------------------------------
 */

/* Hands out the first n tokens of w->text. */
static af_status text_window(walk *w, int64_t n)
{
    af_row r = {.ids = w->text.ids, .labels = w->text.labels, .count = n};
    af_status st = AF_OK;
    w->place.number++;
    w->place.line = w->text_line;
    if (w->mode == AF_READ_PREVIEW)
        AF_TRY(af_tokenizer_decode(w->k->tokenizer, &r.text, &r.len, r.ids, n, false, w->err));
    AF_TRY(check_ids(w, &r));
    const af_example e = {.file = w->place.file,
                          .source = w->file,
                          .line = w->place.line,
                          .record = w->place.number,
                          .shape = AF_SHAPE_TEXT,
                          .rows = 1,
                          .row = &r};
    count_rows(w, &e);
    AF_TRY(hand_out(w, &e));
    w->text.count -= n;
    memmove(w->text.ids, w->text.ids + n, (uint64_t)w->text.count * sizeof *w->text.ids);
    memmove(w->text.labels, w->text.labels + n, (uint64_t)w->text.count * sizeof *w->text.labels);
done:
    free(r.text);
    return st;
}

/* A block of a text file: its tokens join those left over, whole windows are handed out. */
static af_status text_block(walk *w, const af_record *rec, bool first)
{
    af_status st = AF_OK;
    const json_t *text = json_object_get(rec->json, "text");
    const int64_t limit = w->k->o->sequence_len > 0 ? w->k->o->sequence_len : 2048;
    if (!w->k->tokenizer)
        return af_fail(w->err, AF_EUSAGE, "the dataset %s needs a tokenizer: %s", w->place.file,
                       w->k->why.msg);
    if (w->text.count == 0)
        w->text_line = rec->line;
    AF_TRY(af_renderer_append_text(w->scribe, &w->text, json_string_value(text),
                                   json_string_length(text), first, rec->last, w->source, w->err));
    while (w->text.count >= limit && !w->ended) {
        AF_TRY(text_window(w, limit));
        w->text_line = rec->line;
    }
    if (rec->last && w->text.count > 1 && !w->ended)
        AF_TRY(text_window(w, w->text.count));
    if (rec->last)
        w->text.count = 0;
done:
    return st;
}

/* --- files -------------------------------------------------------------------------------------
 */

static af_status text_file(walk *w, af_records *r, int64_t *records)
{
    const char *idle = af_data_source_idle_key(w->source, AF_SHAPE_TEXT);
    af_status st = AF_OK;
    if (idle)
        return af_fail(w->err, AF_EUSAGE, "%s: %s has no effect: the file is plain text",
                       w->place.file, idle);
    w->text.count = 0;
    while (st == AF_OK && !w->ended) {
        af_record rec = {0};
        const double began = now();
        st = af_records_next(r, &rec, w->err);
        w->times.read += now() - began;
        if (st != AF_OK || !rec.json)
            break;
        st = text_block(w, &rec, ++*records == 1);
        json_decref(rec.json);
    }
    return st;
}

static af_status one_file(walk *w, const char *path)
{
    af_status st = AF_OK;
    af_records *r = NULL;
    af_records_kind kind;
    int64_t records = 0;
    const int64_t most = w->mode == AF_READ_PREVIEW ? 1 : (int64_t)BATCH * af_pool_threads(w->pool);
    AF_TRY(af_records_kind_of(&kind, path, w->source->ds_type, w->err));
    AF_TRY(af_records_open(&r, path, kind, w->err));
    w->place = (af_source_loc){
        .file = path, .csv = kind == AF_RECORDS_CSV || kind == AF_RECORDS_TSV, .notes = &w->notes};
    if (kind == AF_RECORDS_TEXT && w->source->shape_given && w->source->shape != AF_SHAPE_TEXT) {
        st = af_fail(w->err, AF_EUSAGE, "%s: a text file cannot have records of shape %s", path,
                     af_shape_name(w->source->shape));
        goto done;
    }
    if (kind == AF_RECORDS_TEXT)
        AF_TRY(text_file(w, r, &records));
    for (bool end = kind == AF_RECORDS_TEXT; !end && !w->ended;)
        AF_TRY(one_batch(w, r, most, &records, &end));
    if (records == 0)
        st = af_fail(w->err, AF_EFORMAT, "%s: no records", path);
done:
    af_records_close(r);
    return st;
}

/* Each thread writes with a scribe of its own; they share what is constant. */
static void hands_open(walk *w)
{
    for (int i = 0; i < af_pool_threads(w->pool); i++) {
        w->hand[i] = *w->scribe;
        w->hand[i].encoding = (af_encoding){0};
        w->hand[i].times = (af_renderer_times){0};
    }
}

static void hands_close(walk *w)
{
    for (int i = 0; i < af_pool_threads(w->pool); i++) {
        w->times.render += w->hand[i].times.render;
        w->times.encode += w->hand[i].times.encode;
        af_encoding_clear(&w->hand[i].encoding);
    }
}

static af_status one_source(walk *w, int i)
{
    char **files = NULL;
    int n = 0, held_out;
    af_data_source *s = &w->k->source[i];
    const af_data_source before = *s; /* detection may rename a field */
    w->source = s;
    w->scribe = &w->k->scribe[i];
    w->scribe->want_text = w->mode == AF_READ_PREVIEW;
    w->scribe->times = (af_renderer_times){0};
    w->tools_said = false;
    hands_open(w);
    af_status st = af_data_source_files(s, w->k->o->run_path, &files, &n, &held_out, w->err);
    for (int f = 0; f < n && st == AF_OK && !w->ended; f++) {
        *s = before;
        st = one_file(w, files[f]);
        w->file++;
    }
    hands_close(w);
    w->times.render += w->scribe->times.render;
    w->times.encode += w->scribe->times.encode;
    *s = before;
    af_names_free(files, n);
    return st;
}

/* What no single record says. */
static void sum_up(walk *w)
{
    af_data_counts *c = &w->notes.counts;
    if (c->truncated) {
        c->warnings++;
        af_say(AF_LOG_WARN,
               "%" PRId64 " records are cut at sequence_len %" PRId64 "; %" PRId64
               " of them lose their end-of-turn token",
               c->truncated, w->k->o->sequence_len, c->lost_eot);
    }
    if (c->dropped) {
        c->warnings++;
        af_say(AF_LOG_WARN,
               "%" PRId64 " records are longer than sequence_len %" PRId64 " and dropped",
               c->dropped, w->k->o->sequence_len);
    }
}

af_status af_dataset_read(af_data_pipeline *k, af_read_mode mode, af_example_fn *emit, void *user,
                          af_data_counts *counts, af_read_times *times, af_error *err)
{
    walk w = {.k = k, .mode = mode, .emit = emit, .user = user, .err = err};
    af_status st = AF_OK;
    const double began = now();
    if (mode != AF_READ_PREVIEW && af_pool_new(&w.pool, 0, NULL) != AF_OK)
        w.pool = NULL; /* one thread does, too */
    const uint64_t threads = (uint64_t)af_pool_threads(w.pool);
    w.hand = af_calloc(threads, sizeof *w.hand);
    w.jobs = af_calloc(threads * BATCH, sizeof *w.jobs);
    if (!w.hand || !w.jobs)
        st = af_fail_nomem(err, "records", threads * BATCH * sizeof *w.jobs);
    for (int i = 0; i < k->sources && st == AF_OK && !w.ended; i++)
        st = one_source(&w, i);
    if (mode == AF_READ_CHECK)
        sum_up(&w);
    w.times.all = now() - began;
    af_row_clear(&w.text);
    free(w.hand);
    free(w.jobs);
    af_pool_free(w.pool);
    if (counts)
        *counts = w.notes.counts;
    if (times)
        *times = w.times;
    return st;
}
