/* cache_file.h - what a cache that other programs use at the same time needs: files that are
 * written in any order and survive the process, links, lock files, free space. */
#ifndef AF_CACHE_FILE_H
#define AF_CACHE_FILE_H

#include "base/base.h"

/* Opens a file for reading and writing, created when absent; *fd belongs to the caller: close(). */
AF_CHECKED af_status af_part_open(int *fd, const char *path, af_error *err);
/* An existing file, only to be read. */
AF_CHECKED af_status af_part_open_read(int *fd, const char *path, af_error *err);
AF_CHECKED af_status af_part_write(int fd, uint64_t off, const void *bytes, uint64_t n,
                                   const char *path, af_error *err);
/* Exactly n bytes; a shorter file is an error. */
AF_CHECKED af_status af_part_read(int fd, uint64_t off, void *bytes, uint64_t n, const char *path,
                                  af_error *err);
/* Flushes the file to the disk and gives it the name `to`; closes fd in every case. What has that
 * name is replaced, or with `keep` stays: then AF_EUSAGE. */
AF_CHECKED af_status af_part_finish(int fd, const char *from, const char *to, bool keep,
                                    af_error *err);
void af_part_close(int fd); /* negative: nothing */

/* A symbolic link; replaces what is there, but not a folder. Folders on the way are made, what
 * killed processes left of such a link is removed. */
AF_CHECKED af_status af_link_make(const char *target, const char *path, af_error *err);
/* Where a symbolic link leads, as written; NULL when it is not one. free(). */
char *af_link_read(const char *path);

/* Takes the lock file at `path` (flock; created when absent, for the group too). *fd is -1 when
 * another process has it; otherwise it is held until af_part_close(*fd) or the end of the process.
 * On a file system without locks it does not exclude others. */
AF_CHECKED af_status af_lock_take(int *fd, const char *path, af_error *err);

/* AF_EIO with the subject "disk" when `bytes` of `what` ("the download") do not fit there. */
AF_CHECKED af_status af_disk_check(const char *path, const char *what, uint64_t bytes,
                                   af_error *err);
#endif
