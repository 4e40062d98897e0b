/* cmd_eval.c - `afinar eval MODEL --data FILE`: loss, perplexity, token accuracy. */
#include "commands.h"
#include "model_opts.h"

#include <math.h>

int cmd_eval(int argc, char **argv)
{
    const char *data = NULL, *arg[1];
    int64_t seq = 512;
    int count;
    af_common common = {0};
    af_model_flags flags = {0};
    af_model *m = NULL;
    af_eval_result r = {0};
    af_error err = {0};
    af_opt opts[16] = {
        {0, "data", AF_OPT_STR, &data, "text, or .jsonl rows with input_ids and labels"},
        {0, "seq", AF_OPT_I64, &seq, "tokens of a window of text [512]"},
        {0},
    };
    af_cli_model_rows(opts, &flags);
    const af_parsed p = af_opts_parse("eval", "Loss, perplexity and token accuracy over a dataset.",
                                      "MODEL", opts, &common, argc, argv, arg, 1, 1, &count);
    if (p != AF_PARSED_OK)
        return p == AF_PARSED_HELP ? AF_EXIT_OK : AF_EXIT_USAGE;
    if (!data) {
        fprintf(stderr, "afinar eval: --data FILE is needed\n");
        return AF_EXIT_USAGE;
    }
    af_cli_log(&common);
    af_status st = af_cli_open_model(&m, arg[0], &flags, &common, &err);
    if (st == AF_OK)
        st = af_model_eval_file(m, data, seq, &r, &err);
    af_model_close(m);
    if (st != AF_OK)
        return af_report("eval", &err);
    if (common.json)
        printf("{\"loss\": %.17g, \"perplexity\": %.17g, \"accuracy\": %.17g, \"tokens\": %lld, "
               "\"rows\": %lld}\n",
               r.loss, exp(r.loss), r.accuracy, (long long)r.tokens, (long long)r.rows);
    else
        printf("loss %.6f  perplexity %.4f  accuracy %.4f  tokens %lld  rows %lld\n", r.loss,
               exp(r.loss), r.accuracy, (long long)r.tokens, (long long)r.rows);
    return AF_EXIT_OK;
}
