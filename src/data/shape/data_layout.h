/* data_layout.h - folders that say themselves which files belong to a split. */
#ifndef AF_DATA_LAYOUT_H
#define AF_DATA_LAYOUT_H

#include "data/shape/data_source.h"

typedef struct af_file_list {
    char **path;
    int count;
} af_file_list;

/* Takes `path` over (NULL: out of memory). */
AF_CHECKED af_status af_file_list_add(af_file_list *l, char *path, af_error *err);
void af_file_list_clear(af_file_list *l);

/* The files of the source's split (and config: s->name) in a folder of save_to_disk, in a cache of
 * Hugging Face's datasets, or in a repository whose card (README.md) lists them. *found is false
 * when the folder is none of these; then the names of its files decide. *data_dir, if not NULL, is
 * the folder that the card names instead (free()). */
AF_CHECKED af_status af_data_layout_files(const af_data_source *s, const char *folder,
                                          const char *run_path, af_file_list *out, bool *found,
                                          char **data_dir, af_error *err);
/* For a repository of which only the card (README.md) is there: patterns of the files that
 * af_data_layout_files may return once they are. None: the card does not say, all are needed. */
AF_CHECKED af_status af_data_layout_wants(const af_data_source *s, const char *folder,
                                          const char *run_path, af_file_list *patterns,
                                          af_error *err);
/* Adds the files below a folder that a pattern matches, in order. */
AF_CHECKED af_status af_folder_matches(af_file_list *out, const char *folder, const char *pattern,
                                       af_error *err);
/* Does the name of a file hold the split's name, or another word for it, by itself
 * ("set-train-00000.parquet", "my_dev.jsonl" for validation)? The words are those of Hugging Face's
 * datasets. */
bool af_split_mentions(const char *name, const char *split);
#endif
