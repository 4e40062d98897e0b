/* turn_template_jinja.c - a turn template as Jinja. */
#include "base/buf.h"
#include "format/chat/turn_template.h"

static void put_quoted(af_buf *b, const char *s, size_t n)
{
    af_buf_char(b, '\'');
    for (size_t i = 0; i < n; i++)
        if (s[i] == '\n')
            af_buf_str(b, "\\n");
        else if (s[i] == '\'' || s[i] == '\\')
            af_buf_printf(b, "\\%c", s[i]);
        else
            af_buf_char(b, s[i]);
    af_buf_char(b, '\'');
}

/* A piece as an expression; `text` is the name of its text. */
static void put_piece(af_buf *b, const char *piece, const char *text, const char *bos,
                      const char *eos)
{
    bool first = true;
    while (*piece) {
        const size_t n = strcspn(piece, "\001\002\003\004");
        const char mark = piece[n];
        const char *token = mark == AF_TURNS_BOS ? bos : mark == AF_TURNS_EOS ? eos : NULL;
        if (n) {
            af_buf_str(b, first ? "" : " + ");
            put_quoted(b, piece, n);
            first = false;
        }
        if (mark == AF_TURNS_TEXT || (token && *token)) {
            af_buf_str(b, first ? "" : " + ");
            if (mark == AF_TURNS_TEXT)
                af_buf_str(b, text);
            else
                put_quoted(b, token, strlen(token));
            first = false;
        }
        piece += n + (mark != 0);
    }
    if (first)
        af_buf_str(b, "''");
}

static void put_turn(af_buf *b, const char *roles, const char *piece, const char *bos,
                     const char *eos)
{
    af_buf_printf(b, "if m['role'] in [%s] %%}{{ ", roles);
    put_piece(b, piece, "c", bos, eos);
    af_buf_str(b, " }}{% ");
}

char *af_turn_template_jinja(const af_turn_template *t, const char *bos, const char *eos,
                             const char *system)
{
    af_buf b = {0};
    const char *usual = system ? system : t->default_system ? t->default_system : "";
    const bool folds = t->flags & AF_TURNS_FOLDS;
    if (t->prefix) {
        af_buf_str(&b, "{{ ");
        put_piece(&b, t->prefix, "''", bos, eos);
        af_buf_str(&b, " }}");
    }
    af_buf_str(&b, "{% if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'] %}"
                   "{% set turns = messages[1:] %}{% else %}{% set s = ");
    put_quoted(&b, usual, strlen(usual));
    af_buf_str(&b, " %}{% set turns = messages %}{% endif %}");
    if (!folds) {
        af_buf_str(&b, "{% if s %}{{ ");
        put_piece(&b, t->system, "s", bos, eos);
        af_buf_str(&b, " }}{% endif %}");
    }
    af_buf_str(&b, "{% for m in turns %}{% set c = m['content'] %}");
    if (folds) {
        af_buf_str(&b, "{% if s and loop.first %}{% set c = ");
        put_piece(&b, t->system, "s", bos, eos);
        af_buf_str(&b, " + c %}{% endif %}");
    }
    af_buf_str(&b, "{% ");
    put_turn(&b, "'user'", t->user, bos, eos);
    af_buf_str(&b, "el");
    put_turn(&b, "'assistant'", t->answer, bos, eos);
    af_buf_str(&b, "el");
    put_turn(&b, "'tool', 'observation'", t->tool ? t->tool : t->user, bos, eos);
    af_buf_str(&b, "endif %}{% endfor %}");
    return af_buf_take(&b);
}
