/* folder_out.c - see folder_out.h. */
#define _POSIX_C_SOURCE 200809L
#include "convert/output/folder_out.h"

#include "afinar/convert.h"

#include <sys/stat.h>
#include <unistd.h>

af_status af_output_check(const char *path, const char *const *inputs, int n, af_error *err)
{
    for (int i = 0; i < n; i++)
        if (inputs[i] && af_path_same(path, inputs[i]))
            return af_fail(err, AF_EUSAGE, "the output '%s' is one of the inputs", path);
    return AF_OK;
}

static bool has_file(const char *dir, const char *name)
{
    char *p = af_path_join(dir, name);
    const bool yes = p && af_file_exists(p);
    free(p);
    return yes;
}

/* The first folder among the names that no model has, or NULL: checkpoints, a repository. */
static const char *foreign_folder(const char *path, char *const *names, int n)
{
    for (int i = 0; i < n; i++) {
        char *p = af_path_join(path, names[i]);
        const bool dir = p && af_dir_exists(p);
        free(p);
        if (dir && strcmp(names[i], "additional_chat_templates") != 0)
            return names[i];
    }
    return NULL;
}

/* An existing folder may be replaced when it is empty or holds what we write, and no more. */
static af_status check_old(const char *path, af_error *err)
{
    char **names = NULL;
    int n = 0;
    if (af_file_exists(path))
        return af_fail(err, AF_EUSAGE, "the output '%s' is a file; give a folder", path);
    if (!af_dir_exists(path))
        return AF_OK;
    af_status st = af_dir_list(&names, &n, path, err);
    if (st != AF_OK)
        return st;
    const char *other = foreign_folder(path, names, n);
    if (n && !has_file(path, "config.json") && !has_file(path, "adapter_config.json"))
        st = af_fail(err, AF_EUSAGE,
                     "the output folder '%s' exists and is neither empty nor a model", path);
    else if (other)
        st = af_fail(err, AF_EUSAGE,
                     "the output folder '%s' is not replaced, because '%s' in it would be lost: "
                     "choose another name",
                     path, other);
    af_names_free(names, n);
    return st;
}

bool af_convert_abort(const char *out)
{
    size_t len = strlen(out);
    while (len > 1 && out[len - 1] == '/')
        len--;
    char *path = af_strndup(out, len);
    const bool any = path && af_path_discard(path);
    free(path);
    return any;
}

af_status af_folder_begin(af_folder *f, const char *path, const char *const *inputs,
                          int input_count, af_error *err)
{
    af_status st = AF_OK;
    *f = (af_folder){0};
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    if (len == 0)
        return af_fail(err, AF_EUSAGE, "the output folder has no name");
    AF_TRY(af_output_check(path, inputs, input_count, err));
    AF_TRY(check_old(path, err));
    f->final = af_strndup(path, len);
    f->temp = f->final ? af_path_temp(f->final, "tmp") : NULL;
    if (!f->temp)
        AF_TRY(af_fail_nomem(err, "a path", len));
    af_path_sweep(f->final);
    AF_TRY(af_dir_make(f->temp, err));
done:
    if (st != AF_OK)
        af_folder_abandon(f);
    return st;
}

af_status af_folder_commit(af_folder *f, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_dir_sync(f->temp, err));
    AF_TRY(af_path_replace(f->temp, f->final, err));
    free(f->temp);
    free(f->final);
    *f = (af_folder){0};
done:
    return st;
}

void af_folder_abandon(af_folder *f)
{
    if (f->temp && af_path_remove(f->temp, NULL) != AF_OK) {
        /* the first error is the one to report */
    }
    free(f->temp);
    free(f->final);
    *f = (af_folder){0};
}

static af_status copy_templates(const af_folder *f, const char *from, af_error *err)
{
    static const char sub[] = "additional_chat_templates";
    af_status st = AF_OK;
    char **names = NULL;
    int n = 0;
    char *a = af_path_join(from, sub), *b = af_path_join(f->temp, sub);
    if (!a || !b)
        AF_TRY(af_fail_nomem(err, "a path", sizeof sub));
    if (!af_dir_exists(a))
        goto done;
    AF_TRY(af_dir_list(&names, &n, a, err));
    AF_TRY(af_dir_make(b, err));
    for (int i = 0; i < n; i++) {
        char *name = af_path_join(sub, names[i]);
        st = name ? af_file_copy_into(from, f->temp, name, err)
                  : af_fail_nomem(err, "a path", sizeof sub);
        free(name);
        if (st != AF_OK)
            break;
    }
done:
    af_names_free(names, n);
    free(a);
    free(b);
    return st;
}

/* A tokenizer's files; from FORMS on the vocabulary once more, as older programs expect it. */
enum { FORMS = 6 };
static const char *const tokenizer_files[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
};

af_status af_folder_copy_text(const af_folder *f, const char *from, af_error *err)
{
    static const char *const others[] = {"generation_config.json", "LICENSE", "LICENSE.txt",
                                         "NOTICE"};
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(tokenizer_files); i++)
        AF_TRY(af_file_copy_into(from, f->temp, tokenizer_files[i], err));
    for (size_t i = 0; i < AF_LEN(others); i++)
        AF_TRY(af_file_copy_into(from, f->temp, others[i], err));
    st = copy_templates(f, from, err);
done:
    return st;
}

af_status af_folder_replace_tokenizer(const af_folder *f, const char *from, bool forms,
                                      af_error *err)
{
    const size_t n = forms ? AF_LEN(tokenizer_files) : FORMS;
    for (size_t i = 0; i < n; i++) {
        char *path = af_path_join(f->temp, tokenizer_files[i]);
        af_status st = path ? AF_OK : af_fail_nomem(err, "a path", strlen(f->temp));
        if (path && af_file_exists(path))
            st = af_path_remove(path, err);
        free(path);
        if (st == AF_OK)
            st = af_file_copy_into(from, f->temp, tokenizer_files[i], err);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}
