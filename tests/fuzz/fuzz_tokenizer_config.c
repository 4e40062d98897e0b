/* fuzz_tokenizer_config.c - any bytes as tokenizer_config.json: chat templates and special tokens;
 * what opens renders a conversation or says why not. */
#include "afinar/chat.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char row[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}";
    af_template *t = NULL;
    char *text = NULL;
    uint64_t len = 0;
    (void)fuzz_put("tokenizer_config.json", data, size);
    if (af_template_open(&t, fuzz_dir(), NULL) != AF_OK)
        return 0;
    if (af_template_render_row(t, row, sizeof row - 1, &text, &len, NULL, NULL) == AF_OK)
        free(text);
    af_template_close(t);
    return 0;
}
