/* model_opts.c - opening a model from options, and small output helpers. */
#include "commands/model_opts.h"

#include <errno.h>

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>

void af_cli_model_rows(af_opt *table, af_model_flags *f)
{
    const af_opt rows[] = {
        {0, "adapter", AF_OPT_LIST, &f->adapter, "DIR[=WEIGHT]",
         "adapter with an optional weight; may be repeated"},
        {0, "load-in-4bit", AF_OPT_FLAG, &f->load_in_4bit, NULL,
         "quantize the linear layers to nf4"},
        {0, "quant-scratch", AF_OPT_FLAG, &f->quant_scratch, NULL,
         "keep 4-bit weights in 4 bits (less memory, same results)"},
        {0, "bf16", AF_OPT_FLAG, &f->bf16, NULL, "compute in bf16"},
        {0, "f32", AF_OPT_FLAG, &f->f32, NULL, "compute in f32"},
        {0},
    };
    while (table->name)
        table++;
    memcpy(table, rows, sizeof rows);
}

bool af_cli_is_text(const char *path)
{
    static const char *const endings[] = {".txt", ".text", ".md", ".raw"};
    const size_t n = strlen(path);
    for (size_t i = 0; *path != '{' && i < sizeof endings / sizeof endings[0]; i++) {
        const size_t k = strlen(endings[i]);
        if (n > k && !strcmp(path + n - k, endings[i]))
            return true;
    }
    return false;
}

bool af_cli_has_key(const char *list) { return list[strspn(list, " \t\r\n,")] != '\0'; }

double af_cli_top_p(double p) { return p == 0 ? DBL_MIN : p; }

bool af_cli_split_weight(const char *s, char *dir, size_t size, double *weight)
{
    const char *eq = strrchr(s, '=');
    char *end = NULL;
    struct stat info;
    *weight = 1;
    if (strlen(s) >= size)
        return false;
    snprintf(dir, size, "%s", s);
    if (!eq || !eq[1] || stat(s, &info) == 0)
        return true;
    const double w = strtod(eq + 1, &end);
    if (*end)
        return true;
    *weight = w;
    dir[eq - s] = '\0';
    return isfinite((float)w);
}

bool af_cli_one_adapter(const char *command, const af_opt_list *list, const char **adapter)
{
    *adapter = list->count ? list->item[0] : NULL;
    if (list->count > 1)
        (void)af_cli_error(
            AF_EXIT_USAGE, command,
            "one --adapter is merged here: combine several with 'afinar merge' first");
    return list->count <= 1;
}

af_status af_cli_open_model(af_model **out, const char *model, const af_model_flags *f,
                            const af_common *c, af_error *err)
{
    static char dirs[AF_MODEL_ADAPTERS_MAX][4096];
    af_model_opts o = {.device = c->device,
                       .threads = (int)c->threads,
                       .compute = f->bf16  ? AF_COMPUTE_BF16
                                  : f->f32 ? AF_COMPUTE_F32
                                           : AF_COMPUTE_AUTO,
                       .load_in_4bit = f->load_in_4bit,
                       .quant_scratch = f->quant_scratch,
                       .few_tokens = f->few_tokens,
                       .adapters = f->adapter.count};
    if (f->bf16 && f->f32)
        return af_fail(err, AF_EUSAGE, "give either --bf16 or --f32, not both");
    if (f->adapter.count > AF_MODEL_ADAPTERS_MAX)
        return af_fail(err, AF_EUSAGE, "%d adapters; at most %d are supported", f->adapter.count,
                       AF_MODEL_ADAPTERS_MAX);
    for (int i = 0; i < f->adapter.count; i++) {
        if (!af_cli_split_weight(f->adapter.item[i], dirs[i], sizeof dirs[i], &o.adapter_weight[i]))
            return af_fail(err, AF_EUSAGE, "--adapter expects DIR or DIR=WEIGHT, got '%.200s'",
                           f->adapter.item[i]);
        o.adapter[i] = dirs[i];
    }
    return af_model_open(out, model, &o, err);
}

void af_cli_json_ids(FILE *f, const int32_t *ids, int64_t n)
{
    fputc('[', f);
    for (int64_t i = 0; i < n; i++)
        fprintf(f, i ? ", %d" : "%d", (int)ids[i]);
    fputc(']', f);
}

af_status af_cli_template_ids(af_model *m, const char *row, af_encoding *out, af_error *err)
{
    const af_template *t;
    const af_tokenizer *tok;
    char *text = NULL;
    uint64_t len = 0;
    af_status st = af_model_template(m, &t, err);
    if (st == AF_OK)
        st = af_model_tokenizer(m, &tok, err);
    if (st == AF_OK)
        st = af_template_render_row(t, row, strlen(row), &text, &len, NULL, err);
    if (st == AF_OK)
        st = af_tokenizer_encode(tok, out, text, len, false, err);
    free(text);
    return st;
}

void af_cli_add_message(json_t *list, const char *role, const char *text, size_t len)
{
    json_array_append_new(
        list, json_pack("{s:s, s:o}", "role", role, "content", json_stringn_nocheck(text, len)));
}

af_status af_cli_chat_ids(af_model *m, const char *messages, af_encoding *out, af_error *err)
{
    const size_t need = strlen(messages) + 80;
    char *row = malloc(need);
    if (!row)
        return af_fail(err, AF_ENOMEM, "out of memory for the conversation");
    snprintf(row, need, "{\"messages\": %s, \"add_generation_prompt\": true}", messages);
    const af_status st = af_cli_template_ids(m, row, out, err);
    free(row);
    return st;
}

af_status af_cli_read_file(char **text, size_t *len, const char *path, af_error *err)
{
    FILE *f = strcmp(path, "-") != 0 ? fopen(path, "rb") : stdin;
    size_t cap = 0, got;
    af_status st = AF_OK;
    *text = NULL;
    *len = 0;
    if (!f)
        return af_fail(err, AF_EIO, "cannot open '%s': %s", path, strerror(errno));
    do {
        cap = cap ? cap * 2 : 65536;
        char *p = realloc(*text, cap + 1);
        if (!p) {
            st = af_fail(err, AF_ENOMEM, "out of memory for '%s'", path);
            break;
        }
        *text = p;
        got = fread(*text + *len, 1, cap - *len, f);
        *len += got;
    } while (*len == cap);
    if (st == AF_OK && ferror(f))
        st = af_fail(err, AF_EIO, "cannot read '%s': %s", path, strerror(errno));
    if (f != stdin)
        fclose(f);
    if (*text)
        (*text)[*len] = 0;
    return st;
}
