/* part_name.c - see part_name.h. */
#include "format/weights/part_name.h"

#include "base/buf.h"
#include "base/file.h"

/* A number of five digits; -1 when it is not one. */
static int five_digits(const char *s)
{
    int n = 0;
    for (int i = 0; i < 5; i++) {
        if (s[i] < '0' || s[i] > '9')
            return -1;
        n = n * 10 + (s[i] - '0');
    }
    return n;
}

bool af_part_name_parse(af_part_name *out, const char *path, const char *ext)
{
    const size_t n = strlen(path), number = strlen("-00001-of-00003");
    if (n <= number + strlen(ext))
        return false;
    const char *at = path + n - strlen(ext) - number;
    if (at[0] != '-' || strncmp(at + 6, "-of-", 4) != 0 || strcmp(at + number, ext) != 0)
        return false;
    const int no = five_digits(at + 1), count = five_digits(at + 10);
    if (no < 1 || no > count)
        return false;
    *out = (af_part_name){(size_t)(at - path), no - 1, count};
    return true;
}

bool af_part_name_same(const char *a, const char *b, const char *ext)
{
    af_part_name x, y;
    return af_part_name_parse(&x, a, ext) && af_part_name_parse(&y, b, ext) && x.stem == y.stem &&
           x.count == y.count && strncmp(a, b, x.stem) == 0;
}

af_status af_part_name_find(char **out, const char *path, af_part_name p, const char *ext,
                            af_error *err)
{
    af_buf b = {0};
    af_buf_printf(&b, "%.*s-%05d-of-%05d%s", (int)p.stem, path, p.no + 1, p.count, ext);
    if (!b.bad && af_file_exists(b.data)) {
        *out = b.data;
        return AF_OK;
    }
    const af_status st = b.bad ? af_fail_nomem(err, "a path", p.stem)
                               : af_fail(err, AF_EIO, "the model has %d files, and '%s' is missing",
                                         p.count, b.data);
    af_buf_clear(&b);
    return st;
}
