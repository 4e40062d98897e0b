/* cmd_serve.c - `afinar serve MODEL`: OpenAI's endpoints over a model and its adapters. */
#define _POSIX_C_SOURCE 200809L
#include "commands/commands.h"
#include "commands/model_opts.h"

#include "afinar/serve.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

typedef struct serve_args {
    af_common common;
    af_model_flags flags;
    af_opt_list adapters, hosts;
    const char *model, *alias, *host, *key, *key_file, *pooling, *cors, *max_body, *reasoning,
        *template;
    int64_t port, context, parallel;
    double timeout, header_timeout, ping_interval;
    bool no_ui, round;
} serve_args;

static int signals[2] = {-1, -1}; /* a pipe from the handler */
static volatile sig_atomic_t stopping;

/* The first signal lets running requests finish; the second ends the process. */
static void on_signal(int sig)
{
    const int saved = errno;
    if (stopping) {
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    stopping = sig;
    (void)!write(signals[1], "x", 1);
    errno = saved;
}

static af_status install_handlers(af_error *err)
{
    struct sigaction a = {.sa_handler = on_signal};
    if (pipe(signals) != 0)
        return af_fail(err, AF_EIO, "pipe: %s", strerror(errno));
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    signal(SIGPIPE, SIG_IGN);
    return AF_OK;
}

static void log_request(void *user, const char *method, const char *path, int status,
                        double seconds)
{
    (void)user;
    fprintf(stderr, "%.10s %.200s %d %.3f s\n", method, path, status, seconds);
}

static af_parsed parse(serve_args *s, int argc, char **argv)
{
    int count;
    af_opt opts[28] = {
        {0, "adapter", AF_OPT_LIST, &s->adapters, "NAME=DIR",
         "adapter, served as model BASE:NAME; may be repeated"},
        {'a', "alias", AF_OPT_STR, &s->alias, "NAME",
         "BASE, the name of the model in the API [folder or file name]"},
        {0, "host", AF_OPT_STR, &s->host, "HOST", "address to listen on [127.0.0.1]"},
        {0, "port", AF_OPT_I64, &s->port, "N", "port, 0 = the system chooses [8080]"},
        {0, "api-key", AF_OPT_STR, &s->key, "KEY",
         "key that requests must have, several separated by commas (also AFINAR_API_KEY)"},
        {0, "api-key-file", AF_OPT_STR, &s->key_file, "FILE", "file with one key per line"},
        {'c', "ctx-size", AF_OPT_I64, &s->context, "N",
         "tokens that a request may hold [the model's]"},
        {0, "parallel", AF_OPT_I64, &s->parallel, "N",
         "requests decoded in one batch, more wait (also -np) [auto]"},
        {0, "pooling", AF_OPT_STR, &s->pooling, "KIND",
         "embeddings: mean, last or cls [the model's, else last]"},
        {0, "cors-origins", AF_OPT_STR, &s->cors, "LIST",
         "origins of other pages that may call, separated by commas; * = any [none]"},
        {0, "allowed-host", AF_OPT_LIST, &s->hosts, "NAME",
         "accepted Host besides loopback names and --host; may be repeated"},
        {0, "timeout", AF_OPT_F64, &s->timeout, "S", "seconds an answer may take [3600]"},
        {0, "header-timeout", AF_OPT_F64, &s->header_timeout, "S",
         "seconds from the first byte of a request head to its last [10]"},
        {0, "sse-ping-interval", AF_OPT_F64, &s->ping_interval, "S",
         "seconds after which a stream without news sends a ping [30]"},
        {0, "max-body", AF_OPT_STR, &s->max_body, "SIZE", "largest request body [16MiB]"},
        {0, "chat-template", AF_OPT_STR, &s->template, "NAME|FILE",
         "chat template: a name (chatml, llama3, ...) or a .jinja file [the model's]"},
        {0, "reasoning-format", AF_OPT_STR, &s->reasoning, "FORMAT",
         "none, or auto: reasoning between marks becomes reasoning_content [none]"},
        {0, "no-ui", AF_OPT_FLAG, &s->no_ui, NULL, "serve no page at /"},
        {0, "load-in-4bit", AF_OPT_FLAG, &s->flags.load_in_4bit, NULL,
         "quantize the linear layers to nf4"},
        {0, "bf16", AF_OPT_FLAG, &s->flags.bf16, NULL, "compute in bf16"},
        {0, "f32", AF_OPT_FLAG, &s->flags.f32, NULL, "compute in f32"},
        {0, "round-activations", AF_OPT_FLAG, &s->round, NULL,
         "faster and less exact with GGUF blocks on CPUs that multiply bytes: 8-bit activations"},
        {0},
    };
    const af_usage usage = {
        "serve", "Serves a model and its adapters over HTTP with OpenAI's endpoints.",
        "MODEL", opts,
        1,       1,
        NULL};
    for (int i = 1; i < argc; i++) /* llama-server's name, the only one of two letters */
        if (strcmp(argv[i], "-np") == 0)
            argv[i] = "--parallel";
    return af_opts_parse(&usage, &s->common, argc, argv, &s->model, &count);
}

/* "16MiB", "1GB", "4096". */
static bool parse_size(const char *text, uint64_t *out)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"", 1},        {"B", 1},       {"K", 1024},     {"KB", 1e3},
                 {"KiB", 1024},  {"M", 1048576}, {"MB", 1e6},     {"MiB", 1048576},
                 {"G", 1 << 30}, {"GB", 1e9},    {"GiB", 1 << 30}};
    char *end = NULL;
    const double v = strtod(text, &end);
    for (size_t i = 0; end != text && i < sizeof units / sizeof units[0]; i++)
        if (strcmp(end, units[i].unit) == 0 && v > 0 &&
            v * units[i].bytes <= (double)(1ull << 40)) {
            *out = (uint64_t)(v * units[i].bytes);
            return *out > 0;
        }
    return false;
}

/* Splits a comma-separated list in place. */
static int split(char *list, const char **out, int max)
{
    int n = 0;
    for (char *at = list; at && *at && n < max;) {
        char *comma = strchr(at, ',');
        if (comma)
            *comma = '\0';
        while (*at == ' ')
            at++;
        if (*at)
            out[n++] = at;
        at = comma ? comma + 1 : NULL;
    }
    return n;
}

/* NAME=DIR; the names are cut out in place. */
static const char *take_adapters(serve_args *s, af_serve_opts *o)
{
    for (int i = 0; i < s->adapters.count; i++) {
        char *eq = strchr(s->adapters.item[i], '=');
        if (!eq || eq == s->adapters.item[i] || !eq[1])
            return "--adapter expects NAME=DIR";
        *eq = '\0';
        o->adapter_name[i] = s->adapters.item[i];
        o->adapter_path[i] = eq + 1;
    }
    o->adapters = s->adapters.count;
    return NULL;
}

/* As browsers send it: SCHEME://HOST[:PORT], without the slash that an address ends with. */
static bool is_origin(const char *s)
{
    const char *host = strstr(s, "://");
    return strcmp(s, "*") == 0 || strcmp(s, "null") == 0 ||
           (host && host != s && host[3] && !strchr(host + 3, '/'));
}

static const char *take_cors(const serve_args *s, af_serve_opts *o)
{
    static char cors[4096];
    if (s->cors && strlen(s->cors) >= sizeof cors)
        return "--cors-origins is too long";
    if (s->cors)
        snprintf(cors, sizeof cors, "%s", s->cors);
    o->cors_origins = split(cors, o->cors_origin, AF_SERVE_LIST_MAX);
    for (int i = 0; i < o->cors_origins; i++)
        if (!is_origin(o->cors_origin[i]))
            return "--cors-origins expects origins such as https://example.com:3000, without a "
                   "path, or *";
    return NULL;
}

/* The options of the library from those of the program; what is wrong with them, or NULL. */
static const char *take_options(serve_args *s, af_serve_opts *o)
{
    const char *wrong = take_adapters(s, o);
    if (wrong)
        return wrong;
    if (s->port < 0 || s->port > 65535)
        return "--port must be from 0 to 65535";
    if (s->context < 0 || s->parallel < 0 || s->parallel > 4096)
        return "--ctx-size must be at least 0, --parallel from 0 to 4096";
    if (!(s->timeout > 0) || !(s->header_timeout > 0) || !(s->ping_interval > 0))
        return "--timeout, --header-timeout and --sse-ping-interval must be above 0";
    if (s->key && !af_cli_has_key(s->key))
        return "--api-key is empty";
    if (s->max_body && !parse_size(s->max_body, &o->max_body))
        return "--max-body expects a size such as 16MiB";
    if (s->flags.bf16 && s->flags.f32)
        return "give either --bf16 or --f32, not both";
    if (!s->pooling)
        o->own_pooling = true;
    else if (strcmp(s->pooling, "mean") == 0)
        o->pooling = AF_POOLING_MEAN;
    else if (strcmp(s->pooling, "cls") == 0)
        o->pooling = AF_POOLING_CLS;
    else if (strcmp(s->pooling, "last") != 0)
        return "--pooling must be mean, last or cls";
    if (strcmp(s->reasoning, "none") != 0 && strcmp(s->reasoning, "auto") != 0 &&
        strcmp(s->reasoning, "deepseek") != 0)
        return "--reasoning-format must be none, auto or deepseek";
    if ((wrong = take_cors(s, o)) != NULL)
        return wrong;
    for (int i = 0; i < s->hosts.count; i++)
        o->allowed_host[i] = s->hosts.item[i];
    o->allowed_hosts = s->hosts.count;
    o->alias = s->alias;
    o->host = s->host;
    o->port = (int)s->port;
    o->context = s->context;
    o->parallel = (int)s->parallel;
    o->timeout = s->timeout;
    o->header_timeout = s->header_timeout;
    o->ping_interval = s->ping_interval;
    o->reasoning = strcmp(s->reasoning, "none") != 0;
    o->chat_template = s->template;
    o->no_ui = s->no_ui;
    o->round_activations = s->round;
    o->log = s->common.verbose ? log_request : NULL;
    o->model = (af_model_opts){.device = s->common.device,
                               .threads = (int)s->common.threads,
                               .compute = s->flags.bf16  ? AF_COMPUTE_BF16
                                          : s->flags.f32 ? AF_COMPUTE_F32
                                                         : AF_COMPUTE_AUTO,
                               .load_in_4bit = s->flags.load_in_4bit,
                               .few_tokens = true};
    return NULL;
}

/* All keys in one text: of the option, the file and the environment. */
static af_status take_keys(const serve_args *s, char **keys, af_error *err)
{
    char *file = NULL;
    size_t n = 0;
    const char *environment = getenv("AFINAR_API_KEY");
    af_status st = s->key_file ? af_cli_read_file(&file, &n, s->key_file, err) : AF_OK;
    if (st == AF_OK && file && !af_cli_has_key(file))
        st = af_fail(err, AF_EFORMAT, "'%s' has no key", s->key_file);
    const size_t size =
        n + (s->key ? strlen(s->key) : 0) + (environment ? strlen(environment) : 0) + 4;
    if (st == AF_OK) {
        *keys = malloc(size);
        if (*keys)
            snprintf(*keys, size, "%s\n%s\n%s", s->key ? s->key : "",
                     environment ? environment : "", file ? file : "");
        else
            st = af_fail(err, AF_ENOMEM, "out of memory for keys");
    }
    free(file);
    return st;
}

void af_cli_announce(const af_server *server, bool json)
{
    if (!json) {
        printf("listening on %s\n", af_server_url(server));
    } else {
        printf("{\"url\": \"%s\", \"model\": ", af_server_url(server));
        const char *name = af_server_model_name(server, 0);
        af_cli_json_text(stdout, name, strlen(name));
        fputs(", \"adapters\": [", stdout);
        for (int i = 1; (name = af_server_model_name(server, i)) != NULL; i++) {
            fputs(i > 1 ? ", " : "", stdout);
            af_cli_json_text(stdout, name, strlen(name));
        }
        fputs("]}\n", stdout);
    }
    fflush(stdout);
}

static af_status serve(const serve_args *s, const af_serve_opts *o, af_error *err)
{
    af_server *server = NULL;
    char c;
    af_status st = af_server_open(&server, s->model, o, err);
    if (st == AF_OK)
        st = install_handlers(err);
    if (st == AF_OK) {
        af_cli_announce(server, s->common.json);
        while (read(signals[0], &c, 1) < 0 && errno == EINTR)
            ;
        if (!s->common.quiet)
            fputs("finishing running requests; once more to quit now\n", stderr);
        (void)!af_server_drain(server, s->timeout);
    }
    af_server_close(server);
    return st;
}

/* What one thread allocates another frees: a heap per thread would keep the largest amount that
 * each of them ever had. After 16 minutes of mixed load: 47 MB with, 29 MB without. */
static void use_one_heap(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_ARENA_MAX, 1);
#endif
}

int cmd_serve(int argc, char **argv)
{
    serve_args s = {.host = "127.0.0.1",
                    .port = 8080,
                    .reasoning = "none",
                    .timeout = 3600,
                    .header_timeout = 10,
                    .ping_interval = 30};
    af_serve_opts o = {0};
    af_error err = {0};
    char *keys = NULL;
    const af_parsed p = parse(&s, argc, argv);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    const char *wrong = take_options(&s, &o);
    if (wrong)
        return af_cli_error(AF_EXIT_USAGE, "serve", "%s", wrong);
    use_one_heap();
    af_cli_log_each_time(&s.common);
    af_status st = take_keys(&s, &keys, &err);
    o.api_keys = keys;
    if (st == AF_OK)
        st = serve(&s, &o, &err);
    free(keys);
    if (st == AF_OK)
        return AF_EXIT_OK;
    const int code = af_report("serve", &err);
    return strcmp(err.subject, "host") == 0 ? AF_EXIT_USAGE : code;
}
