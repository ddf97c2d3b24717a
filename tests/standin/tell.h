/* What a test may ask the stand-in. The functions are exported by the emulated libkolo_cuda.so: dlsym them
 * (tests/standin/ask.h does). */
#ifndef TESTS_STANDIN_TELL_H
#define TESTS_STANDIN_TELL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "alive", "defects", a kind ("allocations", "synchronisations", "launches", "copies", ...), a call
 * ("cudaMalloc"), or a kernel's name */
int64_t standin_count(const char *what);
const char *standin_defect_text(int i);  /* NULL: no such */
void standin_forgive(void);              /* the test provoked those defects: none so far */
int standin_gpu_of(const void *address); /* number of the GPU whose memory this is, -1: of none */
void standin_report(const char *path);   /* as STANDIN_REPORT does at exit */

#ifdef __cplusplus
}
#endif
#endif
