/* commands.c - the table of subcommands, in the order a person meets them. */
#include "commands.h"

const af_command af_commands[] = {
    {"train", "train a model from a run file", cmd_train},
    {"tokenize", "text to token ids and back", cmd_tokenize},
    {0},
};
