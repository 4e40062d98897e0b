/* renderer.c - see renderer.h. */
#include "data/render/renderer.h"

#include "base/buf.h"
#include "base/word.h"
#include "format/chat/chat_template.h"
#include "format/chat/named_template.h"
#include "format/text/yaml_json.h"

void af_row_clear(af_row *r)
{
    free(r->text);
    free(r->ids);
    free(r->labels);
    for (af_row *at = r->next, *next; at; at = next) {
        next = at->next;
        at->next = NULL;
        af_row_clear(at);
        free(at);
    }
    *r = (af_row){0};
}

bool af_renderer_own_template(const char *requested)
{
    return !requested || strcmp(requested, "tokenizer_default") == 0;
}

static bool is_text(const char *s) { return strstr(s, "{%") || strstr(s, "{{"); }

static af_status open_file(af_template **out, const char *path, af_error *err)
{
    af_template *t = NULL;
    const af_status st = af_template_open(&t, path, err);
    if (st != AF_OK)
        return st;
    if (is_text(af_template_source(t, NULL))) {
        *out = t;
        return AF_OK;
    }
    af_template_close(t);
    return af_fail(err, AF_EFORMAT,
                   "%s has neither {{ nor {%%: every conversation would have the same text", path);
}

/* Whether two templates give the same text to a conversation with a system text and one without. */
static bool same_text(const af_template *a, const af_template *b)
{
    bool same = true;
    for (int i = 0; i < 2 && same; i++) {
        json_t *m = json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s},{s:s,s:s},{s:s,s:s}]", "role",
                              "system", "content", "s", "role", "user", "content", "a", "role",
                              "assistant", "content", "b", "role", "user", "content", "c", "role",
                              "assistant", "content", "d");
        char *text[2] = {0};
        uint64_t len[2] = {0};
        if (i == 1)
            json_array_remove(m, 0);
        const af_render_opts o = {.messages = m, .now = "2025-03-14T09:26:53"};
        same = m && af_template_render(a, &text[0], &len[0], &o, NULL, NULL) == AF_OK &&
               af_template_render(b, &text[1], &len[1], &o, NULL, NULL) == AF_OK &&
               len[0] == len[1] && memcmp(text[0], text[1], len[0]) == 0;
        free(text[0]);
        free(text[1]);
        json_decref(m);
    }
    return same;
}

/* A template of our table; the model's own where it gives the same text, for it knows tools, too.
 */
static af_status open_listed(af_template **out, bool *bare, const af_named_template *named,
                             const char *model, const af_tokenizer *tokenizer, af_error *err)
{
    af_template *t = NULL, *own = NULL;
    af_status st = AF_OK;
    AF_TRY(af_template_parse(&t, named->jinja, strlen(named->jinja), err));
    if (tokenizer)
        AF_TRY(af_template_set_tokens(t, tokenizer, err));
    if (tokenizer && af_template_open(&own, model, NULL) == AF_OK && same_text(own, t)) {
        *out = own;
        own = NULL;
        goto done;
    }
    *bare = true;
    *out = t;
    t = NULL;
done:
    af_template_close(t);
    af_template_close(own);
    return st;
}

static af_status open_by_name(af_template **out, bool *bare, const char *model,
                              const char *requested, af_error *err)
{
    const af_named_template *named = af_named_template_find(requested);
    af_tokenizer *tokenizer = NULL;
    af_error why = {0};
    af_status st = af_template_open_named(out, model, requested, &why);
    if (st != AF_OK && named) {
        if (af_tokenizer_open(&tokenizer, model, NULL) != AF_OK)
            tokenizer = NULL;
        st = open_listed(out, bare, named, model, tokenizer, err);
        af_tokenizer_close(tokenizer);
        return st;
    }
    if (st != AF_OK && strcmp(why.subject, "chat_template") == 0)
        return af_fail(err, AF_EUSAGE,
                       "chat_template '%.60s' is not supported: it is not tokenizer_default, a "
                       "name of the guide (chatml, llama3, gemma3, ...) or a .jinja file, and %s "
                       "has no template of that name",
                       requested, model);
    if (st != AF_OK && err)
        *err = why;
    return st;
}

af_status af_renderer_template(af_template **out, bool *bare, const char *model,
                               const char *requested, af_error *err)
{
    static const char fallback[] = "tokenizer_default_fallback_";
    *bare = false;
    if (af_renderer_own_template(requested))
        return af_template_open(out, model, err);
    if (strncmp(requested, fallback, sizeof fallback - 1) == 0) {
        if (af_template_open(out, model, NULL) == AF_OK)
            return AF_OK;
        requested += sizeof fallback - 1;
    }
    const bool text = is_text(requested);
    if (!text && !af_ends_with(requested, ".jinja") && !af_ends_with(requested, ".j2"))
        return open_by_name(out, bare, model, requested, err);
    *bare = true;
    const af_status st = text ? af_template_parse(out, requested, strlen(requested), err)
                              : open_file(out, requested, err);
    return st == AF_OK ? AF_OK : af_fail_prefix(st, err, "chat_template");
}

/* The end of an answer in one of our templates, where the text is the same. */
static af_status add_listed_eot(af_renderer *s, af_error *err)
{
    const char *source = af_template_source(s->chat, NULL);
    const af_named_template *t;
    for (int i = 0; (t = af_named_template_at(i)); i++)
        if (t->eot && strcmp(t->jinja, source) == 0)
            return af_renderer_add_eot(s, t->eot, strlen(t->eot), err);
    return AF_OK;
}

static af_status open_template(af_renderer *s, const char *model, const char *requested,
                               af_error *err)
{
    bool bare;
    if (af_renderer_own_template(requested)) {
        const af_status own = af_renderer_template(&s->chat, &bare, model, requested, &s->why);
        if (own == AF_ENOMEM || own == AF_EIO)
            return af_fail(err, own, "%s", s->why.msg);
        return AF_OK; /* that there is none is reported when it is needed */
    }
    const af_status st = af_renderer_template(&s->chat, &bare, model, requested, err);
    if (st != AF_OK || !bare)
        return st;
    return af_template_set_tokens(s->chat, s->tokenizer, err);
}

static void clear_eots(af_renderer *s)
{
    while (s->eots)
        free(s->eot[--s->eots]);
    s->answer_end = s->call_end = NULL;
}

static af_status find_ends(af_renderer *s, af_error *err)
{
    af_status st = AF_OK;
    clear_eots(s);
    if (s->chat)
        AF_TRY(add_listed_eot(s, err));
    st = af_renderer_find_eot(s, err);
done:
    return st;
}

af_status af_renderer_init(af_renderer *s, const af_tokenizer *tokenizer, const char *model,
                           const char *chat_template, af_error *err)
{
    af_status st = AF_OK;
    *s = (af_renderer){.tokenizer = tokenizer};
    if (!tokenizer)
        return AF_OK;
    AF_TRY(open_template(s, model, chat_template, err));
    AF_TRY(find_ends(s, err));
done:
    if (st != AF_OK)
        af_renderer_clear(s);
    return st;
}

af_status af_renderer_init_turns(af_renderer *s, const af_tokenizer *tokenizer,
                                 const af_data_opts *o, af_error *err)
{
    af_status st = AF_OK;
    char *jinja = NULL;
    *s = (af_renderer){.tokenizer = tokenizer,
                       .turns = af_turn_template_find(o->turn_template),
                       .turns_name = o->turn_template,
                       .turns_system = o->default_system,
                       .no_thinking = o->no_thinking};
    if (!tokenizer)
        return AF_OK;
    jinja = af_renderer_turns_jinja(s->turns, tokenizer, o->default_system);
    if (!jinja)
        return af_fail_nomem(err, "a chat template", 0);
    AF_TRY(af_template_parse(&s->chat, jinja, strlen(jinja), err));
    AF_TRY(af_renderer_find_eot(s, err));
done:
    free(jinja);
    if (st != AF_OK)
        af_renderer_clear(s);
    return st;
}

char *af_renderer_turns_jinja(const af_turn_template *t, const af_tokenizer *tokenizer,
                              const char *system)
{
    const char *eos = t->flags & AF_TURNS_STOPS ? t->stop : af_tokenizer_eos_text(tokenizer);
    return af_turn_template_jinja(t, af_tokenizer_bos_text(tokenizer), eos, system);
}

void af_renderer_clear(af_renderer *s)
{
    af_template_close(s->chat);
    clear_eots(s);
    af_encoding_clear(&s->encoding);
    json_decref(s->variables);
    *s = (af_renderer){0};
}

bool af_renderer_is_eot(const af_renderer *s, int32_t id)
{
    for (int i = 0; i < s->eots; i++)
        if (af_tokenizer_id(s->tokenizer, s->eot[i], strlen(s->eot[i])) == id)
            return true;
    return s->tokenizer && id == af_tokenizer_eos(s->tokenizer);
}

af_status af_renderer_set_variables(af_renderer *s, const af_yaml *map, af_error *err)
{
    if (!map)
        return AF_OK;
    s->variables = af_yaml_json(map);
    if (!s->variables)
        return af_fail_nomem(err, AF_TEMPLATE_VARIABLES, 0);
    return s->tokenizer ? find_ends(s, err) : AF_OK; /* the template may need them to show those */
}

json_t *af_renderer_variables(const af_renderer *s, const af_conversation *t)
{
    json_t *both = s->variables && t->variables ? json_copy(s->variables) : NULL;
    if (both)
        json_object_update(both, t->variables);
    return both ? both : json_incref(t->variables ? t->variables : s->variables);
}

/* A turn of the user, or of a tool where one follows, with a content that is not the real one's. */
static json_t *next_turn(const json_t *real)
{
    const char *role = json_string_value(json_object_get(real, "role"));
    const char *content = json_string_value(json_object_get(real, "content"));
    const char *other = content && strncmp(content, "\xc2\xa7", 2) == 0 ? "$" : "\xc2\xa7";
    const bool tool = role && (strcmp(role, "tool") == 0 || strcmp(role, "function") == 0 ||
                               strcmp(role, "ipython") == 0);
    json_t *turn = tool ? json_copy((json_t *)real) : json_pack("{s:s}", "role", "user");
    json_object_set_new(turn, "content", json_string(other));
    return turn;
}

af_status af_renderer_render(af_renderer *s, char **text, uint64_t *len, const af_conversation *t,
                             size_t n, bool prompt, bool tail, af_spans *generation, af_error *err)
{
    const double began = af_seconds_now();
    json_t *part = NULL;
    const size_t all = json_array_size(t->messages);
    if (n < all || tail) {
        part = json_array();
        for (size_t i = 0; part && i < n; i++)
            json_array_append(part, json_array_get(t->messages, i));
        if (part && tail)
            json_array_append_new(part, next_turn(json_array_get(t->messages, n)));
        if (!part || af_memory_failed()) { /* or without one of its messages */
            json_decref(part);
            return af_fail_nomem(err, "a conversation", n);
        }
    }
    json_t *variables = af_renderer_variables(s, t);
    const af_render_opts o = {.messages = part ? part : t->messages,
                              .tools = t->tools,
                              .extra = variables,
                              .add_generation_prompt = prompt,
                              .form = s->form,
                              .steps = &s->steps};
    af_status st = af_memory_failed() ? af_fail_nomem(err, AF_TEMPLATE_VARIABLES, 0)
                                      : af_template_render(s->chat, text, len, &o, generation, err);
    if (st != AF_OK)
        st = af_fail_prefix(st, err, "the chat template refuses this conversation");
    json_decref(variables);
    json_decref(part);
    s->times.render += af_seconds_now() - began;
    return st;
}

af_status af_renderer_need_template(const af_renderer *s, af_error *err)
{
    if (s->chat)
        return AF_OK;
    return af_fail(err, AF_EUSAGE,
                   "a conversation of 'datasets' needs a chat template, and without one is not "
                   "supported: %s (or give one with 'chat_template')",
                   s->why.msg);
}

af_status af_renderer_prompt(af_renderer *s, char **text, uint64_t *len, const af_conversation *t,
                             size_t n, af_error *err)
{
    const af_status st = af_renderer_need_template(s, err);
    return st == AF_OK ? af_renderer_render(s, text, len, t, n, true, false, NULL, err) : st;
}

af_status af_renderer_whole(af_renderer *s, char **text, uint64_t *len, const af_conversation *t,
                            af_error *err)
{
    const af_status st = af_renderer_need_template(s, err);
    return st == AF_OK ? af_renderer_render(s, text, len, t, json_array_size(t->messages), false,
                                            false, NULL, err)
                       : st;
}

af_status af_renderer_encode(af_renderer *s, const char *text, uint64_t len, bool special,
                             af_error *err)
{
    const double began = af_seconds_now();
    const af_status st = af_tokenizer_encode(s->tokenizer, &s->encoding, text, len, special, err);
    s->times.encode += af_seconds_now() - began;
    return st;
}

/* Makes space for `more` tokens after those of the row. */
static af_status grow(af_row *r, int64_t more, af_error *err)
{
    uint64_t want = (uint64_t)(r->count + more);
    if (want <= (uint64_t)r->room)
        return AF_OK;
    want = more == 1 ? want + want / 2 : want;
    int32_t *ids = af_realloc(r->ids, AF_MAX(want, 1), sizeof *ids);
    if (ids)
        r->ids = ids;
    int32_t *labels = af_realloc(r->labels, AF_MAX(want, 1), sizeof *labels);
    if (labels)
        r->labels = labels;
    if (!ids || !labels)
        return af_fail_nomem(err, "token ids", want * 8);
    r->room = (int64_t)want;
    return AF_OK;
}

af_status af_row_add(af_row *r, int32_t id, bool loss, af_error *err)
{
    const af_status st = grow(r, 1, err);
    if (st != AF_OK)
        return st;
    r->ids[r->count] = id;
    r->labels[r->count++] = loss ? id : -100;
    return AF_OK;
}

/* Appends the encoding; every token gets `loss`. */
af_status af_row_append(af_row *r, const af_encoding *e, bool loss, af_error *err)
{
    const af_status st = grow(r, e->count, err);
    if (st != AF_OK)
        return st;
    for (int64_t i = 0; i < e->count; i++) {
        r->ids[r->count] = e->ids[i];
        r->labels[r->count++] = loss ? e->ids[i] : -100;
    }
    return AF_OK;
}

/* Sets the labels of the tokens that hold a byte of [begin, end), and of those between them.
 * Returns the first of them: spans come in order, so that the next one begins there or later. */
int64_t af_row_label(af_row *r, const af_encoding *e, int64_t from, af_span s, bool loss)
{
    int64_t lo = from, hi;
    while (lo < e->count && !(e->end[lo] > s.begin && e->start[lo] < s.end))
        lo++;
    hi = lo;
    for (int64_t i = lo; i < e->count && e->start[i] < s.end; i++)
        hi = e->end[i] > s.begin ? i + 1 : hi;
    for (int64_t i = lo; i < hi; i++)
        r->labels[i] = loss ? r->ids[i] : -100;
    return lo < e->count ? lo : from;
}

static af_status append_eos(const af_renderer *s, af_row *r, const af_data_source *source,
                            af_error *err)
{
    const char *eos = af_renderer_text_end(s);
    const uint64_t n = eos ? strlen(eos) : 0;
    const int32_t id = eos ? af_tokenizer_id(s->tokenizer, eos, n) : af_tokenizer_eos(s->tokenizer);
    if (id < 0 || (n && r->text && r->len >= n && memcmp(r->text + r->len - n, eos, n) == 0))
        return AF_OK;
    return af_row_add(r, id, source->train_on_eos != AF_TRAIN_EOS_NONE, err);
}

/* No template: prompt and completion in one piece, then eos. */
static af_status plain_row(af_renderer *s, af_row *out, const af_conversation *t,
                           const af_data_source *source, af_error *err)
{
    af_buf b = {0};
    af_status st = AF_OK;
    const uint64_t prompt = json_string_length(t->prompt);
    if (t->prompt)
        af_buf_add(&b, json_string_value(t->prompt), prompt);
    af_buf_add(&b, json_string_value(t->completion), json_string_length(t->completion));
    af_buf_str(&b, "");
    out->len = b.len;
    out->text = af_buf_take(&b);
    if (!out->text)
        return af_fail_nomem(err, "a record", out->len);
    const bool all = prompt == 0 || source->train_on_inputs;
    AF_TRY(af_renderer_encode(s, out->text, out->len, true, err));
    AF_TRY(af_row_append(out, &s->encoding, all, err));
    if (!all)
        (void)af_row_label(out, &s->encoding, 0, (af_span){prompt, out->len}, true);
    AF_TRY(append_eos(s, out, source, err));
done:
    return st;
}

/* The tokens from `before` on end with eos, and it carries loss. */
static af_status end_with_eos(const af_renderer *s, af_row *out, int64_t before, af_error *err)
{
    const int32_t eos = af_tokenizer_eos(s->tokenizer);
    if (eos < 0 || (out->count > before && out->ids[out->count - 1] == eos))
        return AF_OK;
    return af_row_add(out, eos, true, err);
}

/* An encoding of its own, with the special tokens of the tokenizer: empty text has none. */
static af_status append_apart(af_renderer *s, af_row *out, const char *text, uint64_t len,
                              bool answer, bool loss, af_error *err)
{
    const int32_t bos = af_tokenizer_bos(s->tokenizer);
    af_status st = AF_OK;
    if (len == 0)
        return AF_OK;
    AF_TRY(af_renderer_encode(s, text, len, true, err));
    const int64_t before = out->count;
    if (s->encoding.count == 0)
        return AF_OK;
    AF_TRY(af_row_append(out, &s->encoding, loss, err));
    if (answer && out->count > before && bos >= 0 && out->ids[before] == bos) {
        const uint64_t rest = (uint64_t)(--out->count - before);
        memmove(out->ids + before, out->ids + before + 1, rest * sizeof *out->ids);
        memmove(out->labels + before, out->labels + before + 1, rest * sizeof *out->labels);
    }
    if (answer)
        AF_TRY(end_with_eos(s, out, before, err));
done:
    return st;
}

/* As Axolotl does: prompt and answer are tokenised apart, the answer without bos and with eos. Of
 * a prompt that is tokenised whole, as many tokens carry no loss as the prompt alone has. */
static af_status prompt_row(af_renderer *s, af_row *out, const af_conversation *t,
                            const af_data_source *source, af_error *err)
{
    af_buf b = {0};
    af_status st = AF_OK;
    af_buf_add(&b, t->prompt_text, t->prompt_len);
    af_buf_add(&b, t->answer_text, t->answer_len);
    af_buf_str(&b, "");
    out->len = b.len;
    out->text = af_buf_take(&b);
    if (!out->text)
        return af_fail_nomem(err, "a record", out->len);
    if (source->prompt->whole) {
        AF_TRY(af_renderer_encode(s, t->prompt_text, t->prompt_len, true, err));
        const int64_t masked = source->train_on_inputs ? 0 : s->encoding.count;
        AF_TRY(af_renderer_encode(s, out->text, out->len, true, err));
        AF_TRY(af_row_append(out, &s->encoding, true, err));
        for (int64_t i = 0; i < AF_MIN(masked, out->count); i++)
            out->labels[i] = -100;
        AF_TRY(end_with_eos(s, out, 0, err));
        goto done;
    }
    AF_TRY(
        append_apart(s, out, t->prompt_text, t->prompt_len, false, source->train_on_inputs, err));
    AF_TRY(append_apart(s, out, t->answer_text, t->answer_len, true, true, err));
done:
    return st;
}

af_status af_renderer_append_text(af_renderer *s, af_row *row, const char *text, uint64_t len,
                                  bool first, bool last, const af_data_source *source,
                                  af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_renderer_encode(s, text, len, first, err));
    AF_TRY(af_row_append(row, &s->encoding, true, err));
    if (last)
        AF_TRY(append_eos(s, row, source, err));
done:
    return st;
}

static af_status segment_row(af_renderer *s, af_row *out, const af_conversation *t,
                             const af_data_source *source, af_error *err)
{
    af_buf b = {0};
    af_status st = AF_OK;
    for (size_t i = 0; i < json_array_size(t->segments); i++) {
        const json_t *g = json_array_get(t->segments, i);
        const json_t *text = json_object_get(g, "text");
        const bool loss = json_is_true(json_object_get(g, "label")) || source->train_on_inputs;
        AF_TRY(
            af_renderer_encode(s, json_string_value(text), json_string_length(text), false, err));
        AF_TRY(af_row_append(out, &s->encoding, loss, err));
        af_buf_add(&b, json_string_value(text), json_string_length(text));
    }
    af_buf_str(&b, "");
    out->len = b.len;
    out->text = af_buf_take(&b);
    if (!out->text)
        st = af_fail_nomem(err, "a record", out->len);
done:
    af_buf_clear(&b);
    return st;
}

/* Conversations and prompts. */
static af_status turns_row(af_renderer *s, af_row *out, const af_conversation *t,
                           const af_data_source *source, bool split, af_error *err)
{
    const bool no_template = !s->chat && strcmp(s->why.subject, "chat_template") == 0;
    if (t->kind == AF_CONVERSATION_PROMPT && (!t->messages || (no_template && !s->turns)))
        return prompt_row(s, out, t, source, err);
    return s->turns ? af_turn_row(s, out, t, source, err)
                    : af_chat_row(s, out, t, source, split, err);
}

af_status af_renderer_row(af_renderer *s, af_row *out, const af_conversation *t,
                          const af_data_source *source, bool split, af_error *err)
{
    af_row r = {0};
    af_status st = AF_OK;
    switch (t->kind) {
    case AF_CONVERSATION_CHAT:
    case AF_CONVERSATION_PROMPT:
        st = turns_row(s, &r, t, source, split, err);
        break;
    case AF_CONVERSATION_PLAIN:
        st = plain_row(s, &r, t, source, err);
        break;
    case AF_CONVERSATION_SEGMENTS:
        st = segment_row(s, &r, t, source, err);
        break;
    case AF_CONVERSATION_TOKENS:
        st = af_ids_row(s, &r, t, err);
        break;
    }
    if (st != AF_OK)
        af_row_clear(&r);
    else
        *out = r;
    return st;
}
