/* cmd_data.c - `afinar data preview RUN.yaml`, `afinar data check RUN.yaml` and `afinar data
 * records PATH`. */
#include "commands/commands.h"
#include "commands/data_view.h"

#include "afinar/data.h"

/* --- preview ------------------------------------------------------------------------------- */

static int preview(const char *const *arg, int count, int64_t n, const af_common *common)
{
    af_data_view l = {.colour = af_tty(stdout), .json = common->json};
    af_error err = {0};
    if (af_data_preview(arg[0], arg + 1, count - 1, n, af_data_view_show, &l, &err) != AF_OK) {
        fflush(stdout);
        return af_report("data", &err);
    }
    if (l.bad && !ferror(stdout)) /* main reports write errors */
        af_cli_error(AF_EXIT_FAILED, "data", "out of memory");
    return l.bad ? AF_EXIT_FAILED : AF_EXIT_OK;
}

/* --- check --------------------------------------------------------------------------------- */

static void print_fault(void *user, const char *message)
{
    (void)user;
    fprintf(stderr, "error: %s\n", message);
}

static void print_json(const af_data_report *r, bool stats, const char *error)
{
    printf("{\"records\": %lld, \"tokens\": %lld, \"supervised_tokens\": %lld, \"truncated\": "
           "%lld, \"dropped\": %lld, \"lost_end_of_turn\": %lld, \"empty_answers\": %lld, "
           "\"double_bos\": %lld, \"missing_end_of_turn\": %lld, \"nothing_to_learn\": %lld, "
           "\"split_rows\": %lld, \"left_out\": %lld, \"warnings\": %lld, \"errors\": %lld",
           (long long)r->records, (long long)r->tokens, (long long)r->supervised,
           (long long)r->truncated, (long long)r->dropped, (long long)r->lost_eot,
           (long long)r->empty_answers, (long long)r->double_bos, (long long)r->missing_eot,
           (long long)r->nothing_to_learn, (long long)r->split_rows, (long long)r->left_out,
           (long long)r->warnings, (long long)r->errors);
    if (r->test_records >= 0)
        printf(", \"test_records\": %lld", (long long)r->test_records);
    if (stats)
        printf(", \"packs\": %lld, \"pack_fill\": %.4f, \"seconds\": {\"read\": %.3f, \"convert\": "
               "%.3f, \"render\": %.3f, \"encode\": %.3f, \"write\": %.3f, \"pack\": %.3f, "
               "\"all\": %.3f}, \"tok_s\": %.0f",
               (long long)r->packs, r->pack_fill, r->read_s, r->convert_s, r->render_s, r->encode_s,
               r->write_s, r->pack_s, r->all_s, r->all_s > 0 ? (double)r->tokens / r->all_s : 0.0);
    if (error) {
        printf(", \"error\": ");
        af_cli_json_message(error);
    }
    printf("}\n");
}

static void row(const char *name, int64_t value, bool mark)
{
    printf("%-28s %12lld%s\n", name, (long long)value, mark && value ? "  <-" : "");
}

static void share(const char *name, double s, double all)
{
    printf("  %-26s %9.2f s  %5.1f %%\n", name, s, all > 0 ? 100 * s / all : 0.0);
}

static void print_table(const af_data_report *r, bool stats)
{
    row("records", r->records, false);
    if (r->split_rows)
        row("  of them by splitting", r->split_rows, false);
    row("tokens", r->tokens, false);
    row("supervised tokens", r->supervised, false);
    row("truncated to sequence_len", r->truncated, true);
    row("  losing their end of turn", r->lost_eot, true);
    row("dropped as too long", r->dropped, true);
    if (r->left_out)
        row("too short, or there before", r->left_out, false);
    row("empty answers", r->empty_answers, true);
    row("double BOS", r->double_bos, true);
    row("missing end-of-turn", r->missing_eot, true);
    row("skipped, no tokens with loss", r->nothing_to_learn, true);
    if (r->test_records >= 0)
        row("records of test_datasets", r->test_records, false);
    row("warnings", r->warnings, true);
    row("errors", r->errors, true);
    if (!stats)
        return;
    printf("%-28s %12lld  %.1f %% full\n", "packs", (long long)r->packs, 100 * r->pack_fill);
    printf("%-28s %12.0f tokens/s\n", "speed", r->all_s > 0 ? (double)r->tokens / r->all_s : 0.0);
    share("read and parse", r->read_s, r->all_s);
    share("check and convert", r->convert_s, r->all_s);
    share("render templates", r->render_s, r->all_s);
    share("tokenize", r->encode_s, r->all_s);
    share("write the token store", r->write_s, r->all_s);
    share("pack", r->pack_s, r->all_s);
}

static int check(const char *const *arg, int count, bool stats, const af_common *common)
{
    af_data_report r;
    af_error err = {0};
    const af_status st =
        af_data_check(arg[0], arg + 1, count - 1, stats, print_fault, NULL, &r, &err);
    const bool counted = st == AF_OK || r.records || r.errors;
    if (counted && common->json)
        print_json(&r, stats, st == AF_OK ? NULL : err.msg);
    else if (counted)
        print_table(&r, stats);
    fflush(stdout);
    if (st == AF_OK)
        return AF_EXIT_OK;
    if (!counted || !common->json)
        return af_report("data", &err);
    fprintf(stderr, "afinar data: %s\n", err.msg); /* stdout has its one object */
    return AF_EXIT_FAILED;
}

/* --- records ------------------------------------------------------------------------------- */

static bool print_line(void *user, const char *json, uint64_t len)
{
    (void)user;
    return fwrite(json, 1, len, stdout) == len && putchar('\n') != EOF;
}

static int records(const char *path, const char *config, const char *split, int64_t n)
{
    enum { OUT_BUFFER = 1 << 16 };
    af_error err = {0};
    setvbuf(stdout, NULL, _IOFBF, OUT_BUFFER);
    if (af_data_records(path, config, split, n, print_line, NULL, &err) == AF_OK)
        return AF_EXIT_OK;
    fflush(stdout);
    return af_report("data", &err);
}

int cmd_data(int argc, char **argv)
{
    enum { ARGS_MAX = 120 };
    const char *arg[ARGS_MAX + 1]; /* and strict= */
    int count;
    int64_t n = 5;
    bool stats = false, strict = false;
    const char *config = NULL, *split = NULL;
    af_common common = {0};
    const af_opt opts[] = {
        {'n', "number", AF_OPT_I64, &n, "N", "number of records to show, 0 = all [5]"},
        {0, "stats", AF_OPT_FLAG, &stats, NULL,
         "check: also pack the records, and print the time of each stage"},
        {0, "config", AF_OPT_STR, &config, "NAME",
         "records: the configuration of a dataset folder"},
        {0, "split", AF_OPT_STR, &split, "SPLIT", "records: the split of a dataset folder"},
        {0, "strict", AF_OPT_FLAG, &strict, NULL, "refuse keys of the file that have no effect"},
        {0},
    };
    const af_usage usage = {"data",
                            "preview: shows the records of a run's datasets as training sees them, "
                            "with the loss mask.\n"
                            "check: reads all records and reports what is wrong.\n"
                            "records: prints the records of a file or a dataset folder as they "
                            "are, one JSON object per line.",
                            "preview|check RUN.yaml [key=value ...] | records PATH",
                            opts,
                            2,
                            ARGS_MAX,
                            NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    const bool is_preview = strcmp(arg[0], "preview") == 0;
    if (n < 0)
        return af_cli_error(AF_EXIT_USAGE, "data", "--number must be at least 0");
    const bool is_records = strcmp(arg[0], "records") == 0;
    if (!is_preview && !is_records && strcmp(arg[0], "check") != 0)
        return af_cli_error(AF_EXIT_USAGE, "data",
                            "expected 'preview', 'check' or 'records', got '%s'", arg[0]);
    if (!is_records && (config || split))
        return af_cli_error(AF_EXIT_USAGE, "data", "%s is for 'records' only",
                            config ? "--config" : "--split");
    if (is_records && count > 2)
        return af_cli_error(AF_EXIT_USAGE, "data", "'records' takes one PATH");
    if (strict)
        arg[count++] = "strict=true";
    af_cli_log(&common);
    if (is_records)
        return records(arg[1], config, split, n);
    return is_preview ? preview(arg + 1, count - 1, n, &common)
                      : check(arg + 1, count - 1, stats, &common);
}
