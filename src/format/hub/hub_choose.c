/* hub_choose.c - which files of a repository are needed.
 *
 * A model needs its configs, its tokenizer, and its weights once: safetensors in the top folder,
 * one GGUF file, or, where there is neither, pytorch_model.bin; of each the file or else its
 * shards, and no variant (model.fp16.safetensors), as transformers. Other pickles run code when
 * they are opened and are never fetched. A dataset needs all but pickles and what only git reads.
 */
#define _GNU_SOURCE
#include "format/hub/hub_tree.h"

#include "base/buf.h"
#include "base/word.h"
#include "format/weights/gguf.h"
#include "format/weights/part_name.h"

#include <ctype.h>
#include <fnmatch.h>
#include <strings.h>

static bool ends_with_any(const char *s, const char *const *tails)
{
    for (; *tails; tails++)
        if (af_ends_with_any_case(s, strlen(s), *tails))
            return true;
    return false;
}

static bool is_pickle(const char *path)
{
    static const char *const tails[] = {".bin", ".pt", ".pth", ".ckpt", ".pickle", ".pkl", NULL};
    return ends_with_any(path, tails);
}

static bool is_top(const char *path) { return !strchr(path, '/'); }

/* Weights that are read without running anything: torch_file.h. */
static bool is_torch(const char *path)
{
    return is_top(path) && af_ends_with(path, ".bin") &&
           (strncmp(path, "pytorch_model", 13) == 0 || strcmp(path, "adapter_model.bin") == 0);
}

/* "STEM-00001-of-00002EXT"; some have numbers of six digits. */
static bool is_shard(const char *path, const char *stem)
{
    const size_t n = strlen(stem);
    return strncmp(path, stem, n) == 0 && path[n] == '-' && strstr(path + n, "-of-");
}

/* "model.fp16.safetensors", and not "model.safetensors-00001-of-00002.safetensors". */
static bool is_variant(const char *path)
{
    return strncmp(path, "model.", 6) == 0 && strncmp(path + 6, "safetensors", 11) != 0;
}

static bool is_torch_variant(const char *path)
{
    return strcmp(path, "pytorch_model.bin") != 0 && strcmp(path, "adapter_model.bin") != 0 &&
           !is_shard(path, "pytorch_model");
}

static bool is_about(const char *path) /* what only git or people read */
{
    static const char *const tails[] = {".gitattributes", ".gitignore", NULL};
    return ends_with_any(path, tails);
}

/* Configs, tokenizer, templates, the card and the licence. */
static bool is_config(const char *path)
{
    static const char *const tails[] = {".json",     ".jinja",    ".model", ".txt",
                                        ".tiktoken", "README.md", NULL};
    if (strncmp(path, "additional_chat_templates/", 26) == 0 ||
        strcmp(path, "1_Pooling/config.json") == 0) /* of sentence-transformers */
        return true;
    return is_top(path) && (ends_with_any(path, tails) || strncasecmp(path, "LICENSE", 7) == 0);
}

static bool is_weights(const char *path)
{
    return is_top(path) && af_ends_with_any_case(path, strlen(path), ".safetensors");
}

/* As huggingface_hub: '*' matches '/' too, and "folder/" means all that is in it. */
static bool matches(const char *path, const char *const *patterns, int n)
{
    for (int i = 0; i < n; i++) {
        const char *p = patterns[i];
        const size_t len = strlen(p);
        if (fnmatch(p, path, 0) == 0)
            return true;
        if (len > 0 && p[len - 1] == '/' && strncmp(path, p, len) == 0)
            return true;
    }
    return false;
}

static af_status choose_named(af_hub_tree *t, const af_hub_choice *c, const char *repo,
                              af_error *err)
{
    int chosen = 0;
    const char *pickle = NULL;
    for (int i = 0; i < t->count; i++) {
        af_hub_file *f = &t->file[i];
        f->needed =
            matches(f->path, c->include, c->includes) && !matches(f->path, c->exclude, c->excludes);
        if (f->needed && is_pickle(f->path) && !is_torch(f->path)) {
            pickle = f->path;
            f->needed = false;
        }
        chosen += f->needed;
    }
    if (chosen == 0 && pickle)
        return af_fail(err, AF_EUSAGE,
                       "%s: '%s' is a pickle, which can run any code when it is opened, and is not "
                       "downloaded",
                       repo, pickle);
    if (chosen == 0)
        return af_fail_subject(err, AF_EUSAGE, AF_HUB_NO_MATCH,
                               "%s has no file that matches '%s'%s", repo, c->include[0],
                               c->includes > 1 ? " or the other patterns" : "");
    return AF_OK;
}

/* ---- GGUF ---- */

/* Whether the name has the type as a word of its own: "model-Q4_K_M.gguf", and not Q4_K of it. */
static bool has_type(const char *path, const char *type)
{
    const size_t n = strlen(type);
    for (const char *p = path; (p = strcasestr(p, type)); p++) {
        const char before = p == path ? '-' : p[-1], after = p[n];
        if (!isalnum((unsigned char)before) && before != '_' && !isalnum((unsigned char)after) &&
            after != '_')
            return true;
    }
    return false;
}

static af_status choose_gguf(af_hub_tree *t, const af_hub_choice *c, const char *repo,
                             af_error *err)
{
    const char *one = NULL;
    int kinds = 0;
    af_buf names = {0};
    for (int i = 0; i < t->count; i++) {
        const char *path = t->file[i].path;
        if (!af_gguf_names_model(path) || (c->gguf && !has_type(path, c->gguf)))
            continue;
        if (one && af_part_name_same(one, path, ".gguf"))
            continue;
        af_buf_printf(&names, "%s%s", kinds ? ", " : "", path);
        kinds++;
        one = path;
    }
    af_status st = AF_OK;
    if (kinds == 0)
        st = af_fail(err, AF_EUSAGE, "%s has no GGUF file of type %s", repo, c->gguf);
    else if (kinds > 1)
        st = af_fail(err, AF_EUSAGE, "%s has %d GGUF files%s%s; choose one with %s: %.400s", repo,
                     kinds, c->gguf ? " of type " : "", c->gguf ? c->gguf : "",
                     c->gguf ? "--include NAME" : "--gguf TYPE", names.data ? names.data : "");
    for (int i = 0; i < t->count && st == AF_OK; i++)
        t->file[i].needed |=
            strcmp(t->file[i].path, one) == 0 || af_part_name_same(one, t->file[i].path, ".gguf");
    af_buf_clear(&names);
    return st;
}

/* ---- models ---- */

static af_status choose_model(af_hub_tree *t, const af_hub_choice *c, const char *repo,
                              af_error *err)
{
    bool weights = false, model = false, whole = false, gguf = false, torch = false, bin = false;
    const char *pickle = NULL, *config = NULL;
    for (int i = 0; i < t->count; i++) {
        const char *path = t->file[i].path;
        const bool used = is_weights(path) && !is_variant(path);
        weights |= used;
        model |= used && strncmp(path, "model", 5) == 0;
        whole |= strcmp(path, "model.safetensors") == 0;
        gguf |= af_gguf_names_model(path);
        bin |= strcmp(path, "pytorch_model.bin") == 0;
        torch |= is_torch(path) && !is_torch_variant(path);
        pickle = is_pickle(path) && strcmp(path, "training_args.bin") != 0 ? path : pickle;
        config = is_config(path) ? path : config;
    }
    for (int i = 0; i < t->count; i++) {
        af_hub_file *f = &t->file[i];
        /* Mistral's repositories have the weights a second time, in consolidated.safetensors */
        const bool twice = (model && strncmp(f->path, "consolidated", 12) == 0) ||
                           (whole && is_shard(f->path, "model")) ||
                           (bin && is_shard(f->path, "pytorch_model"));
        f->needed = is_config(f->path) ||
                    (is_weights(f->path) && !is_variant(f->path) && !twice && !c->gguf) ||
                    (is_torch(f->path) && !is_torch_variant(f->path) && !twice && !weights &&
                     !gguf && !c->gguf);
    }
    if (c->gguf || (!weights && gguf))
        return choose_gguf(t, c, repo, err);
    if (!weights && !torch && pickle)
        return af_fail(
            err, AF_EUSAGE,
            "%s has its weights as a pickle alone ('%s'), which can run any code when it "
            "is opened, and is not downloaded; look for a repository or a revision with "
            "safetensors (refs/pr/... often has them)",
            repo, pickle);
    if (!weights && !torch && !config)
        return af_fail(err, AF_EUSAGE, "%s has neither safetensors nor GGUF files", repo);
    return AF_OK; /* a tokenizer alone is fine */
}

af_status af_hub_tree_choose(af_hub_tree *t, const af_hub_choice *c, const char *repo,
                             af_error *err)
{
    if (c->includes > 0)
        return choose_named(t, c, repo, err);
    af_status st = AF_OK;
    if (c->kind == AF_HUB_MODEL)
        st = choose_model(t, c, repo, err);
    int chosen = 0;
    for (int i = 0; i < t->count; i++) {
        af_hub_file *f = &t->file[i];
        if (c->kind == AF_HUB_DATASET)
            f->needed = !is_pickle(f->path) && !is_about(f->path);
        if (matches(f->path, c->exclude, c->excludes))
            f->needed = false;
        chosen += f->needed;
    }
    if (st == AF_OK && chosen == 0)
        st = af_fail(err, AF_EUSAGE, "%s has no file to download", repo);
    return st;
}
