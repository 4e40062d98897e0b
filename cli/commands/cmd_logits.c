/* cmd_logits.c - `afinar logits MODEL --ids FILE -o OUT`: logits of token sequences. */
#include "commands/commands.h"
#include "commands/model_opts.h"
#include "term/interrupt.h"

#include "afinar/output.h"

int cmd_logits(int argc, char **argv)
{
    const char *ids = NULL, *out = NULL, *arg[1];
    bool force = false;
    int count;
    af_common common = {0};
    af_model_flags flags = {0};
    af_model *m = NULL;
    af_error err = {0};
    af_opt opts[16] = {
        {0, "ids", AF_OPT_STR, &ids, "FILE",
         "safetensors file with input_ids [B,T] and, optionally, attention_mask"},
        {'o', "output", AF_OPT_STR, &out, "FILE", "safetensors file to write: logits F32 [B,T,V]"},
        {0, "force", AF_OPT_FLAG, &force, NULL, "replace a file that afinar wrote"},
        {0},
    };
    af_cli_model_rows(opts, &flags);
    const af_usage usage = {
        "logits", "Writes the logits of token sequences.", "MODEL --ids FILE -o FILE", opts, 1, 1,
        NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    if (!ids || !out)
        return af_cli_error(AF_EXIT_USAGE, "logits", "--ids FILE and -o FILE are required");
    af_cli_log(&common);
    af_cli_remove_partial_output();
    af_status st = af_output_check_file(out, force, &err);
    if (st == AF_OK)
        st = af_cli_open_model(&m, arg[0], &flags, &common, &err);
    if (st == AF_OK)
        st = af_model_logits_file(m, ids, out, force, &err);
    af_model_close(m);
    return st == AF_OK ? AF_EXIT_OK : af_report("logits", &err);
}
