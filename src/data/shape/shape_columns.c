/* shape_columns.c - which fields of a record a shape looks at: the others need not be read. */
#include "data/shape/shape.h"

static bool is_in(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

bool af_shape_reads(const void *source, const char *name)
{
    const af_data_source *s = source;
    const af_fields *f = &s->field;
    const char *const turns[] = {
        f->messages,           f->conversations, f->system,          f->tools,
        AF_TEMPLATE_VARIABLES, AF_FUNCTIONS,     AF_ENABLE_THINKING, NULL};
    const char *const alpaca[] = {f->instruction,
                                  f->input,
                                  f->output,
                                  f->system,
                                  f->history,
                                  f->tools,
                                  AF_TEMPLATE_VARIABLES,
                                  AF_ENABLE_THINKING,
                                  s->cognition ? AF_COGNITION_TAG : NULL,
                                  NULL};
    const char *const text[] = {f->text, NULL};
    const char *const segments[] = {f->segments, NULL};
    const char *const tokens[] = {f->input_ids,       f->labels,      AF_ANSWER_MASK,
                                  AF_COMPLETION_MASK, AF_LOSS_MASK,   AF_ATTENTION_MASK,
                                  AF_POSITION_IDS,    AF_SEQ_LENGTHS, NULL};
    const char *const *known = s->shape == AF_SHAPE_MESSAGES || s->shape == AF_SHAPE_SHAREGPT
                                   ? turns
                               : s->shape == AF_SHAPE_ALPACA   ? alpaca
                               : s->shape == AF_SHAPE_TEXT     ? text
                               : s->shape == AF_SHAPE_SEGMENTS ? segments
                               : s->shape == AF_SHAPE_TOKENS   ? tokens
                                                               : NULL;
    if (af_field_ignored(s, name))
        return false;
    if (!known || s->prompt ||
        af_field_refusable(s, name)) /* pairs and prompts have further names of their own */
        return true;
    return is_in(known, name) || (known == turns && is_in(af_public_columns, name));
}

af_status af_shape_lost(const af_data_source *s, const char *names, uint64_t len,
                        const af_source_loc *p, af_error *err)
{
    for (uint64_t i = 0; i < len; i += strlen(names + i) + 1)
        if (strchr(names + i, '\\') || af_shape_reads(s, names + i))
            return af_source_loc_fail(p, err,
                                      "field \"%.40s\" has a number that cannot be read: NaN, an "
                                      "infinity, or one above 64 bits",
                                      names + i);
    return AF_OK;
}
