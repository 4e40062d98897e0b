/* cmd_eval.c - `afinar eval MODEL --data FILE` or `afinar eval RUN.yaml`: loss, perplexity, token
 * accuracy. */
#include "commands/commands.h"
#include "commands/model_opts.h"
#include "term/progress.h"

#include "afinar/train.h"

#include <math.h>

enum { WINDOW = 512, SEQUENCE_LEN = 2048, NOT_SET = INT32_MIN };

static void print_number(const char *name, double v)
{
    printf(", \"%s\": ", name);
    af_print_number(stdout, v);
}

static void print_pairs(const af_eval_result *r, bool json)
{
    if (!json) {
        printf("loss %.6f", r->loss);
        if (!isnan(r->accuracy)) /* which KTO has not */
            printf("  accuracy %.4f", r->accuracy);
        printf("  margin %.6f  tokens %lld  records %lld\n", r->margin, (long long)r->tokens,
               (long long)r->pairs);
        return;
    }
    printf("{\"loss\": %.17g", r->loss);
    print_number("accuracy", r->accuracy);
    print_number("margin", r->margin);
    printf(", \"tokens\": %lld, \"records\": %lld}\n", (long long)r->tokens, (long long)r->pairs);
}

/* The means of texts with labels: classes, or numbers. */
static void print_texts(const af_eval_result *r, bool json)
{
    if (isnan(r->mse))
        printf(json ? "{\"loss\": %.17g, \"accuracy\": %.17g, \"f1\": %.17g, \"rows\": %lld}\n"
                    : "loss %.6f  accuracy %.4f  f1 %.4f  rows %lld\n",
               r->loss, r->accuracy, r->f1, (long long)r->texts);
    else
        printf(json ? "{\"loss\": %.17g, \"mse\": %.17g, \"rows\": %lld}\n"
                    : "loss %.6f  mse %.6f  rows %lld\n",
               r->loss, r->mse, (long long)r->texts);
}

static void print_result(const af_eval_result *r, bool json)
{
    if (r->pairs)
        print_pairs(r, json);
    else if (r->texts)
        print_texts(r, json);
    else if (json)
        printf("{\"loss\": %.17g, \"perplexity\": %.17g, \"accuracy\": %.17g, \"tokens\": %lld, "
               "\"rows\": %lld}\n",
               r->loss, exp(r->loss), r->accuracy, (long long)r->tokens, (long long)r->rows);
    else
        printf("loss %.6f  perplexity %.4f  accuracy %.4f  tokens %lld  rows %lld\n", r->loss,
               exp(r->loss), r->accuracy, (long long)r->tokens, (long long)r->rows);
}

static void print_labels(const af_model *m, const af_label_eval *r, bool json)
{
    const int64_t n = af_model_labels(m);
    if (af_model_label_kind(m) == AF_LABELS_NUMBERS) {
        printf(json ? "{\"loss\": %.17g, \"mse\": %.17g, \"rows\": %lld}\n"
                    : "loss %.6f  mse %.6f  rows %lld\n",
               r->loss, r->mse, (long long)r->texts);
        return;
    }
    printf(json ? "{\"loss\": %.17g, \"accuracy\": %.17g, \"f1\": %.17g, \"rows\": %lld, "
                  "\"label_f1\": {"
                : "loss %.6f  accuracy %.4f  f1 %.4f  rows %lld\n",
           r->loss, r->accuracy, r->f1, (long long)r->texts);
    for (int64_t i = 0; i < n; i++) {
        const char *name = af_model_label(m, i);
        if (!json) {
            printf("  %-22s f1 %.4f\n", name, r->label_f1[i]);
            continue;
        }
        printf("%s", i ? ", " : "");
        af_cli_json_text(stdout, name, strlen(name));
        printf(": %.17g", r->label_f1[i]);
    }
    if (json)
        printf("}}\n");
}

/* A model that classifies, on texts with labels. */
static af_status eval_labels(af_model *m, const char *data, const af_eval_data_opts *o, bool json,
                             af_error *err)
{
    af_label_eval r = {0};
    const af_status st = af_model_eval_labels(m, data, o, &r, err);
    if (st == AF_OK)
        print_labels(m, &r, json);
    free(r.label_f1);
    return st;
}

/* Why the options contradict each other, or NULL. */
static const char *contradiction(const char *data, int64_t seq, const af_eval_data_opts *o)
{
    if (!data)
        return "--data FILE is required";
    const bool window = seq != NOT_SET, length = o->sequence_len != NOT_SET;
    if ((window && seq < 2) || (length && o->sequence_len < 2))
        return "--seq and --sequence-len must be at least 2";
    if (!af_cli_is_text(data) && window)
        return "--seq applies to plain text (.txt) only; use --sequence-len for records";
    if (*data == '{' && o->type)
        return "--type cannot be combined with a {...} dataset; put type: into it";
    if (af_cli_is_text(data) && (length || o->type || o->chat_template))
        return "--sequence-len, --type and --chat-template have no effect on plain text; use --seq";
    return NULL;
}

static bool is_run_file(const char *path)
{
    const char *dot = strrchr(path, '.');
    return !strcmp(path, "-") || (dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml")));
}

/* The run file names model, data and method; key=value and --device change them. */
static int eval_run(const char **arg, int count, const af_common *common)
{
    af_error err = {0};
    af_eval_result r = {0};
    char device[64], threads[64];
    if (common->device_is_set) {
        snprintf(device, sizeof device, "device=%s", common->device);
        arg[count++] = device;
    }
    if (common->threads) {
        snprintf(threads, sizeof threads, "threads=%lld", (long long)common->threads);
        arg[count++] = threads;
    }
    af_cli_log(common);
    if (af_train_eval(arg[0], arg + 1, count - 1, &r, &err) != AF_OK)
        return af_report("eval", &err);
    print_result(&r, common->json);
    return AF_EXIT_OK;
}

/* Why the options do not suit a run file, or NULL. */
static const char *run_contradiction(const char *data, int64_t seq, const af_eval_data_opts *o,
                                     const af_model_flags *f)
{
    if (data || seq != NOT_SET || o->sequence_len != NOT_SET || o->type || o->chat_template ||
        o->train_on_inputs || f->adapter.count || f->load_in_4bit || f->quant_scratch || f->bf16 ||
        f->f32)
        return "a run file names model, adapter and data itself: change them with key=value";
    return NULL;
}

int cmd_eval(int argc, char **argv)
{
    enum { ARGS_MAX = 120 };
    const char *data = NULL, *arg[ARGS_MAX + 2]; /* and device=, threads= */
    int64_t seq = NOT_SET;
    af_eval_data_opts o = {.sequence_len = NOT_SET};
    int count;
    af_common common = {0};
    af_model_flags flags = {0};
    af_model *m = NULL;
    af_eval_result r = {0};
    af_error err = {0};
    af_opt opts[16] = {
        {0, "data", AF_OPT_STR, &data, "FILE",
         "dataset, or {path: FILE, field_prompt: question, ...} as in a run file; .txt is plain "
         "text"},
        {0, "seq", AF_OPT_I64, &seq, "N", "tokens per window of plain text [512]"},
        {0, "type", AF_OPT_STR, &o.type, "TYPE", "type of the dataset [detected]"},
        {0, "sequence-len", AF_OPT_I64, &o.sequence_len, "N",
         "truncate records to N tokens [2048]"},
        {0, "chat-template", AF_OPT_STR, &o.chat_template, "FILE",
         "chat template to use instead of the model's"},
        {0, "train-on-inputs", AF_OPT_FLAG, &o.train_on_inputs, NULL,
         "count the tokens of prompts too"},
        {0},
    };
    af_cli_model_rows(opts, &flags);
    const af_usage usage = {"eval",
                            "Computes loss, perplexity and token accuracy on a dataset, or of what "
                            "a run has made on the\nrun's own evaluation data.",
                            "MODEL --data FILE | RUN.yaml [key=value ...]",
                            opts,
                            1,
                            ARGS_MAX,
                            NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    const bool run = is_run_file(arg[0]);
    const char *wrong =
        run ? run_contradiction(data, seq, &o, &flags) : contradiction(data, seq, &o);
    if (wrong)
        return af_cli_error(AF_EXIT_USAGE, "eval", "%s", wrong);
    if (run)
        return eval_run(arg, count, &common);
    if (count > 1)
        return af_cli_error(AF_EXIT_USAGE, "eval", "unexpected argument '%s'", arg[1]);
    seq = seq == NOT_SET ? WINDOW : seq;
    o.sequence_len = o.sequence_len == NOT_SET ? SEQUENCE_LEN : o.sequence_len;
    af_cli_log(&common);
    af_status st = af_cli_open_model(&m, arg[0], &flags, &common, &err);
    if (st == AF_OK && af_model_labels(m)) {
        st = eval_labels(m, data, &o, common.json, &err);
        af_model_close(m);
        return st == AF_OK ? AF_EXIT_OK : af_report("eval", &err);
    }
    if (st == AF_OK)
        st = af_cli_is_text(data) ? af_model_eval_text(m, data, seq, &r, &err)
                                  : af_model_eval_dataset(m, data, &o, &r, &err);
    af_model_close(m);
    if (st == AF_OK && !isfinite(r.loss))
        st = af_fail(&err, AF_EFORMAT, "the loss of '%s' over %lld tokens of '%s' is not finite",
                     arg[0], (long long)r.tokens, data);
    if (st != AF_OK)
        return af_report("eval", &err);
    print_result(&r, common.json);
    return AF_EXIT_OK;
}
