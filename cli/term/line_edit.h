/* line_edit.h - reads a line from a terminal with editing and history; plain reading where the
 * terminal cannot move its cursor (TERM=dumb), or is none. */
#ifndef AF_CLI_LINE_EDIT_H
#define AF_CLI_LINE_EDIT_H

#include "term/cli.h"

enum { AF_HISTORY_MAX = 500 };

typedef struct af_line_edit {
    char *history[AF_HISTORY_MAX];
    int count;
    int error; /* errno of what ended the input; 0: its end did */
} af_line_edit;

/* The next line without its newline (free() it); NULL at the end of input. Ctrl-C gives an empty
 * line. Arrows, Home, End, Ctrl-A/E/B/F/U/K/W/D/L work; up and down browse the history. */
char *af_line_read(af_line_edit *e, const char *prompt);
void af_line_edit_clear(af_line_edit *e);
#endif
