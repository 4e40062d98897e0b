/* Any bytes are the journal of a download, a ref, or a name of a repository. */
#include "base/file.h"
#include "format/hub/hub_name.h"
#include "hub/hub_journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_journal j, again;
    char commit[AF_HUB_COMMIT + 1], text[AF_JOURNAL_SLOT];
    af_hub_repo r;
    if (af_journal_parse(&j, (const char *)data, size)) {
        uint64_t last = 0;
        for (int i = 0; i < j.done.count; i++) {
            if (j.done.at[i].from >= j.done.at[i].to || j.done.at[i].to > j.size ||
                (i > 0 && j.done.at[i].from <= last))
                abort();
            last = j.done.at[i].to;
        }
        if (!af_journal_parse(&again, text, af_journal_print(&j, text)) ||
            memcmp(&again.done, &j.done, sizeof j.done) != 0)
            abort();
    }
    if (af_hub_ref_parse(commit, (const char *)data, size) && !af_path_is_inner(commit))
        abort();
    char *name = af_strndup((const char *)data, size);
    if (name && af_hub_repo_parse(&r, AF_HUB_MODEL, name, NULL, NULL) == AF_OK) {
        char *dir = af_hub_repo_dir("c", &r);
        if (!dir || !af_path_is_inner(dir) || strchr(dir + 2, '/') || !af_path_is_inner(r.revision))
            abort();
        free(dir);
    }
    free(name);
    return 0;
}
