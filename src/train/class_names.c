#include "train/class_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "ckpt/identity.h"
#include "kolo/error.h"
#include "train/parts.h"

int kolo_class_names_read(kolo_class_names *names, const char *file)
{
    int64_t capacity = 0;
    *names = (kolo_class_names){0};
    KOLO_TRY(kolo_file_read(file, &names->text, NULL));
    for (char *line = names->text, *next; *line; line = next) {
        char *end = strchrnul(line, '\n');
        next = *end ? end + 1 : end;
        if (end > line && end[-1] == '\r') end[-1] = 0;
        *end = 0;
        KOLO_TRY(kolo_grow(&names->name, &capacity, names->count, sizeof *names->name));
        names->name[names->count++] = line;
    }
    return 0;
}

int kolo_class_names_of_run(kolo_class_names *names, const char *run)
{
    *names = (kolo_class_names){0};
    KOLO_TRY(kolo_identity_check(run, "classes.txt"));
    char *path = kolo_format("%s/classes.txt", run);
    const int rc = !path ? KOLO_ENOMEM : kolo_file_exists(path) ? kolo_class_names_read(names, path) : 0;
    free(path);
    return rc;
}

void kolo_class_names_free(kolo_class_names *names)
{
    free(names->name);
    free(names->text);
    *names = (kolo_class_names){0};
}

/* Labels are numbers, and the same number must be the same class: another list would be scored as if the
 * network knew nothing. */
int session_check_classes(const kolo_session *s)
{
    const kolo_options *o = s->options;
    const kolo_dataset *trained = s->train_set;
    kolo_class_names noted = {0};
    if (!s->val_set || *o->pairs) return 0; /* pairs may be of anybody */
    int rc = !trained && *o->run ? kolo_class_names_of_run(&noted, o->run) : 0;
    const int64_t known = trained ? kolo_dataset_get_info(trained)->classes : noted.count;
    for (int c = 0; rc == 0 && c < known && c < kolo_dataset_get_info(s->val_set)->classes; c++) {
        const char *was = trained ? kolo_dataset_class_name(trained, c) : noted.name[c],
                   *is = kolo_dataset_class_name(s->val_set, c);
        if (strcmp(was, is))
            rc = kolo_fail(KOLO_EINPUT,
                           "class %d is `%s` in the training data (%s), but `%s` in the validation data %s; "
                           "pack the latter with --stats-from, which uses the same classes",
                           c, was, trained ? o->data : o->run, is, o->val);
    }
    kolo_class_names_free(&noted);
    return rc;
}
