/* data_template.c - templates of a dataset by other keys than chat_template. */
#include "data/shape/data_entry.h"

/* conversation: the prompt of an older Axolotl's `type: sharegpt`. */
af_status af_data_entry_style(const af_data_entry *p, const af_yaml *n)
{
    static const char *const styles[][2] = {
        {"chatml", "chatml"}, {"llama3", "llama3"}, {"llama-3", "llama3"}, {"gemma", "gemma"}};
    char at[300];
    if (p->s->prompt || p->s->chat_template)
        return AF_OK;
    for (size_t i = 0; i < AF_LEN(styles); i++)
        if (strcmp(styles[i][0], n->text) == 0) {
            p->s->chat_template = styles[i][1];
            return AF_OK;
        }
    return af_fail(p->err, AF_EUSAGE,
                   "%s: 'conversation' with '%.60s' is not supported: name a 'chat_template' of "
                   "the dataset",
                   af_data_source_loc(at, p->o->run_path, n->line), n->text);
}

/* The text or the file of 'chat_template: jinja'. */
af_status af_data_entry_jinja(const af_data_entry *p, const af_yaml *n)
{
    char at[300];
    if (p->s->chat_template && strcmp(p->s->chat_template, "jinja") != 0)
        return af_fail(p->err, AF_EUSAGE,
                       "%s: chat_template_jinja of a dataset goes with 'chat_template: jinja', not "
                       "with '%.60s'",
                       af_data_source_loc(at, p->o->run_path, n->line), p->s->chat_template);
    p->s->chat_template = n->text;
    return AF_OK;
}
