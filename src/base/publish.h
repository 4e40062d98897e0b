/* publish.h - what a command leaves: all of it is written to a temporary folder and put in place at
 * the end, so that an output appears whole or not at all, and nothing of the user's is replaced or
 * removed (the rule: afinar/output.h).
 *
 * In a folder that exists, files are renamed one by one. The order makes a crash harmless: the
 * manifest first lists the new content next to the old one, then the files are exchanged, then the
 * manifest lists the new content alone. Every file is the old or the new one at any moment, and the
 * manifest knows both. An error in the middle puts the old files back. */
#ifndef AF_PUBLISH_H
#define AF_PUBLISH_H

#include "base/temps.h"
#include "base/written.h"

#define AF_OUTPUT_MODEL "model" /* group of a converted folder */
#define AF_OUTPUT_RUN   "run"   /* of a training run */
#define AF_OUTPUT_FILE  "file"  /* of single files */

typedef struct af_output {
    char *path;        /* as it was named, without slashes at the end */
    char *dir;         /* the folder that gets the files: path, or where it lies */
    char *temp;        /* the folder to write them to, under their names */
    const char *group; /* in the manifest */
    bool force;
    bool whole; /* the output is the folder: what an earlier one has left there is removed */
    af_temp *listed;
} af_output;

/* A folder to write. names: what is written there in most cases (NULL-terminated, may be NULL);
 * with force these must not be somebody else's. */
AF_CHECKED af_status af_output_open_folder(af_output *o, const char *path, const char *const *names,
                                           bool force, af_error *err);
/* A file to write (temp/NAME), and a second one next to it (NULL: none). */
AF_CHECKED af_status af_output_open_file(af_output *o, const char *path, const char *second,
                                         bool force, af_error *err);
/* The temporary name of the file of af_output_open_file; free(), NULL when out of memory. */
char *af_output_file(const af_output *o);
/* Puts everything in `temp` in place. A README.md that is not ours is kept. Clears o on success. */
AF_CHECKED af_status af_output_commit(af_output *o, af_error *err);
/* Removes what was written; o may be empty. */
void af_output_abandon(af_output *o);

/* Refuses an output that is an input, or a folder that an input lies in. */
AF_CHECKED af_status af_output_check(const char *path, const char *const *inputs, int n,
                                     af_error *err);
/* Refuses a path that cannot become a folder of ours whatever is in it: "/", a file, a link to
 * nothing. */
AF_CHECKED af_status af_output_check_path(const char *path, af_error *err);
/* "'notes.txt' and 2 more": what a folder has, without the manifest and temporary files of ours;
 * free(). *what is NULL when there is nothing. */
AF_CHECKED af_status af_output_content(char **what, const char *dir, af_error *err);
#endif
