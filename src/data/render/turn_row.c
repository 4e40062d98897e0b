/* turn_row.c - a conversation in a turn template: turn by turn, each piece tokenised by itself, cut
 * as LLaMA-Factory cuts, so that every turn keeps a share of its prompt and of its answer. */
#define _GNU_SOURCE /* memmem */
#include "base/buf.h"
#include "data/render/renderer.h"
#include "data/render/turn_tools.h"

typedef struct turn_pair {
    af_row source, target;
    int64_t keep[2]; /* tokens of both that are taken */
    bool train;
} turn_pair;

typedef struct turn_work {
    af_renderer *s;
    const af_turn_template *t;
    const af_conversation *conversation;
    const char *system; /* NULL = none */
    uint64_t system_len;
    af_buf with_tools; /* the system text and what it says of tools */
    size_t first;      /* message of the first turn */
    turn_pair *pair;
    int64_t pairs;
    int32_t eos;
    af_error *err;
} turn_work;

static int32_t turn_eos(const af_renderer *s)
{
    const char *stop = s->turns->stop;
    const int32_t id = stop ? af_tokenizer_id(s->tokenizer, stop, strlen(stop)) : -1;
    return id >= 0 ? id : af_tokenizer_eos(s->tokenizer);
}

const char *af_renderer_text_end(const af_renderer *s)
{
    const char *stop = s->turns && s->turns->flags & AF_TURNS_STOPS ? s->turns->stop : NULL;
    if (s->turns && strcmp(s->turns_name, "llama3") == 0)
        stop = "<|end_of_text|>";
    return stop && af_tokenizer_id(s->tokenizer, stop, strlen(stop)) >= 0
               ? stop
               : af_tokenizer_eos_text(s->tokenizer);
}

/* The tokens of a string, after those of the row. */
static af_status put_text(const turn_work *w, af_row *out, const char *text, uint64_t len)
{
    if (len == 0)
        return AF_OK;
    const af_status st = af_renderer_encode(w->s, text, len, false, w->err);
    return st == AF_OK ? af_row_append(out, &w->s->encoding, false, w->err) : st;
}

static af_status put_piece(const turn_work *w, af_row *out, const char *piece, const char *text,
                           uint64_t len)
{
    af_status st = AF_OK;
    af_buf b = {0};
    for (const char *at = piece; st == AF_OK; at++) {
        if (*at == AF_TURNS_TEXT) {
            af_buf_add(&b, text, len);
            continue;
        }
        if (*at && *at != AF_TURNS_BOS && *at != AF_TURNS_EOS && *at != AF_TURNS_APART) {
            af_buf_char(&b, *at);
            continue;
        }
        if (b.bad)
            AF_TRY(af_fail_nomem(w->err, "a turn", len));
        AF_TRY(put_text(w, out, b.data ? b.data : "", b.len));
        b.len = 0;
        const int32_t id = *at == AF_TURNS_BOS   ? af_tokenizer_bos(w->s->tokenizer)
                           : *at == AF_TURNS_EOS ? w->eos
                                                 : -1;
        if (id >= 0)
            AF_TRY(af_row_add(out, id, false, w->err));
        if (!*at)
            break;
    }
done:
    af_buf_clear(&b);
    return st;
}

/* --- thoughts -------------------------------------------------------------------------------- */

/* Appends the text without its thoughts, and without the line ends before what is left. */
static void drop_thoughts(const turn_work *w, af_buf *out, const char *text, uint64_t len)
{
    const char *open = af_turn_template_think(w->t, 0), *close = af_turn_template_think(w->t, 1);
    af_buf b = {0};
    while (len) {
        const char *from = memmem(text, len, open, strlen(open));
        const uint64_t before = from ? (uint64_t)(from - text) : len;
        const char *inside = from ? from + strlen(open) : NULL;
        const char *to =
            from ? memmem(inside, len - before - strlen(open), close, strlen(close)) : NULL;
        af_buf_add(&b, text, to ? before : len);
        if (!to)
            break;
        len -= (uint64_t)(to - text) + strlen(close);
        text = to + strlen(close);
    }
    uint64_t skip = 0;
    while (skip < b.len && b.data[skip] == '\n')
        skip++;
    af_buf_add(out, b.data ? b.data + skip : "", b.len - skip);
    out->bad |= b.bad;
    af_buf_clear(&b);
}

/* Whether a text has the word, blanks around that not counted. */
static bool has_word(const char *text, uint64_t len, const char *word)
{
    uint64_t n = strlen(word);
    while (n && strchr(" \n", word[n - 1]))
        n--;
    while (n && strchr(" \n", *word)) {
        word++;
        n--;
    }
    return memmem(text, len, word, n) != NULL;
}

/* An answer without a thought gets an empty one: a part of the answer, or of the prompt when
 * thinking is off. */
static af_status add_empty_thought(const turn_work *w, turn_pair *p, const char *text, uint64_t len)
{
    af_status st = AF_OK;
    af_row thought = {0};
    const char *open = af_turn_template_think(w->t, 0), *close = af_turn_template_think(w->t, 1);
    char words[400];
    if (has_word(text, len, open) || has_word(text, len, close))
        return AF_OK;
    snprintf(words, sizeof words, "%s%s", w->t->flags & AF_TURNS_CLOSES ? "" : open, close);
    if (w->s->no_thinking)
        return put_text(w, &p->source, words, strlen(words));
    AF_TRY(put_text(w, &thought, words, strlen(words)));
    for (int64_t i = 0; i < p->target.count; i++)
        AF_TRY(af_row_add(&thought, p->target.ids[i], false, w->err));
    af_row_clear(&p->target);
    p->target = thought;
    thought = (af_row){0};
done:
    af_row_clear(&thought);
    return st;
}

/* --- turns ----------------------------------------------------------------------------------- */

static const json_t *message(const turn_work *w, size_t i)
{
    return json_array_get(w->conversation->messages, i);
}

static const char *role_at(const turn_work *w, size_t i)
{
    return json_string_value(json_object_get(message(w, i), "role"));
}

static bool is_role(const turn_work *w, size_t i, const char *role)
{
    return strcmp(role_at(w, i), role) == 0;
}

static const json_t *calls_at(const turn_work *w, size_t i)
{
    const json_t *calls = json_object_get(message(w, i), "tool_calls");
    return json_array_size(calls) ? calls : NULL;
}

static af_status content_at(const turn_work *w, size_t i, const char **text, uint64_t *len)
{
    const json_t *m = message(w, i), *c = json_object_get(m, "content");
    const bool calls = calls_at(w, i) && af_turn_tools_of(w->s->turns_name);
    if (calls && (!c || json_is_null(c))) {
        *text = "";
        *len = 0;
        return AF_OK;
    }
    if (!json_is_string(c) || (calls_at(w, i) && !calls))
        return af_fail(w->err, AF_EUNSUPPORTED,
                       "message %zu: tool calls and contents in parts are not supported with "
                       "'template: %s'; 'chat_template: tokenizer_default' has them",
                       i + 1, w->s->turns_name);
    *text = json_string_value(c);
    *len = json_string_length(c);
    return AF_OK;
}

/* Turns of a user (or a tool) and an assistant, one after the other. */
static bool alternates(const turn_work *w)
{
    const size_t n = json_array_size(w->conversation->messages);
    if (n == w->first || (n - w->first) % 2)
        return false;
    for (size_t i = w->first; i < n; i++) {
        const bool asks = is_role(w, i, "user") || is_role(w, i, "tool");
        if ((i - w->first) % 2 == 0 ? !asks : !is_role(w, i, "assistant"))
            return false;
    }
    return true;
}

static af_status encode_source(const turn_work *w, int64_t k)
{
    const size_t i = w->first + 2 * (size_t)k;
    turn_pair *p = &w->pair[k];
    const char *text, *piece = is_role(w, i, "tool") && w->t->tool ? w->t->tool : w->t->user;
    uint64_t len;
    const bool folds = w->t->flags & AF_TURNS_FOLDS;
    af_buf b = {0};
    af_status st = AF_OK;
    AF_TRY(content_at(w, i, &text, &len));
    if (k == 0 && w->t->prefix)
        AF_TRY(put_piece(w, &p->source, w->t->prefix, "", 0));
    if (k == 0 && w->system && !folds)
        AF_TRY(put_piece(w, &p->source, w->t->system, w->system, w->system_len));
    for (const char *at = k == 0 && w->system && folds ? w->t->system : ""; *at; at++) {
        const bool here = *at == AF_TURNS_TEXT;
        af_buf_add(&b, here ? w->system : at, here ? w->system_len : 1);
    }
    af_buf_add(&b, text, len);
    if (b.bad)
        AF_TRY(af_fail_nomem(w->err, "a turn", len));
    AF_TRY(put_piece(w, &p->source, piece, b.data ? b.data : "", b.len));
done:
    af_buf_clear(&b);
    return st;
}

static af_status encode_target(const turn_work *w, int64_t k)
{
    const size_t i = w->first + 2 * (size_t)k + 1;
    turn_pair *p = &w->pair[k];
    const char *text;
    uint64_t len;
    af_buf b = {0};
    af_status st = AF_OK;
    const bool thinks = w->t->flags & AF_TURNS_THINKS;
    const bool old = w->s->mask_history && k + 1 < w->pairs;
    AF_TRY(content_at(w, i, &text, &len));
    if (thinks && (w->s->no_thinking || old))
        drop_thoughts(w, &b, text, len);
    else
        af_buf_add(&b, text, len);
    if (calls_at(w, i) &&
        !af_turn_calls_put(&b, af_turn_tools_of(w->s->turns_name), calls_at(w, i)))
        AF_TRY(af_fail(
            w->err, AF_EFORMAT,
            "message %zu: a call has no name or no arguments, or 'template: %s' cannot write "
            "the calls of this message",
            i + 1, w->s->turns_name));
    if (b.bad)
        AF_TRY(af_fail_nomem(w->err, "a turn", len));
    const char *piece =
        calls_at(w, i) ? af_turn_calls_piece(w->s->turns_name, w->t->answer) : w->t->answer;
    AF_TRY(put_piece(w, &p->target, piece, b.data ? b.data : "", b.len));
    if (thinks && !old)
        AF_TRY(add_empty_thought(w, p, b.data ? b.data : "", b.len));
done:
    af_buf_clear(&b);
    return st;
}

/* --- lengths --------------------------------------------------------------------------------- */

/* What is kept of a prompt and its answer: the shorter one whole, if it is short. */
static void share(turn_pair *p, int64_t limit)
{
    const int64_t n = p->source.count, m = p->target.count;
    int64_t most = (int64_t)((double)limit * ((double)m / (double)AF_MAX(n + m, 1)));
    if (m * 2 < limit)
        most = limit;
    else if (n * 2 < limit)
        most = limit - n;
    p->keep[1] = AF_MIN(most, m);
    p->keep[0] = AF_MIN(AF_MAX(limit - p->keep[1], 0), n);
}

/* The pairs that fit: the first ones, or the last ones when only the last is trained. */
static void choose(turn_work *w, int64_t *from, int64_t *to)
{
    const int64_t limit = w->s->cutoff > 0 ? w->s->cutoff : INT64_MAX / 8;
    int64_t total = w->t->flags & AF_TURNS_ENDS ? 1 : 0, taken = 0;
    for (; taken < w->pairs && total < limit; taken++) {
        turn_pair *p = &w->pair[w->s->mask_history ? w->pairs - 1 - taken : taken];
        share(p, limit - total);
        total += p->keep[0] + p->keep[1];
    }
    *from = w->s->mask_history ? w->pairs - taken : 0;
    *to = *from + taken;
}

static af_status join(turn_work *w, af_row *out, const af_data_source *source)
{
    int64_t from, to;
    af_status st = AF_OK;
    choose(w, &from, &to);
    out->cut = to - from < w->pairs;
    out->lost_end = to < w->pairs;
    for (int64_t k = from; k < to; k++) {
        const turn_pair *p = &w->pair[k];
        out->lost_end |= p->keep[1] < p->target.count;
        out->cut |= p->keep[0] < p->source.count || p->keep[1] < p->target.count;
        const bool learn = p->train && !(w->s->mask_history && k + 1 < w->pairs);
        for (int64_t i = 0; i < p->keep[0]; i++)
            AF_TRY(af_row_add(out, p->source.ids[i], source->train_on_inputs, w->err));
        for (int64_t i = 0; i < p->keep[1]; i++)
            AF_TRY(af_row_add(out, p->target.ids[i], learn, w->err));
    }
    if (w->t->flags & AF_TURNS_ENDS && w->eos >= 0)
        AF_TRY(af_row_add(out, w->eos, true, w->err));
    if (w->s->want_text)
        AF_TRY(af_tokenizer_decode(w->s->tokenizer, &out->text, &out->len, out->ids, out->count,
                                   false, w->err));
done:
    return st;
}

static void find_system(turn_work *w)
{
    const json_t *c = json_object_get(message(w, 0), "content");
    const char *usual = w->s->turns_system ? w->s->turns_system : w->t->default_system;
    if (is_role(w, 0, "system")) {
        w->first = 1;
        w->system = json_string_value(c);
        w->system_len = json_string_length(c);
    }
    if (!w->system_len && usual && *usual) {
        w->system = usual;
        w->system_len = strlen(usual);
    }
    if (!w->system_len)
        w->system = NULL;
}

/* The tools are told after the system text. */
static af_status add_tools(turn_work *w)
{
    const af_turn_tools format = af_turn_tools_of(w->s->turns_name);
    if (format == AF_TURN_TOOLS_NONE)
        return af_fail(w->err, AF_EUNSUPPORTED,
                       "tools are not supported with 'template: %s'; 'chat_template: "
                       "tokenizer_default' has them",
                       w->s->turns_name);
    if (format == AF_TURN_TOOLS_LLAMA3)
        return af_fail(
            w->err, AF_EUNSUPPORTED,
            "tools are not supported with 'template: %s': LLaMA-Factory writes the date of "
            "the day into their text; 'chat_template: tokenizer_default' has them",
            w->s->turns_name);
    af_buf_add(&w->with_tools, w->system ? w->system : "", w->system_len);
    if (!af_turn_tools_put(&w->with_tools, format, w->conversation->tools))
        return af_fail(w->err, AF_EFORMAT,
                       "a tool of the record has no name, no 'parameters' with 'properties', or an "
                       "'enum' of other values than strings, which 'template: %s' needs",
                       w->s->turns_name);
    if (w->with_tools.bad)
        return af_fail_nomem(w->err, "a turn", w->system_len);
    w->system = w->with_tools.data;
    w->system_len = w->with_tools.len;
    return AF_OK;
}

/* Reads all turns into w->pair. No pairs: the conversation is not of turns, the record is skipped.
 */
static af_status read_turns(turn_work *w, const af_data_source *source)
{
    const af_conversation *t = w->conversation;
    af_status st = AF_OK;
    find_system(w);
    if (json_array_size(t->tools) > 0)
        AF_TRY(add_tools(w));
    if (!alternates(w))
        return AF_OK;
    w->pairs = (int64_t)(json_array_size(t->messages) - w->first) / 2;
    w->pair = af_calloc((uint64_t)w->pairs, sizeof *w->pair);
    if (!w->pair)
        return af_fail_nomem(w->err, "turns", (uint64_t)w->pairs * sizeof *w->pair);
    for (int64_t k = 0; k < w->pairs; k++) {
        w->pair[k].train = source && t->train[w->first + 2 * (size_t)k + 1] &&
                           af_role_trained(source, "assistant");
        AF_TRY(encode_source(w, k));
        AF_TRY(encode_target(w, k));
    }
done:
    return st;
}

static void turns_clear(turn_work *w)
{
    for (int64_t k = 0; w->pair && k < w->pairs; k++) {
        af_row_clear(&w->pair[k].source);
        af_row_clear(&w->pair[k].target);
    }
    free(w->pair);
    af_buf_clear(&w->with_tools);
}

af_status af_turn_row(af_renderer *s, af_row *out, const af_conversation *t,
                      const af_data_source *source, af_error *err)
{
    turn_work w = {.s = s, .t = s->turns, .conversation = t, .eos = turn_eos(s), .err = err};
    af_status st = AF_OK;
    AF_TRY(read_turns(&w, source));
    if (!w.pairs) { /* no tokens: the record is skipped, and a warning says so */
        out->text = af_strdup("");
        return out->text ? AF_OK : af_fail_nomem(err, "a record", 1);
    }
    AF_TRY(join(&w, out, source));
done:
    turns_clear(&w);
    return st;
}

/* --- pairs ----------------------------------------------------------------------------------- */

/* All turns but the last answer in `prompt`, that in `answer`. */
static af_status one_turn(af_renderer *s, turn_pair *out, const af_conversation *t, af_error *err)
{
    af_renderer last = *s; /* of earlier answers no thoughts are kept */
    last.mask_history = true;
    turn_work w = {.s = &last, .t = s->turns, .conversation = t, .eos = turn_eos(s), .err = err};
    af_status st = AF_OK;
    AF_TRY(read_turns(&w, NULL));
    for (int64_t k = 0; k < w.pairs; k++) {
        turn_pair *p = &w.pair[k];
        const af_encoding before = {.ids = p->source.ids, .count = p->source.count};
        const af_encoding answer = {.ids = p->target.ids, .count = p->target.count};
        AF_TRY(af_row_append(&out->source, &before, false, err));
        AF_TRY(af_row_append(k + 1 < w.pairs ? &out->source : &out->target, &answer, true, err));
    }
    if (w.pairs && w.t->flags & AF_TURNS_ENDS && w.eos >= 0)
        AF_TRY(af_row_add(&out->target, w.eos, true, err));
done:
    s->encoding = last.encoding; /* its memory may have moved */
    s->times = last.times;
    turns_clear(&w);
    return st;
}

af_status af_turn_pair(af_renderer *s, af_row row[2], int64_t prompt[2], const af_item *item,
                       af_error *err)
{
    turn_pair side[2] = {0};
    const int64_t limit = s->cutoff > 0 ? s->cutoff : INT64_MAX / 8;
    af_status st = AF_OK;
    for (int i = 0; i < item->conversations; i++)
        AF_TRY(one_turn(s, &side[i], &item->conversation[i], err));
    turn_pair longest = side[side[1].target.count > side[0].target.count];
    share(&longest, limit);
    for (int i = 0; i < item->conversations; i++) {
        const af_encoding before = {.ids = side[i].source.ids,
                                    .count = AF_MIN(longest.keep[0], side[i].source.count)};
        const af_encoding answer = {.ids = side[i].target.ids,
                                    .count = AF_MIN(longest.keep[1], side[i].target.count)};
        AF_TRY(af_row_append(&row[i], &before, false, err));
        AF_TRY(af_row_append(&row[i], &answer, true, err));
        prompt[i] = before.count;
        row[i].lost_end = answer.count < side[i].target.count;
        row[i].cut = row[i].lost_end || before.count < side[i].source.count;
        if (s->want_text)
            AF_TRY(af_tokenizer_decode(s->tokenizer, &row[i].text, &row[i].len, row[i].ids,
                                       row[i].count, false, err));
    }
done:
    for (int i = 0; i < 2; i++) {
        af_row_clear(&side[i].source);
        af_row_clear(&side[i].target);
    }
    return st;
}
