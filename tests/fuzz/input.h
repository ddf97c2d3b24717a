/* What the harnesses share. A harness is a file NAME.c with LLVMFuzzerTestOneInput, which hands one input to
 * a reader of untrusted files. libFuzzer calls it (make fuzz), or mutate.c, which needs no clang (make
 * check). Whatever the bytes are, a reader takes them or refuses them with KOLO_EINPUT and a text: anything
 * else ends the process, as a crash does. */
#ifndef TESTS_FUZZ_INPUT_H
#define TESTS_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Folder of this process, in memory where the system has such; removed at the end. */
const char *fuzz_folder(void);
/* Writes a file below it (folders in `name` are made) and returns its path, which is valid to the end. */
const char *fuzz_put(const char *name, const void *data, size_t bytes);
/* True if `rc` says that the input was taken; a status other than KOLO_EINPUT, or one
 * without text, is a defect. */
bool fuzz_taken(int rc);
bool fuzz_taken_or(int rc, int status); /* as this, where another status is right too */
/* as fuzz_taken, where nothing is wrong with the input when it is refused */
bool fuzz_tried(int rc);
void fuzz_require(bool condition, const char *what);

extern bool fuzz_refused; /* set by fuzz_taken */

/* The source of kolo-pack of this name on this input (split `train`): its list, then the
 * bytes of all its samples. */
void fuzz_source(const char *kind, const char *in, const char *annotations);
/* --annotations twice */
void fuzz_source_of_two(const char *kind, const char *in, const char *annotations, const char *more);

#endif
