/* line_edit.c - a small line editor: one logical line, UTF-8, redrawn whole after every key. */
#define _GNU_SOURCE
#include "term/line_edit.h"
#include "term/text_width.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1 << 16 };

enum key {
    KEY_NONE = 256,
    KEY_LEFT,
    KEY_RIGHT,
    KEY_UP,
    KEY_DOWN,
    KEY_HOME,
    KEY_END,
    KEY_DELETE,
    KEY_EOF
};

typedef struct line {
    char text[LINE_MAX_BYTES];
    size_t len, at; /* bytes */
    const char *prompt;
    int next; /* a byte that was read too early, or 0 */
} line;

static int read_byte(line *l)
{
    unsigned char c = (unsigned char)l->next;
    l->next = 0;
    return c || read(STDIN_FILENO, &c, 1) == 1 ? c : KEY_EOF;
}

/* What an escape sequence means. */
static int read_escape(line *l)
{
    int c = read_byte(l);
    if (c != '[' && c != 'O')
        return KEY_NONE;
    c = read_byte(l);
    switch (c) {
    case 'A':
        return KEY_UP;
    case 'B':
        return KEY_DOWN;
    case 'C':
        return KEY_RIGHT;
    case 'D':
        return KEY_LEFT;
    case 'H':
        return KEY_HOME;
    case 'F':
        return KEY_END;
    default:
        break;
    }
    const int digit = c;
    while (c != KEY_EOF && (c < '@' || c > '~')) /* to the end of the sequence */
        c = read_byte(l);
    if (c != '~')
        return KEY_NONE;
    return digit == '3'                   ? KEY_DELETE
           : digit == '1' || digit == '7' ? KEY_HOME
           : digit == '4' || digit == '8' ? KEY_END
                                          : KEY_NONE;
}

static bool is_tail(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

static size_t left_of(const line *l, size_t at)
{
    while (at > 0 && is_tail(l->text[--at]))
        ;
    return at;
}

static size_t right_of(const line *l, size_t at)
{
    at += at < l->len;
    while (at < l->len && is_tail(l->text[at]))
        at++;
    return at;
}

static void erase(line *l, size_t from, size_t to)
{
    memmove(l->text + from, l->text + to, l->len - to);
    l->len -= to - from;
    l->at = from;
}

static void insert(line *l, char c)
{
    if (l->len + 1 >= sizeof l->text)
        return;
    memmove(l->text + l->at + 1, l->text + l->at, l->len - l->at);
    l->text[l->at++] = c;
    l->len++;
}

/* Reads a whole UTF-8 character before redrawing: its other bytes have been sent already. */
static void insert_char(line *l, int first)
{
    int tails = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : 0;
    if (l->len + (size_t)tails + 1 >= sizeof l->text)
        return;
    insert(l, (char)first);
    for (int c; tails > 0 && (c = read_byte(l)) != KEY_EOF; tails--) {
        if (!is_tail((char)c)) { /* not UTF-8: a key of its own */
            l->next = c;
            return;
        }
        insert(l, (char)c);
    }
}

static void set_text(line *l, const char *s)
{
    l->len = strnlen(s, sizeof l->text - 1);
    memcpy(l->text, s, l->len);
    l->at = l->len;
}

static int columns(void)
{
    struct winsize w;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 8 ? w.ws_col : 80;
}

/* One row of the screen: text that does not fit scrolls sideways. */
static void draw(const line *l)
{
    const int space = columns() - af_text_width(l->prompt, strlen(l->prompt)) - 1;
    size_t from = l->at, to = l->at; /* what fits before the cursor, then what fits after it */
    while (from > 0 && af_text_width(l->text + left_of(l, from), l->at - left_of(l, from)) < space)
        from = left_of(l, from);
    while (to < l->len && af_text_width(l->text + from, right_of(l, to) - from) <= space)
        to = right_of(l, to);
    printf("\r%s%.*s\033[K", l->prompt, (int)(to - from), l->text + from);
    const int back = af_text_width(l->text + l->at, to > l->at ? to - l->at : 0);
    if (back > 0)
        printf("\033[%dD", back);
    fflush(stdout);
}

static size_t word_left(const line *l)
{
    size_t at = l->at;
    while (at > 0 && l->text[at - 1] == ' ')
        at--;
    while (at > 0 && l->text[at - 1] != ' ')
        at--;
    return at;
}

/* Editing keys; false when the key is none of them. */
static bool edit(line *l, int key)
{
    switch (key) {
    case KEY_LEFT:
    case 2: /* ^B */
        l->at = left_of(l, l->at);
        return true;
    case KEY_RIGHT:
    case 6: /* ^F */
        l->at = right_of(l, l->at);
        return true;
    case KEY_HOME:
    case 1: /* ^A */
        l->at = 0;
        return true;
    case KEY_END:
    case 5: /* ^E */
        l->at = l->len;
        return true;
    case 8:
    case 127: /* backspace */
        erase(l, left_of(l, l->at), l->at);
        return true;
    case KEY_DELETE:
    case 4: /* ^D on a line with text */
        erase(l, l->at, right_of(l, l->at));
        return true;
    case 11: /* ^K */
        l->len = l->at;
        return true;
    case 21: /* ^U */
        erase(l, 0, l->at);
        return true;
    case 23: /* ^W */
        erase(l, word_left(l), l->at);
        return true;
    case 12: /* ^L */
        printf("\033[H\033[2J");
        return true;
    default:
        return false;
    }
}

static void browse_history(const af_line_edit *e, line *l, int *index, int by)
{
    const int to = *index + by;
    if (to < 0 || to > e->count)
        return;
    *index = to;
    set_text(l, to == e->count ? "" : e->history[to]);
}

/* True when a line is complete; false at the end of input. */
static bool edit_line(const af_line_edit *e, line *l)
{
    int index = e->count;
    for (;;) {
        draw(l);
        int key = read_byte(l);
        key = key == 27 ? read_escape(l) : key;
        if (key == KEY_EOF || (key == 4 && l->len == 0))
            return false;
        if (key == '\r' || key == '\n')
            return true;
        if (key == 3) { /* ^C */
            l->len = 0;
            return true;
        }
        if (key == KEY_UP || key == 16)
            browse_history(e, l, &index, -1);
        else if (key == KEY_DOWN || key == 14)
            browse_history(e, l, &index, 1);
        else if (!edit(l, key) && key >= 32 && key < 256)
            insert_char(l, key);
    }
}

static void remember(af_line_edit *e, const char *s)
{
    if (!*s || (e->count && !strcmp(e->history[e->count - 1], s)))
        return;
    char *copy = strdup(s);
    if (!copy)
        return;
    if (e->count == AF_HISTORY_MAX) {
        free(e->history[0]);
        memmove(e->history, e->history + 1, (AF_HISTORY_MAX - 1) * sizeof e->history[0]);
        e->count--;
    }
    e->history[e->count++] = copy;
}

static int woken[2]; /* a pipe that ^C writes to: no moment before a read loses it */

static void wake(int sig)
{
    (void)sig;
    const int kept = errno;
    if (write(woken[1], "", 1) < 0) /* full: it has been told already */
        errno = kept;
}

/* Shows the prompt and waits for a line; false: ^C came first. */
static bool wait_for_line(const char *prompt)
{
    const struct sigaction a = {.sa_handler = wake};
    struct sigaction old;
    struct pollfd in[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.events = POLLIN}};
    const bool handled = sigaction(SIGINT, NULL, &old) == 0 && old.sa_handler != SIG_DFL &&
                         old.sa_handler != SIG_IGN && pipe2(woken, O_CLOEXEC | O_NONBLOCK) == 0;
    if (handled)
        sigaction(SIGINT, &a, NULL);
    fputs(prompt, stdout);
    fflush(stdout);
    if (!handled)
        return true;
    in[1].fd = woken[0];
    while (poll(in, 2, -1) < 0 && errno == EINTR)
        continue;
    sigaction(SIGINT, &old, NULL);
    close(woken[0]);
    close(woken[1]);
    return !in[1].revents;
}

static char *read_plain(af_line_edit *e, const char *prompt)
{
    char *s = NULL;
    size_t cap = 0;
    const bool typed = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    if (typed && !wait_for_line(prompt)) {
        putchar('\n');
        return strdup("");
    }
    ssize_t n = getline(&s, &cap, stdin);
    if (n < 0) {
        e->error = feof(stdin) ? 0 : errno;
        free(s);
        return NULL;
    }
    while (n > 0 && (s[n - 1] == '\n' || s[n - 1] == '\r'))
        s[--n] = '\0';
    return s;
}

char *af_line_read(af_line_edit *e, const char *prompt)
{
    struct termios old, raw;
    const bool edits = isatty(STDIN_FILENO) && af_term_has_cursor(stdout);
    if (!edits || tcgetattr(STDIN_FILENO, &old) != 0)
        return read_plain(e, prompt);
    line *l = calloc(1, sizeof *l);
    char *out = NULL;
    if (!l) {
        e->error = ENOMEM;
        return NULL;
    }
    l->prompt = prompt;
    raw = old;
    raw.c_iflag &= (tcflag_t) ~(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
    raw.c_lflag &= (tcflag_t) ~(ECHO | ICANON | IEXTEN | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    const bool ok = edit_line(e, l);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &old);
    putchar('\n');
    if (ok) {
        l->text[l->len] = '\0';
        out = strdup(l->text);
        e->error = out ? 0 : ENOMEM;
        remember(e, l->text);
    }
    free(l);
    return out;
}

void af_line_edit_clear(af_line_edit *e)
{
    for (int i = 0; i < e->count; i++)
        free(e->history[i]);
    e->count = 0;
}
