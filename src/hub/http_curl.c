/* http_curl.c - the transport of libcurl: its multi interface, loaded when it is needed.
 *
 * The few declarations below are those of curl/curl.h, whose values never change within
 * libcurl.so.4; so building needs no headers, and a machine without the library runs all else.
 * Proxies come from libcurl's own variables (https_proxy, no_proxy ...), certificates from the
 * system. */
#define _GNU_SOURCE
#include "hub/http.h"

#include <dlfcn.h>
#include <unistd.h>

enum {
    CURLOPT_WRITEDATA = 10001,
    CURLOPT_URL = 10002,
    CURLOPT_READDATA = 10009,
    CURLOPT_ERRORBUFFER = 10010,
    CURLOPT_WRITEFUNCTION = 20011,
    CURLOPT_READFUNCTION = 20012,
    CURLOPT_POSTFIELDS = 10015,
    CURLOPT_USERAGENT = 10018,
    CURLOPT_LOW_SPEED_LIMIT = 19,
    CURLOPT_LOW_SPEED_TIME = 20,
    CURLOPT_HTTPHEADER = 10023,
    CURLOPT_HEADERDATA = 10029,
    CURLOPT_CUSTOMREQUEST = 10036,
    CURLOPT_NOBODY = 44,
    CURLOPT_CAINFO = 10065,
    CURLOPT_UPLOAD = 46,
    CURLOPT_CONNECTTIMEOUT = 78,
    CURLOPT_HEADERFUNCTION = 20079,
    CURLOPT_HTTP_VERSION = 84,
    CURLOPT_BUFFERSIZE = 98,
    CURLOPT_NOSIGNAL = 99,
    CURLOPT_PRIVATE = 10103,
    CURLOPT_INFILESIZE_LARGE = 30115,
    CURLOPT_POSTFIELDSIZE_LARGE = 30120,
    CURLOPT_SEEKFUNCTION = 20167,
    CURLOPT_SEEKDATA = 10168,
    CURLOPT_PROTOCOLS = 181,
    CURLOPT_TCP_KEEPALIVE = 213,
    CURLINFO_PRIVATE = 0x100000 + 21,
    CURL_GLOBAL_DEFAULT = 3,
    CURL_HTTP_VERSION_1_1 = 2, /* one connection per range: faster than one for all */
    CURLPROTO_HTTP = 1,
    CURLPROTO_HTTPS = 2,
    CURLMSG_DONE = 1,
    CURLE_COULDNT_RESOLVE_PROXY = 5,
    CURLE_COULDNT_CONNECT = 7,
    CURL_READFUNC_ABORT = 0x10000000,
    ERROR_SIZE = 256,
    CONNECT_S = 10,
    BUFFER = 256 << 10
};

typedef struct curl_message {
    int msg;
    void *easy;
    union {
        void *whatever;
        int result;
    } data;
} curl_message;

typedef struct curl_calls {
    int (*global_init)(long flags);
    char *(*version)(void);
    void *(*easy_init)(void);
    void (*easy_cleanup)(void *easy);
    int (*easy_setopt)(void *easy, int option, ...);
    int (*easy_getinfo)(void *easy, int info, ...);
    const char *(*easy_strerror)(int code);
    void *(*slist_append)(void *list, const char *text);
    void (*slist_free_all)(void *list);
    void *(*multi_init)(void);
    int (*multi_cleanup)(void *multi);
    int (*multi_add_handle)(void *multi, void *easy);
    int (*multi_remove_handle)(void *multi, void *easy);
    int (*multi_perform)(void *multi, int *running);
    int (*multi_wait)(void *multi, void *extra, unsigned n, int ms, int *ready);
    curl_message *(*multi_info_read)(void *multi, int *left);
} curl_calls;

typedef struct curl_transport {
    af_transport base;
    curl_calls call;
    void *multi;
    char *agent;
} curl_transport;

/* One call that runs. */
typedef struct carrier {
    curl_transport *t;
    af_http_call *c;
    void *easy, *headers;
    bool head_given;
    uint64_t sent;
    char error[ERROR_SIZE];
} carrier;

static bool load(curl_calls *out)
{
    static const char *const files[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"};
    static const char *const names[] = {
        "curl_global_init",         "curl_version",       "curl_easy_init",
        "curl_easy_cleanup",        "curl_easy_setopt",   "curl_easy_getinfo",
        "curl_easy_strerror",       "curl_slist_append",  "curl_slist_free_all",
        "curl_multi_init",          "curl_multi_cleanup", "curl_multi_add_handle",
        "curl_multi_remove_handle", "curl_multi_perform", "curl_multi_wait",
        "curl_multi_info_read"};
    void *found[AF_LEN(names)];
    _Static_assert(sizeof found == sizeof *out, "one name per call");
    for (size_t f = 0; f < AF_LEN(files); f++) {
        /* never closed: TLS libraries do not survive that */
        void *lib = dlopen(files[f], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        size_t n = 0;
        while (lib && n < AF_LEN(names) && (found[n] = dlsym(lib, names[n])))
            n++;
        if (n == AF_LEN(names)) {
            memcpy(out, found, sizeof found);
            return out->global_init(CURL_GLOBAL_DEFAULT) == 0;
        }
    }
    return false;
}

static size_t on_header(char *p, size_t size, size_t n, void *user)
{
    carrier *k = user;
    return af_http_head_add(&k->c->head, p, size * n) ? size * n : 0;
}

static bool give_head(carrier *k)
{
    if (k->head_given)
        return true;
    k->head_given = true;
    return !k->c->on_head || k->c->on_head(k->c->user);
}

static size_t on_body(char *p, size_t size, size_t n, void *user)
{
    carrier *k = user;
    if (!give_head(k))
        return 0;
    const bool good = !k->c->on_body || k->c->on_body(k->c->user, (uint8_t *)p, size * n);
    return good ? size * n : 0;
}

static size_t on_read(char *p, size_t size, size_t n, void *user)
{
    carrier *k = user;
    const uint64_t left = k->c->size - k->sent, most = AF_MIN(left, size * n);
    ssize_t got;
    if (k->c->body) {
        memcpy(p, (const char *)k->c->body + k->sent, most);
        got = (ssize_t)most;
    } else {
        got = pread(k->c->fd, p, most, (off_t)(k->c->from + k->sent));
    }
    if (got < 0 || (got == 0 && left > 0))
        return CURL_READFUNC_ABORT; /* the file became shorter */
    k->sent += (uint64_t)got;
    return (size_t)got;
}

static int on_seek(void *user, int64_t offset, int origin)
{
    carrier *k = user;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > k->c->size)
        return 1;
    k->sent = (uint64_t)offset;
    return 0;
}

static void set_body(carrier *k)
{
    const curl_calls *f = &k->t->call;
    const af_http_call *c = k->c;
    if (c->body && strcmp(c->method, "PUT") != 0) {
        f->easy_setopt(k->easy, CURLOPT_POSTFIELDSIZE_LARGE, (int64_t)c->size);
        f->easy_setopt(k->easy, CURLOPT_POSTFIELDS, c->body);
    } else if (c->body || c->fd >= 0) {
        f->easy_setopt(k->easy, CURLOPT_UPLOAD, 1L);
        f->easy_setopt(k->easy, CURLOPT_INFILESIZE_LARGE, (int64_t)c->size);
        f->easy_setopt(k->easy, CURLOPT_READFUNCTION, on_read);
        f->easy_setopt(k->easy, CURLOPT_READDATA, k);
        f->easy_setopt(k->easy, CURLOPT_SEEKFUNCTION, on_seek);
        f->easy_setopt(k->easy, CURLOPT_SEEKDATA, k);
    }
    f->easy_setopt(k->easy, CURLOPT_CUSTOMREQUEST, c->method);
    if (strcmp(c->method, "HEAD") == 0)
        f->easy_setopt(k->easy, CURLOPT_NOBODY, 1L);
}

/* Files with certificates in place of the system's, as curl and Python's clients read them. */
static const char *const certificates[] = {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"};

static void set_options(carrier *k)
{
    const curl_calls *f = &k->t->call;
    f->easy_setopt(k->easy, CURLOPT_URL, k->c->url);
    f->easy_setopt(k->easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    f->easy_setopt(k->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    f->easy_setopt(k->easy, CURLOPT_USERAGENT, k->t->agent);
    f->easy_setopt(k->easy, CURLOPT_HTTPHEADER, k->headers);
    f->easy_setopt(k->easy, CURLOPT_NOSIGNAL, 1L);
    f->easy_setopt(k->easy, CURLOPT_TCP_KEEPALIVE, 1L);
    f->easy_setopt(k->easy, CURLOPT_BUFFERSIZE, (long)BUFFER);
    f->easy_setopt(k->easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    f->easy_setopt(k->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    f->easy_setopt(k->easy, CURLOPT_LOW_SPEED_TIME, (long)k->c->stall_s);
    f->easy_setopt(k->easy, CURLOPT_ERRORBUFFER, k->error);
    f->easy_setopt(k->easy, CURLOPT_HEADERFUNCTION, on_header);
    f->easy_setopt(k->easy, CURLOPT_HEADERDATA, k);
    f->easy_setopt(k->easy, CURLOPT_WRITEFUNCTION, on_body);
    f->easy_setopt(k->easy, CURLOPT_WRITEDATA, k);
    f->easy_setopt(k->easy, CURLOPT_PRIVATE, k);
    for (size_t i = 0; i < AF_LEN(certificates); i++) {
        const char *file = getenv(certificates[i]);
        if (file && *file)
            f->easy_setopt(k->easy, CURLOPT_CAINFO, file);
    }
    set_body(k);
}

static void release(carrier *k)
{
    const curl_calls *f = &k->t->call;
    k->c->carrier = NULL;
    if (k->easy) {
        f->multi_remove_handle(k->t->multi, k->easy);
        f->easy_cleanup(k->easy);
    }
    f->slist_free_all(k->headers);
    free(k);
}

static af_status curl_start(af_transport *base, af_http_call *c, af_error *err)
{
    curl_transport *t = (curl_transport *)base;
    carrier *k = af_calloc(1, sizeof *k);
    if (!k)
        return af_fail_nomem(err, "a request", sizeof *k);
    *k = (carrier){.t = t, .c = c, .easy = t->call.easy_init()};
    bool good = k->easy != NULL;
    for (const char *const *h = c->header; good && *h; h++) {
        void *more = t->call.slist_append(k->headers, *h);
        good = more != NULL;
        k->headers = more ? more : k->headers;
    }
    af_http_head_init(&c->head);
    c->result = AF_HTTP_PENDING;
    c->failure[0] = '\0';
    c->carrier = k;
    if (good)
        set_options(k);
    if (good && t->call.multi_add_handle(t->multi, k->easy) == 0)
        return AF_OK;
    release(k);
    return af_fail_nomem(err, "a request", sizeof *k);
}

static void curl_stop(af_transport *base, af_http_call *c)
{
    (void)base;
    if (c->carrier)
        release(c->carrier);
}

static bool collect(curl_transport *t)
{
    int left;
    bool any = false;
    for (const curl_message *m; (m = t->call.multi_info_read(t->multi, &left));) {
        carrier *k = NULL;
        if (m->msg != CURLMSG_DONE)
            continue;
        const int code = m->data.result;
        t->call.easy_getinfo(m->easy, CURLINFO_PRIVATE, &k);
        const bool good = code == 0 && give_head(k); /* an answer without a body */
        k->c->result = good ? AF_HTTP_ANSWERED : AF_HTTP_FAILED;
        k->c->unreachable = code >= CURLE_COULDNT_RESOLVE_PROXY && code <= CURLE_COULDNT_CONNECT;
        const bool quotes = strchr(k->error, '@'); /* a proxy's address, with its password */
        if (!good)
            snprintf(k->c->failure, sizeof k->c->failure, "%s",
                     *k->error && !quotes ? k->error : t->call.easy_strerror(code));
        release(k);
        any = true;
    }
    return any;
}

static double curl_now(af_transport *base)
{
    (void)base;
    return af_seconds_now();
}

static af_status curl_wait(af_transport *base, double seconds, af_error *err)
{
    curl_transport *t = (curl_transport *)base;
    const double until = af_seconds_now() + seconds;
    for (;;) {
        int running = 0, ready = 0;
        if (t->call.multi_perform(t->multi, &running) != 0)
            return af_fail(err, AF_EIO, "libcurl does not work");
        const double left = until - af_seconds_now();
        if (collect(t) || left <= 0)
            return AF_OK;
        if (running == 0)
            usleep((useconds_t)(AF_MIN(left, 0.05) * 1e6));
        else
            t->call.multi_wait(t->multi, NULL, 0, (int)(AF_MIN(left, 0.2) * 1e3) + 1, &ready);
    }
}

static void curl_close(af_transport *base)
{
    curl_transport *t = (curl_transport *)base;
    t->call.multi_cleanup(t->multi);
    free(t->agent);
    free(t);
}

af_status af_curl_open(af_transport **out, const char *agent, af_error *err)
{
    curl_transport *t = af_calloc(1, sizeof *t);
    if (!t)
        return af_fail_nomem(err, "the network", sizeof *t);
    t->base = (af_transport){curl_start, curl_stop, curl_wait, curl_now, curl_close};
    if (!load(&t->call)) {
        free(t);
        return af_fail(err, AF_EUNSUPPORTED,
                       "libcurl is not installed, and the hub needs it: the package libcurl4 "
                       "(Debian, Ubuntu) or libcurl (Fedora) brings it");
    }
    t->multi = t->call.multi_init();
    t->agent = af_strdup(agent);
    if (!t->multi || !t->agent) {
        if (t->multi)
            t->call.multi_cleanup(t->multi);
        free(t->agent);
        free(t);
        return af_fail_nomem(err, "the network", sizeof *t);
    }
    *out = &t->base;
    return AF_OK;
}

void af_curl_version(char *text, size_t size)
{
    curl_calls f;
    snprintf(text, size, "%s", load(&f) ? f.version() : "");
}
