/* Recipes, environment, command line, their order, and writing. */
#include <unistd.h>

#include "base/file.h"
#include "base/option.h"
#include "kolo/error.h"
#include "tap.h"

static char folder[] = "/tmp/kolo-recipe-XXXXXX", path[64], site[64];
static kolo_options o;

static void start(void)
{
    kolo_options_free(&o);
    kolo_options_default(&o);
}

static int read_text(const char *text)
{
    start();
    kolo_file_write_atomic(path, text, strlen(text));
    return kolo_options_read_recipe(&o, path);
}

/* words must follow "path:" */
static void refused(const char *name, const char *text, const char *words)
{
    int rc = read_text(text);
    const char *error = kolo_error_text();
    size_t n = strlen(path);
    if (!ok(rc == KOLO_ECONFIG && !strncmp(error, path, n) && !strncmp(error + n + 1, words, strlen(words)),
            "%s", name))
        diag("status %d, text: %s", rc, error);
}

static void test_recipe(void)
{
    is_int(read_text("# a comment\nmodel: resnet20\nlr: 0.5 # peak\n\"batch\": '64'\nflip: yes\n"), 0,
           "block mapping");
    ok(!strcmp(o.model, "resnet20") && o.lr == 0.5 && o.batch == 64 && o.flip, "with its values");
    is_int(read_text("{model: lenet5, batch: 32}"), 0, "flow mapping");
    ok(!strcmp(o.model, "lenet5") && o.batch == 32, "with its values");
    is_int(read_text("mean: [0.4, 0.5, 0.6]\nmilestones:\n  - 10\n  - 20\naugment: []\n"), 0, "lists");
    is_text(o.mean, "0.4,0.5,0.6", "a flow list is joined by commas");
    is_text(o.milestones, "10,20", "so is a block list");
    is_int(read_text(""), 0, "an empty recipe changes nothing");
    is_int(read_text("---\n"), 0, "nor does an empty document");
    is_int(read_text("data:\n"), 0, "an empty value is the empty text");
    is_int(read_text("run: \"a: b # c \\\"d\\\"\"\n"), 0, "quoted text");
    is_text(o.run, "a: b # c \"d\"", "is taken as it stands");
}

static void test_bad_recipes(void)
{
    refused("unknown key", "lr: 0.1\nbacth: 5\n", "2:1: unknown option \"bacth\"; did you mean \"batch\"?");
    refused("wrong type", "lr: 1e-1x\n", "1:1: lr: \"1e-1x\" is not a number");
    refused("missing value", "batch:\n", "1:1: batch: \"\" is not a whole number");
    refused("key twice", "lr: 1\nbatch: 5\nlr: 2\n", "3:1: \"lr\" is set twice, first on line 1; keep one");
    refused("nested mapping", "lr: 1\nbatch:\n  size: 5\n", "3:3: a recipe is flat");
    refused("list in a list", "mean: [1, [2]]\n", "1:11: a list holds plain values only");
    refused("mapping in a list", "mean:\n  - a: 1\n", "2:5: a recipe is flat");
    refused("comma in an item", "augment: [\"a,b\"]\n", "1:11: a comma inside");
    refused("list where a number belongs", "batch: [1, 2]\n", "1:1: batch: \"1,2\" is not a whole number");
    refused("anchor", "model: &x resnet20\n", "1:8: anchors");
    refused("alias", "lr: 1\nmodel: *x\n", "2:8: aliases");
    refused("tag", "batch: !!str 5\n", "1:8: tags");
    refused("a list at the top", "- lr\n", "1:1: a recipe is a mapping");
    refused("a word at the top", "resnet50\n", "1:1: a recipe is a mapping");
    refused("a list as key", "? [a]\n: b\n", "1:3: a key must be a plain word");
    refused("two documents", "lr: 1\n---\nlr: 2\n", "2:1: a recipe is one document");
    refused("broken YAML", "lr: 1\nmodel: \"open\n", "");
    refused("a tab", "lr: 1\n\tbatch: 2\n", "2:1: not YAML");
    refused("not UTF-8", "model: \xff\xfe\n", " ");
    refused("value with NUL", "model: \"a\\0b\"\n", "1:8: the value holds a NUL");
    is_int(kolo_options_read_recipe(&o, "/nonexistent/x.yaml"), KOLO_ECONFIG,
           "a missing recipe is a configuration error");
    ok(strstr(kolo_error_text(), "/nonexistent/x.yaml"), "that names it");
}

static void test_environment(void)
{
    start();
    setenv("KOLO_MICRO_BATCH", "16", 1);
    setenv("KOLO_CACHE", "/x", 1);
    setenv("KOLO_COMM_FUSION", "1", 1);
    setenv("KOLO__PRIVATE", "1", 1);
    is_int(kolo_options_read_environment(&o), 0, "options are read, variables of others left alone (%s)",
           kolo_error_text());
    is_int(o.micro_batch, 16, "KOLO_MICRO_BATCH is micro_batch");
    setenv("KOLO_MICRO_BATCH", "many", 1);
    is_int(kolo_options_read_environment(&o), KOLO_ECONFIG, "a bad value is an error");
    ok(strstr(kolo_error_text(), "KOLO_MICRO_BATCH"), "that names the variable");
    unsetenv("KOLO_MICRO_BATCH");
    setenv("KOLO_EPOCSH", "3", 1);
    is_int(kolo_options_read_environment(&o), KOLO_ECONFIG, "a name almost right is an error");
    ok(strstr(kolo_error_text(), "\"epochs\""), "that offers the right one");
    unsetenv("KOLO_EPOCSH");
    static const char *const wrong[][2] = {
        {"KOLO_LEARNING_RATE", "it is lr="},      {"KOLO_BATCH_SIZE", "it is batch="},
        {"KOLO_WD", "it is weight_decay="},       {"KOLO_SORCE", "mean KOLO_SOURCE?"},
        {"KOLO_SITES", "mean KOLO_SITE?"},        {"KOLO_SOMETHING_ELSE", "unknown"},
        {"KOLO_COMM_FUSON", "KOLO_COMM_FUSION?"}, {"KOLO_bach", "\"batch\""}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv(wrong[i][0], "1", 1);
        const int rc = kolo_options_read_environment(&o);
        ok(rc == KOLO_ECONFIG && strstr(kolo_error_text(), wrong[i][0]) &&
               strstr(kolo_error_text(), wrong[i][1]),
           "%s is refused: %s", wrong[i][0], kolo_error_text());
        is_int(kolo_options_check_environment(), KOLO_ECONFIG, "by programs without options, too");
        unsetenv(wrong[i][0]);
    }
    unsetenv("KOLO_COMM_FUSION");
    unsetenv("KOLO__PRIVATE");
    setenv("KOLO_BUILD", "1", 1);
    is_int(kolo_options_read_environment(&o), 0, "a variable of the tests is none of the options'");
    unsetenv("KOLO_BUILD");
}

static int take(void *context, const char *word)
{
    strcat(context, word);
    strcat(context, ";");
    return 0;
}

static int arguments(char *positional, ...)
{
    char *words[16];
    int n = 0;
    va_list list;
    va_start(list, positional);
    while ((words[n] = va_arg(list, char *))) n++;
    va_end(list);
    start();
    if (positional) *positional = 0;
    return kolo_options_read_arguments(
        &o, n, words, &(kolo_option_hooks){.positional = positional ? take : NULL, .context = positional});
}

static void test_arguments(void)
{
    char words[256];
    is_int(arguments(NULL, "batch=7", "--lr=0.5", "--seed", "9", "--flip", "--micro-batch", "3", NULL), 0,
           "all forms");
    ok(o.batch == 7 && o.lr == 0.5 && o.seed == 9 && o.flip && o.micro_batch == 3,
       "key=value, --key=value, --key value, --flag");
    is_int(arguments(NULL, "--no-decay-norms", NULL), 0, "--no-flag");
    ok(!o.decay_norms, "switches a flag off");
    is_int(arguments(NULL, "data=a=b", NULL), 0, "a value may hold =");
    is_text(o.data, "a=b", "from the first = on");
    is_int(arguments(words, "recipe.yaml", "batch=2", "./x=y/z", "--", "--lr", NULL), 0, "positional words");
    is_text(words, "recipe.yaml;./x=y/z;--lr;",
            "are handed over in order, paths with = and all after -- too");
    is_int(arguments(NULL, "recipe.yaml", NULL), KOLO_ECONFIG, "or refused where there is no place for them");
    is_int(arguments(NULL, "--seed", NULL), KOLO_ECONFIG, "a key without its value");
    is_int(arguments(NULL, "-lr", "1", NULL), KOLO_ECONFIG, "a single dash");
    is_int(arguments(NULL, "bach=1", NULL), KOLO_ECONFIG, "an unknown key");
    is_text(kolo_error_text(), "command line: unknown option \"bach\"; did you mean \"batch\"?",
            "with the nearest");
    is_int(arguments(NULL, "--bacth", "1", NULL), KOLO_ECONFIG, "an unknown flag");
    ok(strstr(kolo_error_text(), "\"batch\"?"), "with the nearest");
    is_int(arguments(NULL, "--no-batch", NULL), KOLO_ECONFIG, "--no- before what is not a flag");
}

static void test_order(void)
{
    char *words[] = {"lr=4"};
    const char *recipe = "lr: 1\nbatch: 1\nseed: 1\nsize: 1\n", *of_site = "lr: 2\nbatch: 2\nseed: 2\n";
    kolo_file_write_atomic(path, recipe, strlen(recipe));
    kolo_file_write_atomic(site, of_site, strlen(of_site));
    setenv("KOLO_SITE", site, 1);
    setenv("KOLO_LR", "3", 1);
    setenv("KOLO_BATCH", "3", 1);
    start();
    is_int(kolo_options_read(&o, path, 1, words), 0, "four sources");
    ok(o.size == 1 && o.seed == 2 && o.batch == 3 && o.lr == 4, "recipe < site < environment < command line");
    kolo_file_write_atomic(site, "lr: x\n", 6);
    start();
    is_int(kolo_options_read(&o, path, 1, words), KOLO_ECONFIG, "a bad site file is an error");
    ok(strstr(kolo_error_text(), site) && strstr(kolo_error_text(), "KOLO_SITE"), "that names it");
    unsetenv("KOLO_SITE");
    unsetenv("KOLO_LR");
    unsetenv("KOLO_BATCH");
    start();
    is_int(kolo_options_read(&o, NULL, 0, NULL), 0, "no recipe and no words are fine");
    is_int(o.batch, 256, "and leave the defaults");
}

/* One option under its old and its new name: in one source an error, in two the later source wins. */
static void test_renamed(void)
{
    is_int(read_text("comm_patience: 3\nstage_keep: false\n"), 0, "recipe: old names");
    ok(o.heartbeat_timeout == 3 && !o.staging_keep, "recipe: old names set the options of today");
    refused("recipe: the new name and the old one", "staging: /a\nlr: 1\nstage: /b\n",
            "3:1: staging= and stage= are the same option");
    is_int(arguments(NULL, "comm_patience=4", "--stage", "/c", "--no-stage-keep", NULL), 0,
           "command line: old names in every form");
    ok(o.heartbeat_timeout == 4 && !strcmp(o.staging, "/c") && !o.staging_keep,
       "command line: old names set the options of today");
    is_int(arguments(NULL, "--stage", "/c", "staging=/d", NULL), KOLO_ECONFIG, "command line: both names");
    is_text(kolo_error_text(),
            "command line: stage= and staging= are the same option, given twice; keep staging= alone",
            "command line: both names: the error has both");
    start();
    setenv("KOLO_STAGE", "/e", 1);
    is_int(kolo_options_read_environment(&o), 0, "KOLO_STAGE: the old name as a variable (%s)",
           kolo_error_text());
    is_text(o.staging, "/e", "KOLO_STAGE sets staging=");
    is_int(kolo_options_check_environment(), 0, "KOLO_STAGE: also to programs without options");
    setenv("KOLO_STAGING", "/f", 1);
    ok(kolo_options_read_environment(&o) == KOLO_ECONFIG && strstr(kolo_error_text(), "stage=") &&
           strstr(kolo_error_text(), "staging="),
       "KOLO_STAGE and KOLO_STAGING: refused with both names: %s", kolo_error_text());
    is_int(kolo_options_check_environment(), KOLO_ECONFIG, "likewise by programs without options");
    unsetenv("KOLO_STAGE");
    char *words[] = {"stage=/g"};
    start();
    kolo_file_write_atomic(path, "stage: /h\n", 10);
    is_int(kolo_options_read(&o, path, 1, words), 0, "recipe stage:, KOLO_STAGING, command line stage=");
    is_text(o.staging, "/g", "the order of the sources stays: the command line wins");
    start();
    is_int(kolo_options_read(&o, path, 0, NULL), 0, "recipe stage:, KOLO_STAGING");
    is_text(o.staging, "/f", "the order of the sources stays: the environment wins");
    unsetenv("KOLO_STAGING");
    start();
    is_int(kolo_options_read_record(&o, path), 0, "the record of an older version's run is read");
    is_text(o.staging, "/h", "with its old names");
}

static void test_write(void)
{
    start();
    char *text = kolo_options_write(&o, false);
    is_text(text, "", "defaults are not written");
    free(text);
    arguments(NULL, "run=with \"quotes\", # and \\ : { [ ünïcode", "lr=0.30000000000000004", "flip=true",
              "bn=ghost", "model=- x", "mean=0.1,0.2", "data= leading", "val=~", NULL);
    kolo_options was;
    kolo_options_copy(&was, &o);
    for (int all = 0; all < 2; all++) {
        text = kolo_options_write(&was, all);
        is_int(read_text(text), 0, "what is written is a recipe");
        char *again = kolo_options_write(&o, all), *difference = kolo_options_difference(&was, &o);
        is_text(again, text, "that reads back to the same options");
        ok(!difference, "without a difference");
        free(again);
        free(difference);
        free(text);
    }
    kolo_options_free(&o);
    kolo_options_copy(&o, &was);
    kolo_option_set(&o, "lr", "1", "here");
    kolo_option_set(&o, "init", "w.safetensors", "here");
    kolo_option_set(&o, "threads", "3", "here");
    text = kolo_options_difference(&was, &o);
    is_text(text, "init: was \"\", now w.safetensors; lr: was 0.30000000000000004, now 1",
            "only what changes the numbers is a difference");
    free(text);
    kolo_options_free(&was);
}

int main(void)
{
    if (!mkdtemp(folder)) skip_all("no temporary folder");
    snprintf(path, sizeof path, "%s/recipe.yaml", folder);
    snprintf(site, sizeof site, "%s/site.yaml", folder);
    for (int i = 0; i < kolo_option_count; i++) {
        char name[80] = "KOLO_";
        for (int c = 0; kolo_option_table[i].key[c]; c++)
            name[5 + c] = (char)(kolo_option_table[i].key[c] >= 'a' ? kolo_option_table[i].key[c] - 32
                                                                    : kolo_option_table[i].key[c]);
        unsetenv(name);
    }
    unsetenv("KOLO_SITE");
    test_recipe();
    test_bad_recipes();
    test_environment();
    test_arguments();
    test_order();
    test_renamed();
    test_write();
    kolo_options_free(&o);
    kolo_folder_remove(folder);
    return done_testing();
}
