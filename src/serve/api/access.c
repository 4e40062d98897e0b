/* access.c - who may call: Host, Origin, key. */
#include "serve/api/api.h"

#include "base/hash.h"

#include <ctype.h>
#include <strings.h>

/* ---- keys ---- */

static void digest(char hex[65], const char *s, uint64_t n)
{
    af_sha256 h;
    af_sha256_init(&h);
    af_sha256_add(&h, s, n);
    af_sha256_hex(&h, hex);
}

af_status af_api_add_keys(af_api *a, const char *list, af_error *err)
{
    while (list && *list) {
        list += strspn(list, " \t\r\n,");
        size_t n = strcspn(list, "\r\n,");
        const char *next = list + n;
        while (n && (list[n - 1] == ' ' || list[n - 1] == '\t'))
            n--;
        if (n && a->keys == AF_API_KEYS_MAX)
            return af_fail(err, AF_EUSAGE, "more than %d keys", AF_API_KEYS_MAX);
        if (n)
            digest(a->key[a->keys++], list, n);
        list = next;
    }
    return AF_OK;
}

/* Compares digests of equal length, all of them and every byte: the time says nothing. */
static bool key_is_known(const af_api *a, const char *key)
{
    char hex[65];
    unsigned hit = 0;
    digest(hex, key, strlen(key));
    for (int i = 0; i < a->keys; i++) {
        unsigned differs = 0;
        for (int k = 0; k < 64; k++)
            differs |= (unsigned)(hex[k] ^ a->key[i][k]);
        hit |= differs == 0;
    }
    return hit != 0;
}

/* As clients of OpenAI send it, or those of Anthropic. */
static bool has_key(const af_api *a, const af_request_head *h)
{
    const char *value = af_request_field(h, "X-Api-Key");
    if (value && key_is_known(a, value))
        return true;
    value = af_request_field(h, "Authorization");
    if (!value || strncasecmp(value, "Bearer ", 7) != 0)
        return false;
    value += 7;
    return key_is_known(a, value + strspn(value, " "));
}

/* ---- hosts ---- */

bool af_api_is_loopback(const char *host)
{
    int a = -1, b, c, d, end = 0;
    if (strcasecmp(host, "localhost") == 0 || strcmp(host, "::1") == 0)
        return true;
    return sscanf(host, "%d.%d.%d.%d%n", &a, &b, &c, &d, &end) == 4 && !host[end] && a == 127;
}

/* "[::1]:8080" and "localhost:8080" without port and brackets. False when it is not a host. */
static bool host_name(char *out, size_t size, const char *value)
{
    const bool bracket = *value == '[';
    const char *end = bracket ? strchr(value, ']') : value + strcspn(value, ":");
    if (!end)
        return false;
    const char *port = bracket ? end + 1 : end;
    const size_t n = (size_t)(end - value) - (bracket ? 1 : 0);
    if (n == 0 || n >= size || (*port && *port != ':'))
        return false;
    if (*port && (!port[1] || strspn(port + 1, "0123456789") != strlen(port + 1)))
        return false;
    memcpy(out, value + (bracket ? 1 : 0), n);
    out[n] = '\0';
    return true;
}

static bool host_is_allowed(const af_api *a, const af_httpd_call *c, const char *value)
{
    char name[256];
    if (!host_name(name, sizeof name, value))
        return false;
    if (af_api_is_loopback(name) || strcasecmp(name, a->o.host) == 0 ||
        strcasecmp(name, af_httpd_local_address(c)) == 0) /* an address cannot be rebound */
        return true;
    for (int i = 0; i < a->o.allowed_hosts; i++)
        if (strcasecmp(name, a->o.allowed_host[i]) == 0 ||
            strcasecmp(value, a->o.allowed_host[i]) == 0)
            return true;
    return false;
}

/* ---- origins ---- */

typedef enum origin_kind { ORIGIN_NONE, ORIGIN_OWN, ORIGIN_LISTED, ORIGIN_FOREIGN } origin_kind;

static origin_kind origin_of(const af_api *a, const af_request_head *h)
{
    const char *origin = af_request_field(h, "Origin"), *host = af_request_field(h, "Host");
    if (!origin)
        return ORIGIN_NONE;
    const size_t scheme = strncmp(origin, "http://", 7) == 0    ? 7
                          : strncmp(origin, "https://", 8) == 0 ? 8
                                                                : 0;
    if (scheme && host && strcasecmp(origin + scheme, host) == 0)
        return ORIGIN_OWN;
    for (int i = 0; i < a->o.cors_origins; i++)
        if (strcmp(a->o.cors_origin[i], "*") == 0 || strcasecmp(a->o.cors_origin[i], origin) == 0)
            return ORIGIN_LISTED;
    return ORIGIN_FOREIGN;
}

/* Headers that let a listed page's script read the answer. */
static void add_cors(af_httpd_call *c, const af_request_head *h)
{
    char line[512];
    const char *origin = af_request_field(h, "Origin");
    if (strlen(origin) > 400)
        return;
    snprintf(line, sizeof line, "Access-Control-Allow-Origin: %s", origin);
    af_httpd_add_header(c, line);
    af_httpd_add_header(c, "Vary: Origin");
}

static void answer_preflight(af_httpd_call *c, const af_request_head *h)
{
    char line[512];
    const char *asked = af_request_field(h, "Access-Control-Request-Headers");
    af_httpd_add_header(c, "Access-Control-Allow-Methods: GET, POST, DELETE, OPTIONS");
    snprintf(line, sizeof line, "Access-Control-Allow-Headers: %s",
             asked && strlen(asked) < 400 ? asked : "Authorization, Content-Type");
    af_httpd_add_header(c, line);
    af_httpd_add_header(c, "Access-Control-Max-Age: 600");
    af_httpd_answer(c, 204, NULL, "", 0);
}

bool af_api_allow(af_api *a, af_httpd_call *c, bool open)
{
    const af_request_head *h = af_httpd_head(c);
    const char *host = af_request_field(h, "Host");
    const origin_kind origin = origin_of(a, h);
    if (!host || !host_is_allowed(a, c, host)) {
        af_api_refuse(c, 403, NULL, NULL,
                      "the Host of the request is not this server's (--allowed-host adds one)");
        return false;
    }
    if (origin == ORIGIN_FOREIGN) {
        af_api_refuse(
            c, 403, NULL, NULL,
            "requests of other pages are not allowed (--cors-origins lists those that are)");
        return false;
    }
    if (origin == ORIGIN_LISTED)
        add_cors(c, h);
    if (origin == ORIGIN_LISTED && strcmp(h->method, "OPTIONS") == 0) {
        answer_preflight(c, h);
        return false;
    }
    if (!open && a->keys && !has_key(a, h)) {
        af_httpd_add_header(c, "WWW-Authenticate: Bearer");
        af_api_refuse(
            c, 401, "invalid_api_key", NULL,
            "the request has no valid API key (Authorization: Bearer KEY, or X-Api-Key: KEY)");
        return false;
    }
    return true;
}
