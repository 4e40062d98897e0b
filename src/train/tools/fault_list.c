/* fault_list.c - see fault_list.h. */
#include "train/tools/fault_list.h"

#include <ctype.h>
#include <stdio.h>

/* Two faults are of one kind when they differ in numbers only: their line, record or length. */
static void kind_of(char *out, size_t size, const char *message)
{
    size_t n = 0;
    for (const char *s = message; *s && n + 1 < size; s++)
        if (!isdigit((unsigned char)*s))
            out[n++] = *s;
    out[n] = '\0';
}

void af_fault_add(void *list, const char *message)
{
    af_fault_list *l = list;
    char kind[sizeof l->kind[0]];
    int i = 0;
    kind_of(kind, sizeof kind, message);
    while (i < l->kinds && strcmp(l->kind[i], kind) != 0)
        i++;
    if (i == AF_FAULT_KINDS) {
        l->others++;
        return;
    }
    if (i == l->kinds) {
        memcpy(l->kind[l->kinds++], kind, sizeof kind);
        snprintf(l->first[i], sizeof l->first[i], "%.*s", (int)sizeof l->first[i] - 1, message);
    }
    if (l->count[i]++ == 0 && l->pass)
        l->pass(l->user, message);
}

/* Of "file:line" at the beginning; the whole text when there is none. */
static size_t location_length(const char *message)
{
    for (const char *s = message; (s = strchr(s, ':')); s++) {
        const size_t digits = strspn(s + 1, "0123456789");
        if (digits > 0 && s[1 + digits] == ':')
            return (size_t)(s - message) + 1 + digits;
    }
    return strlen(message);
}

void af_fault_end(af_fault_list *l)
{
    char line[300];
    for (int i = 0; i < l->kinds && l->pass; i++) {
        if (l->count[i] < 2)
            continue;
        snprintf(line, sizeof line, "%" PRId64 " more record%s like %.*s", l->count[i] - 1,
                 l->count[i] == 2 ? "" : "s", (int)location_length(l->first[i]), l->first[i]);
        l->pass(l->user, line);
    }
    if (l->others && l->pass) {
        snprintf(line, sizeof line, "%" PRId64 " records with other errors", l->others);
        l->pass(l->user, line);
    }
}
