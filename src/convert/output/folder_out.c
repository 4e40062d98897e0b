/* folder_out.c - see folder_out.h. */
#define _POSIX_C_SOURCE 200809L
#include "convert/output/folder_out.h"

#include "base/word.h"

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
    "sentencepiece.bpe.model",
    "tekken.json",
    "tiktoken.model",
};

/* What makes a folder a model or an adapter for its readers: next to somebody else's file of such a
 * name, ours would be misread. */
static const char *const folder_files[] = {"config.json",
                                           "adapter_config.json",
                                           "adapter_model.safetensors",
                                           "adapter_model.bin",
                                           "adapters.safetensors",
                                           "model.safetensors",
                                           "model.safetensors.index.json",
                                           "pytorch_model.bin",
                                           "pytorch_model.bin.index.json",
                                           "tokenizer.json",
                                           "tokenizer_config.json",
                                           NULL};

af_status af_folder_open(af_output *o, const char *path, const char *const *inputs, int input_count,
                         bool force, af_error *err)
{
    const af_status st = af_output_check(path, inputs, input_count, err);
    return st == AF_OK ? af_output_open_folder(o, path, folder_files, force, err) : st;
}

static af_status copy_templates(const af_output *f, const char *from, af_error *err)
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

af_status af_folder_code(char ***names, int *count, const char *from, const char *to, af_error *err)
{
    int n = 0;
    *count = 0;
    af_status st = af_dir_list(names, &n, from, err);
    for (int i = 0; i < n; i++) {
        char *path = af_path_join(to, (*names)[i]);
        if (!path && st == AF_OK)
            st = af_fail_nomem(err, "a path", strlen(to));
        if (path && af_ends_with((*names)[i], ".py") && !af_file_exists(path))
            (*names)[(*count)++] = (*names)[i];
        else
            free((*names)[i]);
        free(path);
    }
    return st;
}

af_status af_folder_copy_code(const char *from, const char *to, af_error *err)
{
    char **names = NULL;
    int n = 0;
    af_status st = af_folder_code(&names, &n, from, to, err);
    for (int i = 0; i < n && st == AF_OK; i++)
        st = af_file_copy_into(from, to, names[i], err);
    af_names_free(names, n);
    return st;
}

af_status af_folder_copy_text(const af_output *f, const char *from, af_error *err)
{
    static const char *const others[] = {"generation_config.json",
                                         "preprocessor_config.json",
                                         "processor_config.json",
                                         "video_preprocessor_config.json",
                                         "spk_dict.pt", /* voices of qwen2_5_omni */
                                         "LICENSE",
                                         "LICENSE.txt",
                                         "LICENSE.md",
                                         "LICENSE-MODEL",
                                         "NOTICE",
                                         "NOTICE.txt",
                                         "NOTICE.md",
                                         "Notice",
                                         "USE_POLICY.md"};
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(tokenizer_files); i++)
        AF_TRY(af_file_copy_into(from, f->temp, tokenizer_files[i], err));
    for (size_t i = 0; i < AF_LEN(others); i++)
        AF_TRY(af_file_copy_into(from, f->temp, others[i], err));
    AF_TRY(af_folder_copy_code(from, f->temp, err));
    st = copy_templates(f, from, err);
done:
    return st;
}

af_status af_folder_replace_tokenizer(const af_output *f, const char *from, bool forms,
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
