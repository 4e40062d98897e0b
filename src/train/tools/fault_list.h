/* fault_list.h - faults of records, each kind passed on once, and how often it came. */
#ifndef AF_FAULT_LIST_H
#define AF_FAULT_LIST_H

#include "base/base.h"

enum { AF_FAULT_KINDS = 20 }; /* told apart; the others are only counted */

typedef struct af_fault_list {
    void (*pass)(void *user, const char *message); /* the caller's; NULL = nobody listens */
    void *user;
    char kind[AF_FAULT_KINDS][200];  /* the message without its numbers */
    char first[AF_FAULT_KINDS][160]; /* the beginning of the first one */
    int64_t count[AF_FAULT_KINDS], others;
    int kinds;
} af_fault_list;

/* A message "file:line: reason". The first of its kind is passed on at once. */
void af_fault_add(void *list, const char *message);
/* Passes on how many more there were of each kind. */
void af_fault_end(af_fault_list *l);
#endif
