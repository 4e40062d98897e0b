/* text_endpoints.c - /tokenize, /detokenize, /apply-template, as llama-server has them; /tokenize
 * as vLLM has it, too. */
#include "serve/api/generation.h"

static void out_piece(af_buf *b, const af_api *a, int32_t id, af_buf *bytes)
{
    if (af_tokenizer_token_bytes(a->tokenizer, id, bytes, NULL) != AF_OK)
        bytes->len = 0;
    const json_t *whole = NULL;
    json_t *s = json_stringn(bytes->data ? bytes->data : "", bytes->len); /* NULL: not UTF-8 */
    whole = s;
    af_buf_printf(b, "{\"id\":%d,\"piece\":", (int)id);
    if (whole) {
        af_out_string(b, bytes->data ? bytes->data : "", bytes->len);
    } else {
        af_buf_char(b, '[');
        for (uint64_t i = 0; i < bytes->len; i++)
            af_buf_printf(b, i ? ",%d" : "%d", (uint8_t)bytes->data[i]);
        af_buf_char(b, ']');
    }
    af_buf_char(b, '}');
    json_decref(s);
}

/* "messages", rendered as a chat completion has them. */
static af_status encode_chat(af_api *a, const json_t *body, af_encoding *e, af_api_fault *f)
{
    af_status st = AF_OK;
    af_served *m = NULL;
    bool special = false;
    AF_TRY(af_value_bool(body, "add_special_tokens", &special, &f->err));
    AF_TRY(af_request_model(a, body, &m, f));
    AF_TRY(af_chat_encode(a, m, body, special, e, &f->err));
done:
    af_served_unref(m);
    return st;
}

/* "content" with "add_special", or vLLM's "prompt" with "add_special_tokens". */
static af_status encode_text(af_api *a, const json_t *body, af_encoding *e, af_api_fault *f)
{
    af_status st = AF_OK;
    af_error *err = &f->err;
    af_served *m = NULL;
    json_t *text = NULL;
    bool special = af_value(body, "prompt") != NULL, parse = true;
    AF_TRY(af_request_model(a, body, &m, f)); /* all have one tokenizer */
    AF_TRY(af_value_type(body, special ? "prompt" : "content", JSON_STRING, &text, err));
    AF_TRY(af_value_bool(body, special ? "add_special_tokens" : "add_special", &special, err));
    AF_TRY(af_value_bool(body, "parse_special", &parse, err));
    if (!parse)
        AF_TRY(af_fail_subject(err, AF_EUNSUPPORTED, "parse_special",
                               "'parse_special': false is not supported"));
    if (text)
        AF_TRY(af_tokenizer_encode(a->tokenizer, e, json_string_value(text),
                                   json_string_length(text), special, err));
done:
    af_served_unref(m);
    return st;
}

/* vLLM's "return_token_strs": as they are in the vocabulary. */
static void out_names(af_buf *b, const af_api *a, const af_encoding *e)
{
    af_buf_str(b, ",\"token_strs\":[");
    for (int64_t i = 0; i < e->count; i++) {
        af_buf_str(b, i ? "," : "");
        af_out_cstring(b, af_tokenizer_token(a->tokenizer, e->ids[i], NULL));
    }
    af_buf_char(b, ']');
}

void af_api_tokenize(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_status st = AF_OK;
    af_api_fault f = {0};
    af_encoding e = {0};
    af_buf b = {0}, bytes = {0};
    bool pieces = false, names = false;
    const bool chat = af_value(body, "messages") != NULL;
    AF_TRY(af_value_bool(body, "with_pieces", &pieces, &f.err));
    AF_TRY(af_value_bool(body, "return_token_strs", &names, &f.err));
    AF_TRY(chat ? encode_chat(a, body, &e, &f) : encode_text(a, body, &e, &f));
    af_buf_char(&b, '{');
    if (chat || af_value(body, "prompt"))
        af_buf_printf(&b, "\"count\":%" PRId64 ",\"max_model_len\":%" PRId64 ",", e.count,
                      a->context);
    af_buf_str(&b, "\"tokens\":");
    if (!pieces) {
        af_out_ids(&b, e.ids, e.count);
    } else {
        af_buf_char(&b, '[');
        for (int64_t i = 0; i < e.count; i++) {
            af_buf_str(&b, i ? "," : "");
            out_piece(&b, a, e.ids[i], &bytes);
        }
        af_buf_char(&b, ']');
    }
    if (names)
        out_names(&b, a, &e);
    af_buf_char(&b, '}');
    af_api_answer(c, &b);
done:
    if (st != AF_OK)
        af_api_refuse_fault(c, &f);
    af_encoding_clear(&e);
    af_buf_clear(&b);
    af_buf_clear(&bytes);
}

/* A token, or one of those that only the model's matrices have. */
static bool is_token_id(const af_api *a, const json_t *v)
{
    const json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    return id >= 0 && id < AF_TOKENIZER_ID_MAX &&
           (id < a->vocab || af_tokenizer_token(a->tokenizer, (int32_t)id, NULL));
}

void af_api_detokenize(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_status st = AF_OK;
    af_api_fault f = {0};
    json_t *list = NULL;
    af_served *m = NULL;
    int32_t *ids = NULL;
    char *text = NULL;
    uint64_t n = 0;
    af_buf b = {0};
    AF_TRY(af_request_model(a, body, &m, &f));
    AF_TRY(af_value_type(body, "tokens", JSON_ARRAY, &list, &f.err));
    const size_t count = json_array_size(list);
    ids = af_calloc(count + 1, sizeof *ids);
    if (!ids)
        AF_TRY(af_fail_nomem(&f.err, "tokens", count * sizeof *ids));
    for (size_t i = 0; i < count; i++) {
        const json_t *v = json_array_get(list, i);
        if (!is_token_id(a, v))
            AF_TRY(af_fail_subject(
                &f.err, AF_EUSAGE, "tokens",
                "'tokens' has an entry that is not a token id from 0 to %" PRId64, a->vocab - 1));
        ids[i] = (int32_t)json_integer_value(v);
    }
    AF_TRY(af_tokenizer_decode(a->tokenizer, &text, &n, ids, (int64_t)count, false, &f.err));
    af_buf_str(&b, "{\"content\":");
    af_out_string(&b, text, n);
    af_buf_char(&b, '}');
    af_api_answer(c, &b);
done:
    if (st != AF_OK)
        af_api_refuse_fault(c, &f);
    af_served_unref(m);
    free(ids);
    free(text);
}

void af_api_apply_template(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_status st = AF_OK;
    af_api_fault f = {0};
    af_served *m = NULL;
    char *text = NULL;
    uint64_t n = 0;
    af_buf b = {0};
    AF_TRY(af_request_model(a, body, &m, &f));
    AF_TRY(af_chat_render(a, m, body, &text, &n, &f.err));
    af_buf_str(&b, "{\"prompt\":");
    af_out_string(&b, text, n);
    af_buf_char(&b, '}');
    af_api_answer(c, &b);
done:
    if (st != AF_OK)
        af_api_refuse_fault(c, &f);
    af_served_unref(m);
    free(text);
}
