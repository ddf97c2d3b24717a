/* The option table: defaults, text to value and back, names. */
#include "base/option.h"

#include <ctype.h>

#include "kolo/error.h"
#include "tap.h"

static kolo_options o;

static void refused(const char *key, const char *value, const char *words)
{
    int rc = kolo_option_set(&o, key, value, "here");
    if (!ok(rc == KOLO_ECONFIG && strstr(kolo_error_text(), words) &&
                !strncmp(kolo_error_text(), "here: ", 6),
            "%s=\"%s\" is refused: %s", key, value, words))
        diag("status %d, text: %s", rc, kolo_error_text());
}

static void accepted(const char *key, const char *value, const char *text)
{
    int rc = kolo_option_set(&o, key, value, "here");
    char *got = kolo_option_text(&o, kolo_option_find(key));
    if (!ok(rc == 0 && !strcmp(got, text), "%s=%s is read as %s", key, value, text))
        diag("status %d, value %s", rc, got);
    free(got);
}

/* Every entry, set to something else than its default, written and read back. */
static void test_round_trip(void)
{
    int defaults = 1, trips = 1, low = 1;
    for (int i = 0; i < kolo_option_count; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        char *before = kolo_option_text(&o, e);
        if (kolo_option_set(&o, e->key, e->default_value, "default") < 0)
            defaults = (diag("%s", kolo_error_text()), 0);
        char *text = kolo_option_text(&o, e);
        if (strcmp(before, text)) defaults = (diag("%s: %s, in the table %s", e->key, before, text), 0);
        free(before);
        free(text);

        const char *other = e->type == KOLO_OPTION_TEXT ? "a \"b\" \\ c: #d"
                            : e->type == KOLO_OPTION_BOOL
                                ? (strcmp(e->default_value, "true") ? "true" : "false")
                            : e->type == KOLO_OPTION_CHOICE ? e->choices[1]
                                                            : NULL;
        char number[64];
        if (!other) {
            snprintf(number, sizeof number, e->type == KOLO_OPTION_INT ? "%.0f" : "%.17g",
                     e->type == KOLO_OPTION_INT ? e->low + 1 : e->low + (e->high - e->low) / 3);
            other = number;
        }
        if (kolo_option_set(&o, e->key, other, "other") < 0) trips = (diag("%s", kolo_error_text()), 0);
        text = kolo_option_text(&o, e);
        if (e->type != KOLO_OPTION_REAL && strcmp(text, other))
            trips = (diag("%s: %s, %s", e->key, other, text), 0);
        if (e->type == KOLO_OPTION_REAL && strtod(text, NULL) != strtod(other, NULL))
            trips = (diag("%s", e->key), 0);
        free(text);
        for (const char *p = e->key; *p; p++)
            low &= islower((unsigned char)*p) || isdigit((unsigned char)*p) || *p == '_';
        low &= e->help && strlen(e->help) > 3 && (e->type >= KOLO_OPTION_BOOL || e->low < e->high);
    }
    ok(defaults, "every default in the table is a legal value and the one in the struct (%d options)",
       kolo_option_count);
    ok(trips, "every option takes another value and writes it back");
    ok(low, "every key is in lower case, has help and a range");
}

static void test_types(void)
{
    accepted("batch", "512", "512");
    refused("batch", "", "whole number");
    refused("batch", "12x", "whole number");
    refused("batch", " 12", "whole number");
    refused("batch", "1e3", "whole number");
    refused("batch", "12.0", "whole number");
    refused("batch", "4k", "whole number");
    refused("lr_batch", "0", "out of range");
    refused("batch", "-5", "out of range");
    refused("batch", "99999999999999999999", "out of range");
    accepted("steps", "9223372036854775807", "9223372036854775807");
    accepted("lr", "1e-1", "0.1");
    accepted("lr", ".25", "0.25");
    accepted("lr", "0.30000000000000004", "0.30000000000000004");
    refused("lr", "1e-1x", "not a number");
    refused("lr", "nan", "not a number");
    refused("lr", "inf", "not a number");
    refused("lr", "0x10", "not a number");
    refused("lr", " 1", "not a number");
    refused("lr", "1,5", "not a number");
    refused("lr", "", "not a number");
    refused("lr", "1e999", "out of range");
    refused("lr", "-0.1", "out of range");
    const char *yes[] = {"true", "yes", "on", "1", "True"}, *no[] = {"false", "no", "off", "0", "OFF"};
    for (int i = 0; i < 5; i++) accepted("flip", yes[i], "true");
    for (int i = 0; i < 5; i++) accepted("flip", no[i], "false");
    refused("flip", "maybe", "neither true nor false");
    refused("flip", "2", "neither true nor false");
    accepted("precision", "bf16", "bf16");
    is_int(o.precision, KOLO_precision_bf16, "a choice has its enum value");
    refused("precision", "fp64", "one of f32, bf16");
    refused("precision", "F32", "one of f32, bf16");
    refused("data", "a\tb", "control character");
    accepted("data", "", "");
}

static void test_names(void)
{
    static const char *const words[] = {"form", "learning", "from"};
    is_text(kolo_nearest("fomr", words, 3), "form", "two letters swapped count once");
    is_text(kolo_nearest("learing", words, 3), "learning", "a letter missing");
    is_text(kolo_nearest("LEARNING", words, 3), "learning", "case does not count");
    ok(!kolo_nearest("xyzzy", words, 3), "nothing near is NULL");
    ok(!kolo_nearest("", words, 3), "nor is the empty word near anything");
    char longer[300];
    memset(longer, 'a', 299);
    longer[299] = 0;
    ok(!kolo_nearest(longer, words, 3), "nor a very long one");
    refused("bacth", "1", "did you mean \"batch\"?");
    refused("epoch", "1", "did you mean \"epochs\"?");
    refused("weight-decay", "1", "did you mean \"weight_decay\"?");
    refused("xyzzy", "1", "unknown option");
    ok(kolo_option_find("lr") && !kolo_option_find("l") && !kolo_option_find("LR"),
       "keys are found whole and as written");
}

/* What other programs call an option. */
static void test_aliases(void)
{
    static const struct {
        const char *name, *key, *value;
    } row[] = {
#define ALIAS(name, key, remark) {name, #key, NULL},
#define VALUE(name, key, value, remark) {name, #key, #value},
#include "base/aliases.def"
    };
    refused("batch_size", "32", "it is batch= here: over all ranks");
    refused("learning-rate", "1", "it is lr= here");
    refused("LEARNING_RATE", "1", "it is lr= here");
    refused("sync_bn", "true", "it is bn=sync here");
    refused("nodes", "8", "sbatch --nodes=8");
    int sound = 1;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const bool has =
            !*row[i].key || (kolo_option_find(row[i].key) &&
                             (!row[i].value || kolo_option_set(&o, row[i].key, row[i].value, "here") == 0));
        if (!has || kolo_option_find(row[i].name)) sound = (diag("%s", row[i].name), 0);
    }
    ok(sound, "every alias is no option itself, and names one with a value that it can have");
}

/* Old names of options: each row of renamed.def is one, and is read as the new name. */
static void test_renamed(void)
{
    static const struct {
        const char *old, *key;
    } row[] = {
#define RENAMED(old, new) {#old, #new},
#include "base/renamed.def"
    };
    int table = 1, read = 1, offered = 1;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const kolo_option_entry *e = kolo_option_find(row[i].old);
        if (!e || strcmp(e->key, row[i].key)) table = (diag("%s", row[i].old), 0);
        for (int k = 0; k < kolo_option_count; k++)
            if (!strcmp(kolo_option_table[k].key, row[i].old))
                table = (diag("%s is an option", row[i].old), 0);
        if (kolo_option_reject_alias(row[i].old, "here") < 0) offered = (diag("%s", kolo_error_text()), 0);
        if (!e || kolo_option_set(&o, row[i].old, e->default_value, "here") < 0)
            read = (diag("%s", row[i].old), 0);
    }
    ok(table, "every old name finds the option of its row, and no option has it as its key");
    ok(offered, "no old name is also what another program calls an option");
    ok(read, "every old name sets its option");
    accepted("stage", "/disk", "/disk");
    is_text(o.staging, "/disk", "stage=/disk is staging=/disk");
    accepted("stages", "2", "2");
    is_text(o.staging, "/disk", "stages=2 is the pipeline's, and leaves staging= alone");
    accepted("stages", "1", "1");
    char *text = kolo_options_write(&o, true);
    ok(strstr(text, "\nstaging: /disk\n") && !strstr(text, "stage:"),
       "what is written has the new name alone");
    free(text);
    accepted("stage", "", "");

    kolo_option_spelling s = {{NULL}, true};
    is_int(kolo_option_note(&s, "staging", "f:1"), 0, "staging= first");
    is_int(kolo_option_note(&s, "staging", "f:1"), 0, "staging= again: no conflict of names");
    is_int(kolo_option_note(&s, "stage_full", "f:2"), 0, "then stage_full=, of another option");
    is_int(kolo_option_note(&s, "lr", "f:3"), 0, "then lr=, which has no old name");
    is_int(kolo_option_note(&s, "stage", "f:4"), KOLO_ECONFIG,
           "then stage=, the old name of staging=: refused");
    is_text(kolo_error_text(),
            "f:4: staging= and stage= are the same option, given twice; keep staging= alone",
            "with both names");
    is_int(kolo_option_note(&s, "staging_full", "f:5"), KOLO_ECONFIG,
           "the new name after the old: refused, too");
    is_text(kolo_error_text(),
            "f:5: stage_full= and staging_full= are the same option, given twice; keep staging_full= alone",
            "with both names");
}

/* Where an option stands in the file says its heading. */
static void test_sections(void)
{
    is_text(kolo_option_section(kolo_option_find("model")), "What is trained, on what", "the first heading");
    is_text(kolo_option_section(kolo_option_find("momentum")), "Optimizer", "one in between");
    is_text(kolo_option_section(&kolo_option_table[kolo_option_count - 1]), "What a run writes and prints",
            "the last");
    int known = 1;
    for (int i = 0; i < kolo_option_count; i++)
        known &= *kolo_option_table[i].commands &&
                 !kolo_option_table[i].commands[strspn(kolo_option_table[i].commands, "TLSEPXMDGAUR")];
    ok(known, "somebody takes every option");
}

/* What a run's options are worth elsewhere. */
static void test_leave(void)
{
    kolo_options_free(&o);
    kolo_options_default(&o);
    static const char *const set[][2] = {{"lr", "0.5"},     {"val", "/val"},    {"precision", "bf16"},
                                         {"threads", "64"}, {"device", "cuda"}, {"data_cache", "ram"},
                                         {"weights", "w"}};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) kolo_option_set(&o, set[i][0], set[i][1], "test");
    is_int(kolo_options_leave(&o), 0, "the machine is left behind (%s)", kolo_error_text());
    ok(o.threads == 0 && o.device == KOLO_device_auto && o.data_cache == KOLO_data_cache_none && !*o.weights,
       "what is of one machine or one command has its default");
    ok(o.lr == 0.5 && !strcmp(o.val, "/val") && o.precision == KOLO_precision_bf16,
       "what the numbers come from, and the data, stay");
}

/* A scalar that YAML 1.1 resolves to a number, and to no text. */
static bool is_yaml_number(const char *text)
{
    const char *p = text + (*text == '-' || *text == '+');
    size_t whole = strspn(p, "0123456789");
    p += whole;
    if (!whole || !*p) return whole > 0; /* a whole number */
    if (*p++ != '.') return false;
    p += strspn(p, "0123456789");
    if (!*p) return true;
    if (*p != 'e' && *p != 'E') return false;
    if (p[1] != '+' && p[1] != '-') return false;
    return p[2] && !p[2 + strspn(p + 2, "0123456789")];
}

static void test_yaml(void)
{
    static const double values[] = {0,       300, 3e2,     1e-5, 5e-4,      1e-7, 2.5e-6, 0.1,
                                    1.0 / 3, 1e6, 1.5e300, 1e22, 123456789, 1e15, -1,     -1e-9};
    int good = 1, exact = 1, words = 0;
    for (int i = 0; i < kolo_option_count; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        for (size_t v = 0; v < sizeof values / sizeof *values && e->type == KOLO_OPTION_REAL; v++) {
            char text[64];
            snprintf(text, sizeof text, "%.17g", values[v]);
            if (values[v] < e->low || values[v] > e->high || kolo_option_set(&o, e->key, text, "test") < 0)
                continue;
            char *written = kolo_option_text(&o, e);
            good &= is_yaml_number(written);
            exact &= strtod(written, NULL) == values[v];
            if (!is_yaml_number(written)) diag("%s: %s", e->key, written);
            free(written);
        }
    }
    ok(good, "every real number is written as one that YAML 1.1 takes for a number");
    ok(exact, "and to the bit");
    static const char *const text[] = {"0.5", "1e-3",       "no",  "Off",  "null", "~", "-",
                                       "12",  "2001-01-01", "a b", "a: b", "#",    "=", ""};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        kolo_option_set(&o, "val", text[i], "test");
        char *all = kolo_options_write(&o, true), line[64];
        snprintf(line, sizeof line, "\nval: \"%s\"\n", text[i]);
        words += all && strstr(all, line) != NULL;
        free(all);
    }
    is_int(words, sizeof text / sizeof *text, "texts that look like numbers, truths or nothing are quoted");
    kolo_options_free(&o);
    kolo_options_default(&o);
}

/* ---- options that only say how others work ---- */

static const struct {
    const char *key, *needs;
} needs[] = {
#define NEEDS(key, needs) {#key, needs},
#include "base/option_needs.def"
#undef NEEDS
};

static void set_other(const char *key)
{
    const kolo_option_entry *e = kolo_option_find(key);
    char number[64];
    const char *text = "x";
    if (e->type == KOLO_OPTION_BOOL) text = strcmp(e->default_value, "true") ? "true" : "false";
    if (e->type == KOLO_OPTION_CHOICE) text = e->choices[!strcmp(e->choices[0], e->default_value)];
    if (e->type == KOLO_OPTION_INT || e->type == KOLO_OPTION_REAL) {
        const bool low = atof(e->default_value) != e->low;
        snprintf(number, sizeof number, "%.17g", low ? e->low : e->high);
        text = number;
    }
    is_int(kolo_option_set(&o, key, text, "test"), 0, "%s=%s", key, text);
}

/* Gives what the first word of the row asks for. */
static void satisfy(const char *row)
{
    char word[128];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(row, " "), row);
    char *value = strchr(word, '=');
    if (value) *value++ = 0;
    if (value) is_int(kolo_option_set(&o, word, value, "test"), 0, "  with %s=%s", word, value);
    else set_other(word);
}

static void test_needs(void)
{
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        const kolo_option_entry *e = kolo_option_find(needs[i].key);
        kolo_options_free(&o);
        kolo_options_default(&o);
        is_int(kolo_option_check_needs(&o, e), 0, "%s= at its default needs nothing", e->key);
        set_other(e->key);
        if (strcmp(e->key, "lr_end")) /* the default schedule has it */
            is_int(kolo_option_check_needs(&o, e), KOLO_ECONFIG, "%s= needs %s", e->key, needs[i].needs);
        for (size_t k = 0; k < sizeof needs / sizeof *needs; k++)
            if (!strcmp(needs[k].key, e->key)) satisfy(needs[k].needs);
        is_int(kolo_option_check_needs(&o, e), 0, "  which is then there");
    }
    kolo_options_free(&o);
    kolo_options_default(&o);
    kolo_option_set(&o, "gamma", "0.5", "test");
    kolo_option_check_needs(&o, kolo_option_find("gamma"));
    ok(!strcmp(kolo_error_text(),
               "command line: gamma=0.5 has no effect without schedule=step or schedule=multistep or "
               "schedule=exponential: give that, or leave gamma= out"),
       "the message names all that would do");
}

int main(void)
{
    kolo_options_default(&o);
    is_int(o.batch, 256, "a default of the table is in the struct");
    test_round_trip();
    test_types();
    test_names();
    test_aliases();
    test_renamed();
    test_sections();
    test_yaml();
    test_needs();
    kolo_options copy;
    is_int(kolo_options_copy(&copy, &o), 0, "options are copied");
    kolo_option_set(&o, "model", "lenet5", "here");
    ok(strcmp(copy.model, "lenet5"), "the copy owns its texts");
    kolo_options_free(&copy);
    test_leave();
    kolo_options_free(&o);
    ok(!o.model, "freed texts are NULL");
    return done_testing();
}
