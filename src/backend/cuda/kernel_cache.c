/* kernel_cache.c - machine code of one module: shipped pack, cache folder, NVRTC.
 *
 * A cache file is a magic, the SHA-256 of the code in hex, and the code; anything that does not add
 * up is removed and built again. */
#include "backend/cuda/kernels.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"

#include <zlib.h>

#define MAGIC "AFCUBIN1"
enum { MAGIC_LEN = 8, SUM_LEN = 64, OPTIONS_MAX = 24, CUBIN_MAX = 64 << 20, INCLUDES_MAX = 4 };

const af_kernel_text *af_kernel_file(const char *file)
{
    for (int i = 0; i < af_kernel_source_count; i++)
        if (strcmp(af_kernel_sources[i].name, file) == 0)
            return &af_kernel_sources[i];
    return NULL;
}

const char *af_kernel_source(const char *file)
{
    const af_kernel_text *f = af_kernel_file(file);
    return f ? f->text : NULL;
}

static bool is_header(const char *name)
{
    const size_t n = strlen(name);
    return n > 4 && strcmp(name + n - 4, ".cuh") == 0;
}

static void add_text(af_sha256 *s, const char *text) { af_sha256_add(s, text, strlen(text) + 1); }

/* The headers a text includes, and theirs; each may come more than once. */
static void add_headers(af_sha256 *s, const char *text, int depth)
{
    static const char directive[] = "#include \"";
    for (const char *p = text; depth < INCLUDES_MAX && (p = strstr(p, directive)) != NULL;) {
        char name[64];
        p += sizeof directive - 1;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, "\"\n"), p);
        const char *header = af_kernel_source(name);
        add_text(s, name);
        add_text(s, header ? header : "");
        if (header)
            add_headers(s, header, depth + 1);
    }
}

void af_module_key(const af_nvrtc *rtc, const char *arch, const char *file, const char *defines,
                   char key[65])
{
    char version[64];
    af_sha256 s;
    af_sha256_init(&s);
    snprintf(version, sizeof version, "nvrtc %d.%d%s", rtc->major, rtc->minor,
             rtc->quick ? " quick" : "");
    add_text(&s, MAGIC);
    add_text(&s, version);
    add_text(&s, arch);
    add_text(&s, defines);
    add_text(&s, file);
    const char *text = af_kernel_source(file);
    add_text(&s, text ? text : "");
    add_headers(&s, text ? text : "", 0);
    af_sha256_hex(&s, key);
}

/* ---- NVRTC ---- */

static af_status compile_error(const af_nvrtc *rtc, void *prog, const char *arch, const char *file,
                               const char *defines, af_error *err)
{
    size_t n = 0;
    char *log = NULL;
    if (rtc->log_size(prog, &n) == 0 && n > 1)
        log = af_calloc(n + 1, 1);
    if (log && rtc->log(prog, log) != 0)
        log[0] = '\0';
    const af_status st = af_fail(err, AF_EDEVICE, "%s [%s] does not compile for %s: %.170s", file,
                                 defines, arch, log && log[0] ? log : "no message");
    free(log);
    return st;
}

/* "A=1 B" becomes "-DA=1", "-DB" after the fixed options. The strings live in `text`. */
static int make_options(const char *arch, const char *defines, bool quick, af_buf *text,
                        const char *option[OPTIONS_MAX])
{
    uint64_t at[OPTIONS_MAX];
    int n = 0;
    at[n++] = text->len;
    af_buf_printf(text, "--gpu-architecture=%s", arch);
    af_buf_char(text, '\0');
    at[n++] = text->len;
    af_buf_add(text, "-std=c++17", 11);
    at[n++] = text->len;
    af_buf_add(text, "-default-device", 16);
    if (quick) {
        at[n++] = text->len;
        af_buf_add(text, "--Ofast-compile=max", 20);
    }
    while (*defines && n < OPTIONS_MAX) {
        const size_t len = strcspn(defines, " ");
        at[n++] = text->len;
        af_buf_printf(text, "-D%.*s", (int)len, defines);
        af_buf_char(text, '\0');
        defines += len + strspn(defines + len, " ");
    }
    for (int i = 0; i < n && !text->bad; i++)
        option[i] = text->data + at[i];
    return n;
}

/* Straight NVRTC. *cubin is malloc'ed. */
AF_CHECKED static af_status compile(const af_nvrtc *rtc, const char *arch, const char *file,
                                    const char *defines, uint8_t **cubin, uint64_t *size,
                                    af_error *err)
{
    af_status st = AF_OK;
    af_buf text = {0};
    void *prog = NULL;
    uint8_t *code = NULL;
    size_t n = 0;
    const char *option[OPTIONS_MAX], *header[64], *name[64];
    int headers = 0;
    for (int i = 0; i < af_kernel_source_count && headers < 64; i++)
        if (is_header(af_kernel_sources[i].name)) {
            header[headers] = af_kernel_sources[i].text;
            name[headers++] = af_kernel_sources[i].name;
        }
    const char *source = af_kernel_source(file);
    if (!source)
        return af_fail(err, AF_EDEVICE, "there is no kernel source '%s' in this build", file);
    const int options = make_options(arch, defines, rtc->quick, &text, option);
    if (text.bad)
        AF_TRY(af_fail_nomem(err, "compiler options", 1));
    if (rtc->create(&prog, source, file, headers, header, name) != 0)
        AF_TRY(af_fail(err, AF_EDEVICE, "nvrtcCreateProgram failed for %s", file));
    if (rtc->compile(prog, options, option) != 0)
        AF_TRY(compile_error(rtc, prog, arch, file, defines, err));
    if (rtc->cubin_size(prog, &n) != 0 || n == 0)
        AF_TRY(af_fail(err, AF_EDEVICE, "NVRTC made no machine code of %s for %s", file, arch));
    code = af_calloc(n, 1);
    if (!code)
        AF_TRY(af_fail_nomem(err, "machine code", n));
    if (rtc->cubin(prog, (char *)code) != 0)
        AF_TRY(af_fail(err, AF_EDEVICE, "nvrtcGetCUBIN failed for %s", file));
    *cubin = code;
    *size = n;
    code = NULL;
done:
    if (prog)
        rtc->destroy(&prog);
    free(code);
    af_buf_clear(&text);
    return st;
}

/* ---- the pack and the folder ---- */

bool af_arch_runs(const char *code, const char *gpu)
{
    char *code_end, *gpu_end;
    const long c = strtol(code + 3, &code_end, 10), g = strtol(gpu + 3, &gpu_end, 10);
    return !*code_end && !*gpu_end && c / 10 == g / 10 && c <= g;
}

const af_cubin_entry *af_pack_find(const af_kernels *k, const af_module *m, bool related)
{
    const af_cubin_entry *best = NULL;
    if (k->no_pack || (k->cuda && af_cubin_cuda / 1000 > k->cuda / 1000))
        return NULL;
    for (int i = 0; i < af_cubin_count; i++) {
        const af_cubin_entry *p = &af_cubins[i];
        if (strcmp(p->file, m->file) || strcmp(p->defines, m->defines))
            continue;
        if (strcmp(p->arch, k->arch) == 0)
            return p;
        if (related && af_arch_runs(p->arch, k->arch) &&
            (!best || af_arch_runs(best->arch, p->arch)))
            best = p;
    }
    return best;
}

static bool from_pack(const af_kernels *k, af_module *m, bool related)
{
    const af_cubin_entry *p = af_pack_find(k, m, related);
    uint8_t *code = p ? af_calloc(p->size, 1) : NULL;
    uLongf n = p ? (uLongf)p->size : 0;
    if (code && uncompress(code, &n, af_cubin_pack + p->from, (uLong)p->packed) == Z_OK &&
        n == p->size) {
        m->cubin = code;
        m->size = p->size;
        return true;
    }
    free(code);
    return false;
}

static void sum_of(const void *code, uint64_t n, char hex[65])
{
    af_sha256 s;
    af_sha256_init(&s);
    af_sha256_add(&s, code, n);
    af_sha256_hex(&s, hex);
}

static bool from_folder(const char *path, af_module *m)
{
    char *file = NULL, hex[65];
    uint64_t n = 0;
    if (!af_file_exists(path))
        return false;
    if (af_file_read(&file, &n, path, CUBIN_MAX, NULL) != AF_OK)
        return false;
    bool good = n > MAGIC_LEN + SUM_LEN && memcmp(file, MAGIC, MAGIC_LEN) == 0;
    if (good) {
        sum_of(file + MAGIC_LEN + SUM_LEN, n - MAGIC_LEN - SUM_LEN, hex);
        good = memcmp(hex, file + MAGIC_LEN, SUM_LEN) == 0;
    }
    if (good) {
        m->size = n - MAGIC_LEN - SUM_LEN;
        m->cubin = af_calloc(m->size, 1);
        good = m->cubin != NULL;
        if (good)
            memcpy(m->cubin, file + MAGIC_LEN + SUM_LEN, m->size);
    } else {
        (void)!af_path_remove(path, NULL);
    }
    free(file);
    return good;
}

/* A cache that cannot be written costs time, not truth. */
static void to_folder(const char *path, const af_module *m)
{
    char hex[65];
    af_out *o = NULL;
    sum_of(m->cubin, m->size, hex);
    if (af_out_open(&o, path, NULL) != AF_OK)
        return;
    if (af_out_write(o, MAGIC, MAGIC_LEN, NULL) == AF_OK &&
        af_out_write(o, hex, SUM_LEN, NULL) == AF_OK &&
        af_out_write(o, m->cubin, m->size, NULL) == AF_OK)
        (void)!af_out_commit(o, NULL);
    else
        af_out_abandon(o);
}

af_status af_module_obtain(const af_kernels *k, af_module *m, af_error *err)
{
    char key[65], name[80], *path = NULL;
    if (from_pack(k, m, false) || (!k->nvrtc.lib && from_pack(k, m, true)))
        return AF_OK;
    if (!k->nvrtc.lib)
        return af_fail(err, AF_EDEVICE, "no shipped machine code of %s for %s, and no compiler: %s",
                       m->file, k->arch, k->nvrtc_err.msg);
    af_module_key(&k->nvrtc, k->arch, m->file, m->defines, key);
    snprintf(name, sizeof name, "%s.cubin", key);
    if (k->cache)
        path = af_path_join(k->cache, name);
    af_status st = AF_OK;
    if (!path || !from_folder(path, m)) {
        st = compile(&k->nvrtc, k->arch, m->file, m->defines, &m->cubin, &m->size, err);
        m->compiled = st == AF_OK;
        if (st == AF_OK && path)
            to_folder(path, m);
    }
    free(path);
    return st;
}
