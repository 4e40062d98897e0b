/* run_write.c - the table of keys as text: the effective run file, and the help. */
#include "afinar/schedule.h"
#include "base/buf.h"
#include "data/shape/data_source.h"
#include "train/run/run_keys.h"

void af_put_quoted(af_buf *b, const char *s)
{
    af_buf_char(b, '"');
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            af_buf_printf(b, "\\%c", c);
        else if (c == '\n')
            af_buf_str(b, "\\n");
        else if (c == '\t')
            af_buf_str(b, "\\t");
        else if (c < 0x20)
            af_buf_printf(b, "\\u%04x", c);
        else
            af_buf_char(b, (char)c);
    }
    af_buf_char(b, '"');
}

/* Plain words of a block may not stand plain between brackets ("a, b.jsonl"); numbers, yes and no
 * have none of these. */
static bool needs_quotes(const char *text) { return strpbrk(text, ",[]{}:#\"'\\\n") != NULL; }

static void put_tree(af_buf *b, const af_yaml *n)
{
    if (n->kind == AF_YAML_SCALAR) {
        if (n->quoted || needs_quotes(n->text))
            af_put_quoted(b, n->text);
        else
            af_buf_str(b, n->text[0] ? n->text : "null");
        return;
    }
    af_buf_char(b, n->kind == AF_YAML_LIST ? '[' : '{');
    for (int i = 0; i < n->count; i++) {
        if (i)
            af_buf_str(b, ", ");
        if (n->kind == AF_YAML_MAP) {
            af_put_quoted(b, n->key[i]);
            af_buf_str(b, ": ");
        }
        put_tree(b, n->item[i]);
    }
    af_buf_char(b, n->kind == AF_YAML_LIST ? ']' : '}');
}

/* Shortest decimal text that reads back to the same double. */
static void put_number(af_buf *b, double v)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    af_buf_str(b, text);
}

static const char *word_of(const af_key *k, int value)
{
    for (const af_key_word *w = k->words; w->word; w++)
        if (w->value == value)
            return w->word;
    return "?";
}

static void put_list(af_buf *b, const af_strings *l)
{
    af_buf_char(b, '[');
    for (int i = 0; i < l->count; i++) {
        if (i)
            af_buf_str(b, ", ");
        af_put_quoted(b, l->item[i]);
    }
    af_buf_char(b, ']');
}

/* False when the key has no value. */
static bool put_value(af_buf *b, const af_run_config *r, const af_key *k)
{
    static const char *const tri[] = {"auto", "false", "true"};
    const void *at = (const char *)r + k->place;
    switch (k->kind) {
    case AF_KEY_STR:
        if (!*(const char *const *)at)
            return false;
        af_put_quoted(b, *(const char *const *)at);
        return true;
    case AF_KEY_BOOL:
        af_buf_str(b, *(const bool *)at ? "true" : "false");
        return true;
    case AF_KEY_TRI:
        af_buf_str(b, tri[*(const int *)at]);
        return true;
    case AF_KEY_I64:
        af_buf_printf(b, "%" PRId64, *(const int64_t *)at);
        return true;
    case AF_KEY_F64:
        put_number(b, *(const double *)at);
        return true;
    case AF_KEY_LIST:
        if (!((const af_strings *)at)->item)
            return false;
        put_list(b, at);
        return true;
    case AF_KEY_ENUM:
        af_buf_str(b, word_of(k, *(const int *)at));
        return true;
    case AF_KEY_TREE:
        if (!*(const af_yaml *const *)at)
            return false;
        put_tree(b, *(const af_yaml *const *)at);
        return true;
    }
    return false;
}

/* A default beside the rival that the user gave says nothing. */
static bool rival_given(const af_run_config *r, const af_key *k)
{
    static const char *const rivals[][2] = {
        {"warmup_steps", "warmup_ratio"},
        {"save_steps", "saves_per_epoch"},
        {"eval_steps", "evals_per_epoch"},
        {"lora_target_linear", "lora_target_modules"},
        {"val_set_size", "test_datasets"},
        {"auto_resume_from_checkpoints", "resume_from_checkpoint"},
        {"overwrite_output_dir", "resume_from_checkpoint"}};
    for (size_t i = 0; i < AF_LEN(rivals); i++)
        for (int side = 0; side < 2; side++)
            if (strcmp(rivals[i][side], k->name) == 0 && af_run_key_is_set(r, rivals[i][!side]))
                return true;
    return false;
}

/* Defaults of keys that would have no effect in this run are left out, so that the file reads back.
 */
static bool matters(const af_run_config *r, const af_key *k)
{
    return af_run_key_is_set(r, k->name) || (af_key_has_effect(r, k->need) && !rival_given(r, k));
}

af_status af_run_config_text(const af_run_config *r, char **out, af_error *err)
{
    af_buf b = {0};
    for (int i = 0; i < af_keys_count; i++) {
        const af_key *k = &af_keys[i];
        const uint64_t start = b.len;
        if (!matters(r, k))
            continue;
        af_buf_printf(&b, "%s: ", k->name);
        if (put_value(&b, r, k))
            af_buf_char(&b, '\n');
        else
            b.len = start;
    }
    if (b.data)
        b.data[b.len] = '\0';
    *out = af_buf_take(&b);
    return *out ? AF_OK : af_fail_nomem(err, "the run file", 4096);
}

/* One more of "  word, word, ...", broken before column 100. */
static void put_word(af_buf *b, size_t *column, const char *word, size_t len, bool last)
{
    if (*column + len + 2 > 98) {
        af_buf_str(b, "\n ");
        *column = 1;
    }
    af_buf_printf(b, " %.*s%s", (int)len, word, last ? "\n" : ",");
    *column += len + 2;
}

static void put_words(af_buf *b, const char *title, const char *(*word)(int))
{
    size_t column = 1;
    af_buf_printf(b, "\n%s\n ", title);
    for (int i = 0; word(i); i++)
        put_word(b, &column, word(i), strlen(word(i)), !word(i + 1));
}

/* The same of "word, word". */
static void put_names(af_buf *b, const char *title, const char *names)
{
    size_t column = 1, n;
    af_buf_printf(b, "\n%s\n ", title);
    for (; *names; names += n + strspn(names + n, ", ")) {
        n = strcspn(names, ",");
        put_word(b, &column, names, n, !names[n]);
    }
}

af_status af_run_keys_help(char **out, af_error *err)
{
    af_buf b = {0};
    for (int i = 0; i < af_keys_count; i++) {
        const af_key *k = &af_keys[i];
        af_buf_printf(&b, "  %-28s %s", k->name, k->help);
        if (k->preset && strcmp(k->preset, "0") != 0 && strcmp(k->preset, "-1") != 0)
            af_buf_printf(&b, " [%s]", k->preset);
        for (size_t a = 0; a < AF_LEN(k->alias) && k->alias[a]; a++)
            af_buf_printf(&b, "%s%s", a ? ", " : "; also ", k->alias[a]);
        af_buf_char(&b, '\n');
    }
    put_names(&b, "values of lr_scheduler:", af_schedule_names());
    put_words(&b, "keys of an entry of datasets (path is needed):", af_data_source_key);
    put_words(&b, "its type [detected from the first record]:", af_data_source_type);
    *out = af_buf_take(&b);
    return *out ? AF_OK : af_fail_nomem(err, "the help", 4096);
}
