/* cmd_eval.c - `afinar eval MODEL --data FILE` or `afinar eval RUN.yaml`: loss, perplexity, token
 * accuracy. */
#include "commands/commands.h"
#include "commands/model_opts.h"
#include "term/interrupt.h"
#include "term/progress.h"

#include "afinar/output.h"
#include "afinar/train.h"

#include <math.h>

enum { WINDOW = 512, SEQUENCE_LEN = 2048, MAX_NEW = 128, ARGS_MAX = 120, NOT_SET = INT32_MIN };

/* Evaluation by generation. */
typedef struct eval_answers {
    bool wanted;
    int64_t max_new;
    const char *output;
    bool force;
} eval_answers;

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

/* ---- answers ---- */

static void write_answer(void *user, const af_answered *a)
{
    FILE *f = user;
    fprintf(f, "{\"record\": %lld, \"prompt\": ", (long long)a->record);
    af_cli_json_text(f, a->prompt, a->prompt_len);
    fputs(", \"expected\": ", f);
    af_cli_json_text(f, a->expected, a->expected_len);
    fputs(", \"answer\": ", f);
    af_cli_json_text(f, a->answer, a->answer_len);
    fprintf(f, ", \"match\": %s, \"stop\": \"%s\"}\n", a->match ? "true" : "false",
            af_stop_name(a->stop));
}

/* The answers are written when all of them are there. */
static af_status eval_by_answers(af_model *m, const char *data, const af_eval_data_opts *o,
                                 const eval_answers *e, bool json, af_error *err)
{
    af_answers_result r = {0};
    char *text = NULL;
    size_t n = 0;
    FILE *f = e->output ? open_memstream(&text, &n) : NULL;
    if (e->output && !f)
        return af_fail(err, AF_ENOMEM, "out of memory for the answers");
    const af_answers_opts opts = {
        .data = *o, .max_new = e->max_new, .answered = f ? write_answer : NULL, .user = f};
    af_status st = af_model_eval_answers(m, data, &opts, &r, err);
    if (f && fclose(f) != 0 && st == AF_OK)
        st = af_fail(err, AF_ENOMEM, "out of memory for the answers");
    if (f && st == AF_OK)
        st = af_output_write(e->output, text, n, e->force, err);
    free(text);
    if (st == AF_OK)
        printf(json ? "{\"exact_match\": %.17g, \"answers\": %lld, \"left_out\": %lld, "
                      "\"tokens\": %lld}\n"
                    : "exact_match %.4f  answers %lld  left out %lld  tokens %lld\n",
               r.exact_match, (long long)r.answers, (long long)r.left_out, (long long)r.tokens);
    return st;
}

/* Why the options contradict each other, or NULL. */
static const char *answers_contradiction(const char *data, const eval_answers *e)
{
    if (!e->wanted && (e->output || e->force || e->max_new != NOT_SET))
        return "--max-new-tokens, --output and --force have no effect without --generate";
    if (e->wanted && af_cli_is_text(data))
        return "--generate needs records with prompts and answers, not plain text";
    if (e->max_new != NOT_SET && e->max_new < 1)
        return "--max-new-tokens must be at least 1";
    return NULL;
}

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

typedef struct eval_args {
    af_common common;
    af_model_flags flags;
    const char *data;
    int64_t seq;
    af_eval_data_opts o;
    eval_answers answers;
} eval_args;

/* Why the options do not suit a run file, or NULL. */
static const char *run_contradiction(const eval_args *a)
{
    const af_model_flags *f = &a->flags;
    const af_eval_data_opts *o = &a->o;
    if (a->answers.wanted)
        return "--generate needs MODEL --data FILE: name the run's base and its output as "
               "--adapter";
    if (a->data || a->seq != NOT_SET || o->sequence_len != NOT_SET || o->type || o->chat_template ||
        o->train_on_inputs || f->adapter.count || f->load_in_4bit || f->quant_scratch || f->bf16 ||
        f->f32)
        return "a run file names model, adapter and data itself: change them with key=value";
    return NULL;
}

static af_parsed parse(eval_args *a, int argc, char **argv, const char **arg, int *count)
{
    eval_answers *e = &a->answers;
    af_eval_data_opts *o = &a->o;
    af_opt opts[20] = {
        {0, "data", AF_OPT_STR, &a->data, "FILE",
         "dataset, or {path: FILE, field_prompt: question, ...} as in a run file; .txt is plain "
         "text"},
        {0, "seq", AF_OPT_I64, &a->seq, "N", "tokens per window of plain text [512]"},
        {0, "type", AF_OPT_STR, &o->type, "TYPE", "type of the dataset [detected]"},
        {0, "sequence-len", AF_OPT_I64, &o->sequence_len, "N",
         "truncate records to N tokens [2048]"},
        {0, "chat-template", AF_OPT_STR, &o->chat_template, "NAME|FILE",
         "chat template to use instead of the model's"},
        {0, "train-on-inputs", AF_OPT_FLAG, &o->train_on_inputs, NULL,
         "count the tokens of prompts too"},
        {0, "generate", AF_OPT_FLAG, &e->wanted, NULL,
         "generate an answer to each record and report how many are as expected"},
        {'n', "max-new-tokens", AF_OPT_I64, &e->max_new, "N",
         "maximum number of new tokens per answer [128]"},
        {'o', "output", AF_OPT_STR, &e->output, "FILE",
         "write prompts, expected and generated answers here (JSON lines)"},
        {0, "force", AF_OPT_FLAG, &e->force, NULL, "replace a file that afinar wrote"},
        {0},
    };
    af_cli_model_rows(opts, &a->flags);
    const af_usage usage = {
        "eval",
        "Computes loss, perplexity and token accuracy on a dataset, or of what a run has made on "
        "the\nrun's own evaluation data. With --generate: how many answers are as expected.",
        "MODEL --data FILE | RUN.yaml [key=value ...]",
        opts,
        1,
        ARGS_MAX,
        NULL};
    return af_opts_parse(&usage, &a->common, argc, argv, arg, count);
}

static af_status eval_losses(af_model *m, const char *name, const eval_args *a, af_error *err)
{
    af_eval_result r = {0};
    const af_status st = af_cli_is_text(a->data)
                             ? af_model_eval_text(m, a->data, a->seq, &r, err)
                             : af_model_eval_dataset(m, a->data, &a->o, &r, err);
    if (st == AF_OK && !isfinite(r.loss))
        return af_fail(err, AF_EFORMAT, "the loss of '%s' over %lld tokens of '%s' is not finite",
                       name, (long long)r.tokens, a->data);
    if (st == AF_OK)
        print_result(&r, a->common.json);
    return st;
}

static af_status eval_model(const char *name, const eval_args *a, af_error *err)
{
    af_model *m = NULL;
    const eval_answers *e = &a->answers;
    af_status st = e->output ? af_output_check_file(e->output, e->force, err) : AF_OK;
    if (st == AF_OK)
        st = af_cli_open_model(&m, name, &a->flags, &a->common, err);
    if (st == AF_OK)
        st = e->wanted            ? eval_by_answers(m, a->data, &a->o, e, a->common.json, err)
             : af_model_labels(m) ? eval_labels(m, a->data, &a->o, a->common.json, err)
                                  : eval_losses(m, name, a, err);
    af_model_close(m);
    return st;
}

int cmd_eval(int argc, char **argv)
{
    const char *arg[ARGS_MAX + 2]; /* and device=, threads= */
    eval_args a = {.seq = NOT_SET, .o = {.sequence_len = NOT_SET}, .answers = {.max_new = NOT_SET}};
    int count;
    af_error err = {0};
    const af_parsed p = parse(&a, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    const bool run = is_run_file(arg[0]);
    const char *wrong = run ? run_contradiction(&a) : contradiction(a.data, a.seq, &a.o);
    if (!wrong)
        wrong = answers_contradiction(a.data ? a.data : "", &a.answers);
    if (wrong)
        return af_cli_error(AF_EXIT_USAGE, "eval", "%s", wrong);
    if (run)
        return eval_run(arg, count, &a.common);
    if (count > 1)
        return af_cli_error(AF_EXIT_USAGE, "eval", "unexpected argument '%s'", arg[1]);
    a.seq = a.seq == NOT_SET ? WINDOW : a.seq;
    a.o.sequence_len = a.o.sequence_len == NOT_SET ? SEQUENCE_LEN : a.o.sequence_len;
    a.answers.max_new = a.answers.max_new == NOT_SET ? MAX_NEW : a.answers.max_new;
    af_cli_log(&a.common);
    af_cli_remove_partial_output();
    return eval_model(arg[0], &a, &err) == AF_OK ? AF_EXIT_OK : af_report("eval", &err);
}
