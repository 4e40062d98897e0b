/* side_files.c - see side_files.h. */
#include "train/checkpoint/side_files.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/temps.h"
#include "convert/export.h"
#include "convert/output/folder_out.h"
#include "data/render/renderer.h"
#include "format/chat/chat_template.h"
#include "format/text/json_text.h"
#include "model/labels/label_config.h"

#include <jansson.h>

static af_status copy_texts(const char *model, const char *dir, bool whole, af_error *err)
{
    static const char *const tokenizer[] = {
        "tokenizer.json",    "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
        "added_tokens.json", "chat_template.jinja",   "vocab.json",      "merges.txt",
        "tekken.json",       "tiktoken.model"};
    static const char *const configs[] = {"generation_config.json",
                                          "preprocessor_config.json",
                                          "processor_config.json",
                                          "video_preprocessor_config.json",
                                          "chat_template.json", /* of the processor */
                                          "spk_dict.pt",        /* voices of qwen2_5_omni */
                                          "config.json"};
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(tokenizer); i++)
        AF_TRY(af_file_copy_into(model, dir, tokenizer[i], err));
    for (size_t i = 0; whole && i < AF_LEN(configs); i++)
        AF_TRY(af_file_copy_into(model, dir, configs[i], err));
    if (whole)
        st = af_folder_copy_code(model, dir, err);
done:
    return st;
}

static af_status put_template(const char *model, const char *chat_template, const char *dir,
                              af_error *err)
{
    af_template *t = NULL;
    bool bare;
    uint64_t len;
    if (af_renderer_own_template(chat_template))
        return af_template_put_own(dir, model, err);
    af_status st = af_renderer_template(&t, &bare, model, chat_template, err);
    if (st != AF_OK)
        return st;
    const char *text = af_template_source(t, &len);
    st = af_template_put(dir, text, len, err);
    af_template_close(t);
    return st;
}

static af_status make_texts(const char *gguf, const char *dir, bool whole, af_error *why,
                            af_error *err)
{
    char *inside = af_path_join(dir, AF_TEMP_NAME), *temp = NULL;
    af_temp *listed = NULL;
    const af_status st = inside ? af_temp_dir_make(&temp, &listed, inside, err)
                                : af_fail_nomem(err, "a path", strlen(dir));
    if (st == AF_OK && af_export_texts(gguf, temp, why) == AF_OK)
        (void)!copy_texts(temp, dir, whole, why);
    af_temp_dir_remove(temp, listed);
    free(inside);
    return st;
}

/* config.json of a model that classifies: its class, its labels, its padding token. */
static af_status put_labels(const char *dir, const char *labels, af_error *err)
{
    af_status st = AF_OK;
    char *path = af_path_join(dir, "config.json"), *text = NULL;
    af_buf line = {0};
    json_t *config = NULL;
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    AF_TRY(af_json_read_file(&config, path, err));
    AF_TRY(af_label_config(config, labels, 0, dir, err));
    text = af_json_dump(config, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    af_buf_printf(&line, "%s\n", text ? text : "");
    if (!text || line.bad)
        AF_TRY(af_fail_nomem(err, "config.json", 0));
    AF_TRY(af_file_write(path, line.data, line.len, err));
done:
    json_decref(config);
    af_buf_clear(&line);
    free(text);
    free(path);
    return st;
}

af_status af_side_files_put(const char *model, const char *chat_template, const char *labels,
                            const char *dir, bool whole, af_error *why, af_error *err)
{
    af_status st = af_dir_exists(model) ? copy_texts(model, dir, whole, err)
                                        : make_texts(model, dir, whole, why, err);
    if (st == AF_OK && whole && labels)
        st = put_labels(dir, labels, err);
    return st == AF_OK ? put_template(model, chat_template, dir, err) : st;
}
