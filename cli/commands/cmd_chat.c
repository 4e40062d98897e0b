/* cmd_chat.c - `afinar chat MODEL`: a conversation in the terminal. */
#define _GNU_SOURCE
#include "commands/commands.h"
#include "commands/model_opts.h"
#include "term/line_edit.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <unistd.h>

enum { NOT_SET = INT32_MIN };

static volatile sig_atomic_t stop_requested;

static void on_interrupt(int sig)
{
    (void)sig;
    stop_requested = 1;
}

typedef struct chat_session {
    af_model *m;
    json_t *messages;
    char *system; /* first message of every conversation, or NULL */
    af_generate_opts o;
    bool json;
    bool channels;       /* answers are messages with channels */
    af_channels *reader; /* of the answer that is being written */
    FILE *content;       /* those of its parts that a later prompt repeats */
    af_status st;
    af_error err; /* of the reader */
} chat_session;

static void show(const chat_session *c, const char *text, uint64_t len)
{
    if (c->json)
        return;
    fwrite(text, 1, len, stdout);
    fflush(stdout);
}

static void on_message_text(void *user, af_channel_kind kind, const char *text, uint64_t len)
{
    const chat_session *c = user;
    show(c, text, len);
    if (kind == AF_CHANNEL_CONTENT)
        fwrite(text, 1, len, c->content);
}

static void on_message_end(void *user, af_channel_kind kind, const char *to)
{
    (void)to;
    if (kind != AF_CHANNEL_CONTENT)
        show(user, "\n\n", 2);
}

static bool print_text(void *user, int sequence, int32_t id, const char *text, uint64_t len)
{
    chat_session *c = user;
    (void)sequence, (void)id;
    if (c->reader)
        c->st = af_channels_add(c->reader, text, len, &c->err);
    else
        show(c, text, len);
    return !stop_requested && c->st == AF_OK;
}

static void reset(chat_session *c)
{
    json_array_clear(c->messages);
    if (c->system && *c->system)
        af_cli_add_message(c->messages, "system", c->system, strlen(c->system));
}

static void set_system(chat_session *c, const char *text)
{
    free(c->system);
    c->system = text ? strdup(text) : NULL;
    if (text && !c->system)
        af_cli_note_memory();
    reset(c);
}

/* Generates; *text is what the conversation keeps of the answer, malloc'ed. */
static af_status generate(chat_session *c, af_generated *r, char **text, size_t *n, af_error *err)
{
    const af_channel_sink sink = {on_message_text, on_message_end, c};
    af_status st = AF_OK;
    c->st = AF_OK;
    c->content = open_memstream(text, n);
    if (!c->content)
        return af_fail(err, AF_ENOMEM, "out of memory for the answer");
    if (c->channels)
        st = af_channels_new(&c->reader, "", 0, &sink, err);
    if (st == AF_OK)
        st = af_model_generate(c->m, &c->o, r, err);
    if (st == AF_OK && c->reader && c->st == AF_OK)
        c->st = af_channels_finish(c->reader, &c->err);
    if (st == AF_OK && c->st != AF_OK)
        st = af_fail(err, c->st, "%s", c->err.msg);
    if (st == AF_OK && !c->reader)
        fwrite(r->text, 1, r->text_len, c->content);
    af_channels_free(c->reader);
    c->reader = NULL;
    if (fclose(c->content) != 0 && st == AF_OK)
        st = af_fail(err, AF_ENOMEM, "out of memory for the answer");
    return st;
}

/* One turn: the answer is streamed and becomes part of the conversation. */
static af_status answer(chat_session *c, const char *text, af_error *err)
{
    af_encoding e = {0};
    af_generated r = {0};
    char *kept = NULL;
    size_t n = 0;
    af_cli_add_message(c->messages, "user", text, strlen(text));
    char *messages = af_cli_json_dump(c->messages, "the input is not valid UTF-8", err);
    af_status st = messages ? af_cli_chat_ids(c->m, messages, &e, err) : err->code;
    free(messages);
    if (st == AF_OK) {
        const int32_t *ids = e.ids;
        c->o.prompt = &ids;
        c->o.prompt_len = &e.count;
        c->o.sequences = 1;
        c->o.sample.seed++;
        stop_requested = 0;
        st = generate(c, &r, &kept, &n, err);
    }
    if (st == AF_OK) {
        af_cli_add_message(c->messages, "assistant", kept, n);
        if (c->json) {
            fputs("{\"text\": ", stdout);
            af_cli_json_text(stdout, kept, n);
            printf(", \"stop\": \"%s\"}\n", af_stop_name(r.stop));
        } else {
            puts(r.stop == AF_STOP_USER ? " [stopped]" : "");
        }
        fflush(stdout);
    } else {
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
    }
    free(kept);
    af_generated_clear(&r);
    af_encoding_clear(&e);
    return st;
}

/* Input that begins with a slash; false ends the program. */
static bool command(chat_session *c, const char *s)
{
    if (!strcmp(s, "/exit") || !strcmp(s, "/quit"))
        return false;
    if (!strcmp(s, "/reset")) {
        reset(c);
        fputs("(started a new conversation)\n", stderr);
    } else if (!strncmp(s, "/system", 7) && (s[7] == ' ' || !s[7])) {
        set_system(c, s[7] ? s + 8 : NULL);
        fputs(c->system ? "(started a new conversation with this system message)\n"
                        : "(started a new conversation without a system message)\n",
              stderr);
    } else {
        fputs("/reset          start a new conversation\n"
              "/system TEXT    start a new conversation with this system message\n"
              "/exit           quit (also Ctrl-D)\nCtrl-C stops the answer.\n",
              stderr);
    }
    return true;
}

/* What is wrong with one input does not end the conversation of somebody who types. */
static af_status go_on(af_status st, af_error *err)
{
    const bool of_input = st == AF_EFORMAT || st == AF_EUSAGE || st == AF_EUNSUPPORTED;
    if (!of_input || !isatty(STDIN_FILENO))
        return st;
    af_report("chat", err);
    *err = (af_error){0};
    return AF_OK;
}

static af_status converse(chat_session *c, af_error *err)
{
    af_line_edit edit = {0};
    af_status st = AF_OK;
    char *s;
    while (st == AF_OK && (s = af_line_read(&edit, "> "))) {
        bool more = true;
        if (*s == '/')
            more = command(c, s);
        else if (*s)
            st = go_on(answer(c, s, err), err);
        free(s);
        if (!more)
            break;
    }
    if (st == AF_OK && edit.error)
        st = af_fail(err, edit.error == ENOMEM ? AF_ENOMEM : AF_EIO, "cannot read stdin: %s",
                     strerror(edit.error));
    af_line_edit_clear(&edit);
    return st;
}

/* Options that were not given take the values of the model's generation_config.json. */
static af_status fill_sampling(chat_session *c, const af_sample_opts *set, af_error *err)
{
    af_sample_opts s;
    const af_status st = af_model_sampling(c->m, &s, err);
    if (st != AF_OK)
        return st;
    s.temperature = set->temperature != NOT_SET ? set->temperature : s.temperature;
    s.top_p = set->top_p != NOT_SET ? af_cli_top_p(set->top_p) : s.top_p;
    s.top_k = set->top_k != NOT_SET ? set->top_k : s.top_k;
    s.min_p = set->min_p != NOT_SET ? set->min_p : s.min_p;
    s.repeat_penalty = set->repeat_penalty > 0 ? set->repeat_penalty : s.repeat_penalty;
    s.seed = set->seed;
    c->o.sample = s;
    return AF_OK;
}

/* Their marks are special tokens, of which two end an answer. */
static void read_channels(chat_session *c, const af_template *t)
{
    c->channels = af_template_has_channels(t);
    if (!c->channels)
        return;
    c->o.skip_special = false;
    c->o.stop[c->o.stops++] = "<|return|>";
    c->o.stop[c->o.stops++] = "<|call|>";
}

int cmd_chat(int argc, char **argv)
{
    chat_session c = {.o = {.max_new = 1024, .skip_special = true, .hook = print_text}};
    af_sample_opts s = {
        .temperature = NOT_SET, .top_p = NOT_SET, .top_k = NOT_SET, .min_p = NOT_SET};
    af_model_flags flags = {0};
    const char *system = NULL, *arg[1];
    int64_t seed = 0;
    int count;
    af_common common = {0};
    af_error err = {0};
    af_opt opts[20] = {
        {0, "system", AF_OPT_STR, &system, "TEXT", "system message"},
        {'n', "max-new-tokens", AF_OPT_I64, &c.o.max_new, "N",
         "maximum number of new tokens [1024]"},
        {0, "temperature", AF_OPT_F64, &s.temperature, "N",
         "sampling temperature, 0 = greedy [from the model]"},
        {0, "top-p", AF_OPT_F64, &s.top_p, "N",
         "sample from the smallest set with this total probability"},
        {0, "top-k", AF_OPT_I64, &s.top_k, "N", "sample from the N most likely tokens"},
        {0, "min-p", AF_OPT_F64, &s.min_p, "N",
         "drop tokens below N times the highest probability"},
        {0, "repeat-penalty", AF_OPT_F64, &s.repeat_penalty, "N",
         "penalty on repeated tokens, 1 = none"},
        {0, "seed", AF_OPT_I64, &seed, "N", "random seed [0]"},
    };
    af_cli_model_rows(opts, &flags);
    const af_usage usage = {
        "chat",  "Holds a conversation with a model. Type /help for its commands.",
        "MODEL", opts,
        1,       1,
        NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    if (c.o.max_new < 1)
        return af_cli_error(AF_EXIT_USAGE, "chat", "--max-new-tokens must be at least 1");
    af_cli_log(&common);
    s.seed = (uint64_t)seed;
    c.json = common.json;
    c.o.user = &c;
    c.messages = json_array();
    flags.few_tokens = true;
    af_status st = af_cli_open_model(&c.m, arg[0], &flags, &common, &err);
    const af_template *template;
    if (st == AF_OK) /* report a missing template before the first input */
        st = af_model_template(c.m, &template, &err);
    if (st == AF_OK)
        st = fill_sampling(&c, &s, &err);
    if (st == AF_OK)
        read_channels(&c, template);
    const struct sigaction a = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &a, NULL);
    set_system(&c, system);
    if (st == AF_OK)
        st = converse(&c, &err);
    json_decref(c.messages);
    free(c.system);
    af_model_close(c.m);
    return st == AF_OK ? AF_EXIT_OK : af_report("chat", &err);
}
