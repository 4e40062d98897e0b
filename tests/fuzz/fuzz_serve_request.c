/* fuzz_serve_request.c - what a client may send to `afinar serve`: the first byte chooses between a
 * request head and the body of an endpoint, which is read up to where the engine would begin. */
#include "fuzz_file.h"

#include "format/text/json_text.h"
#include "serve/api/responses.h"
#include "serve/ollama/ollama.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tokenizer_json[] =
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<unk>\":3,"
    "\"<|fim_prefix|>\":4,\"<|fim_suffix|>\":5,\"<|fim_middle|>\":6,\"<|file_sep|>\":7},"
    "\"merges\":[\"a b\"],\"unk_token\":\"<unk>\"}}";
static const char template_text[] =
    "{% for m in messages %}{{ m.role + m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson "
    "}}{% endif %}{% endfor %}{{ tools | tojson if tools else 'a' }}";

static void read_head(const uint8_t *data, size_t size)
{
    af_request_head h;
    const char *why = NULL;
    char *text = malloc(size + 1);
    if (!text)
        return;
    memcpy(text, data, size);
    text[size] = '\0';
    const uint64_t n = af_request_head_end(text, size);
    if (n && af_request_head_parse(&h, text, n, &why) == 0) {
        (void)af_request_field(&h, "Host");
        if (!h.method || !h.path || !h.query || h.fields > AF_HEAD_FIELDS_MAX)
            abort();
    }
    free(text);
}

static af_api api;

static void server_free(void)
{
    for (int i = 0; i < AF_API_GRAMMARS; i++)
        af_kept_grammar_release(api.grammars[i]);
    af_grammar_vocab_close(api.grammar_vocab);
    af_response_store_free(api.responses);
    af_template_close((af_template *)api.template);
    af_tokenizer_close((af_tokenizer *)api.tokenizer);
}

static af_api *server(void)
{
    static af_served base;
    if (api.tokenizer)
        return &api;
    af_tokenizer *t = NULL;
    af_template *p = NULL;
    if (af_tokenizer_from_json(&t, tokenizer_json, sizeof tokenizer_json - 1, NULL) != AF_OK ||
        af_template_parse(&p, template_text, sizeof template_text - 1, NULL) != AF_OK)
        abort();
    base.name = (char *)"base";
    atomic_init(&base.refs, 1);
    api = (af_api){.tokenizer = t, .template = p, .models = &base, .alias = (char *)"base"};
    api.vocab = 8;
    api.context = 64;
    if (af_response_store_new(&api.responses, NULL) != AF_OK)
        abort();
    pthread_mutex_init(&api.models_lock, NULL);
    pthread_mutex_init(&api.grammar_lock, NULL);
    atexit(server_free);
    return &api;
}

static void read_body(const uint8_t *data, size_t size, const af_answer_form *form)
{
    af_api_fault f = {0};
    json_t *body = af_json_load((const char *)data, size, JSON_ALLOW_NUL, NULL);
    af_generation *g = json_is_object(body) ? af_generation_new(server(), NULL, form) : NULL;
    if (g && af_generation_read(g, body, &f) != AF_OK && !f.err.msg[0])
        abort();
    af_generation_free(g);
    json_decref(body);
    af_memory_forget();
}

static const af_answer_form *form_of(uint8_t first)
{
    static const af_answer_form chat = {.chat = true, .read = af_ollama_read_chat},
                                prompt = {.chat = true, .read = af_ollama_read_prompt},
                                raw = {.read = af_ollama_read_raw};
    switch (first) {
    case 'r':
        return &af_form_responses;
    case 'm':
        return &af_form_messages;
    case 'l':
        return &af_form_llama;
    case 'i':
        return &af_form_infill;
    case 'o':
        return &chat;
    case 'p':
        return &prompt;
    case 'w':
        return &raw;
    default:
        return first % 3 == 0 ? NULL : first % 3 == 1 ? &af_form_chat : &af_form_text;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const af_answer_form *form = size ? form_of(data[0]) : NULL;
    if (form)
        read_body(data + 1, size - 1, form);
    else if (size)
        read_head(data + 1, size - 1);
    return 0;
}
