/* Options: one table (options.def), one struct, four sources. Precedence: recipe < site file (KOLO_SITE) <
 * environment (KOLO_<KEY>) < command line. Unknown keys are errors that name the nearest known one. Wherever
 * a key is read it may be an option's old name (renamed.def). */
#ifndef KOLO_BASE_OPTION_H
#define KOLO_BASE_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INT(key, ...)
#define REAL(key, ...)
#define BOOL(key, ...)
#define TEXT(key, ...)
#define CHOICE(key, ...) enum { KOLO_CHOICES_##key(KOLO_OPTION_ENUM) };
#define KOLO_OPTION_ENUM(key, choice) KOLO_##key##_##choice,
#include "base/options.def"
#undef INT
#undef REAL
#undef BOOL
#undef TEXT
#undef CHOICE

typedef struct kolo_options {
#define INT(key, ...) int64_t key;
#define REAL(key, ...) double key;
#define BOOL(key, ...) bool key;
#define TEXT(key, ...) char *key;
#define CHOICE(key, ...) int key;
#include "base/options.def"
#undef INT
#undef REAL
#undef BOOL
#undef TEXT
#undef CHOICE
} kolo_options;

enum kolo_option_type {
    KOLO_OPTION_INT,
    KOLO_OPTION_REAL,
    KOLO_OPTION_BOOL,
    KOLO_OPTION_TEXT,
    KOLO_OPTION_CHOICE
};
enum kolo_option_scope { KOLO_SCOPE_MATH, KOLO_SCOPE_RUN, KOLO_SCOPE_HERE };

typedef struct kolo_option_entry {
    const char *key, *help, *default_value; /* standard: the default as text */
    /* letters of the commands whose words it may be: options.def explains them */
    const char *commands;
    enum kolo_option_type type;
    enum kolo_option_scope scope;
    double low, high;           /* INT, REAL */
    const char *const *choices; /* CHOICE: NULL-terminated names */
    bool automatic;             /* INT: may be `auto`, which is 0 */
    bool path;                  /* TEXT: may name a file or folder */
    size_t offset;              /* in kolo_options */
    int line;                   /* in options.def */
} kolo_option_entry;

extern const kolo_option_entry kolo_option_table[];
extern const int kolo_option_count;
/* The heading that an option stands under. Static text. */
const char *kolo_option_section(const kolo_option_entry *entry);

void kolo_options_default(kolo_options *options); /* then owned: kolo_options_free */
void kolo_options_free(kolo_options *options);
/* what is of scope HERE has its default again */
int kolo_options_leave(kolo_options *options);
int kolo_options_copy(kolo_options *to, const kolo_options *from); /* `to` is fresh memory */

/* Sets one key from text. where: "file:line", "KOLO_LR", "command line"; goes into the error.
 * KOLO_ECONFIG: unknown key (its name here, or the nearest, is offered), wrong type, out of
 * range, unknown choice. */
int kolo_option_set(kolo_options *options, const char *key, const char *value, const char *where);
/* Value as text that kolo_option_set reads back exactly; caller frees. */
char *kolo_option_text(const kolo_options *options, const kolo_option_entry *entry);
/* Fails with KOLO_ECONFIG if the option only says how another one works (option_needs.def) that `options` do
 * not have, and is not at its default there. KOLO_ENOMEM. */
int kolo_option_check_needs(const kolo_options *options, const kolo_option_entry *entry);
/* The option of that key, or whose old name it is; NULL: there is none. */
const kolo_option_entry *kolo_option_find(const char *key);

/* ---- old names ---- */

enum kolo_option_renamed {
#define RENAMED(old, new) KOLO_RENAMED_##old,
#include "base/renamed.def"
#undef RENAMED
    KOLO_RENAMED
};
/* The names that one source (a file, the environment, the command line) has used for each renamed option.
 * Starts as zeros. */
typedef struct kolo_option_spelling {
    const char *used[KOLO_RENAMED]; /* by row of renamed.def; NULL: not given yet. Static text */
    bool silent;                    /* no warning: Kolo itself wrote the source */
} kolo_option_spelling;
/* Notes that the source gives `key`. KOLO_ECONFIG: it has given the same option under another name. An old
 * name is kept for kolo_options_report_renamed. Of other keys: 0, and nothing is done. */
int kolo_option_note(kolo_option_spelling *spelling, const char *key, const char *where);
/* One warning for every old name that was read since the start of the process and is not reported yet. The
 * caller sees to it that one rank of a job does so. */
void kolo_options_report_renamed(void);

/* Fails with KOLO_ECONFIG if `key` is another program's name of an option (aliases.def), and names the option
 * of Kolo; else 0. where: where the key stands, for the message. */
int kolo_option_reject_alias(const char *key, const char *where);
/* Fails: `key` is no option; offers what an alias means, or the nearest. */
int kolo_option_unknown(const char *key, const char *where);
/* The known name nearest to `word` by edit distance, or NULL if none is near; names: n strings. */
const char *kolo_nearest(const char *word, const char *const *names, int n);

/* A flat YAML mapping (block or flow scalars, lists of scalars joined by commas); duplicate keys, nesting,
 * anchors are errors with file:line:column. */
int kolo_options_read_recipe(kolo_options *options, const char *path);
/* The same, of the recipe.yaml that an earlier version may have written into a run folder: old names are read
 * without a warning. */
int kolo_options_read_record(kolo_options *options, const char *path);
/* KOLO_<KEY>. KOLO_ECONFIG: a value, or a KOLO_ variable that is neither an option nor in environment.def. */
int kolo_options_read_environment(kolo_options *options);
int kolo_options_check_environment(void); /* names alone, for programs without options */
/* What kolo_options_read_arguments asks on its way: 0, or a negative status that ends it. */
typedef struct kolo_option_hooks {
    /* a word that is no option; NULL: that is an error */
    int (*positional)(void *context, const char *word);
    int (*option)(void *context, const kolo_option_entry *entry); /* before it is set; NULL: any may be */
    void *context;
} kolo_option_hooks;
/* argv of key=value, --key=value, --key value, --flag (BOOL), --no-flag. Everything else is an error, but for
 * what `hooks` (may be NULL) takes. */
int kolo_options_read_arguments(kolo_options *options, int n, char **words, const kolo_option_hooks *hooks);
/* recipe (may be NULL) < site < environment < words, in this order, on top of kolo_options_default. */
int kolo_options_read(kolo_options *options, const char *recipe, int n, char **words);

/* Names files and folders that are there and that options name from here from the root instead; words that
 * are no paths (a network, `synthetic`, `none`) stay. For what is read from another folder. */
int kolo_options_from_root(kolo_options *options);
/* Recipe text of all options that differ from their default (all = true: of all); caller frees. */
char *kolo_options_write(const kolo_options *options, bool all);
/* "key: was A, now B; key: ..." of the MATH options that differ, or NULL if none; caller frees. A path from
 * the root and its own end are taken for the same. */
char *kolo_options_difference(const kolo_options *was, const kolo_options *now);

#endif
