/* data_view.c - see data_view.h. */
#include "commands/data_view.h"

#include "term/table.h"
#include "term/text_width.h"

typedef enum tint { TINT_PLAIN, TINT_PLAIN2, TINT_LOSS, TINT_LOSS2, TINT_SPECIAL, TINT_TITLE } tint;

/* From the terminal's own palette, which suits dark and light backgrounds. */
static const char *const tints[] = {
    [TINT_PLAIN] = "\033[0;2m",    [TINT_PLAIN2] = "\033[0m",     [TINT_LOSS] = "\033[0;1;32m",
    [TINT_LOSS2] = "\033[0;1;36m", [TINT_SPECIAL] = "\033[0;35m", [TINT_TITLE] = "\033[0;1m",
};

static void set_tint(const af_data_view *l, tint t)
{
    if (l->colour)
        fputs(tints[t], stdout);
}

static void end_tint(const af_data_view *l)
{
    if (l->colour)
        fputs("\033[0m", stdout);
}

/* Shows newlines and tabs; other control characters must not reach the terminal. */
static void put_text(const char *s, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s[i];
        if (c == '\n')
            fputs("\xe2\x86\xb5\n", stdout);
        else if (c == '\t')
            fputs("\xe2\x86\x92\t", stdout);
        else if (c < 0x20 || c == 0x7f)
            printf("\\x%02x", c);
        else
            putchar(c);
    }
}

static void put_token(const af_data_view *l, const af_data_example *e, const char *s, uint64_t n,
                      int32_t id, bool loss, int64_t i)
{
    const bool special = e->tokenizer && af_tokenizer_is_special(e->tokenizer, id);
    if (loss)
        set_tint(l, i % 2 ? TINT_LOSS : TINT_LOSS2);
    else if (special)
        set_tint(l, TINT_SPECIAL);
    else
        set_tint(l, i % 2 ? TINT_PLAIN : TINT_PLAIN2);
    put_text(s, n);
}

static bool put_tokens(const af_data_view *l, const af_data_example *e, const af_data_row *r)
{
    af_decode_stream s;
    bool good = true, inside = false;
    if (!e->tokenizer) {
        printf("(no tokenizer: %lld token ids)\n", (long long)r->count);
        return true;
    }
    af_decode_stream_init(&s, e->tokenizer, false);
    for (int64_t i = 0; i < r->count && good; i++) {
        const char *text = "";
        uint64_t n = 0;
        const bool loss = r->labels[i] != -100;
        good = af_decode_stream_next(&s, r->ids[i], &text, &n, NULL) == AF_OK;
        if (good && !l->colour && loss != inside)
            fputs(loss ? "\xe2\x9f\xa6" : "\xe2\x9f\xa7", stdout);
        inside = loss;
        if (good)
            put_token(l, e, text, n, r->ids[i], loss, i);
    }
    if (!l->colour && inside)
        fputs("\xe2\x9f\xa7", stdout);
    end_tint(l);
    putchar('\n');
    af_decode_stream_clear(&s);
    return good;
}

static void legend(const af_data_view *l)
{
    if (!l->colour) {
        printf("\xe2\x9f\xa6supervised\xe2\x9f\xa7: tokens with loss; all others are context "
               "only. \xe2\x86\xb5 is a newline; <|...|> and similar are special tokens.\n\n");
        return;
    }
    set_tint(l, TINT_LOSS);
    fputs("super", stdout);
    set_tint(l, TINT_LOSS2);
    fputs("vised", stdout);
    end_tint(l);
    fputs(" (tokens with loss)   ", stdout);
    set_tint(l, TINT_PLAIN2);
    fputs("con", stdout);
    set_tint(l, TINT_PLAIN);
    fputs("text", stdout);
    end_tint(l);
    fputs(" (context only)   ", stdout);
    set_tint(l, TINT_SPECIAL);
    fputs("<special>", stdout);
    end_tint(l);
    fputs("   shades alternate by token, \xe2\x86\xb5 is a newline\n\n", stdout);
}

static int64_t supervised(const af_data_row *r)
{
    int64_t loss = 0;
    for (int64_t i = 0; i < r->count; i++)
        loss += r->labels[i] != -100;
    return loss;
}

static void begin_title(const af_data_view *l, const af_data_example *e)
{
    set_tint(l, TINT_TITLE);
    printf("%s:%lld", e->file, (long long)e->line);
    end_tint(l);
    printf("  record %lld, %s: ", (long long)e->record, e->shape);
}

static bool show_row(const af_data_view *l, const af_data_example *e, const af_data_row *r)
{
    begin_title(l, e);
    printf("%lld tokens, %lld supervised", (long long)r->count, (long long)supervised(r));
    if (e->has_label)
        printf(", label %s", e->label ? "true" : "false");
    for (int i = 0; i < e->targets; i++)
        printf("%s %g", i ? "," : ", label", (double)e->target[i]);
    if (r->count > e->sequence_len)
        printf(", longer than sequence_len %lld", (long long)e->sequence_len);
    putchar('\n');
    return put_tokens(l, e, r);
}

/* --- pairs ----------------------------------------------------------------------------------- */

/* The text of an answer, and for each byte the parity of its token. */
typedef struct answer_text {
    char *text, *shade;
    size_t len, cap, at;
} answer_text;

static bool add_byte(answer_text *a, char c, char shade)
{
    if (a->len == a->cap) {
        const size_t cap = a->cap ? a->cap * 2 : 256;
        char *text = realloc(a->text, cap), *both;
        if (text)
            a->text = text;
        both = text ? realloc(a->shade, cap) : NULL;
        if (!both)
            return false;
        a->shade = both;
        a->cap = cap;
    }
    a->text[a->len] = c;
    a->shade[a->len++] = shade;
    return true;
}

/* Newlines are shown and kept, other control characters become dots. */
static bool add_text(answer_text *a, const char *s, uint64_t n, char shade)
{
    bool good = true;
    for (uint64_t i = 0; i < n && good; i++) {
        const unsigned char c = (unsigned char)s[i];
        for (const char *mark = c == '\n' ? "\xe2\x86\xb5" : ""; *mark && good; mark++)
            good = add_byte(a, *mark, shade);
        good = good && add_byte(a, c == '\n' ? '\n' : c < 0x20 || c == 0x7f ? '.' : s[i], shade);
    }
    return good;
}

static bool read_answer(answer_text *a, const af_data_example *e, const af_data_row *r,
                        int64_t from)
{
    af_decode_stream s;
    bool good = true;
    af_decode_stream_init(&s, e->tokenizer, false);
    for (int64_t i = 0; i < r->count && good; i++) {
        const char *text = "";
        uint64_t n = 0;
        good = af_decode_stream_next(&s, r->ids[i], &text, &n, NULL) == AF_OK;
        if (good && i >= from)
            good = add_text(a, text, n, (char)(i % 2));
    }
    af_decode_stream_clear(&s);
    return good;
}

/* Prints the next line of an answer; returns how many of the `width` columns are left. */
static int put_line(const af_data_view *l, answer_text *a, int width)
{
    int used = 0;
    char shade = 2;
    while (a->at < a->len && a->text[a->at] != '\n') {
        size_t n;
        (void)af_text_char(a->text + a->at, a->len - a->at, &n);
        const int w = af_text_width(a->text + a->at, n);
        if (used + w > width)
            break;
        if (a->shade[a->at] != shade)
            set_tint(l, (shade = a->shade[a->at]) ? TINT_LOSS : TINT_LOSS2);
        fwrite(a->text + a->at, 1, n, stdout);
        a->at += n;
        used += w;
    }
    if (a->at < a->len && a->text[a->at] == '\n')
        a->at++;
    end_tint(l);
    return width - used;
}

static void put_columns(const af_data_view *l, answer_text side[2], int width)
{
    while (side[0].at < side[0].len || side[1].at < side[1].len) {
        printf("%*s \xe2\x94\x82 ", put_line(l, &side[0], width), "");
        (void)put_line(l, &side[1], width);
        putchar('\n');
    }
}

/* Tokens without loss that both rows begin with. */
static int64_t prompt_tokens(const af_data_example *e)
{
    const af_data_row *a = &e->row[0], *b = &e->row[1];
    int64_t n = 0;
    while (n < a->count && n < b->count && a->labels[n] == -100 && b->labels[n] == -100 &&
           a->ids[n] == b->ids[n])
        n++;
    return n;
}

static bool show_pair(const af_data_view *l, const af_data_example *e)
{
    enum { USUAL_WIDTH = 100, NARROW = 12 };
    const int screen = af_term_width(stdout), gap = 3;
    const int width = ((screen > 0 ? screen : USUAL_WIDTH) - gap) / 2;
    const int column = width > NARROW ? width : NARROW;
    const int64_t prompt = prompt_tokens(e);
    const af_data_row before = {.ids = e->row[0].ids, .labels = e->row[0].labels, .count = prompt};
    answer_text side[2] = {{0}, {0}};
    bool good = true;
    begin_title(l, e);
    printf("%lld tokens of prompt, %lld chosen, %lld rejected", (long long)prompt,
           (long long)supervised(&e->row[0]), (long long)supervised(&e->row[1]));
    if (e->row[0].count > e->sequence_len || e->row[1].count > e->sequence_len)
        printf(", longer than sequence_len %lld", (long long)e->sequence_len);
    putchar('\n');
    if (prompt)
        good = put_tokens(l, e, &before);
    for (int i = 0; i < 2 && good && e->tokenizer; i++)
        good = read_answer(&side[i], e, &e->row[i], prompt);
    if (good) {
        printf("%-*s \xe2\x94\x82 %s\n", column, "chosen", "rejected");
        put_columns(l, side, column);
    }
    for (int i = 0; i < 2; i++) {
        free(side[i].text);
        free(side[i].shade);
    }
    return good;
}

bool af_data_view_show(void *user, const af_data_example *e)
{
    af_data_view *l = user;
    if (l->json) {
        char *line = af_data_example_json(e);
        l->bad = !line || printf("%s\n", line) < 0;
        free(line);
        return !l->bad;
    }
    if (l->shown++ == 0)
        legend(l);
    l->bad = e->rows == 2 ? !show_pair(l, e) : !show_row(l, e, &e->row[0]);
    putchar('\n');
    return !l->bad && !ferror(stdout);
}
