/* replay.c - runs a libFuzzer entry over the files of its seed corpus, for builds without
 * libFuzzer. */
#define _DEFAULT_SOURCE
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv)
{
    char **names;
    int n, done = 0;
    af_error err;
    if (argc != 2 || af_dir_list(&names, &n, argv[1], &err) != AF_OK) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
        return 1;
    }
    for (int i = 0; i < n; i++) {
        char *path = af_path_join(argv[1], names[i]);
        af_map m;
        if (!path || af_map_open(&m, path, &err) != AF_OK)
            return 1;
        uint8_t *copy =
            malloc(m.size ? m.size : 1); /* exact size: the sanitizer sees every overrun */
        if (!copy)
            return 1;
        memcpy(copy, m.data, m.size);
        LLVMFuzzerTestOneInput(copy, m.size);
        free(copy);
        af_map_close(&m);
        free(path);
        done++;
    }
    af_names_free(names, n);
    printf("%d inputs replayed\n", done);
    return done == 0;
}
