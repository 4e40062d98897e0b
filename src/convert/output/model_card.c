/* model_card.c - see model_card.h. */
#include "convert/output/model_card.h"

#include "afinar/version.h"
#include "base/file.h"
#include "format/text/json_text.h"

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

/* The value of `license:` between the lines "---" at the beginning. */
static char *license_in(const char *text)
{
    static const char key[] = "license:";
    if (strncmp(text, "---\n", 4) != 0)
        return NULL;
    for (const char *at = text + 4; *at && strncmp(at, "---", 3) != 0;) {
        const size_t line = strcspn(at, "\n");
        if (strncmp(at, key, sizeof key - 1) == 0) {
            const char *v = at + sizeof key - 1 + strspn(at + sizeof key - 1, " '\"");
            const size_t n = strcspn(v, " '\"\r\n");
            return is_license(v, n) ? af_strndup(v, n) : NULL;
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

char *af_card_license(const char *folder)
{
    if (!folder || !af_dir_exists(folder))
        return NULL;
    char *text = read_text(folder, AF_CARD_NAME), *license = text ? license_in(text) : NULL;
    free(text);
    return license ? license : license_of_config(folder);
}

/* The one licence that all bases have. */
static char *common_license(const af_card *c)
{
    char *one = NULL;
    for (int i = 0; i < c->bases; i++) {
        char *l = af_card_license(c->base_path[i]);
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

static void put_char(af_buf *b, char c)
{
    if (c == '"' || c == '\\')
        af_buf_char(b, '\\');
    af_buf_char(b, (unsigned char)c < 0x20 || c == 0x7f ? '?' : c);
}

/* A folder of the hub's cache, models--org--name/snapshots/...: org/name. */
static bool put_hub_name(af_buf *b, const char *path)
{
    static const char mark[] = "models--";
    const char *at = strstr(path, mark), *end = at ? strstr(at, "/snapshots/") : NULL;
    if (!end || (at > path && at[-1] != '/'))
        return false;
    af_buf_char(b, '"');
    for (at += sizeof mark - 1; at < end; at++) {
        const bool slash = at[0] == '-' && at[1] == '-';
        put_char(b, slash ? '/' : *at);
        at += slash;
    }
    af_buf_char(b, '"');
    return true;
}

/* org/name as it is; of a path its last part: where it lies on this machine is nobody's business,
 * and the hub refuses paths. */
static void put_name(af_buf *b, const char *name)
{
    size_t n = strlen(name);
    if (put_hub_name(b, name))
        return;
    while (n > 1 && name[n - 1] == '/')
        n--;
    size_t from = n;
    int slashes = 0;
    while (from > 0 && !(name[from - 1] == '/' && slashes++ > 0))
        from--;
    const bool hub = from == 0 && name[0] != '/' && name[0] != '.' && slashes == 1;
    if (!hub)
        for (from = n; from > 0 && name[from - 1] != '/';)
            from--;
    af_buf_char(b, '"');
    for (size_t i = from; i < n; i++)
        put_char(b, name[i]);
    af_buf_char(b, '"');
}

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

static void put_list(af_buf *b, const char *key, const char *const *names, int n)
{
    if (n > 0)
        af_buf_printf(b, "%s:\n", key);
    for (int i = 0; i < n; i++) {
        af_buf_str(b, "- ");
        put_name(b, names[i]);
        af_buf_char(b, '\n');
    }
}

static void put_front(af_buf *b, const af_card *c)
{
    char *license = common_license(c);
    af_buf_str(b, "---\n");
    if (c->bases == 1) {
        af_buf_str(b, "base_model: ");
        put_name(b, c->base[0]);
        af_buf_char(b, '\n');
    } else {
        put_list(b, "base_model", c->base, c->bases);
    }
    if (c->relation)
        af_buf_printf(b, "base_model_relation: %s\n", c->relation);
    af_buf_printf(b, "library_name: %s\n", c->library);
    if (license)
        af_buf_printf(b, "license: %s\n", license);
    put_list(b, "datasets", c->datasets, c->dataset_count);
    af_buf_str(b, "tags:\n- afinar\n");
    for (size_t i = 0; i < AF_LEN(c->tags) && c->tags[i]; i++)
        af_buf_printf(b, "- %s\n", c->tags[i]);
    af_buf_str(b, "---\n\n");
    free(license);
}

af_status af_card_write(const char *dir, const af_card *c, af_error *err)
{
    af_buf b = {0};
    char *path = af_path_join(dir, AF_CARD_NAME);
    put_front(&b, c);
    af_buf_str(&b, "# ");
    for (const char *p = c->title; *p; p++)
        af_buf_char(&b, (unsigned char)*p < 0x20 ? '?' : *p);
    af_buf_printf(&b, "\n\n%s\nWritten by afinar %s.\n", c->body, af_version());
    const af_status st = !path || b.bad ? af_fail_nomem(err, "a model card", b.len)
                                        : af_file_write(path, b.data, b.len, err);
    af_buf_clear(&b);
    free(path);
    return st;
}

/* A name inside quotes of a program text. */
static void put_plain(af_buf *b, const char *text)
{
    for (; *text; text++)
        af_buf_char(b, strchr("\"`\\", *text) || (unsigned char)*text < 0x20 ? '?' : *text);
}

/* `text` with %1 for the folder and %2 for its base. */
static void put_code(af_buf *b, const char *text, const char *title, const char *base)
{
    for (; *text; text++) {
        if (text[0] == '%' && (text[1] == '1' || text[1] == '2'))
            put_plain(b, *++text == '1' ? title : base);
        else
            af_buf_char(b, *text);
    }
}

void af_card_load(af_buf *b, const char *library, const char *title, const char *base)
{
    static const char peft[] = "from peft import PeftModel\n"
                               "from transformers import AutoModelForCausalLM\n\n"
                               "base = AutoModelForCausalLM.from_pretrained(\"%2\")\n"
                               "model = PeftModel.from_pretrained(base, \"%1\")\n```\n"
                               "\n```sh\nafinar chat \"%2\" --adapter \"%1\"\n```\n";
    static const char mlx[] = "from mlx_lm import load\n\n"
                              "model, tokenizer = load(\"%2\", adapter_path=\"%1\")\n```\n";
    static const char whole[] = "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
                                "model = AutoModelForCausalLM.from_pretrained(\"%1\")\n"
                                "tokenizer = AutoTokenizer.from_pretrained(\"%1\")\n```\n"
                                "\n```sh\nafinar chat \"%1\"\n```\n";
    af_buf_str(b, "\n## How to load\n\n```python\n");
    put_code(b,
             strcmp(library, "peft") == 0  ? peft
             : strcmp(library, "mlx") == 0 ? mlx
                                           : whole,
             title, base);
}

af_status af_card_put(const af_output *f, af_card *c, af_buf *body, af_error *err)
{
    const char *name = af_path_name(f->path);
    c->title = strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || !*name ? "model" : name;
    af_card_load(body, c->library, c->title, c->bases ? c->base[0] : "BASE");
    c->body = body->data;
    const af_status st =
        body->bad ? af_fail_nomem(err, "a model card", body->len) : af_card_write(f->temp, c, err);
    af_buf_clear(body);
    return st;
}
