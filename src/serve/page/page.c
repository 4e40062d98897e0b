/* page.c - see page.h. */
#include "serve/page/page.h"

const af_page_file *af_page_find(const char *path)
{
    for (int i = 0; i < af_page_file_count; i++)
        if (strcmp(af_page_files[i].path, path) == 0)
            return &af_page_files[i];
    return NULL;
}
