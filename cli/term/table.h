/* table.h - rows of text in columns that fit the terminal. */
#ifndef AF_TABLE_H
#define AF_TABLE_H

#include "term/cli.h"

enum { AF_TABLE_COLUMNS = 16 };

typedef struct af_table {
    const char *title[AF_TABLE_COLUMNS]; /* ends with NULL; a leading '>' aligns right */
    int columns, rows, cap;
    char **cell; /* [rows][columns], owned */
} af_table;

/* `titles` ends with NULL and must outlive the table. */
void af_table_init(af_table *t, const char *const *titles);
/* The next cell of the last row; after the last column a new row begins. A cell
 * that finds no memory is left out: af_cli_note_memory. */
AF_PRINTF(2, 3) void af_table_cell(af_table *t, const char *fmt, ...);
/* Prints; the first column is shortened when lines are wider than `width` (0 = no limit). */
void af_table_print(const af_table *t, FILE *f, int width);
void af_table_clear(af_table *t);

/* Width of the terminal f is connected to; 0 when it is not a terminal. */
int af_term_width(FILE *f);
/* "1.2 GiB" and "134.5M" into buf. */
const char *af_format_bytes(char buf[32], uint64_t bytes);
const char *af_format_count(char buf[32], int64_t n);
#endif
