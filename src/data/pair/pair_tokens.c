/* pair_tokens.c - see pair_tokens.h. */
#define _GNU_SOURCE /* memmem */
#include "data/pair/pair_tokens.h"

#include "base/buf.h"
#include "data/shape/pair_form.h"
#include "format/chat/chat_template.h"

typedef struct pair_work {
    af_renderer *s;
    const af_item *item;
    const af_data_source *source;
    const af_data_opts *o;
    af_rl rl;
    char *prompt, *whole[2]; /* own: the texts to be tokenised */
    uint64_t prompt_len, whole_len[2];
    bool special; /* with the special tokens of the tokenizer: texts that are not chats */
    af_error *err;
} pair_work;

/* Whether a method renders chats to text first, as TRL's ORPO and CPO trainers do. */
static bool renders_first(af_rl rl)
{
    return rl == AF_RL_ORPO || rl == AF_RL_CPO || rl == AF_RL_SIMPO;
}

/* --- texts ----------------------------------------------------------------------------------- */

static bool has_end(const af_buf *b, const char *end)
{
    const uint64_t n = strlen(end);
    return b->len >= n && memcmp(b->data + b->len - n, end, n) == 0;
}

/* A row of prompt and answer. */
static af_status set_whole(pair_work *w, int side, const char *answer, uint64_t len)
{
    const char *eos = af_tokenizer_eos_text(w->s->tokenizer);
    af_buf b = {0};
    af_buf_add(&b, answer, len);
    if (eos && !renders_first(w->rl) && !(b.len && has_end(&b, eos)))
        af_buf_str(&b, eos);
    af_buf all = {0};
    af_buf_add(&all, w->prompt, w->prompt_len);
    af_buf_add(&all, b.data ? b.data : "", b.len);
    af_buf_str(&all, "");
    all.bad |= b.bad;
    w->whole_len[side] = all.len;
    w->whole[side] = af_buf_take(&all);
    af_buf_clear(&b);
    return w->whole[side] ? AF_OK : af_fail_nomem(w->err, "a record", len);
}

static af_status text_rows(pair_work *w)
{
    const af_conversation *t = w->item->conversation;
    af_status st = AF_OK;
    w->special = !renders_first(w->rl);
    w->prompt_len = t->prompt_len;
    w->prompt = af_calloc(t->prompt_len + 1, 1);
    if (!w->prompt)
        return af_fail_nomem(w->err, "a prompt", t->prompt_len);
    memcpy(w->prompt, t->prompt_text, t->prompt_len + 1);
    for (int i = 0; i < w->item->conversations; i++)
        AF_TRY(set_whole(w, i, t[i].answer_text, t[i].answer_len));
done:
    return st;
}

/* --- chats ----------------------------------------------------------------------------------- */

static const char *role_at(const af_conversation *t, size_t i)
{
    return json_string_value(json_object_get(json_array_get(t->messages, i), "role"));
}

/* The prompt alone: with the generation prompt, or, where ORPO's prompt ends with an assistant's
 * message, with that message open. */
static af_status render_prompt(pair_work *w)
{
    const af_conversation *t = w->item->conversation;
    const size_t n = w->item->prompt_messages;
    const char *last = role_at(t, n - 1);
    if (!renders_first(w->rl) || strcmp(last, "user") == 0 || strcmp(last, "tool") == 0)
        return af_renderer_prompt(w->s, &w->prompt, &w->prompt_len, t, n, w->err);
    if (strcmp(last, "assistant") != 0)
        return af_fail(w->err, AF_EFORMAT,
                       "the prompt ends with a message of role \"%s\", not user, tool or assistant",
                       last);
    json_t *part = json_array(), *variables = af_renderer_variables(w->s, t);
    for (size_t i = 0; part && i < n; i++)
        json_array_append(part, json_array_get(t->messages, i));
    const af_render_opts o = {.messages = part,
                              .tools = t->tools,
                              .extra = variables,
                              .continue_final_message = true,
                              .form = w->s->form};
    const af_status st =
        part && !af_memory_failed()
            ? af_template_render(w->s->chat, &w->prompt, &w->prompt_len, &o, NULL, w->err)
            : af_fail_nomem(w->err, "a conversation", n);
    json_decref(variables);
    json_decref(part);
    return st;
}

static uint64_t common_begin(const char *a, uint64_t a_len, const char *b, uint64_t b_len)
{
    uint64_t n = 0;
    while (n < a_len && n < b_len && a[n] == b[n])
        n++;
    while (n && n < a_len && ((unsigned char)a[n] & 0xc0) == 0x80) /* whole characters */
        n--;
    return n;
}

static af_status chat_rows(pair_work *w, bool *split)
{
    const af_conversation *t = w->item->conversation;
    af_status st = AF_OK;
    AF_TRY(render_prompt(w));
    for (int i = 0; i < w->item->conversations; i++) {
        AF_TRY(af_renderer_render(w->s, &w->whole[i], &w->whole_len[i], &t[i],
                                  json_array_size(t[i].messages), false, false, NULL, w->err));
        const uint64_t n = common_begin(w->prompt, w->prompt_len, w->whole[i], w->whole_len[i]);
        *split |= n < w->prompt_len;
        if (renders_first(w->rl))
            w->prompt_len = n;
    }
done:
    return st;
}

/* Bytes of white space at the end of a text, as Python's rstrip counts them. */
static uint64_t without_blanks(const char *s, uint64_t n)
{
    static const char *const wide[] = {"\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80",
                                       "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf",
                                       "\xe2\x81\x9f", "\xe3\x80\x80"};
    for (;;) {
        const uint64_t before = n;
        while (n && (strchr(" \t\n\r\v\f", s[n - 1]) || (s[n - 1] >= 0x1c && s[n - 1] <= 0x1f)) &&
               s[n - 1])
            n--;
        for (size_t i = 0; i < AF_LEN(wide); i++) {
            const size_t m = strlen(wide[i]);
            if (n >= m && memcmp(s + n - m, wide[i], m) == 0)
                n -= m;
        }
        if (n >= 3 && (unsigned char)s[n - 3] == 0xe2 && (unsigned char)s[n - 2] == 0x80 &&
            (unsigned char)s[n - 1] >= 0x80 && (unsigned char)s[n - 1] <= 0x8a)
            n -= 3;
        if (n == before)
            return n;
    }
}

/* Axolotl's chat_template types: what follows a dummy question, from the first place where the
 * answer's text stands. */
static af_status after_dummy(pair_work *w, int side)
{
    const af_conversation *t = &w->item->conversation[side];
    const json_t *answer = json_array_get(t->messages, json_array_size(t->messages) - 1);
    const json_t *content = json_object_get(answer, "content");
    af_conversation dummy = {.messages = json_pack("[{s:s,s:s},O]", "role", "user", "content",
                                                   "[[dummy_message]]", answer)};
    char *text = NULL;
    uint64_t len = 0;
    af_status st = AF_OK;
    if (!dummy.messages)
        return af_fail_nomem(w->err, "a conversation", 0);
    AF_TRY(af_renderer_render(w->s, &text, &len, &dummy, 2, false, false, NULL, w->err));
    const char *at = json_is_string(content) ? memmem(text, len, json_string_value(content),
                                                      json_string_length(content))
                                             : NULL;
    if (!at) {
        st = af_fail(w->err, AF_EFORMAT,
                     "the chat template changes the text of the answer, so that '%s' cannot find "
                     "it; leave out 'type'",
                     w->source->form->type);
        goto done;
    }
    AF_TRY(set_whole(w, side, at, without_blanks(at, len - (uint64_t)(at - text))));
done:
    json_decref(dummy.messages);
    free(text);
    return st;
}

/* The texts of a chat that is tokenised like a text. */
static af_status form_rows(pair_work *w, bool *split)
{
    af_status st = AF_OK;
    const bool cut = w->source->form->kind == AF_FORM_ORPO;
    if (cut)
        return chat_rows(w, split);
    w->special = !renders_first(w->rl);
    AF_TRY(af_renderer_prompt(w->s, &w->prompt, &w->prompt_len, w->item->conversation,
                              w->item->prompt_messages, w->err));
    for (int i = 0; i < w->item->conversations; i++)
        AF_TRY(after_dummy(w, i));
done:
    return st;
}

/* --- tokens ---------------------------------------------------------------------------------- */

static int64_t agree(const int32_t *a, int64_t n, const int32_t *b, int64_t m)
{
    int64_t i = 0;
    while (i < n && i < m && a[i] == b[i])
        i++;
    return i;
}

/* ORPO, CPO, SimPO: a prompt whose tokens changed is one token shorter; bos before it and eos after
 * the answer unless they are there. */
static af_status frame(const pair_work *w, af_row *r, const af_row *prompt, int64_t *tokens)
{
    const int32_t bos = af_tokenizer_bos(w->s->tokenizer), eos = af_tokenizer_eos(w->s->tokenizer);
    af_status st = AF_OK;
    *tokens = AF_MIN(prompt->count, r->count);
    if (*tokens && agree(prompt->ids, prompt->count, r->ids, r->count) < prompt->count)
        --*tokens;
    if (bos >= 0 && (*tokens == 0 || r->ids[0] != bos)) {
        AF_TRY(af_row_add(r, bos, true, w->err));
        memmove(r->ids + 1, r->ids, (uint64_t)(r->count - 1) * sizeof *r->ids);
        r->ids[0] = bos;
        ++*tokens;
    }
    if (eos >= 0 && (r->count == *tokens || r->ids[r->count - 1] != eos))
        AF_TRY(af_row_add(r, eos, true, w->err));
done:
    return st;
}

static void mask(af_row *r, int64_t prompt)
{
    for (int64_t i = 0; i < r->count; i++)
        r->labels[i] = i < prompt ? -100 : r->ids[i];
}

static af_status tokenise(pair_work *w, af_row row[2], af_pair_prompt_end *end)
{
    af_row prompt = {0};
    af_status st = AF_OK;
    const int sides = w->item->conversations;
    AF_TRY(af_renderer_encode(w->s, w->prompt, w->prompt_len, w->special, w->err));
    AF_TRY(af_row_append(&prompt, &w->s->encoding, false, w->err));
    for (int i = 0; i < sides; i++) {
        AF_TRY(af_renderer_encode(w->s, w->whole[i], w->whole_len[i], w->special, w->err));
        AF_TRY(af_row_append(&row[i], &w->s->encoding, true, w->err));
        end->tokens[i] = agree(prompt.ids, prompt.count, row[i].ids, row[i].count);
        end->merged |= end->tokens[i] < prompt.count;
        if (renders_first(w->rl))
            AF_TRY(frame(w, &row[i], &prompt, &end->tokens[i]));
        row[i].text = w->whole[i];
        row[i].len = w->whole_len[i];
        w->whole[i] = NULL;
    }
    if (sides == 2 && w->rl != AF_RL_KTO) /* which takes a pair apart first */
        end->tokens[0] = end->tokens[1] = AF_MIN(end->tokens[0], end->tokens[1]);
    if (w->rl == AF_RL_REWARD)
        *end = (af_pair_prompt_end){0};
    for (int i = 0; i < sides; i++)
        mask(&row[i], end->tokens[i]);
done:
    af_row_clear(&prompt);
    return st;
}

static bool is_too_long(const af_row *row, int rows, int64_t limit)
{
    bool any = false;
    for (int i = 0; i < rows && limit > 0; i++)
        any |= row[i].count > limit;
    return any;
}

/* Leaves the last `keep` tokens of a longer prompt. KTO puts the bos token before them again. */
static af_status shorten(const pair_work *w, af_row *r, int64_t *prompt, int64_t keep)
{
    const int32_t bos = r->ids[0];
    const bool begins = w->rl == AF_RL_KTO && bos == af_tokenizer_bos(w->s->tokenizer);
    const bool again = begins && r->ids[*prompt - keep] != bos;
    const int64_t gone = *prompt - keep - (again ? 1 : 0);
    r->count -= gone;
    *prompt -= gone;
    memmove(r->ids, r->ids + gone, (uint64_t)r->count * sizeof *r->ids);
    memmove(r->labels, r->labels + gone, (uint64_t)r->count * sizeof *r->labels);
    if (again)
        r->ids[0] = bos;
    if (!w->s->want_text)
        return AF_OK;
    free(r->text);
    r->text = NULL;
    return af_tokenizer_decode(w->s->tokenizer, &r->text, &r->len, r->ids, r->count, false, w->err);
}

/* max_prompt_length by the rules of TRL 0.12 to 0.24: DPO shortens every longer prompt, the others
 * only where a row of the record is longer than `limit`. */
static af_status limit_prompt(const pair_work *w, af_row row[2], int64_t prompt[2], int64_t limit)
{
    const int64_t keep = w->o->max_prompt_len;
    const bool always = w->rl == AF_RL_DPO || w->rl == AF_RL_IPO, alone = w->rl == AF_RL_KTO;
    const int rows = w->item->conversations;
    const bool any = is_too_long(row, rows, limit);
    af_status st = AF_OK;
    for (int i = 0; i < rows && keep > 0 && w->rl != AF_RL_REWARD; i++)
        if (prompt[i] > keep && (always || (alone ? is_too_long(&row[i], 1, limit) : any)))
            AF_TRY(shorten(w, &row[i], &prompt[i], keep));
done:
    return st;
}

/* A text with labels is a row without a prompt, as its tokenizer has it. */
static af_status label_row(pair_work *w, af_row *row)
{
    const af_conversation *t = w->item->conversation;
    const bool chat = t->kind == AF_CONVERSATION_CHAT;
    af_status st = AF_OK;
    if (chat)
        AF_TRY(af_renderer_whole(w->s, &row->text, &row->len, t, w->err));
    else if (!(row->text = af_strdup(t->answer_text)))
        return af_fail_nomem(w->err, "a record", t->answer_len);
    if (!chat)
        row->len = t->answer_len;
    AF_TRY(af_renderer_encode(w->s, row->text, row->len, !chat, w->err));
    AF_TRY(af_row_append(row, &w->s->encoding, true, w->err));
done:
    return st;
}

/* LLaMA-Factory's `template`: turn by turn. */
static af_status turn_rows(pair_work *w, af_row row[2], int64_t prompt[2])
{
    const af_status st = af_turn_pair(w->s, row, prompt, w->item, w->err);
    for (int i = 0; st == AF_OK && w->rl == AF_RL_REWARD && i < 2; i++) {
        mask(&row[i], 0);
        prompt[i] = 0;
    }
    return st;
}

af_status af_pair_tokens(af_renderer *s, af_row row[2], af_pair_prompt_end *prompt,
                         const af_item *item, const af_data_source *source, const af_data_opts *o,
                         af_error *err)
{
    pair_work w = {.s = s, .item = item, .source = source, .o = o, .rl = o->rl, .err = err};
    af_status st = AF_OK;
    *prompt = (af_pair_prompt_end){0};
    const bool chat = item->conversation[0].kind == AF_CONVERSATION_CHAT;
    if (o->rl == AF_RL_LABELS)
        return label_row(&w, &row[0]);
    if (chat && s->turns) {
        AF_TRY(turn_rows(&w, row, prompt->tokens));
        return limit_prompt(&w, row, prompt->tokens, 0); /* turns have cut it to sequence_len */
    }
    const bool rendered = chat && (!source->form || source->form->kind == AF_FORM_AS_IS ||
                                   source->form->kind == AF_FORM_MESSAGES);
    if (!chat)
        AF_TRY(text_rows(&w));
    else if (rendered)
        AF_TRY(chat_rows(&w, &prompt->split));
    else
        AF_TRY(form_rows(&w, &prompt->split));
    AF_TRY(tokenise(&w, row, prompt));
    for (int i = 0; rendered && i < item->conversations; i++)
        AF_TRY(af_pair_notes(s, &row[i], &item->conversation[i], item->prompt_messages, err));
    AF_TRY(limit_prompt(&w, row, prompt->tokens, o->sequence_len));
    prompt->merged &= !prompt->split;
done:
    free(w.prompt);
    free(w.whole[0]);
    free(w.whole[1]);
    return st;
}
