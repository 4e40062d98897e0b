/* side_files.c - what stands beside the weights of a model folder. */
#include "train/side_files.h"
#include "base/file.h"

af_status af_side_files_copy(const char *model, const char *dir, bool whole, af_error *err)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "tokenizer.model",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "chat_template.jinja",
                                        "vocab.json",
                                        "merges.txt",
                                        "generation_config.json",
                                        "config.json"};
    const int count = (int)AF_LEN(names) - (whole ? 0 : 2); /* configs only beside a whole model */
    for (int i = 0; i < count; i++) {
        const af_status st = af_file_copy_into(model, dir, names[i], err);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}
