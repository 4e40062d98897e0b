/* adapter_texts.c - see adapter_texts.h. */
#include "model/adapter_texts.h"

#include "base/file.h"
#include "base/log.h"
#include "format/chat/chat_template.h"
#include "format/config/hf_config.h"

bool af_adapter_has_template(const char *dir)
{
    af_template *t = NULL;
    if (af_file_in(dir, "chat_template.jinja"))
        return true; /* also one that cannot be read: the code that opens it reports why */
    const bool has =
        af_file_in(dir, "tokenizer_config.json") && af_template_open(&t, dir, NULL) == AF_OK;
    af_template_close(t);
    return has;
}

/* Opens, and its ids fit. */
static bool fits(const char *dir, int64_t rows)
{
    af_error err = {0};
    af_tokenizer *t = NULL;
    if (af_tokenizer_open(&t, dir, &err) != AF_OK) {
        if (err.code == AF_ENOMEM)
            af_memory_note(); /* not the adapter's fault */
        af_log_write(AF_LOG_WARN, "the tokenizer of the adapter is not used: %s", err.msg);
        return false;
    }
    const int64_t n = af_tokenizer_vocab_size(t);
    if (n > rows)
        af_log_write(AF_LOG_WARN,
                     "the tokenizer of the adapter is not used: it has %" PRId64
                     " tokens, the model %" PRId64 " rows",
                     n, rows);
    af_tokenizer_close(t);
    return n <= rows;
}

static bool same_file(const char *a, const char *b, const char *name)
{
    af_map x = {0}, y = {0};
    char *p = af_path_join(a, name), *q = af_path_join(b, name);
    const bool same = p && q && af_map_open(&x, p, NULL) == AF_OK &&
                      af_map_open(&y, q, NULL) == AF_OK && x.size == y.size &&
                      memcmp(x.data, y.data, x.size) == 0;
    af_map_close(&x);
    af_map_close(&y);
    free(p);
    free(q);
    return same;
}

/* With the file that names its special tokens. */
static bool is_whole(const char *dir)
{
    return af_folder_has_tokenizer(dir) && af_file_in(dir, "tokenizer_config.json");
}

/* Tokens that the other tokenizer does not have; in a GGUF file other differences do not show. Also
 * true of one that does not open: fits() reports why. */
static bool has_more(const char *dir, const char *other)
{
    af_tokenizer *own = NULL, *base = NULL;
    const bool more = af_tokenizer_open(&own, dir, NULL) != AF_OK ||
                      (af_tokenizer_open(&base, other, NULL) == AF_OK &&
                       af_tokenizer_vocab_size(own) > af_tokenizer_vocab_size(base));
    af_tokenizer_close(own);
    af_tokenizer_close(base);
    return more;
}

/* tokenizer.model stays as it is when tokens are added to a folder, and so do the others. */
static bool same_tokenizer(const char *dir, const char *base)
{
    if (af_file_in(dir, "tokenizer.json") || af_file_in(base, "tokenizer.json"))
        return same_file(dir, base, "tokenizer.json");
    if (!af_tokenizer_can_make(dir) || !af_tokenizer_can_make(base))
        return same_file(dir, base, "tokenizer.model") && !has_more(dir, base);
    bool same = true;
    for (const char *const *name = af_tokenizer_sources; *name; name++)
        same &= af_file_in(dir, *name) == af_file_in(base, *name) &&
                (!af_file_in(dir, *name) || same_file(dir, base, *name));
    return same && !has_more(dir, base);
}

bool af_adapter_own_tokenizer(const char *dir, const char *base, int64_t rows)
{
    if (!is_whole(dir))
        return false;
    return (af_dir_exists(base) ? !same_tokenizer(dir, base) : has_more(dir, base)) &&
           fits(dir, rows);
}

bool af_adapter_has_tokenizer(const char *dir, const char *base, int64_t rows)
{
    return is_whole(dir) &&
           (same_tokenizer(dir, base) || af_adapter_own_tokenizer(dir, base, rows));
}
