/* Any bytes are the answers of a hub: a pull ends, and what it put into the cache has the content
 * that its name says. Answers are separated by a byte 0xff; one that begins with 0xfe breaks after
 * its last byte. */
#include "fuzz_file.h"

#include "base/hash.h"
#include "hub/fake_net.h"
#include "hub/hub_pull.h"

typedef struct input {
    const uint8_t *at, *end;
} input;

static bool play(fake_net *n, const af_http_call *c, af_buf *out)
{
    input *in = n->user;
    (void)c;
    bool broken = false;
    if (in->at < in->end && *in->at == 0xfe) {
        broken = true;
        in->at++;
    }
    const uint8_t *stop =
        in->at < in->end ? memchr(in->at, 0xff, (size_t)(in->end - in->at)) : NULL;
    stop = stop ? stop : in->end;
    af_buf_add(out, in->at, (uint64_t)(stop - in->at));
    in->at = stop < in->end ? stop + 1 : stop;
    return broken || out->len == 0;
}

/* A blob has the content of its name. */
static void check_blobs(const char *dir)
{
    char **names = NULL;
    int n = 0;
    if (!af_dir_exists(dir) || af_dir_list(&names, &n, dir, NULL) != AF_OK)
        return;
    for (int i = 0; i < n; i++) {
        char *path = af_path_join(dir, names[i]), *text = NULL, head[40], hex[65];
        uint64_t size = 0;
        if (!strchr(names[i], '.') && af_file_read(&text, &size, path, 1 << 20, NULL) == AF_OK) {
            af_sha256 a;
            af_sha1 b;
            af_sha256_init(&a);
            af_sha256_add(&a, text, size);
            af_sha256_hex(&a, hex);
            const bool large = strcmp(hex, names[i]) == 0;
            af_sha1_init(&b);
            af_sha1_add(&b, head, (uint64_t)snprintf(head, sizeof head, "blob %" PRIu64, size) + 1);
            af_sha1_add(&b, text, size);
            af_sha1_hex(&b, hex);
            if (!large && strcmp(hex, names[i]) != 0)
                abort();
        }
        free(text);
        free(path);
    }
    af_names_free(names, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char endpoint[] = "https://hub.co";
    fake_net net;
    input in = {data, data + size};
    char *folder = NULL, cache[128], blobs[200];
    af_error err;
    const af_hub_repo r = {.name = "o/n", .revision = "main"};
    const af_pull_opts o = {0};
    snprintf(cache, sizeof cache, "%s/hub", fuzz_dir());
    snprintf(blobs, sizeof blobs, "%s/models--o--n/blobs", cache);
    setenv("HF_HUB_CACHE", cache, 1);
    fake_init(&net, play);
    net.user = &in;
    af_hub_client c = {.net = &net.base, .endpoint = endpoint, .stall_s = 1};
    if (!af_url_origin(c.origin, endpoint))
        abort();
    if (af_hub_pull_with(&c, &folder, &r, &o, &err) == AF_OK && !af_dir_exists(folder))
        abort();
    check_blobs(blobs);
    free(folder);
    af_buf_clear(&net.log);
    (void)!af_path_remove(cache, NULL);
    return 0;
}
