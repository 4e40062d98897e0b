/* cli_error.c - how a command reports an error: a sentence on stderr, and under --json also one
 * JSON object on stdout, where a script reads the result. */
#include "term/cli.h"

#include <stdarg.h>

static bool json_errors; /* --json is among the arguments; set before threads start */

void af_cli_json_errors(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        json_errors |= strcmp(argv[i], "--json") == 0;
}

/* Bytes of the well-formed UTF-8 character at s (n bytes are left), or 0. */
static uint64_t utf8_length(const unsigned char *s, uint64_t n)
{
    const uint64_t len = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    if (len == 0 || len > n || s[0] > 0xF4)
        return 0;
    for (uint64_t i = 1; i < len; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    const bool bad = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] >= 0xA0) ||
                     (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] >= 0x90);
    return bad ? 0 : len;
}

/* Paths may hold any bytes and a long message may be cut inside a character; JSON is UTF-8. */
static void put_text(const char *s)
{
    const uint64_t n = strlen(s);
    for (uint64_t i = 0, len; i < n; i += len ? len : 1) {
        const unsigned char c = (unsigned char)s[i];
        len = utf8_length((const unsigned char *)s + i, n - i);
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            printf(c == '\n' ? "\\n" : "\\u%04x", c);
        else if (len)
            fwrite(s + i, 1, len, stdout);
        else
            fputs("\xEF\xBF\xBD", stdout);
    }
}

void af_cli_json_message(const char *message)
{
    putchar('"');
    put_text(message);
    putchar('"');
}

void af_cli_put_line(const char *start, const char *text)
{
    flockfile(stderr);
    fputs(start, stderr);
    for (const unsigned char *s = (const unsigned char *)text; *s; s++) {
        const bool c0 = (*s < 0x20 && *s != '\n' && *s != '\t') || *s == 0x7f;
        const bool c1 = s[0] == 0xC2 && s[1] >= 0x80 && s[1] < 0xA0; /* in UTF-8 */
        fputc(c0 || c1 ? '?' : *s, stderr);
        s += c1;
    }
    fputc('\n', stderr);
    funlockfile(stderr);
}

int af_cli_error(int code, const char *command, const char *fmt, ...)
{
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "afinar%s%s", command ? " " : "", command ? command : "");
    af_cli_put_line(": ", text);
    if (json_errors) {
        fputs("{\"error\": ", stdout);
        af_cli_json_message(text);
        fputs("}\n", stdout);
    }
    return code;
}

int af_report(const char *command, const af_error *err)
{
    return af_cli_error(AF_EXIT_FAILED, command, "%s", err->msg);
}
