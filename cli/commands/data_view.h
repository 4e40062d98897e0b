/* data_view.h - records of a dataset on the terminal: their tokens with the loss mask; the answers
 * of a pair side by side. */
#ifndef AF_DATA_VIEW_H
#define AF_DATA_VIEW_H

#include "afinar/data.h"
#include "commands/commands.h"

typedef struct af_data_view {
    bool colour, json, bad;
    int64_t shown;
} af_data_view;

/* af_data_hook: prints one record; `user` is the view. */
bool af_data_view_show(void *user, const af_data_example *e);
#endif
