/* cmd_merge.c - `afinar merge`: a mergekit YAML, adapters into a base, or the difference of two
 * models as an adapter. */
#include "afinar/convert.h"
#include "commands/commands.h"
#include "commands/model_opts.h"
#include "term/interrupt.h"

enum { DIR_BYTES = 4096, RANK = 16, RANK_NOT_SET = INT32_MIN };

typedef struct merge_args {
    const char *out, *combine, *type, *shard;
    af_opt_list adapter;
    double density;
    int64_t seed, rank;
    bool extract, plan, adapter_only, force, mixed;
} merge_args;

/* {"output": "DIR"; the caller prints the rest. */
static void json_output(const char *out)
{
    fputs("{\"output\": ", stdout);
    af_cli_json_text(stdout, out, strlen(out));
}

static int merge_adapters(const char *model, const merge_args *f, const af_common *c)
{
    char(*dirs)[DIR_BYTES] = calloc(AF_MERGE_ADAPTERS_MAX, sizeof *dirs);
    af_merge_adapter_opts o = {.adapters = f->adapter.count,
                               .combine = f->combine,
                               .density = f->density,
                               .seed = (uint64_t)f->seed,
                               .dtype = f->type,
                               .adapter_only = f->adapter_only,
                               .threads = (int)c->threads,
                               .force = f->force};
    const char *note = "";
    af_error err = {0};
    int rc = AF_EXIT_OK;
    for (int i = 0; dirs && i < o.adapters; i++) {
        if (!af_cli_split_weight(f->adapter.item[i], dirs[i], DIR_BYTES, &o.weight[i])) {
            free(dirs);
            return af_cli_error(AF_EXIT_USAGE, "merge",
                                "--adapter expects DIR or DIR=WEIGHT, got '%.200s'",
                                f->adapter.item[i]);
        }
        o.adapter[i] = dirs[i];
    }
    if (!dirs)
        af_fail(&err, AF_ENOMEM, "not enough memory for the names of the adapters");
    if (!dirs || af_merge_adapters(model, f->out, &o, &note, &err) != AF_OK)
        rc = af_report("merge", &err);
    else if (c->json)
        json_output(f->out), printf(", \"adapters\": %d}\n", o.adapters);
    else
        printf("%s: %d adapter%s merged%s%s\n", f->out, o.adapters, o.adapters == 1 ? "" : "s",
               *note ? "; " : "", note);
    free(dirs);
    return rc;
}

static int extract(const char *base, const char *model, const merge_args *f, const af_common *c)
{
    af_error err = {0};
    double kept = 0;
    const af_extract_opts o = {.rank = (int)f->rank, .threads = (int)c->threads, .force = f->force};
    if (af_extract_lora(base, model, f->out, &o, &kept, &err) != AF_OK)
        return af_report("merge", &err);
    if (c->json)
        json_output(f->out),
            printf(", \"rank\": %lld, \"kept\": %.9g}\n", (long long)f->rank, kept);
    else
        printf("%s: rank %lld keeps %.2f%% of the squared difference\n", f->out, (long long)f->rank,
               kept * 100);
    return AF_EXIT_OK;
}

static int merge_file(const char *config, const merge_args *f, const af_common *c)
{
    const af_merge_opts o = {
        .seed = (uint64_t)f->seed,
        .plan = f->plan,
        .threads = (int)c->threads,
        .force = f->force,
        .mixed = f->mixed,
    };
    af_merge_plan plan = {0};
    af_error err = {0};
    if (af_merge_file(config, f->out, &o, &plan, &err) != AF_OK)
        return af_report("merge", &err);
    if (c->json)
        printf("{\"method\": \"%s\", \"models\": %d, \"tensors\": %d, \"parameters\": %lld, "
               "\"read_bytes\": %llu, \"write_bytes\": %llu, \"memory_bytes\": %llu}\n",
               plan.method, plan.models, plan.tensors, (long long)plan.params,
               (unsigned long long)plan.read_bytes, (unsigned long long)plan.write_bytes,
               (unsigned long long)plan.memory_bytes);
    else
        printf("%s%s of %d models, %d tensors, %.1fM parameters; read %.1f MB, %s %.1f MB, memory "
               "%.1f MB\n",
               f->plan ? "plan: " : "", plan.method, plan.models, plan.tensors,
               (double)plan.params / 1e6, (double)plan.read_bytes / 1e6,
               f->plan ? "would write" : "wrote", (double)plan.write_bytes / 1e6,
               (double)plan.memory_bytes / 1e6);
    return AF_EXIT_OK;
}

static int wrong_usage(const char *what)
{
    return af_cli_error(AF_EXIT_USAGE, "merge", "%s (see 'afinar merge --help')", what);
}

/* Why the options contradict each other, or NULL. */
static const char *contradiction(const merge_args *f, int args)
{
    if (f->extract != (args == 2))
        return f->extract ? "--extract-lora needs BASE and MODEL" : "unexpected second argument";
    if (f->plan && (f->extract || f->adapter.count))
        return "--plan applies to a merge file only";
    if (!f->out && !f->plan)
        return "-o DIR is required";
    if (f->extract && f->adapter.count)
        return "give either --extract-lora or --adapter, not both";
    const bool ranked = f->rank != RANK_NOT_SET;
    if (ranked && !f->extract)
        return "--rank has no effect without --extract-lora";
    if (ranked && (f->rank < 1 || f->rank > 65536))
        return "--rank must be 1 to 65536";
    if ((f->combine || f->density != 0 || f->adapter_only) && !f->adapter.count)
        return "--combine, --density and --adapter-only have no effect without --adapter";
    const bool thins = f->combine && strcmp(f->combine, "linear") && strcmp(f->combine, "cat");
    if (f->density != 0 && !thins)
        return "--density has no effect with --combine linear (the default) and cat";
    if (f->mixed && (f->extract || f->adapter.count))
        return "--allow-crimes applies to a merge file only";
    if (f->type && !f->adapter.count)
        return "--type has no effect without --adapter (set dtype or out_dtype in the merge file)";
    return NULL;
}

int cmd_merge(int argc, char **argv)
{
    const char *arg[2];
    int count;
    merge_args f = {.rank = RANK_NOT_SET};
    af_error err = {0};
    af_common common = {0};
    const af_opt opts[] = {
        {'o', "output", AF_OPT_STR, &f.out, "DIR", "folder to write"},
        {0, "adapter", AF_OPT_LIST, &f.adapter, "DIR[=WEIGHT]",
         "adapter with an optional weight; may be repeated"},
        {0, "combine", AF_OPT_STR, &f.combine, "METHOD",
         "how to combine adapters: linear, cat, ties, dare_linear, dare_ties or magnitude_prune "
         "[linear]"},
        {0, "density", AF_OPT_F64, &f.density, "N",
         "fraction of values to keep (not for linear and cat) [0.5]"},
        {'t', "type", AF_OPT_STR, &f.type, "TYPE", "bf16, f16 or f32 [as the base]"},
        {0, "adapter-only", AF_OPT_FLAG, &f.adapter_only, NULL,
         "write the combined adapter instead of a model"},
        {0, "extract-lora", AF_OPT_FLAG, &f.extract, NULL,
         "write the difference of BASE and MODEL as an adapter"},
        {0, "rank", AF_OPT_I64, &f.rank, "N", "rank of the extracted adapter [16]"},
        {0, "random-seed", AF_OPT_I64, &f.seed, "N", "random seed of dare and della [0]"},
        {0, "allow-crimes", AF_OPT_FLAG, &f.mixed, NULL,
         "merge models of different architectures by the names of their tensors"},
        {0, "plan", AF_OPT_FLAG, &f.plan, NULL, "print what would be read and written, then exit"},
        {0, "force", AF_OPT_FLAG, &f.force, NULL,
         "replace what afinar itself wrote there; other files are kept"},
        {0},
    };
    const af_usage usage = {
        "merge",
        "Merges models as a mergekit file describes, merges adapters into their base model, or "
        "extracts the\ndifference of two models as a LoRA adapter.",
        "CONFIG.yml | MODEL --adapter DIR | --extract-lora BASE MODEL",
        opts,
        1,
        2,
        NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    const char *wrong = contradiction(&f, count);
    if (wrong)
        return wrong_usage(wrong);
    if (f.rank == RANK_NOT_SET)
        f.rank = RANK;
    if (af_cli_on_cpu("merge", &common, &err) != AF_OK)
        return af_report("merge", &err);
    af_cli_log(&common);
    af_cli_remove_partial_output();
    if (f.extract)
        return extract(arg[0], arg[1], &f, &common);
    return f.adapter.count ? merge_adapters(arg[0], &f, &common) : merge_file(arg[0], &f, &common);
}
