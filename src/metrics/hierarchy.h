/* Which classes are kinds of others: Open Images' hierarchy (bbox_labels_600_hierarchy.json), for
 * detections that are scored by it. */
#ifndef KOLO_METRICS_HIERARCHY_H
#define KOLO_METRICS_HIERARCHY_H

#include <stdint.h>

typedef struct kolo_hierarchy {
    int classes;
    /* [classes + 1] class c is a kind of ancestor[first[c]] .. ancestor[first[c + 1] - 1] */
    int64_t *first;
    int32_t *ancestor;
} kolo_hierarchy;

/* path: JSON of nodes {"LabelName", "Subcategory": [nodes], "Part": [...]}; parts are no kinds, and the root
 * ("Entity") is no class. names: NULL or "", or a file of lines `LabelName,DisplayName`
 * (class-descriptions-boxable.csv), by which labels become names; a name or "name (label)" is then looked for
 * among class_name[classes]. Labels that are none of the classes are passed over, but what is below them is
 * not. KOLO_EINPUT: no hierarchy, or not one of its labels is a class. */
int kolo_hierarchy_read(kolo_hierarchy **hierarchy, const char *path, const char *names,
                        const char *const *class_name, int classes);
void kolo_hierarchy_free(kolo_hierarchy **hierarchy);

#endif
