/* cmd_quantize.c - `afinar quantize MODEL -o OUT --type T`: a 4-bit or 8-bit folder, or GGUF. */
#include "afinar/convert.h"
#include "commands/commands.h"
#include "commands/convert_print.h"
#include "commands/model_opts.h"
#include "term/interrupt.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>

static const af_eval_data_opts eval_opts = {.sequence_len = 2048};

/* Checks the data of --eval before the model is written. */
static af_status find_data(const char *data, af_error *err)
{
    if (!af_cli_is_text(data))
        return af_eval_data_check(data, &eval_opts, err);
    return access(data, R_OK) == 0
               ? AF_OK
               : af_fail(err, AF_EIO, "--eval: cannot read '%s': %s", data, strerror(errno));
}

/* Perplexity of one model; `adapter` may be NULL. */
static af_status perplexity(const char *model, const char *adapter, const char *data,
                            const af_common *c, double *out, af_error *err)
{
    af_model *m = NULL;
    af_eval_result r = {0};
    const af_model_opts o = {.device = c->device,
                             .threads = (int)c->threads,
                             .adapters = adapter ? 1 : 0,
                             .adapter = {adapter},
                             .adapter_weight = {1}};
    af_status st = af_model_open(&m, model, &o, err);
    if (st == AF_OK)
        st = af_cli_is_text(data) ? af_model_eval_text(m, data, 512, &r, err)
                                  : af_model_eval_dataset(m, data, &eval_opts, &r, err);
    af_model_close(m);
    *out = exp(r.loss);
    return st;
}

static int report(const char *model, const char *adapter, const char *out, const char *eval,
                  const af_common *c, const af_convert_report *r)
{
    af_error err = {0};
    double before = 0, after = 0;
    if (eval) {
        af_status st = perplexity(model, adapter, eval, c, &before, &err);
        if (st == AF_OK)
            st = perplexity(out, NULL, eval, c, &after, &err);
        if (st != AF_OK)
            return af_cli_error(AF_EXIT_FAILED, "quantize",
                                "'%s' was written, but --eval failed: %s", out, err.msg);
    }
    if (c->json) {
        af_print_convert_json(r, out, eval ? &before : NULL, eval ? &after : NULL);
        return AF_EXIT_OK;
    }
    af_print_convert(r, out, c->verbose);
    if (eval)
        printf("perplexity %.4f -> %.4f (%+.2f%%)\n", before, after, (after / before - 1) * 100);
    return AF_EXIT_OK;
}

static const char *wrong_usage(const char *out, const af_quantize_opts *o)
{
    if (!out || !o->type)
        return out ? "--type TYPE is required" : "-o PATH is required";
    if (o->imatrix_chunks && !o->imatrix_data)
        return "--imatrix-chunks has no effect without --imatrix-data";
    return NULL;
}

/* The text to measure by, and the device of what is computed. */
static af_status check_needs(const char *eval, const af_quantize_opts *o, const af_common *c,
                             af_error *err)
{
    const af_status st = eval ? find_data(eval, err) : AF_OK;
    if (st != AF_OK)
        return st;
    return eval || o->imatrix_data ? af_cli_has_device(c, err) : af_cli_on_cpu("quantize", c, err);
}

int cmd_quantize(int argc, char **argv)
{
    const char *out = NULL, *eval = NULL, *arg[1];
    int count;
    af_common common = {0};
    af_quantize_opts o = {0};
    af_convert_report *r = NULL;
    af_error err = {0};
    af_opt_list adapter = {0};
    const af_opt opts[] = {
        {'o', "output", AF_OPT_STR, &out, "PATH", "folder (nf4, fp4, int8) or .gguf file to write"},
        {'t', "type", AF_OPT_STR, &o.type, "TYPE",
         "nf4, fp4, int8, or a GGUF type: f16, bf16, q8_0, q6_k, q4_k_m, iq4_xs, ..."},
        {0, "block-size", AF_OPT_I64, &o.block_size, "N", "values per scale (nf4, fp4) [64]"},
        {0, "no-double-quant", AF_OPT_FLAG, &o.no_double_quant, NULL,
         "keep the scales in f32 (nf4, fp4)"},
        {0, "pure", AF_OPT_FLAG, &o.pure, NULL, "GGUF: use one type for all matrices"},
        {0, "imatrix", AF_OPT_STR, &o.imatrix, "FILE", "GGUF: importance matrix to use"},
        {0, "imatrix-data", AF_OPT_STR, &o.imatrix_data, "FILE",
         "GGUF: text to compute the importance matrix from"},
        {0, "imatrix-chunks", AF_OPT_I64, &o.imatrix_chunks, "N",
         "number of 512-token chunks of that text to use [all]"},
        {0, "imatrix-out", AF_OPT_STR, &o.imatrix_out, "FILE",
         "save the importance matrix here (.dat or .gguf)"},
        {0, "adapter", AF_OPT_LIST, &adapter, "DIR", "adapter to merge in first"},
        {0, "eval", AF_OPT_STR, &eval, "FILE",
         "print the perplexity before and after on this text or dataset"},
        {0, "force", AF_OPT_FLAG, &o.force, NULL,
         "replace what afinar itself wrote there; other files are kept"},
        {0},
    };
    const af_usage usage = {"quantize",
                            "Quantizes the weights of a model: to a bitsandbytes folder (nf4, fp4, "
                            "int8) or to a GGUF file.",
                            "MODEL -o PATH --type TYPE",
                            opts,
                            1,
                            1,
                            NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    const char *wrong = wrong_usage(out, &o);
    if (wrong)
        return af_cli_error(AF_EXIT_USAGE, "quantize", "%s", wrong);
    if (!af_cli_one_adapter("quantize", &adapter, &o.adapter))
        return AF_EXIT_USAGE;
    if (check_needs(eval, &o, &common, &err) != AF_OK)
        return af_report("quantize", &err);
    af_cli_log(&common);
    af_cli_remove_partial_output();
    o.threads = (int)common.threads;
    o.device = common.device;
    if (af_quantize(&r, arg[0], out, &o, &err) != AF_OK)
        return af_report("quantize", &err);
    const int rc = report(arg[0], o.adapter, out, eval, &common, r);
    af_convert_report_free(r);
    return rc;
}
