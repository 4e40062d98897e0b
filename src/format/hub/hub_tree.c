/* hub_tree.c - lists of files: the hub's JSON, and trees/COMMIT.json; see hub_tree.h. */
#include "format/hub/hub_tree.h"

#include "base/buf.h"
#include "base/file.h"
#include "format/text/json_text.h"

#include <strings.h>

void af_hub_tree_clear(af_hub_tree *t)
{
    for (int i = 0; i < t->count; i++)
        free(t->file[i].path);
    free(t->file);
    *t = (af_hub_tree){0};
}

const char *af_hub_file_etag(const af_hub_file *f) { return *f->sha256 ? f->sha256 : f->oid; }

static bool take_hex(char *out, size_t digits, const json_t *v)
{
    const char *s = json_string_value(v);
    if (!s || strlen(s) != digits || strspn(s, "0123456789abcdef") != digits)
        return false;
    memcpy(out, s, digits + 1);
    return true;
}

/* A path we may create below a snapshot: inside it, and no part that is empty, a dot, or a folder
 * of git, which no repository holds and which could change what git does there. */
static bool is_path(const char *p)
{
    if (!p || !af_path_is_inner(p) || strlen(p) > 1024)
        return false;
    for (const char *s = p; *s; s++) {
        const size_t n = strcspn(s, "/");
        if (n == 0 || (n == 1 && *s == '.') || n > 255 ||
            (n == 4 && strncasecmp(s, ".git", 4) == 0))
            return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)s[i] < ' ' || s[i] == 0x7f)
                return false;
        s += n;
        if (!*s)
            return true;
        if (!s[1])
            return false; /* a slash at the end */
    }
    return true;
}

static af_status add(af_hub_tree *t, const af_hub_file *f, const char *path, af_error *err)
{
    if (t->count == t->cap) {
        const int cap = t->cap ? t->cap * 2 : 64;
        af_hub_file *more = af_realloc(t->file, (uint64_t)cap, sizeof *more);
        if (!more)
            return af_fail_nomem(err, "a list of files", (uint64_t)cap * sizeof *more);
        t->file = more;
        t->cap = cap;
    }
    char *copy = af_strdup(path);
    if (!copy)
        return af_fail_nomem(err, "a path", strlen(path));
    t->file[t->count] = *f;
    t->file[t->count++].path = copy;
    return AF_OK;
}

/* One row: the hub's own (oid, lfs.oid, xetHash) or a cached one (blob_id, lfs_sha256, xet_hash).
 */
static af_status add_row(af_hub_tree *t, const char *path, json_t *row, const char *what,
                         af_error *err)
{
    af_hub_file f = {0};
    json_t *oid = json_object_get(row, "oid"), *lfs = json_object_get(row, "lfs");
    json_t *xet = json_object_get(row, "xetHash"), *size = json_object_get(row, "size");
    json_t *sha256 = json_object_get(lfs, "oid");
    oid = oid ? oid : json_object_get(row, "blob_id");
    sha256 = sha256 ? sha256 : json_object_get(row, "lfs_sha256");
    xet = xet ? xet : json_object_get(row, "xet_hash");
    if (!is_path(path))
        return af_fail(err, AF_EFORMAT, "%s: '%.200s' is not a path of a file", what,
                       path ? path : "");
    if (t->count == AF_HUB_FILES_MAX)
        return af_fail(err, AF_EFORMAT, "%s has more than %d files", what, AF_HUB_FILES_MAX);
    const json_int_t n = json_is_integer(size) ? json_integer_value(size) : -1;
    const json_t *large = json_object_get(lfs, "size");
    if (n < 0 || (large && json_integer_value(large) != n))
        return af_fail(err, AF_EFORMAT, "%s: '%.200s' has no size, or two", what, path);
    f.size = (uint64_t)n;
    if (!take_hex(f.oid, 40, oid) ||
        (sha256 && !json_is_null(sha256) && !take_hex(f.sha256, 64, sha256)))
        return af_fail(err, AF_EFORMAT, "%s: '%.200s' has no valid hash", what, path);
    if (xet && !json_is_null(xet) && !take_hex(f.xet, 64, xet))
        f.xet[0] = '\0';
    return add(t, &f, path, err);
}

af_status af_hub_tree_add_page(af_hub_tree *t, const char *text, uint64_t n, const char *what,
                               af_error *err)
{
    json_t *page = NULL, *row;
    size_t i;
    af_status st = af_json_parse(&page, text, n, what, err);
    if (st == AF_OK && !json_is_array(page))
        st = af_fail(err, AF_EFORMAT, "%s is not a list of files", what);
    json_array_foreach(page, i, row)
    {
        const char *type = json_string_value(json_object_get(row, "type"));
        if (st == AF_OK && (!type || strcmp(type, "directory") != 0))
            st = add_row(t, json_string_value(json_object_get(row, "path")), row, what, err);
    }
    json_decref(page);
    return st;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const af_hub_file *)a)->path, ((const af_hub_file *)b)->path);
}

af_status af_hub_tree_sort(af_hub_tree *t, const char *what, af_error *err)
{
    if (t->count > 1)
        qsort(t->file, (size_t)t->count, sizeof *t->file, by_path);
    for (int i = 0; i + 1 < t->count; i++)
        if (strcmp(t->file[i].path, t->file[i + 1].path) == 0)
            return af_fail(err, AF_EFORMAT, "%s names '%.200s' twice", what, t->file[i].path);
    return AF_OK;
}

af_status af_hub_tree_parse(af_hub_tree *t, const char *text, uint64_t n, const char *path,
                            af_error *err)
{
    json_t *j = NULL, *row;
    const char *key;
    af_status st = af_json_parse(&j, text, n, path, err);
    json_t *files = json_object_get(j, "files");
    if (st == AF_OK &&
        (json_integer_value(json_object_get(j, "format_version")) != 1 || !json_is_object(files)))
        st = af_fail(err, AF_EFORMAT, "'%s' is not a list of files of version 1", path);
    json_object_foreach(files, key, row)
    {
        if (st == AF_OK)
            st = add_row(t, key, row, path, err);
    }
    if (st == AF_OK)
        st = af_hub_tree_sort(t, path, err);
    json_decref(j);
    return st;
}

/* A JSON string as Python's json module writes it: ASCII alone, lower-case hex. */
static void put_string(af_buf *b, const char *s)
{
    af_buf_char(b, '"');
    const uint8_t *p = (const uint8_t *)s;
    while (*p) {
        uint32_t c = *p;
        int more = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
        c = more ? c & (0x3fu >> more) : c;
        for (p++; more > 0 && (*p & 0xc0) == 0x80; more--, p++) /* jansson has checked it */
            c = c << 6 | (*p & 0x3f);
        if (c == '"' || c == '\\')
            af_buf_printf(b, "\\%c", (int)c);
        else if (c >= ' ' && c < 0x7f)
            af_buf_char(b, (char)c);
        else if (c < 0x10000)
            af_buf_printf(b, "\\u%04x", c);
        else
            af_buf_printf(b, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                          0xdc00 + ((c - 0x10000) & 0x3ff));
    }
    af_buf_char(b, '"');
}

af_status af_hub_tree_print(char **text, uint64_t *n, const af_hub_tree *t, af_error *err)
{
    af_buf b = {0};
    af_buf_printf(&b, "{\n \"format_version\": 1,\n \"files\": {%s", t->count ? "\n" : "");
    for (int i = 0; i < t->count; i++) {
        const af_hub_file *f = &t->file[i];
        af_buf_str(&b, "  ");
        put_string(&b, f->path);
        af_buf_printf(&b, ": {\n   \"size\": %" PRIu64 ",\n   \"blob_id\": \"%s\"", f->size,
                      f->oid);
        if (*f->sha256)
            af_buf_printf(&b, ",\n   \"lfs_sha256\": \"%s\",\n   \"lfs_size\": %" PRIu64, f->sha256,
                          f->size);
        if (*f->xet)
            af_buf_printf(&b, ",\n   \"xet_hash\": \"%s\"", f->xet);
        af_buf_printf(&b, "\n  }%s\n", i + 1 < t->count ? "," : "");
    }
    af_buf_str(&b, t->count ? " }\n}" : "}\n}");
    *n = b.len;
    char *out = af_buf_take(&b);
    af_buf_clear(&b);
    if (!out)
        return af_fail_nomem(err, "a list of files", *n);
    *text = out;
    return AF_OK;
}

bool af_hub_tree_is_complete(const af_hub_tree *t, const char *dir, const char **missing)
{
    for (int i = 0; i < t->count; i++) {
        const af_hub_file *f = &t->file[i];
        char *path = f->needed ? af_path_join(dir, f->path) : NULL;
        const bool good = !f->needed || (path && af_file_size(path) == (int64_t)f->size);
        free(path);
        if (!good && missing)
            *missing = f->path;
        if (!good)
            return false;
    }
    return true;
}
