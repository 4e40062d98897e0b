/* fuzz_file.h - a folder in memory where an entry puts its input as a file, for readers that take
 * paths. */
#ifndef AF_FUZZ_FILE_H
#define AF_FUZZ_FILE_H
#define _GNU_SOURCE /* mkdtemp, strtok_r */
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char fuzz_folder[64];

static void fuzz_remove(void) { (void)!af_path_remove(fuzz_folder, NULL); }

/* The folder of this process; removed at its end. */
static inline const char *fuzz_dir(void)
{
    if (!fuzz_folder[0]) {
        snprintf(fuzz_folder, sizeof fuzz_folder, "%s/afinar-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        if (!mkdtemp(fuzz_folder))
            abort();
        atexit(fuzz_remove);
    }
    return fuzz_folder;
}

/* Writes a file of the folder and returns its path (static). */
static inline const char *fuzz_put(const char *name, const void *data, size_t size)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0)
        abort();
    return path;
}
#endif
