/* pair_notes.c - what the chat template leaves out of a chat of a preference record. */
#include "data/render/mask_work.h"

af_status af_pair_notes(af_renderer *s, af_row *row, const af_conversation *t, size_t from,
                        af_error *err)
{
    af_loss_spans shown = {.text = row->text, .len = row->len};
    af_prefix_cache cache = {.began = s->steps};
    af_mask_anchor anchor = {0};
    const af_mask_work w = {.s = s,
                            .t = t,
                            .out = &shown,
                            .anchor = &anchor,
                            .cache = &cache,
                            .messages = json_array_size(t->messages),
                            .err = err};
    size_t unshown;
    for (size_t i = from; i < w.messages && !row->missing.message; i++) {
        if (strcmp(af_mask_role(&w, i), "assistant") != 0)
            continue;
        const char *field = af_answer_missing(af_mask_message(&w, i), row->text, row->len);
        if (field)
            row->missing = (af_answer_note){.message = i - from + 1, .field = field};
    }
    const af_status st = af_message_unshown(&w, &unshown);
    if (st == AF_OK && unshown)
        row->unshown = (af_answer_note){.message = unshown, .field = af_mask_role(&w, unshown - 1)};
    return st;
}
