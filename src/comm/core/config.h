/* Configurations that programs give: public structs whose first field is their size. */
#ifndef KOLO_COMM_CORE_CONFIG_H
#define KOLO_COMM_CORE_CONFIG_H

#include <stddef.h>

/* own: [bytes] gets `given`, and zeros for fields that the program that was compiled did not know. name: of
 * the struct, for texts. KOLO_ECONFIG: its size is 0, or more than `bytes`. */
int comm_config_take(void *own, size_t bytes, const void *given, const char *name);

#endif
