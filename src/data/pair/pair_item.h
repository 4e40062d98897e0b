/* pair_item.h - records of preference training (`rl`): a prompt with two answers, or with one
 * answer and a label, in the formats of TRL, Axolotl and LLaMA-Factory.
 *
 * The conversations of the item are chats whose first `prompt_messages` messages are the prompt, or
 * texts (AF_CONVERSATION_PROMPT). */
#ifndef AF_PAIR_ITEM_H
#define AF_PAIR_ITEM_H

#include "data/shape/shape.h"

/* Checks and converts a record. Clear *out with af_item_clear. */
AF_CHECKED af_status af_pair_item(af_item *out, const af_data_source *s, const json_t *record,
                                  af_rl rl, const af_source_loc *p, af_error *err);
/* label_item.c: a text (or a chat) and its label or labels. */
AF_CHECKED af_status af_label_item(af_item *out, const af_data_source *s, const json_t *record,
                                   const af_label_opts *labels, const af_source_loc *p,
                                   af_error *err);
/* pair_form_item.c: a record in the form of its source. */
AF_CHECKED af_status af_pair_form_item(af_item *out, const af_data_source *s, const json_t *record,
                                       af_rl rl, const af_source_loc *p, af_error *err);

/* Side `side` of a pair as texts; both are copied. */
AF_CHECKED af_status af_pair_put_text(af_item *out, int side, const char *prompt,
                                      uint64_t prompt_len, const char *answer, uint64_t answer_len,
                                      af_error *err);
/* Side `side` as a chat: lists of messages, in the field of that name. A prompt may be NULL after
 * messages that are there already. */
AF_CHECKED af_status af_pair_put_chat(af_item *out, int side, const af_data_source *s,
                                      const json_t *prompt, const json_t *answer,
                                      const char *answer_field, const json_t *record,
                                      const af_source_loc *p, af_error *err);
/* The label of a KTO record. */
AF_CHECKED af_status af_pair_label(af_item *out, const af_data_source *s, const json_t *record,
                                   const char *field, const af_source_loc *p, af_error *err);
#endif
