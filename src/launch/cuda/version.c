/* What base/plugin.c compares: a library of another build could understand the program's
 * structures otherwise. */
#ifndef KOLO_CONTRACT
#define KOLO_CONTRACT "none"
#endif
extern const char kolo_cuda_version[];
const char kolo_cuda_version[] = KOLO_VERSION "/" KOLO_CONTRACT;
