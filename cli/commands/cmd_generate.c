/* cmd_generate.c - `afinar generate MODEL -p TEXT`: generates text from prompts. */
#include "commands/commands.h"
#include "commands/constraint.h"
#include "commands/model_opts.h"

#include <errno.h>
#include <jansson.h>

enum { PROMPTS_MAX = 1 << 16 };

typedef struct generate_job {
    af_model *m;
    af_generate_opts o;
    af_encoding *prompt; /* [n] */
    int n;
    bool chat, json;
    const char *system;
    af_cli_constraint constraint;
} generate_job;

/* ---- prompts ---- */

static af_status messages_of(char **out, const generate_job *j, const char *text, size_t len,
                             af_error *err)
{
    json_t *list = json_array();
    if (j->system)
        af_cli_add_message(list, "system", j->system, strlen(j->system));
    af_cli_add_message(list, "user", text, len);
    *out = af_cli_json_dump(list, "the prompt or the system message is not valid UTF-8", err);
    json_decref(list);
    return *out ? AF_OK : err->code;
}

static af_status add_encoding(generate_job *j, af_encoding e, af_error *err)
{
    if (j->n == PROMPTS_MAX)
        return af_fail(err, AF_EUSAGE, "more than %d prompts", PROMPTS_MAX);
    af_encoding *p = realloc(j->prompt, (size_t)(j->n + 1) * sizeof *p);
    if (!p)
        return af_fail(err, AF_ENOMEM, "out of memory for %d prompts", j->n + 1);
    j->prompt = p;
    j->prompt[j->n++] = e;
    return AF_OK;
}

static af_status add_text(generate_job *j, const char *text, size_t len, af_error *err)
{
    af_encoding e = {0};
    const af_tokenizer *tok;
    af_status st;
    if (j->chat) {
        char *messages = NULL;
        st = messages_of(&messages, j, text, len, err);
        if (st == AF_OK)
            st = af_cli_chat_ids(j->m, messages, &e, err);
        free(messages);
    } else {
        st = af_model_tokenizer(j->m, &tok, err);
        if (st == AF_OK)
            st = af_tokenizer_encode(tok, &e, text, len, true, err);
    }
    if (st == AF_OK)
        st = add_encoding(j, e, err);
    if (st != AF_OK)
        af_encoding_clear(&e);
    return st;
}

/* "1,2,3", or as --json prints them: "[1, 2, 3]" */
static af_status add_ids(generate_job *j, const char *list, af_error *err)
{
    af_encoding e = {.cap = (int64_t)strlen(list) / 2 + 1};
    e.ids = calloc((size_t)e.cap, sizeof *e.ids);
    if (!e.ids)
        return af_fail(err, AF_ENOMEM, "out of memory for the prompt");
    const bool bracket = *list == '[';
    bool wrong = bracket && list[strlen(list) - 1] != ']';
    for (const char *at = list + bracket; *at && !wrong && !(bracket && !strcmp(at, "]"));) {
        char *end;
        const long v = strtol(at, &end, 10);
        wrong = end == at || v < 0 || v > INT32_MAX || e.count == e.cap;
        end += strspn(end, " ");
        wrong |= *end && *end != ',' && !(bracket && !strcmp(end, "]"));
        if (!wrong)
            e.ids[e.count++] = (int32_t)v;
        at = *end == ',' ? end + 1 : end;
    }
    const af_status st = wrong ? af_fail(err, AF_EUSAGE, "'%.80s' is not a list of token ids", list)
                               : add_encoding(j, e, err);
    if (st != AF_OK)
        af_encoding_clear(&e);
    return st;
}

/* One row of a .jsonl file: {"prompt": "..."} or {"messages": [...]}. */
static af_status add_row(generate_job *j, const char *line, size_t len, const char *path,
                         int number, af_error *err)
{
    json_t *row = NULL;
    af_status st = af_json_tree(&row, line, len, 0, err);
    if (st != AF_OK)
        return af_fail_prefix(st, err, "%s:%d", path, number);
    const json_t *prompt = json_object_get(row, "prompt");
    json_t *messages = json_object_get(row, "messages");
    if (json_is_string(prompt)) {
        st = add_text(j, json_string_value(prompt), json_string_length(prompt), err);
    } else if (json_is_array(messages)) {
        af_encoding e = {0};
        char *text = af_cli_json_dump(messages, "the messages cannot be written as JSON", err);
        st = text ? af_cli_chat_ids(j->m, text, &e, err) : err->code;
        st = st == AF_OK ? add_encoding(j, e, err) : st;
        if (st != AF_OK)
            af_encoding_clear(&e);
        free(text);
    } else {
        st =
            af_fail(err, AF_EFORMAT,
                    "%s:%d: expected \"prompt\" (a string) or \"messages\" (a list)", path, number);
    }
    json_decref(row);
    return st;
}

static af_status add_file(generate_job *j, const char *path, af_error *err)
{
    char *text = NULL;
    size_t len = 0;
    af_status st = af_cli_read_file(&text, &len, path, err);
    const size_t n = strlen(path);
    const bool rows = n > 6 && !strcmp(path + n - 6, ".jsonl");
    if (st == AF_OK && !rows) /* the final newline is not part of the prompt */
        st = add_text(j, text, len - (len > 0 && text[len - 1] == '\n'), err);
    int number = 1;
    for (size_t at = 0; rows && st == AF_OK && at < len; number++) {
        const char *end = memchr(text + at, '\n', len - at);
        const size_t size = end ? (size_t)(end - text) - at : len - at;
        if (size && text[at] != '\r')
            st = add_row(j, text + at, size, path, number, err);
        at += size + 1;
    }
    if (st == AF_OK && j->n == 0)
        st = af_fail(err, AF_EFORMAT, "%s: no prompts", path);
    free(text);
    return st;
}

/* ---- output ---- */

static bool print_text(void *user, int sequence, int32_t id, const char *text, uint64_t len)
{
    (void)user, (void)sequence, (void)id;
    fwrite(text, 1, len, stdout);
    fflush(stdout);
    return !ferror(stdout);
}

static af_status print_json(const generate_job *j, const af_encoding *prompt, const af_generated *r,
                            af_error *err)
{
    const af_tokenizer *tok;
    char *text = NULL;
    uint64_t len = 0;
    af_status st = j->o.ids_only ? AF_OK : af_model_tokenizer(j->m, &tok, err);
    if (st == AF_OK && !j->o.ids_only && r->stop != AF_STOP_STRING)
        st = af_tokenizer_decode(tok, &text, &len, r->ids, r->count, false, err);
    if (st != AF_OK)
        return st;
    fputs("{\"prompt_ids\": ", stdout);
    af_cli_json_ids(stdout, prompt->ids, prompt->count);
    fputs(", \"ids\": ", stdout);
    af_cli_json_ids(stdout, r->ids, r->count);
    fputs(", \"text\": ", stdout);
    if (j->o.ids_only)
        fputs("null", stdout);
    else
        af_cli_json_text(stdout, text ? text : r->text, text ? len : r->text_len);
    printf(", \"stop\": \"%s\"}\n", af_stop_name(r->stop));
    free(text);
    return AF_OK;
}

static void print_times(const generate_job *j)
{
    const af_generate_times t = af_model_times(j->m);
    fprintf(stderr, "prompt: %lld tokens in %.3f s (%.1f/s); new: %lld tokens in %.3f s (%.1f/s)\n",
            (long long)t.prompt_tokens, t.prompt_s,
            t.prompt_s > 0 ? (double)t.prompt_tokens / t.prompt_s : 0, (long long)t.new_tokens,
            t.token_s, t.token_s > 0 ? (double)t.new_tokens / t.token_s : 0);
}

static af_status run(generate_job *j, af_error *err)
{
    af_generated *out = calloc((size_t)j->n, sizeof *out);
    const int32_t **ids = calloc((size_t)j->n, sizeof *ids);
    int64_t *len = calloc((size_t)j->n, sizeof *len);
    af_status st = AF_OK;
    if (!out || !ids || !len)
        st = af_fail(err, AF_ENOMEM, "out of memory for %d prompts", j->n);
    for (int i = 0; st == AF_OK && i < j->n; i++) {
        ids[i] = j->prompt[i].ids;
        len[i] = j->prompt[i].count;
    }
    j->o.prompt = ids;
    j->o.prompt_len = len;
    j->o.sequences = j->n;
    j->o.skip_special = !j->json;
    if (!j->json && j->n == 1)
        j->o.hook = print_text;
    if (st == AF_OK && af_cli_constraint_count(&j->constraint)) {
        j->o.mask = af_cli_constraint_mask;
        j->o.mask_user = &j->constraint;
        st = af_cli_constraint_open(&j->constraint, j->m, j->n, err);
    }
    if (st == AF_OK)
        st = af_model_generate(j->m, &j->o, out, err);
    if (j->constraint.st != AF_OK) /* why no token may follow */
        *err = j->constraint.err;
    af_cli_constraint_close(&j->constraint);
    for (int i = 0; st == AF_OK && i < j->n; i++) {
        if (j->json)
            st = print_json(j, &j->prompt[i], &out[i], err);
        else if (j->n > 1 && !j->o.ids_only)
            fwrite(out[i].text, 1, out[i].text_len, stdout);
        if (!j->json && j->o.ids_only)
            af_cli_json_ids(stdout, out[i].ids, out[i].count);
        if (!j->json)
            putchar('\n');
    }
    for (int i = 0; out && i < j->n; i++)
        af_generated_clear(&out[i]);
    free(out);
    free(ids);
    free(len);
    return st;
}

/* Values of the options that are not part of af_generate_opts. */
typedef struct generate_args {
    af_common common;
    af_model_flags flags;
    af_opt_list prompts, ids, stops;
    const char *file, *model;
    int64_t seed;
} generate_args;

static af_parsed parse(generate_job *j, generate_args *g, int argc, char **argv)
{
    af_sample_opts *s = &j->o.sample;
    int count;
    af_opt opts[28] = {
        {'p', "prompt", AF_OPT_LIST, &g->prompts, "TEXT", "prompt; may be repeated"},
        {'f', "file", AF_OPT_STR, &g->file, "FILE",
         "file with the prompt (its final newline is dropped), - = stdin; .jsonl: one prompt per "
         "line"},
        {0, "prompt-ids", AF_OPT_LIST, &g->ids, "IDS",
         "prompt as token ids: 1,2,3; may be repeated"},
        {0, "chat", AF_OPT_FLAG, &j->chat, NULL, "apply the chat template to the prompt"},
        {0, "system", AF_OPT_STR, &j->system, "TEXT", "system message (with --chat)"},
        {'n', "max-new-tokens", AF_OPT_I64, &j->o.max_new, "N",
         "maximum number of new tokens [128]"},
        {0, "temperature", AF_OPT_F64, &s->temperature, "N",
         "sampling temperature, 0 = greedy [0]"},
        {0, "top-p", AF_OPT_F64, &s->top_p, "N",
         "sample from the smallest set with this total probability [1]"},
        {0, "top-k", AF_OPT_I64, &s->top_k, "N",
         "sample from the N most likely tokens, 0 = all [0]"},
        {0, "min-p", AF_OPT_F64, &s->min_p, "N",
         "drop tokens below N times the highest probability [0]"},
        {0, "repeat-penalty", AF_OPT_F64, &s->repeat_penalty, "N",
         "penalty on repeated tokens, 1 = none [1]"},
        {0, "seed", AF_OPT_I64, &g->seed, "N", "random seed [0]"},
        {0, "stop", AF_OPT_LIST, &g->stops, "TEXT", "stop at this text; may be repeated"},
        {0, "ignore-eos", AF_OPT_FLAG, &j->o.ignore_eos, NULL,
         "continue after the end-of-sequence token"},
    };
    af_cli_constraint_rows(opts, &j->constraint);
    af_cli_model_rows(opts, &g->flags);
    g->flags.few_tokens = true;
    const af_usage usage = {
        "generate", "Generates text from one or more prompts.", "MODEL -p TEXT", opts, 1, 1, NULL};
    return af_opts_parse(&usage, &g->common, argc, argv, &g->model, &count);
}

/* Why the options contradict each other, or NULL; checked before the model is opened. */
static const char *contradiction(const generate_job *j, const generate_args *g)
{
    if (!g->prompts.count && !g->file && !g->ids.count)
        return "give a prompt with -p, -f or --prompt-ids";
    if (j->system && !j->chat)
        return "--system has no effect without --chat";
    if (j->chat && !g->prompts.count && !g->file)
        return "--chat has no effect on --prompt-ids";
    if (j->o.max_new < 0)
        return "--max-new-tokens must be at least 0";
    for (int i = 0; i < g->stops.count; i++)
        if (!*g->stops.item[i])
            return "--stop has an empty text";
    if (af_cli_constraint_count(&j->constraint) > 1)
        return "give one of --json-schema, --json-schema-file, --grammar and --grammar-file";
    if (af_cli_constraint_count(&j->constraint) && j->o.ignore_eos)
        return "--ignore-eos cannot be used with a schema or a grammar";
    return NULL;
}

/* Token ids can be continued without a tokenizer; the result then has no text. */
static void try_tokenizer(generate_job *j)
{
    const af_tokenizer *tok;
    af_error why = {0};
    if (af_model_tokenizer(j->m, &tok, &why) == AF_OK)
        return;
    fprintf(stderr, "warning: printing token ids only: %s\n", why.msg);
    j->o.ids_only = true;
}

static af_status generate(generate_job *j, const generate_args *g, af_error *err)
{
    af_status st = af_cli_open_model(&j->m, g->model, &g->flags, &g->common, err);
    for (int i = 0; st == AF_OK && i < g->prompts.count; i++)
        st = add_text(j, g->prompts.item[i], strlen(g->prompts.item[i]), err);
    if (st == AF_OK && g->file)
        st = add_file(j, g->file, err);
    for (int i = 0; st == AF_OK && i < g->ids.count; i++)
        st = add_ids(j, g->ids.item[i], err);
    if (st == AF_OK && j->n == g->ids.count)
        try_tokenizer(j);
    if (st == AF_OK)
        st = run(j, err);
    if (st == AF_OK && g->common.verbose)
        print_times(j);
    for (int i = 0; i < j->n; i++)
        af_encoding_clear(&j->prompt[i]);
    free(j->prompt);
    af_model_close(j->m);
    return st;
}

int cmd_generate(int argc, char **argv)
{
    generate_job j = {.o = {.max_new = 128, .sample = {.top_p = 1}}};
    generate_args g = {0};
    af_error err = {0};
    const af_parsed p = parse(&j, &g, argc, argv);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    const char *wrong = contradiction(&j, &g);
    if (wrong)
        return af_cli_error(AF_EXIT_USAGE, "generate", "%s", wrong);
    af_cli_log(&g.common);
    j.json = g.common.json;
    const af_sample_opts *s = &j.o.sample;
    if (s->temperature == 0 && (s->top_p != 1 || s->top_k || s->min_p != 0))
        fputs("warning: --top-p, --top-k and --min-p have no effect at temperature 0\n", stderr);
    j.o.sample.top_p = af_cli_top_p(s->top_p);
    j.o.sample.seed = (uint64_t)g.seed;
    j.o.stops = g.stops.count;
    for (int i = 0; i < g.stops.count; i++)
        j.o.stop[i] = g.stops.item[i];
    return generate(&j, &g, &err) == AF_OK ? AF_EXIT_OK : af_report("generate", &err);
}
