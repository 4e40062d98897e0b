/* template_parts.c - see template_parts.h. */
#include "convert/gguf/template_parts.h"

#include "afinar/chat.h"
#include "afinar/text.h"
#include "base/buf.h"

#define MARK_SYSTEM "afinarsystemmark"
#define MARK_USER   "afinarusermark"
#define MARK_ANSWER "afinaranswermark"

static char *render(const af_template *t, const char *messages, bool prompt)
{
    char row[512], *text = NULL;
    uint64_t n;
    snprintf(row, sizeof row, "{\"messages\": [%s], \"add_generation_prompt\": %s}", messages,
             prompt ? "true" : "false");
    return af_template_render_row(t, row, strlen(row), &text, &n, NULL, NULL) == AF_OK ? text
                                                                                       : NULL;
}

/* The text between two places of a rendering. */
static char *between(const char *from, const char *to)
{
    return af_strndup(from, (uint64_t)(to - from));
}

/* True when the tokenizer puts a beginning-of-text token in front by itself. */
static bool adds_bos(const af_tokenizer *k)
{
    af_encoding e = {0};
    const bool yes = af_tokenizer_encode(k, &e, "a", 1, true, NULL) == AF_OK && e.count > 1 &&
                     e.ids[0] == af_tokenizer_bos(k);
    af_encoding_clear(&e);
    return yes;
}

/* Leaves out what the tokenizer puts there itself. */
static const char *skip_bos(const af_tokenizer *k, const char *s)
{
    const char *bos = af_tokenizer_bos_text(k);
    return adds_bos(k) && bos && *bos && strncmp(s, bos, strlen(bos)) == 0 ? s + strlen(bos) : s;
}

static void take_system(af_template_parts *t, const af_tokenizer *k, const char *text)
{
    const char *s = text ? strstr(text, MARK_SYSTEM) : NULL;
    const char *u = s ? strstr(s, MARK_USER) : NULL;
    if (!u)
        return;
    t->before_system = between(skip_bos(k, text), s);
    t->system_to_user = between(s + strlen(MARK_SYSTEM), u);
    t->has_system = t->before_system && t->system_to_user;
}

/* The first special token after an answer. */
static af_status find_end(af_template_parts *t, const af_tokenizer *k, af_error *err)
{
    af_encoding e = {0};
    int n;
    const af_status st =
        af_tokenizer_encode(k, &e, t->after_answer, strlen(t->after_answer), false, err);
    for (int64_t i = 0; st == AF_OK && i < e.count && t->end_id < 0; i++)
        if (af_tokenizer_is_special(k, e.ids[i]))
            t->end_id = e.ids[i];
    af_encoding_clear(&e);
    const char *text = t->end_id >= 0 ? af_tokenizer_token(k, t->end_id, NULL) : NULL;
    t->end_text = text ? af_strdup(text) : NULL;
    const int32_t *stops = af_tokenizer_stops(k, &n);
    for (int i = 0; i < n; i++)
        t->end_stops |= stops[i] == t->end_id;
    return st;
}

static af_status take_apart(af_template_parts *t, const af_template *tpl, const af_tokenizer *k,
                            af_error *err)
{
    static const char system[] = "{\"role\": \"system\", \"content\": \"" MARK_SYSTEM "\"}, ";
    static const char user[] = "{\"role\": \"user\", \"content\": \"" MARK_USER "\"}";
    static const char answer[] = ", {\"role\": \"assistant\", \"content\": \"" MARK_ANSWER "\"}";
    char both[512];
    af_status st = AF_OK;
    char *plain = render(tpl, user, true), *with = NULL, *turn = NULL;
    snprintf(both, sizeof both, "%s%s", system, user);
    with = render(tpl, both, true);
    snprintf(both, sizeof both, "%s%s", user, answer);
    turn = render(tpl, both, false);
    const char *u = plain ? strstr(plain, MARK_USER) : NULL;
    const char *a = turn ? strstr(turn, MARK_ANSWER) : NULL;
    if (u && a) {
        t->before_user = between(skip_bos(k, plain), u);
        t->user_to_answer = af_strdup(u + strlen(MARK_USER));
        t->after_answer = af_strdup(a + strlen(MARK_ANSWER));
        take_system(t, k, with);
        if (!t->before_user || !t->user_to_answer || !t->after_answer)
            st = af_fail_nomem(err, "a template", strlen(plain));
        else
            st = find_end(t, k, err);
        t->found = st == AF_OK;
    }
    free(plain);
    free(with);
    free(turn);
    return st;
}

af_status af_template_parts_read(af_template_parts *out, const char *path, af_error *err)
{
    af_status st = AF_OK;
    af_template *t = NULL;
    af_tokenizer *k = NULL;
    *out = (af_template_parts){.end_id = -1};
    af_error why = {0};
    if (af_template_open(&t, path, &why) == AF_OK && af_tokenizer_open(&k, path, &why) == AF_OK)
        st = take_apart(out, t, k, err);
    else if (why.code == AF_EIO || why.code == AF_ENOMEM)
        st = af_fail(err, why.code, "%s", why.msg);
    af_template_close(t);
    af_tokenizer_close(k);
    if (st != AF_OK)
        af_template_parts_clear(out);
    return st;
}

void af_template_parts_clear(af_template_parts *t)
{
    free(t->before_system);
    free(t->system_to_user);
    free(t->before_user);
    free(t->user_to_answer);
    free(t->after_answer);
    free(t->end_text);
    *t = (af_template_parts){.end_id = -1};
}

/* Text inside a Go template. */
static void put_literal(af_buf *b, const char *s)
{
    for (; *s; s++) {
        if (s[0] == '{' && s[1] == '{') {
            af_buf_str(b, "{{ \"{{\" }}");
            s++;
        } else {
            af_buf_char(b, *s);
        }
    }
}

static void put_template(af_buf *b, const af_template_parts *t)
{
    af_buf_str(b, "TEMPLATE \"\"\"");
    if (t->has_system) {
        af_buf_str(b, "{{ if .System }}");
        put_literal(b, t->before_system);
        af_buf_str(b, "{{ .System }}");
        put_literal(b, t->system_to_user);
        af_buf_str(b, "{{ else }}");
        put_literal(b, t->before_user);
        af_buf_str(b, "{{ end }}");
    } else {
        put_literal(b, t->before_user);
    }
    af_buf_str(b, "{{ .Prompt }}");
    put_literal(b, t->user_to_answer);
    af_buf_str(b, "{{ .Response }}");
    put_literal(b, t->after_answer);
    af_buf_str(b, "\"\"\"\n");
}

static bool quotable(const af_template_parts *t)
{
    const char *const parts[] = {t->before_system, t->system_to_user, t->before_user,
                                 t->user_to_answer, t->after_answer};
    for (size_t i = 0; i < AF_LEN(parts); i++)
        if (parts[i] && strstr(parts[i], "\"\"\""))
            return false;
    return true;
}

af_status af_modelfile_text(char **text, const char *gguf_name, const af_template_parts *t,
                            const char *adapter_name, af_error *err)
{
    af_buf b = {0};
    af_buf_printf(&b, "FROM ./%s\n", gguf_name);
    if (adapter_name)
        af_buf_printf(&b, "ADAPTER ./%s\n", adapter_name);
    if (t->found && quotable(t))
        put_template(&b, t);
    if (t->end_text) {
        af_buf_str(&b, "PARAMETER stop \"");
        for (const char *s = t->end_text; *s; s++) {
            if (*s == '"' || *s == '\\')
                af_buf_char(&b, '\\');
            af_buf_char(&b, *s);
        }
        af_buf_str(&b, "\"\n");
    }
    *text = af_buf_take(&b);
    return *text ? AF_OK : af_fail_nomem(err, "a Modelfile", 0);
}
