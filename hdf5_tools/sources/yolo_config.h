/* data.yaml of a YOLO data set: path, train, val, test, names, nc. Other keys are passed over. */
#ifndef HDF5_TOOLS_SOURCES_YOLO_CONFIG_H
#define HDF5_TOOLS_SOURCES_YOLO_CONFIG_H

#include "base/folder.h"

typedef struct yolo_config {
    char *path;                /* what `path` says, or NULL */
    kolo_folder_names parts;   /* of the split: folders or lists of images, as they are written */
    kolo_folder_names classes; /* in the order of their numbers */
    /* [classes.count] the numbers, as labels have them: 0, 1, ... unless the file leaves gaps */
    int64_t *ids;
} yolo_config;

/* KOLO_EINPUT: no such file, not YAML, names missing or doubtful, nc another number than there are names,
 * no such split. */
int yolo_config_read(yolo_config *c, const char *path, const char *split);
/* Place of class number `id` in classes; -1: there is no such class. */
int64_t yolo_config_class(const yolo_config *c, int64_t id);
void yolo_config_free(yolo_config *c);

#endif
