/* answer_whole.c - the answer in one piece. */
#include "serve/api/generation.h"

void af_out_answer_head(af_buf *b, const af_generation *g, const char *object)
{
    af_buf_printf(b, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", g->id,
                  object, g->created);
    af_out_cstring(b, g->model->name);
    af_buf_str(b, ",\"system_fingerprint\":\"afinar-" AF_VERSION "\"");
}

int64_t af_generation_cached(const af_generation *g)
{
    int64_t cached = 0;
    for (int i = 0; i < g->choices; i += g->n)
        cached += g->choice[i].prefix;
    return cached;
}

void af_out_usage(af_buf *b, const af_generation *g)
{
    int64_t prompt = 0, made = 0, reasoned = 0;
    for (int i = 0; i < g->prompts; i++)
        prompt += g->prompt[i].count;
    for (int i = 0; i < g->choices; i++)
        made += g->choice[i].text.count;
    for (int i = 0; i < g->choices; i++)
        reasoned += g->choice[i].reasoning.tokens;
    af_buf_printf(
        b,
        "\"usage\":{\"prompt_tokens\":%" PRId64 ",\"completion_tokens\":%" PRId64
        ",\"total_tokens\":%" PRId64 ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRId64
        ",\"audio_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":%" PRId64
        ",\"audio_tokens\":0,\"accepted_prediction_tokens\":0,"
        "\"rejected_prediction_tokens\":0}}",
        prompt, made, prompt + made, af_generation_cached(g), reasoned);
}

static void out_chat(af_buf *b, af_choice *c)
{
    const af_buf *text = af_choice_content(c);
    af_buf_str(b, "\"message\":{\"role\":\"assistant\",\"content\":");
    if (c->call_count && text->len == 0)
        af_buf_str(b, "null");
    else
        af_out_string(b, text->data ? text->data : "", text->len);
    if (c->reasoning.text.len) {
        af_buf_str(b, ",\"reasoning_content\":");
        af_out_string(b, c->reasoning.text.data, c->reasoning.text.len);
    }
    if (c->call_count) {
        af_buf_char(b, ',');
        af_out_calls(b, c, &c->calls);
    }
    af_buf_str(b, ",\"refusal\":null}");
}

static void out_completion(af_buf *b, af_choice *c)
{
    const af_generation *g = c->of;
    af_buf text = {0};
    if (g->echo)
        af_buf_add(&text, g->prompt_text[c->prompt].data, g->prompt_text[c->prompt].len);
    af_buf_add(&text, c->text.text.data ? c->text.text.data : "", c->text.text.len);
    af_buf_str(b, "\"text\":");
    af_out_string(b, text.data ? text.data : "", text.len);
    b->bad = b->bad || text.bad;
    af_buf_clear(&text);
    if (g->return_ids) {
        af_buf_str(b, ",\"prompt_token_ids\":");
        af_out_ids(b, g->prompt[c->prompt].ids, g->prompt[c->prompt].count);
    }
}

static void out_choice(af_buf *b, af_choice *c)
{
    af_buf_printf(b, "{\"index\":%d,", c->index);
    if (c->of->chat)
        out_chat(b, c);
    else
        out_completion(b, c);
    af_buf_str(b, ",\"logprobs\":");
    af_logprobs_out(b, c);
    if (c->of->return_ids) {
        af_buf_str(b, ",\"token_ids\":");
        af_out_ids(b, c->text.ids, c->text.count);
    }
    af_buf_str(b, ",\"finish_reason\":");
    af_out_cstring(b, c->finish);
    af_buf_char(b, '}');
}

static double likelihood(const af_choice *c)
{
    return c->logprob / (double)AF_MAX(c->text.count, 1);
}

/* best_of: of the answers to a prompt, those with the most likely tokens come, in this order. The
 * others have the index -1. */
static void rank_choices(af_generation *g)
{
    for (int i = 0; i < g->choices && g->shown < g->n; i++)
        g->choice[i].index = -1;
    for (int i = 0; i < g->prompts * g->shown && g->shown < g->n; i++) {
        af_choice *best = NULL, *first = &g->choice[i / g->shown * g->n];
        for (af_choice *c = first; c < first + g->n; c++)
            if (c->index < 0 && (!best || likelihood(c) > likelihood(best)))
                best = c;
        best->index = i;
    }
}

static af_choice *choice_of(const af_generation *g, int index)
{
    af_choice *c = &g->choice[index / g->shown * g->n];
    while (c->index != index)
        c++;
    return c;
}

void af_answer_whole(af_generation *g)
{
    af_buf b = {0};
    rank_choices(g);
    af_out_answer_head(&b, g, g->chat ? "chat.completion" : "text_completion");
    af_buf_str(&b, ",\"choices\":[");
    for (int i = 0; i < g->prompts * g->shown; i++) {
        af_buf_str(&b, i ? "," : "");
        out_choice(&b, choice_of(g, i));
    }
    af_buf_str(&b, "],");
    af_out_usage(&b, g);
    if (g->return_ids) {
        af_buf_str(&b, ",\"prompt_token_ids\":");
        af_out_ids(&b, g->prompt[0].ids, g->prompt[0].count);
    }
    af_buf_char(&b, '}');
    af_api_answer(g->call, &b);
    g->answered = true;
}
