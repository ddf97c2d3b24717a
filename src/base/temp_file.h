/* Temporary files that replace others atomically, also in folders that others may write to. What is written
 * is never reached by a name that somebody could have guessed and put a link at: a file that is to replace
 * another is written under a random name in the folder, which is held open, and takes its name when it is
 * whole. */
#ifndef KOLO_BASE_TEMP_FILE_H
#define KOLO_BASE_TEMP_FILE_H

#include <sys/types.h>

/* NAME.tmp-kolo-XXXXXXXXXXXXXXXX beside NAME, locked by its writer: what a killed one has left has no lock,
 * and the next writer in that folder removes it. */
typedef struct kolo_temp_file {
    int folder;   /* the one that holds the target, wherever its path leads by now */
    int fd;       /* to write to (and read back); or the new folder */
    char *target; /* names in the folder; owned */
    char *name;   /* NULL: a device or a pipe, which fd is itself */
} kolo_temp_file;

/* A link at `path` stays one: the file that it leads to is replaced. In a folder that everybody may write to,
 * though, only the own links and those of the folder's owner are followed, as Linux itself does with
 * fs.protected_symlinks. Errors name `path`; nothing is left to commit then. */
int kolo_temp_open(kolo_temp_file *a, const char *path);
/* The same in a folder that is open, and stays the caller's: what is called `name` there is replaced itself,
 * be it a link. path: of the target, for errors. */
int kolo_temp_open_in(kolo_temp_file *a, int folder, const char *name, const char *path);
/* A new folder that is to become NAME, likewise; the caller renames it. */
int kolo_temp_open_folder(kolo_temp_file *a, int folder, const char *name, const char *path);
/* Closes without a word what is committed otherwise, or not at all. */
void kolo_temp_release(kolo_temp_file *a);
/* rc 0: synced, closed, renamed to the target, the folder synced. Negative, which is returned: removed, and
 * what was there stays. */
int kolo_temp_commit(kolo_temp_file *a, const char *path, int rc);

/* In a folder that only this program writes to: removes what its killed writers have left, those of older
 * versions, too (NAME.tmp-PID: a process that is not here and has written nothing for a day). Another user's
 * stays, and that of a process that lives. */
void kolo_temp_sweep(const char *folder);
/* The same for one folder NAME.tmp or NAME.tmp-*, with all that is in it; 1: it is removed, 0: it stays. */
int kolo_temp_sweep_folder(int folder, const char *name, const char *path);

/* A file that keeps its name from process to process (a lock, a journal, a log): opened, or made with O_CREAT
 * in `flags`. What is a link, no file, or, in a folder that others may write to, has a second name is
 * refused: somebody may have put it there to have another file written. The descriptor, or KOLO_EIO
 * (KOLO_EINPUT: it is not there). */
int kolo_file_open_plain(const char *path, int flags, mode_t mode);
/* Makes a folder, or finds the one that this user made before; KOLO_ECONFIG: a link, no folder, or another
 * user's. */
int kolo_folder_make_own(const char *path);

#endif
