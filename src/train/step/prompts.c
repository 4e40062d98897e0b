/* prompts.c - see prompts.h. */
#include "train/step/prompts.h"
#include "data/render/renderer.h"
#include "decode/generate.h"

void af_prompts_free(af_prompts *p)
{
    if (!p)
        return;
    for (int i = 0; p->ids && i < p->count; i++)
        free(p->ids[i]);
    free(p->ids);
    free(p->len);
    af_tokenizer_close(p->tokenizer);
    free(p);
}

/* One prompt: through the chat template where there is one, else as plain text. */
static af_status encode(af_prompts *p, af_renderer *renderer, int i, af_error *err)
{
    af_status st = AF_OK;
    char *text = NULL;
    uint64_t len = 0;
    af_encoding e = {0};
    const char *prompt = p->text[i];
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", prompt);
    if (!messages)
        return af_fail(err, AF_EUSAGE, "prompt %d is not UTF-8", i + 1);
    if (renderer->chat) {
        const af_conversation c = {.messages = messages};
        AF_TRY(af_renderer_prompt(renderer, &text, &len, &c, 1, err));
        AF_TRY(af_tokenizer_encode(p->tokenizer, &e, text, len, false, err));
    } else {
        AF_TRY(af_tokenizer_encode(p->tokenizer, &e, prompt, strlen(prompt), true, err));
    }
    if (e.count == 0)
        AF_TRY(af_fail(err, AF_EUSAGE, "prompt %d has no tokens", i + 1));
    p->ids[i] = e.ids;
    p->len[i] = e.count;
    e.ids = NULL;
done:
    af_encoding_clear(&e);
    json_decref(messages);
    free(text);
    return st;
}

static af_status new_prompts(af_prompts **out, const af_run_config *run, af_error *err)
{
    af_prompts *p = af_calloc(1, sizeof *p);
    if (!p)
        return af_fail_nomem(err, "the prompts", sizeof *p);
    *out = p;
    p->count = run->generate_samples.count;
    p->text = run->generate_samples.item;
    p->max_new = run->generate_samples_tokens;
    p->ids = af_calloc((uint64_t)p->count, sizeof *p->ids);
    p->len = af_calloc((uint64_t)p->count, sizeof *p->len);
    return p->ids && p->len ? AF_OK : af_fail_nomem(err, "the prompts", (uint64_t)p->count * 16);
}

af_status af_prompts_outline(af_prompts **out, const af_run_config *run, af_error *err)
{
    enum { TEMPLATE_TOKENS = 64 };
    af_prompts *p = NULL;
    if (run->generate_samples.count == 0)
        return AF_OK;
    const af_status st = new_prompts(&p, run, err);
    for (int i = 0; i < run->generate_samples.count && st == AF_OK; i++)
        p->len[i] = (int64_t)strlen(p->text[i]) + TEMPLATE_TOKENS;
    if (st == AF_OK)
        *out = p;
    else
        af_prompts_free(p);
    return st;
}

af_status af_prompts_new(af_prompts **out, const af_run_config *run, const char *model,
                         const char *chat_template, af_error *err)
{
    af_status st = AF_OK;
    af_renderer renderer = {0};
    af_prompts *p = NULL;
    if (run->generate_samples.count == 0)
        return AF_OK;
    AF_TRY(new_prompts(&p, run, err));
    AF_TRY(af_tokenizer_open(&p->tokenizer, model, err));
    AF_TRY(af_renderer_init(&renderer, p->tokenizer, model, chat_template, err));
    AF_TRY(af_renderer_set_variables(&renderer, run->chat_template_kwargs, err));
    for (int i = 0; i < p->count; i++)
        AF_TRY(encode(p, &renderer, i, err));
    *out = p;
    p = NULL;
done:
    if (st != AF_OK)
        af_fail_prefix(st, err, "%s: generate_samples", run->path);
    af_renderer_clear(&renderer);
    af_prompts_free(p);
    return st;
}

af_model af_prompts_model(const af_prompts *p, const af_run_model *m, af_loader *loader,
                          af_adapter *adapter, const af_model_leaves *live)
{
    return (af_model){.path = m->path,
                      .device = m->device,
                      .loader = loader,
                      .adapter = adapter,
                      .compute = m->compute,
                      .live = live,
                      .tokenizer = p->tokenizer};
}

af_generate_opts af_prompts_opts(const af_prompts *p)
{
    return (af_generate_opts){.prompt = (const int32_t *const *)p->ids,
                              .prompt_len = p->len,
                              .sequences = p->count,
                              .max_new = p->max_new,
                              .skip_special = true,
                              .once = true};
}

af_status af_prompts_plan(const af_prompts *p, const af_run_model *m, const af_model_leaves *leaves,
                          uint64_t *bytes, af_error *err)
{
    const bool live = af_run_model_on_cpu(m);
    *bytes = 0;
    if (!p || (!live && !m->loader))
        return AF_OK;
    const af_model model = af_prompts_model(p, m, m->loader, m->adapter, live ? leaves : NULL);
    const af_generate_opts o = af_prompts_opts(p);
    const af_status st = af_model_generate_plan(&model, &o, bytes, err);
    if (st == AF_OK || live)
        return st;
    *bytes = 0; /* a GPU without memory for a second graph reports that when it is used */
    return AF_OK;
}
