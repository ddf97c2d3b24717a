#include "data/augment.h"

#include <string.h>

#include "base/option.h"
#include "kolo/error.h"

const kolo_augmentation kolo_augmentation_table[] = {
#define AUGMENT(name, help) {#name, help, kolo_augment_##name},
#include "data/augment.def"
#undef AUGMENT
};
const int kolo_augmentation_count = sizeof kolo_augmentation_table / sizeof *kolo_augmentation_table;

static int find(const char *name)
{
    for (int i = 0; i < kolo_augmentation_count; i++)
        if (strcmp(kolo_augmentation_table[i].name, name) == 0) return i;
    return -1;
}

static int unknown(const char *name)
{
    const char *names[sizeof kolo_augmentation_table / sizeof *kolo_augmentation_table];
    for (int i = 0; i < kolo_augmentation_count; i++) names[i] = kolo_augmentation_table[i].name;
    const char *near = kolo_nearest(name, names, kolo_augmentation_count);
    return kolo_fail(KOLO_ECONFIG, "augment: there is no augmentation `%s`%s%s%s; `kolo help augmentations` lists them",
                     name, near ? ", did you mean `" : "", near ? near : "", near ? "`?" : "");
}

int kolo_augment_parse(const char *names, int *list, int most, int *n)
{
    *n = 0;
    for (const char *at = names ? names : ""; *at; at += strspn(at, ", ")) {
        char name[64];
        const size_t length = strcspn(at, ", ");
        if (length == 0) continue;
        if (length >= sizeof name) return kolo_fail(KOLO_ECONFIG, "augment: the name `%.40s...` is too long", at);
        memcpy(name, at, length);
        name[length] = 0;
        const int index = find(name);
        if (index < 0) return unknown(name);
        if (*n == most) return kolo_fail(KOLO_ECONFIG, "augment: at most %d names", most);
        list[(*n)++] = index;
        at += length;
    }
    return 0;
}
