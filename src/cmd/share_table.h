/* Tables of share/ (gpus, clusters): by name, or any file of such a table. */
#ifndef KOLO_CMD_SHARE_TABLE_H
#define KOLO_CMD_SHARE_TABLE_H

#include <glob.h>

/* The file that `word` stands for: PATH.yaml, or the name (in any case) of one in share/FOLDER. Caller frees.
 * KOLO_ECONFIG: there is no table of that name; option=, the nearest and all of them are named. */
int kolo_table_find(const char *folder, const char *option, const char *word, char **path);
/* "…/h200.yaml" -> "h200"; caller frees. */
char *kolo_table_name(const char *path);
/* All of a folder; the caller globfrees. */
int kolo_table_all(const char *folder, glob_t *found);

#endif
