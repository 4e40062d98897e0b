/* run_write.c - the table of keys as text: the effective run file, and the help. */
#include "afinar/schedule.h"
#include "base/buf.h"
#include "data/shape/data_source.h"
#include "format/text/unicode.h"
#include "train/run/run_keys.h"

/* What YAML does not allow in a file (control characters, a byte order mark) or reads as the end of
 * a line. */
static bool needs_escape(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x2028 || cp == 0x2029 || cp == 0xfeff ||
           cp == 0xfffe || cp == 0xffff;
}

void af_put_quoted(af_buf *b, const char *s)
{
    const uint64_t n = strlen(s), valid = af_utf8_valid(s, n);
    uint32_t cp;
    af_buf_char(b, '"');
    for (uint64_t at = 0, len; at < n; at += len) {
        len = 1;
        cp = (unsigned char)s[at];
        if (at < valid)
            len = af_utf8_get(s + at, &cp);
        if (cp == '"' || cp == '\\')
            af_buf_printf(b, "\\%c", (int)cp);
        else if (cp == '\n')
            af_buf_str(b, "\\n");
        else if (cp == '\t')
            af_buf_str(b, "\\t");
        else if (needs_escape(cp) && (at < valid || cp < 0x80))
            af_buf_printf(b, "\\u%04x", cp);
        else
            af_buf_add(b, s + at, len);
    }
    af_buf_char(b, '"');
}

/* Plain scalars of a block may need quotes between brackets ("a, b.jsonl"); numbers and booleans
 * have none of these characters. */
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
    if (v == (double)(int64_t)v && v < 1e6) { /* 500, not 5e+02 */
        af_buf_printf(b, "%" PRId64, (int64_t)v);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    af_buf_str(b, text);
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
    const af_key_value v = af_key_get(r, k);
    switch (k->kind) {
    case AF_KEY_STR:
        if (v.str)
            af_put_quoted(b, v.str);
        return v.str != NULL;
    case AF_KEY_BOOL:
        af_buf_str(b, v.flag ? "true" : "false");
        return true;
    case AF_KEY_I64:
        af_buf_printf(b, "%" PRId64, v.i64);
        return true;
    case AF_KEY_F64:
        put_number(b, v.f64);
        return true;
    case AF_KEY_LIST:
        if (v.list.item)
            put_list(b, &v.list);
        return v.list.item != NULL;
    case AF_KEY_TRI:
    case AF_KEY_ENUM:
        af_buf_str(b, af_key_choice_name(k, v.choice));
        return true;
    case AF_KEY_TREE:
        if (v.tree)
            put_tree(b, v.tree);
        return v.tree != NULL;
    }
    return false;
}

void af_run_method_text(const af_run_config *r, af_buf *b)
{
    static const char *const keys[] = {"adapter",
                                       "optimizer",
                                       "rl",
                                       "dpo_loss_type",
                                       "use_dft_loss",
                                       "use_eaft",
                                       "use_eaft_loss",
                                       "use_asft_loss",
                                       "qat",
                                       "peft_init_lora_weights",
                                       "peft_use_dora",
                                       "neftune_noise_alpha",
                                       "freeze_trainable_layers",
                                       "use_llama_pro",
                                       "reinit_weights",
                                       "freeze_extra_modules",
                                       "unfrozen_parameters",
                                       "freeze_parameters",
                                       "freeze_parameters_regex",
                                       "freeze_parameters_ratio",
                                       "trainable_parameters",
                                       "trainable_parameters_regex",
                                       "loraplus_lr_ratio",
                                       "stage"};
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        const af_key *k = af_key_find(keys[i]);
        const bool set = af_run_key_is_set(r, keys[i]);
        const char *name = set ? r->key_name[k - af_keys] : NULL;
        const bool alias = name && af_key_find(name) == k;
        if (i > 1 && !set)
            continue;
        af_buf_printf(b, "%s%s ", i ? ", " : "", alias && i > 1 ? name : k->name);
        (void)put_value(b, r, k);
        if (name && !alias) /* translated: the key of the file that asked for it */
            af_buf_printf(b, " ('%s')", name);
    }
    if (r->rl == AF_RL_REWARD)
        af_buf_str(b, ", num_labels 1");
}

/* The default of a key is not written when the user set the key that excludes it. */
static bool rival_is_set(const af_run_config *r, const af_key *k)
{
    static const char *const rivals[][2] = {
        {"warmup_steps", "warmup_ratio"},
        {"lr_decay_ratio", "lr_decay_steps"},
        {"oft_block_size", "oft_r"},
        {"save_steps", "saves_per_epoch"},
        {"eval_steps", "evals_per_epoch"},
        {"val_set_size", "test_datasets"},
        {"auto_resume_from_checkpoints", "resume_from_checkpoint"},
        {"overwrite_output_dir", "resume_from_checkpoint"}};
    for (size_t i = 0; i < AF_LEN(rivals); i++)
        for (int side = 0; side < 2; side++)
            if (strcmp(rivals[i][side], k->name) == 0 && af_run_key_is_set(r, rivals[i][!side]))
                return true;
    return false;
}

/* Defaults of keys without effect in this run are omitted, so that the file can be read back. */
static bool matters(const af_run_config *r, const af_key *k)
{
    return af_run_key_is_set(r, k->name) || (af_key_has_effect(r, k->need) && !rival_is_set(r, k));
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

/* One more entry of "  name, name, ...", wrapped before column 100. */
static void put_entry(af_buf *b, size_t *column, const char *name, size_t len, bool last)
{
    if (*column + len + 2 > 98) {
        af_buf_str(b, "\n ");
        *column = 1;
    }
    af_buf_printf(b, " %.*s%s", (int)len, name, last ? "\n" : ",");
    *column += len + 2;
}

static void put_list_of(af_buf *b, const char *title, const char *(*name)(int))
{
    size_t column = 1;
    af_buf_printf(b, "\n%s\n ", title);
    for (int i = 0; name(i); i++)
        put_entry(b, &column, name(i), strlen(name(i)), !name(i + 1));
}

/* The same from one string "name, name". */
static void put_names(af_buf *b, const char *title, const char *names)
{
    size_t column = 1, n;
    af_buf_printf(b, "\n%s\n ", title);
    for (; *names; names += n + strspn(names + n, ", ")) {
        n = strcspn(names, ",");
        put_entry(b, &column, names, n, !names[n]);
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
    put_list_of(&b, "keys of an entry of datasets (path is required):", af_data_source_key);
    put_list_of(&b, "values of its type [detected from the first record]:", af_data_source_type);
    *out = af_buf_take(&b);
    return *out ? AF_OK : af_fail_nomem(err, "the help", 4096);
}
