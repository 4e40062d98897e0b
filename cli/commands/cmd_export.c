/* cmd_export.c - `afinar export MODEL -o OUT`: GGUF with a Modelfile, folders from GGUF, adapters.
 */
#include "afinar/convert.h"
#include "commands/commands.h"
#include "commands/convert_print.h"
#include "commands/model_opts.h"
#include "term/interrupt.h"

#include <math.h>

static void print_verify(const af_verify_result *v, bool json)
{
    if (json || !v->ran)
        return;
    printf("verify: %s: logits within %.3g of their spread (%.3g allowed), same top token at "
           "%lld of %lld positions, %s\n",
           v->ok ? "pass" : "FAIL", v->logit_error, v->allowed, (long long)v->same_top,
           (long long)v->positions,
           v->stops ? "end of turn is a stop token" : "end of turn is not a stop token");
}

/* JSON has no NaN; it becomes null. */
static void print_json(const char *out, const af_convert_report *r, const af_verify_result *v)
{
    fputs("{\"output\": ", stdout);
    af_cli_json_text(stdout, out, strlen(out));
    printf(", \"bytes\": %llu, \"verified\": %s, \"ok\": %s, \"logit_error\": ",
           (unsigned long long)(r ? r->bytes : 0), v->ran ? "true" : "false",
           v->ok ? "true" : "false");
    if (isfinite(v->logit_error))
        printf("%.9g", v->logit_error);
    else
        fputs("null", stdout);
    printf(", \"stops\": %s}\n", v->stops ? "true" : "false");
}

static int report(const char *out, const af_convert_report *r, const af_verify_result *v,
                  const af_common *c)
{
    if (c->json)
        print_json(out, r, v);
    else if (r)
        af_print_convert(r, out, c->verbose);
    else
        printf("%s written\n", out);
    print_verify(v, c->json);
    if (v->ok)
        return AF_EXIT_OK;
    fprintf(stderr, "afinar export: '%s' %s: %s\n", out,
            v->same ? "written, but its end of turn is not a stop token"
                    : "not written: verification failed (use --no-verify to write it anyway)",
            v->message);
    return AF_EXIT_FAILED;
}

int cmd_export(int argc, char **argv)
{
    const char *out = NULL, *arg[1];
    int count;
    af_common common = {0};
    af_export_opts o = {0};
    af_convert_report *r = NULL;
    af_verify_result v = {0};
    af_error err = {0};
    bool verify = false;
    af_opt_list adapter = {0};
    const af_opt opts[] = {
        {'o', "output", AF_OPT_STR, &out, "PATH",
         ".gguf file to write; a folder when MODEL is a .gguf file or an adapter"},
        {'t', "type", AF_OPT_STR, &o.type, "TYPE",
         "f32, f16, bf16, q8_0, q4_k_m, ... [as the model]"},
        {0, "adapter", AF_OPT_LIST, &adapter, "DIR", "adapter to merge in"},
        {0, "adapter-only", AF_OPT_FLAG, &o.adapter_only, NULL, "write the adapter alone, as GGUF"},
        {0, "pure", AF_OPT_FLAG, &o.pure, NULL, "use one type for all matrices"},
        {0, "imatrix", AF_OPT_STR, &o.imatrix, "FILE", "importance matrix to use"},
        {0, "verify", AF_OPT_FLAG, &verify, NULL, "reload the result and compare logits (default)"},
        {0, "no-verify", AF_OPT_FLAG, &o.no_verify, NULL, "skip the comparison"},
        {0, "force", AF_OPT_FLAG, &o.force, NULL,
         "replace what afinar itself wrote there; other files are kept"},
        {0},
    };
    const af_usage usage = {"export",
                            "Writes a model as GGUF (with a Modelfile) for llama.cpp and Ollama, a "
                            ".gguf file as a Hugging Face\nfolder, or an adapter as GGUF or MLX.",
                            "MODEL -o PATH",
                            opts,
                            1,
                            1,
                            NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    if (!out)
        return af_cli_error(AF_EXIT_USAGE, "export", "-o PATH is required");
    if (!af_cli_one_adapter("export", &adapter, &o.adapter))
        return AF_EXIT_USAGE;
    if (af_cli_on_cpu("export", &common, &err) != AF_OK)
        return af_report("export", &err);
    af_cli_log(&common);
    af_cli_remove_partial_output();
    o.threads = (int)common.threads;
    if (af_export(arg[0], out, &o, &r, &v, &err) != AF_OK) {
        af_convert_report_free(r);
        return af_report("export", &err);
    }
    const int rc = report(out, r, &v, &common);
    af_convert_report_free(r);
    return rc;
}
