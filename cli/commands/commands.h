/* commands.h - the subcommands; each has a file cmd_NAME.c. */
#ifndef AF_COMMANDS_H
#define AF_COMMANDS_H

#include "term/cli.h"

typedef struct af_command {
    const char *name, *about;
    af_command_main *main;
} af_command;

af_command_main cmd_train;
af_command_main cmd_plan;
af_command_main cmd_init;
af_command_main cmd_data;
af_command_main cmd_tokenize;
af_command_main cmd_template;
af_command_main cmd_generate;
af_command_main cmd_chat;
af_command_main cmd_serve;
af_command_main cmd_classify;
af_command_main cmd_distill;
af_command_main cmd_logits;
af_command_main cmd_eval;
af_command_main cmd_inspect;
af_command_main cmd_bench;
af_command_main cmd_quantize;
af_command_main cmd_merge;
af_command_main cmd_export;
af_command_main cmd_pull;
af_command_main cmd_push;
af_command_main cmd_doctor;
af_command_main cmd_version;

extern const af_command af_commands[]; /* ends with {0} */
#endif
