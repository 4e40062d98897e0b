/* proc.c - see proc.h. */
#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

bool af_proc_read(char *text, size_t size, const char *path)
{
    size_t len = 0;
    ssize_t n = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && len < size - 1) {
        n = read(fd, text + len, size - 1 - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    if (fd >= 0)
        close(fd);
    text[len] = '\0';
    return fd >= 0 && n >= 0;
}

const char *af_proc_find(const char *text, const char *key)
{
    for (const char *at = text; at && *at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, key, strlen(key)) == 0) {
            at += strlen(key);
            return at + strspn(at, " \t:");
        }
    }
    return NULL;
}

uint64_t af_proc_number(const char *text, const char *key)
{
    const char *at = af_proc_find(text, key);
    return at ? strtoull(at, NULL, 10) : 0;
}
