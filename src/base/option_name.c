/* Names of options: which there are, which they had, which one a slip of the keyboard meant, and what other
 * programs call them. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/option.h"
#include "kolo/error.h"

static const struct {
    const char *name, *key, *value, *remark;
} alias[] = {
#define ALIAS(name, key, remark) {name, #key, "", remark},
#define VALUE(name, key, value, remark) {name, #key, #value, remark},
#include "base/aliases.def"
#undef ALIAS
#undef VALUE
};

static const char *const name[] = {
#define INT(key, ...) #key,
#define REAL(key, ...) #key,
#define BOOL(key, ...) #key,
#define TEXT(key, ...) #key,
#define CHOICE(key, ...) #key,
#include "base/options.def"
};

static const struct {
    const char *old, *key;
} renamed[] = {
#define RENAMED(old, new) {#old, #new},
#include "base/renamed.def"
#undef RENAMED
};

/* Where an old name was read first, until it is reported. */
static struct {
    char where[256];
    bool read, reported;
} old_name[KOLO_RENAMED];

const kolo_option_entry *kolo_option_find(const char *key)
{
    for (int i = 0; i < KOLO_RENAMED; i++)
        if (!strcmp(renamed[i].old, key)) key = renamed[i].key;
    for (int i = 0; i < kolo_option_count; i++)
        if (!strcmp(kolo_option_table[i].key, key)) return &kolo_option_table[i];
    return NULL;
}

/* Only the first place of an old name is kept: one warning each. */
static void keep_old_name(int row, const char *where)
{
    if (old_name[row].read) return;
    old_name[row].read = true;
    snprintf(old_name[row].where, sizeof old_name[row].where, "%s", where);
}

int kolo_option_note(kolo_option_spelling *spelling, const char *key, const char *where)
{
    const kolo_option_entry *e = kolo_option_find(key);
    const char *given = e ? e->key : NULL;
    for (int i = 0; i < KOLO_RENAMED; i++) {
        if (strcmp(renamed[i].old, key)) continue;
        given = renamed[i].old;
        if (!spelling->silent) keep_old_name(i, where);
    }
    for (int i = 0; e && i < KOLO_RENAMED; i++) {
        if (strcmp(renamed[i].key, e->key)) continue;
        if (spelling->used[i] && strcmp(spelling->used[i], given))
            return kolo_fail(KOLO_ECONFIG, "%s: %s= and %s= are the same option, given twice; keep %s= alone",
                             where, spelling->used[i], given, e->key);
        spelling->used[i] = given;
    }
    return 0;
}

void kolo_options_report_renamed(void)
{
    for (int i = 0; i < KOLO_RENAMED; i++) {
        if (!old_name[i].read || old_name[i].reported) continue;
        old_name[i].reported = true;
        kolo_warn("%s: %s= is an old name; write %s=", old_name[i].where, renamed[i].old, renamed[i].key);
    }
}

enum { WORD_MAX = 63 };

static int min2(int a, int b) { return a < b ? a : b; }

/* Damerau-Levenshtein, the restricted form: insert, delete, replace, swap of neighbours; case is ignored. */
static int distance(const char *a, const char *b)
{
    int rows[3][WORD_MAX + 2], na = (int)strlen(a), nb = (int)strlen(b);
    if (na > WORD_MAX || nb > WORD_MAX) return INT_MAX;
    for (int j = 0; j <= nb; j++) rows[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= nb; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            now[j] = min2(min2(last[j], now[j - 1]) + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]))
                now[j] = min2(now[j], before[j - 2] + 1);
        }
    }
    return rows[na % 3][nb];
}

const char *kolo_nearest(const char *word, const char *const *names, int n)
{
    int allowed = ((int)strlen(word) + 2) / 3, best = allowed + 1; /* one slip in every three letters */
    const char *nearest = NULL;
    for (int i = 0; i < n; i++) {
        int d = distance(word, names[i]);
        if (d < best) {
            best = d;
            nearest = names[i];
        }
    }
    return nearest;
}

/* One writes - for _ on a command line, and capitals in Python. */
static bool same(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (tolower((unsigned char)(*a == '-' ? '_' : *a)) != *b) return false;
    return !*a && !*b;
}

int kolo_option_reject_alias(const char *key, const char *where)
{
    for (size_t i = 0; i < sizeof alias / sizeof *alias; i++) {
        if (!same(key, alias[i].name)) continue;
        const char *value = alias[i].value, *remark = alias[i].remark;
        if (!*alias[i].key)
            return kolo_fail(KOLO_ECONFIG, "%s: unknown option \"%s\"; %s", where, key, remark);
        return kolo_fail(KOLO_ECONFIG, "%s: unknown option \"%s\"; it is %s=%s here%s%s", where, key,
                         alias[i].key, value, *remark ? ": " : "", remark);
    }
    return 0;
}

int kolo_option_unknown(const char *key, const char *where)
{
    KOLO_TRY(kolo_option_reject_alias(key, where));
    const char *nearest = kolo_nearest(key, name, sizeof name / sizeof *name);
    if (nearest)
        return kolo_fail(KOLO_ECONFIG, "%s: unknown option \"%s\"; did you mean \"%s\"?", where, key,
                         nearest);
    return kolo_fail(KOLO_ECONFIG, "%s: unknown option \"%s\"; `kolo help options` lists them", where, key);
}
