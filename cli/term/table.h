/* table.h - rows of text in columns that fit the terminal. */
#ifndef AF_TABLE_H
#define AF_TABLE_H

#include "term/cli.h"

enum { AF_TABLE_COLUMNS = 16 };

typedef struct af_table {
    const char *title[AF_TABLE_COLUMNS]; /* ends with NULL; a leading '>' sets the column right */
    int columns, rows, cap;
    char **cell; /* [rows][columns], owned */
    bool bad;    /* memory ran out */
} af_table;

/* `titles` ends with NULL and must outlive the table. */
void af_table_init(af_table *t, const char *const *titles);
/* The next cell of the last row; after the last column a new row begins. */
AF_PRINTF(2, 3) void af_table_cell(af_table *t, const char *fmt, ...);
/* Prints; the first column gives way when the lines are wider than the terminal (`width`, 0 = any).
 */
void af_table_print(const af_table *t, FILE *f, int width);
void af_table_clear(af_table *t);

/* Columns of the terminal behind f; 0 when it is not one. */
int af_term_width(FILE *f);
/* "1.2 GiB" and "134.5M" into buf. */
const char *af_say_bytes(char buf[32], uint64_t bytes);
const char *af_say_count(char buf[32], int64_t n);
#endif
