/* answer_items.c - the answer as items: reasoning, texts and calls, in the order the model wrote
 * them. What an item looks like is the form's; each is complete once. */
#include "serve/api/generation.h"

void af_items_add(af_choice *c, af_buf *item)
{
    af_buf *all = &c->items.output;
    af_buf_str(all, all->len ? "," : "");
    af_buf_add(all, item->data ? item->data : "", item->len);
    all->bad = all->bad || item->bad;
    af_buf_clear(item);
}

static void open_text(af_choice *c)
{
    c->items.open = true;
    c->items.from = c->sent;
    c->of->form->item.open(c, AF_ITEM_TEXT);
}

static void close_text(af_choice *c, bool whole)
{
    const uint64_t from = c->items.from;
    const char *text = af_choice_content(c)->data;
    c->of->form->item.close(c, AF_ITEM_TEXT, text ? text + from : "", c->sent - from, whole);
    c->items.count++;
    c->items.open = false;
}

/* What is new of the reasoning; at its end the item is complete. */
static void add_reasoning(af_choice *c)
{
    const af_answer_form *form = c->of->form;
    const af_buf *text = &c->reasoning.text;
    const bool ended = c->reasoning.state != AF_REASONING_INSIDE;
    uint64_t *sent = &c->reasoning.sent;
    while (!c->items.thinking && c->items.count && *sent < text->len && text->data[*sent] == '\n')
        ++*sent; /* between two of them */
    if (*sent < text->len && !c->items.thinking) {
        if (c->items.open)
            close_text(c, true);
        c->items.thinking = true;
        c->items.from = *sent;
        form->item.open(c, AF_ITEM_REASONING);
    }
    if (*sent < text->len)
        form->item.add(c, AF_ITEM_REASONING, text->data + *sent, text->len - *sent);
    *sent = text->len;
    if (!c->items.thinking || (!ended && !c->done))
        return;
    const uint64_t from = c->items.from;
    form->item.close(c, AF_ITEM_REASONING, text->data + from, text->len - from, ended);
    c->items.count++;
    c->items.thinking = false;
}

/* Text up to byte `end` of the content. */
static void text_up_to(af_choice *c, uint64_t end)
{
    const char *text = af_choice_content(c)->data;
    while (!c->items.open && c->items.count && c->sent < end && strchr(" \t\r\n", text[c->sent]))
        c->sent++; /* between a call and the text after it */
    if (c->sent == end)
        return;
    if (!c->items.open)
        open_text(c);
    c->of->form->item.add(c, AF_ITEM_TEXT, text + c->sent, end - c->sent);
    c->sent = end;
}

void af_items_call(af_choice *c, const af_tool_call *call)
{
    if (c->of->answered)
        return;
    add_reasoning(c);
    text_up_to(c, af_choice_content(c)->len);
    if (c->items.open)
        close_text(c, true);
    c->of->form->item.call(c, call);
    c->items.count++;
}

/* The log-probabilities of reasoning, and of marks between items, belong to no text. */
static void drop_logprobs(af_choice *c)
{
    const af_generation *g = c->of;
    const int64_t n = c->text.count;
    const char *token = n ? af_tokenizer_token(g->api->tokenizer, c->text.ids[n - 1], NULL) : NULL;
    const bool thinks =
        c->reasoning.state == AF_REASONING_INSIDE || c->reasoning.state == AF_REASONING_AFTER;
    const bool between = c->items.count && !c->items.open && c->parser && af_tool_marker(token);
    if (!thinks && !between && !(g->channels && token && af_channels_mark(token)))
        return;
    c->logprobs.content.len = 0;
    c->logprobs.tokens = 0;
}

void af_items_piece(af_choice *c)
{
    add_reasoning(c);
    text_up_to(c, af_choice_has_parts(c) ? c->content.len : c->text.safe);
    if (!c->done && c->of->logprobs)
        drop_logprobs(c);
    if (!c->done)
        return;
    if (!c->items.open && c->items.count == 0 && c->of->form->item.never_empty)
        open_text(c);
    if (c->items.open)
        close_text(c, strcmp(c->finish, "length") != 0);
}
