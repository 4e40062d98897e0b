/* commands.c - the table of subcommands, in the order a person meets them. */
#include "commands.h"

const af_command af_commands[] = {
    {"train", "train a model from a run file", cmd_train},
    {"plan", "say what a run needs, and what fits", cmd_plan},
    {"tokenize", "text to token ids and back", cmd_tokenize},
    {"template", "render conversations with a chat template", cmd_template},
    {0},
};
