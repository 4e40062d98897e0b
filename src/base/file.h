/* file.h - the only place that opens, maps, writes, renames and removes files.
 *
 * Reading is by read-only map. Writing is atomic: bytes go to a temporary name next to the target,
 * are fsync'ed, then renamed over it, then the folder is fsync'ed; until the last moment the old
 * file is untouched, and on any failure the temporary file is removed. What a killed run left is
 * removed by the next one that writes the same file. */
#ifndef AF_FILE_H
#define AF_FILE_H

#include "base/base.h"

typedef struct af_map {
    const uint8_t *data; /* never NULL after success, also for an empty file */
    uint64_t size;
} af_map;

/* Maps a regular file. Errors name the path. */
AF_CHECKED af_status af_map_open(af_map *out, const char *path, af_error *err);
void af_map_close(af_map *m);
/* Tells the system that [off, off+n) is not needed for now (page cache may drop it). */
void af_map_forget(const af_map *m, uint64_t off, uint64_t n);
/* The same for n bytes inside a map, and what else is on their pages. */
void af_map_forget_at(const void *data, uint64_t n);

/* A file of n zero bytes without a name, on a disk ($TMPDIR, or /var/tmp), mapped to be written;
 * AF_EIO where there is none. */
AF_CHECKED af_status af_map_temp(af_map *out, uint64_t n, af_error *err);

typedef struct af_out af_out; /* a file being written */
AF_CHECKED af_status af_out_open(af_out **out, const char *path, af_error *err);
/* The same for a file that only its owner may read. */
AF_CHECKED af_status af_out_open_private(af_out **out, const char *path, af_error *err);
AF_CHECKED af_status af_out_write(af_out *o, const void *bytes, uint64_t n, af_error *err);
/* Bytes written so far. */
uint64_t af_out_tell(const af_out *o);
/* Overwrites n bytes at `off`, all of them already written (headers with totals). After a reserve
 * and until the next write threads may call it side by side. */
AF_CHECKED af_status af_out_patch(af_out *o, uint64_t off, const void *bytes, uint64_t n,
                                  af_error *err);
/* Adds n zero bytes (no disk is used for them yet), to be filled by af_out_patch in any order. */
AF_CHECKED af_status af_out_reserve(af_out *o, uint64_t n, af_error *err);
/* Its temporary name, where everything reserved and patched can be read. Borrowed. */
const char *af_out_file(const af_out *o);
/* fsync + rename + folder fsync. Closes `o` in every case. */
AF_CHECKED af_status af_out_commit(af_out *o, af_error *err);
/* Closes and removes the temporary file. NULL is allowed. */
void af_out_abandon(af_out *o);

/* Whole small file in one call. */
AF_CHECKED af_status af_file_write(const char *path, const void *bytes, uint64_t n, af_error *err);
/* Reads a whole file (or what comes through a pipe) of at most `limit` bytes; *out is malloc'ed and
 * NUL-terminated. */
AF_CHECKED af_status af_file_read(char **out, uint64_t *size, const char *path, uint64_t limit,
                                  af_error *err);
/* Appends bytes to a log-like file (created when absent) and flushes them to the disk when `sync`.
 */
AF_CHECKED af_status af_file_append(const char *path, const void *bytes, uint64_t n, bool sync,
                                    af_error *err);

bool af_file_exists(const char *path); /* a regular file, links followed */
bool af_file_in(const char *dir, const char *name);
bool af_dir_exists(const char *path);
bool af_path_is_taken(const char *path); /* by anything, a link that leads nowhere included */
bool af_path_same(const char *a, const char *b); /* both there, and one and the same */
int64_t af_file_size(const char *path);          /* -1 when it is not there */
AF_CHECKED af_status af_dir_make(const char *path,
                                 af_error *err); /* with parents; present is fine */
/* Gives a file or folder another name in its file system; a name that is taken is an error. Folders
 * of a lower layer of overlayfs (a container's image) cannot be renamed: their content moves. */
AF_CHECKED af_status af_path_move(const char *from, const char *to, af_error *err);
/* Renames a finished folder to `to`; a folder that is there gets the name `from`. */
AF_CHECKED af_status af_dir_swap(const char *from, const char *to, af_error *err);
/* fsyncs a folder itself. */
AF_CHECKED af_status af_dir_sync(const char *path, af_error *err);
/* Removes a file or a whole folder; nothing there is fine. Never follows links. */
AF_CHECKED af_status af_path_remove(const char *path, af_error *err);
AF_CHECKED af_status af_file_copy(const char *from, const char *to, af_error *err);
/* A file of one folder into another, where the first has it. */
AF_CHECKED af_status af_file_copy_into(const char *from, const char *to, const char *name,
                                       af_error *err);
/* Names in a folder (no . and ..), sorted by bytes; free with af_names_free. */
AF_CHECKED af_status af_dir_list(char ***names, int *n, const char *path, af_error *err);
void af_names_free(char **names, int n);

/* ".NAME.PID.N.SUFFIX" next to `path`: no other run has this name. free(); NULL when out of memory.
 * The suffix is "tmp" for what becomes `path`, "old" for what was there. */
char *af_path_temp(const char *path, const char *suffix);
/* Removes what runs that no longer live left under such names of `path`; old content only when
 * there is new. */
void af_path_sweep(const char *path);
/* Holds a folder against other processes until *fd is closed, or this process ends however it does;
 * false when another one has it. On a file system without locks, it does not exclude others. */
bool af_dir_hold(const char *path, int *fd);

/* "a/b" as a new string (free()); NULL when out of memory. */
char *af_path_join(const char *a, const char *b);
/* The folder it lies in, "." for a name alone (free()); NULL when out of memory. */
char *af_path_parent(const char *path);
/* The last component; points into path. */
const char *af_path_name(const char *path);
/* True when a relative path stays inside its folder: no leading '/', no '..' component, not empty.
 */
bool af_path_is_inner(const char *path);
/* $XDG_CACHE_HOME/afinar or ~/.cache/afinar with `sub` appended, created for its owner only. free()
 * the result. */
AF_CHECKED af_status af_cache_dir(char **out, const char *sub, af_error *err);
/* A path of a variable that no shell has read: "~" at its beginning, $NAME and ${NAME}, as
 * huggingface_hub reads its own. free(); NULL when out of memory. */
char *af_path_expand(const char *path);
/* HF_HOME, or huggingface in $XDG_CACHE_HOME or ~/.cache; as below. */
char *af_hf_home(void);
/* Where the Hugging Face hub keeps models: HF_HUB_CACHE, or hub in af_hf_home; it need not be
 * there. free(); NULL when out of memory. */
char *af_hub_dir(void);
#endif
