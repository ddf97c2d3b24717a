/* RUN/run_id: which run a folder is of, a random number that is made when the run begins, and checksums of
 * what the run has written beside its checkpoints:
 *
 *   0123456789abcdef0123456789abcdef CRC32C of the number
 *   recipe.yaml CRC32C
 *   classes.txt CRC32C
 *   crc32c CRC32C of all before it
 *
 * Every checkpoint's manifest names the run, so that one of another run (same data, other seed), put into
 * this folder, is not gone on from. Older versions wrote the first line only: nothing is checked then. */
#ifndef KOLO_CKPT_IDENTITY_H
#define KOLO_CKPT_IDENTITY_H

enum { RUN_ID = 40 }; /* bytes: 32 digits */

/* id: "" where the folder has none, or where it is damaged, which is said. */
int kolo_identity_read(const char *run_folder, char id[RUN_ID]);
/* id "": a new one is made. Notes the files as they are now; writes nothing where that stands there
 * already. */
int kolo_identity_write(const char *run_folder, char id[RUN_ID]);
/* Is this file (recipe.yaml, classes.txt) what the run wrote? KOLO_EINPUT, with a cure: it is damaged, or
 * somebody has edited it. 0 also where it is not there, or nothing is noted. */
int kolo_identity_check(const char *run_folder, const char *name);

#endif
