/* model_card.c - see model_card.h. */
#include "convert/output/model_card.h"

#include "afinar/version.h"
#include "base/file.h"
#include "base/word.h"
#include "convert/input/folder_text.h"
#include "format/hub/hub_name.h"
#include "format/text/json_text.h"
#include "model/adapter_config.h"

enum { README_MAX = 1 << 20, LICENSE_MAX = 64 };

/* ---- the licence of a base ---- */

static char *read_text(const char *folder, const char *name)
{
    char *path = af_path_join(folder, name), *text = NULL;
    uint64_t n = 0;
    if (path && af_file_exists(path) && af_file_read(&text, &n, path, README_MAX, NULL) != AF_OK)
        text = NULL; /* a card without a licence is right, too */
    free(path);
    return text;
}

static bool is_license(const char *s, size_t n)
{
    static const char chars[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-+_";
    return n > 0 && n < LICENSE_MAX && strspn(s, chars) >= n;
}

/* An address that stands in double quotes of YAML as it is. */
static bool is_address(const char *s)
{
    if (strncmp(s, "https://", 8) != 0)
        return false;
    while (*s > ' ' && *s < 0x7f && *s != '"' && *s != '\\')
        s++;
    return !*s;
}

/* The value of `key` ("license:") between the lines "---" at the beginning; free(). */
static char *front_value(const char *text, const char *key)
{
    if (strncmp(text, "---\n", 4) != 0)
        return NULL;
    for (const char *at = text + 4; *at && strncmp(at, "---", 3) != 0;) {
        const size_t line = strcspn(at, "\n");
        if (strncmp(at, key, strlen(key)) == 0) {
            const char *v = at + strlen(key) + strspn(at + strlen(key), " '\"");
            return af_strndup(v, strcspn(v, " '\"\r\n"));
        }
        at += line + (at[line] == '\n');
    }
    return NULL;
}

static char *license_of_config(const char *folder)
{
    char *text = read_text(folder, "config.json"), *license = NULL;
    json_t *o = text ? af_json_load(text, strlen(text), 0, NULL) : NULL;
    const char *v = json_string_value(json_object_get(o, "license"));
    if (v && is_license(v, strlen(v)))
        license = af_strdup(v);
    json_decref(o);
    free(text);
    return license;
}

static char *license_of(const char *folder)
{
    if (!folder || !af_dir_exists(folder))
        return NULL;
    char *text = read_text(folder, AF_CARD_NAME);
    char *license = text ? front_value(text, "license:") : NULL;
    free(text);
    if (license && is_license(license, strlen(license)))
        return license;
    free(license);
    return license_of_config(folder);
}

/* The one licence that all bases have. */
static char *common_license(const af_card *c)
{
    char *one = NULL;
    for (int i = 0; i < c->bases; i++) {
        char *l = license_of(c->base_path[i]);
        const bool same = l && (!one || strcmp(l, one) == 0);
        if (same && !one) {
            one = l;
            continue;
        }
        free(l);
        if (!same) {
            free(one);
            return NULL;
        }
    }
    return one;
}

/* ---- the text ---- */

/* A license "other" has a name and an address of its own. Addresses inside the base's folder are
 * not copied: the file is not here. */
static void put_license(af_buf *b, const af_card *c)
{
    char *license = common_license(c);
    if (license)
        af_buf_printf(b, "license: %s\n", license);
    char *text = license && c->bases == 1 && strcmp(license, "other") == 0
                     ? read_text(c->base_path[0], AF_CARD_NAME)
                     : NULL;
    char *name = text ? front_value(text, "license_name:") : NULL;
    char *link = text ? front_value(text, "license_link:") : NULL;
    if (name && is_license(name, strlen(name)))
        af_buf_printf(b, "license_name: %s\n", name);
    if (link && is_address(link))
        af_buf_printf(b, "license_link: \"%s\"\n", link);
    free(link);
    free(name);
    free(text);
    free(license);
}

/* ---- names ---- */

/* A folder of the hub's cache, models--org--name/snapshots/...: org/name. */
static bool cached_id(af_hub_repo *out, const char *path)
{
    static const char *const marks[] = {"models--", "datasets--"};
    char name[AF_HUB_NAME_MAX];
    size_t n = 0;
    const char *end = strstr(path, "/snapshots/"), *at = end;
    while (at && at > path && at[-1] != '/')
        at--;
    for (size_t i = 0; at && i < AF_LEN(marks); i++)
        if (strncmp(at, marks[i], strlen(marks[i])) == 0) {
            for (at += strlen(marks[i]); at < end && n + 1 < sizeof name; at++) {
                const bool slash = at[0] == '-' && at[1] == '-';
                name[n++] = slash ? '/' : *at;
                at += slash;
            }
            name[n] = '\0';
            return af_hub_repo_parse(out, AF_HUB_MODEL, name, NULL, NULL) == AF_OK;
        }
    return false;
}

/* Whether `name` is one of the hub; what exists on this machine under that name comes first. */
static bool is_hub_name(const char *name)
{
    return af_hub_is_name(name) && !af_dir_exists(name) && !af_file_exists(name);
}

/* org/name as it is, without its revision; of a path its last part: where it lies on this machine
 * is nobody's business, and the hub refuses paths. False: the hub would refuse this one, too. */
static bool hub_id(af_hub_repo *out, const char *name)
{
    char last[AF_HUB_NAME_MAX];
    size_t n = strlen(name), from;
    if (cached_id(out, name))
        return true;
    if (is_hub_name(name))
        return af_hub_repo_parse(out, AF_HUB_MODEL, name, NULL, NULL) == AF_OK;
    while (n > 1 && name[n - 1] == '/')
        n--;
    for (from = n; from > 0 && name[from - 1] != '/';)
        from--;
    if (n - from >= sizeof last || memchr(name + from, '@', n - from))
        return false;
    snprintf(last, sizeof last, "%.*s", (int)(n - from), name + from);
    return af_hub_repo_parse(out, AF_HUB_MODEL, last, NULL, NULL) == AF_OK;
}

/* ---- the text ---- */

void af_card_code(af_buf *b, const char *text)
{
    af_buf_char(b, '`');
    for (; *text; text++)
        af_buf_char(b, *text == '`' || (unsigned char)*text < 0x20 ? '?' : *text);
    af_buf_char(b, '`');
}

void af_card_fence(af_buf *b, const char *language, const char *text, uint64_t n)
{
    int ticks = 3, run = 0;
    for (uint64_t i = 0; i < n; i++) {
        run = text[i] == '`' ? run + 1 : 0;
        ticks = AF_MAX(ticks, run + 1);
    }
    for (int i = 0; i < ticks; i++)
        af_buf_char(b, '`');
    af_buf_printf(b, "%s\n", language);
    af_buf_add(b, text, n);
    if (n == 0 || text[n - 1] != '\n')
        af_buf_char(b, '\n');
    for (int i = 0; i < ticks; i++)
        af_buf_char(b, '`');
    af_buf_char(b, '\n');
}

/* Names that the hub takes, each once; a single one of `one` is not a list. */
static void put_names(af_buf *b, const char *key, const char *const *names, int n, bool one)
{
    af_hub_repo id, before;
    bool listed = false;
    for (int i = 0; i < n; i++) {
        bool skip = !hub_id(&id, names[i]);
        for (int k = 0; k < i && !skip; k++)
            skip = hub_id(&before, names[k]) && strcmp(id.name, before.name) == 0;
        if (skip)
            continue;
        af_buf_printf(b, "%s%s%s\"%s\"\n", listed ? "" : key,
                      listed ? ""
                      : one  ? ": "
                             : ":\n",
                      one ? "" : "- ", id.name);
        listed = true;
    }
}

static void put_front(af_buf *b, const af_card *c, int labels)
{
    af_buf_str(b, "---\n");
    put_names(b, "base_model", c->base, c->bases, c->bases == 1);
    if (c->relation)
        af_buf_printf(b, "base_model_relation: %s\n", c->relation);
    af_buf_printf(b, "library_name: %s\npipeline_tag: text-%s\n", c->library,
                  labels ? "classification" : "generation");
    put_license(b, c);
    put_names(b, "datasets", c->datasets, c->dataset_count, false);
    af_buf_str(b, "tags:\n- afinar\n");
    for (size_t i = 0; i < AF_LEN(c->tags) && c->tags[i]; i++)
        af_buf_printf(b, "- %s\n", c->tags[i]);
    af_buf_str(b, "---\n\n");
}

/* ---- how to load it ---- */

/* How many labels the model or adapter in a folder tells apart; 0: it is a language model. */
static int labels_of(const char *dir)
{
    json_t *j = NULL;
    char *path = af_path_join(dir, "adapter_config.json");
    const bool adapter = path && af_file_exists(path);
    free(path);
    if (af_json_read(&j, dir, adapter ? "adapter_config.json" : "config.json", NULL) != AF_OK)
        return 0;
    const char *class =
        adapter ? json_string_value(json_object_get(j, "task_type"))
                : json_string_value(json_array_get(json_object_get(j, "architectures"), 0));
    const json_t *of = adapter ? json_object_get(j, AF_LABELS_KEY) : j;
    const size_t n = json_object_size(json_object_get(of, "id2label"));
    const bool classifies = class && (adapter ? strcmp(class, "SEQ_CLS") == 0
                                              : af_ends_with(class, "ForSequenceClassification"));
    json_decref(j);
    return !classifies ? 0 : n ? (int)n : 2;
}

/* A name inside double quotes of a program or shell text. */
static void put_plain(af_buf *b, const char *text)
{
    for (; *text; text++)
        af_buf_char(b, strchr("\"`\\$", *text) || (unsigned char)*text < 0x20 ? '?' : *text);
}

/* `text` with %1 for the folder, %2 for its base, %3 for the base without its revision, %4 for the
 * class of transformers and %5 for further arguments. */
static void put_code(af_buf *b, const char *text, const char *const with[5])
{
    for (; *text; text++) {
        if (text[0] == '%' && text[1] >= '1' && text[1] <= '3')
            put_plain(b, with[*++text - '1']);
        else if (text[0] == '%')
            af_buf_str(b, with[*++text - '1']);
        else
            af_buf_char(b, *text);
    }
}

static void put_load(af_buf *b, const af_card *c, int labels)
{
    static const char peft[] = "from peft import PeftModel\n"
                               "from transformers import %4\n\n"
                               "base = %4.from_pretrained(\"%3\"%5)\n"
                               "model = PeftModel.from_pretrained(base, \"%1\")\n```\n\n```sh\n";
    static const char mlx[] = "from mlx_lm import load\n\n"
                              "model, tokenizer = load(\"%3\", adapter_path=\"%1\")\n```\n";
    static const char whole[] = "from transformers import %4, AutoTokenizer\n\n"
                                "model = %4.from_pretrained(\"%1\")\n"
                                "tokenizer = AutoTokenizer.from_pretrained(\"%1\")\n```\n\n```sh\n";
    const char *base = c->bases ? c->base[0] : "BASE";
    af_hub_repo r = {0};
    af_buf more = {0};
    const bool at = strchr(base, '@') && is_hub_name(base) &&
                    af_hub_repo_parse(&r, AF_HUB_MODEL, base, NULL, NULL) == AF_OK;
    if (at)
        af_buf_printf(&more, ", revision=\"%s\"", r.revision);
    if (labels)
        af_buf_printf(&more, ", num_labels=%d", labels);
    const char *const with[] = {c->title, base, at ? r.name : base,
                                labels ? "AutoModelForSequenceClassification"
                                       : "AutoModelForCausalLM",
                                more.data ? more.data : ""};
    const bool adapter = strcmp(c->library, "peft") == 0;
    af_buf_str(b, "\n## How to load\n\n```python\n");
    if (strcmp(c->library, "mlx") == 0) {
        put_code(b, mlx, with);
    } else {
        put_code(b, adapter ? peft : whole, with);
        af_buf_str(b, labels ? "afinar classify " : "afinar chat ");
        put_code(b, adapter ? "\"%2\" --adapter \"%1\"" : "\"%1\"", with);
        af_buf_str(b, labels ? " -p \"Your text\"\n```\n" : "\n```\n");
    }
    b->bad |= more.bad;
    af_buf_clear(&more);
}

af_status af_card_write(const char *dir, const af_card *c, af_error *err)
{
    af_buf b = {0};
    char *path = af_path_join(dir, AF_CARD_NAME);
    const int labels = labels_of(dir);
    put_front(&b, c, labels);
    af_buf_str(&b, "# ");
    for (const char *p = c->title; *p; p++)
        af_buf_char(&b, (unsigned char)*p < 0x20 ? '?' : *p);
    af_buf_printf(&b, "\n\n%s", c->body);
    put_load(&b, c, labels);
    af_buf_printf(&b, "\nWritten by afinar %s.\n", af_version());
    const af_status st = !path || b.bad ? af_fail_nomem(err, "a model card", b.len)
                                        : af_file_write(path, b.data, b.len, err);
    af_buf_clear(&b);
    free(path);
    return st;
}

af_status af_card_put(const af_output *f, af_card *c, af_buf *body, af_error *err)
{
    const char *name = af_path_name(f->path);
    c->title = strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || !*name ? "model" : name;
    c->body = body->data;
    const af_status st =
        body->bad ? af_fail_nomem(err, "a model card", body->len) : af_card_write(f->temp, c, err);
    af_buf_clear(body);
    return st;
}
