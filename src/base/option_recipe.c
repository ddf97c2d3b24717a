/* Recipes: flat YAML, each key an option. */
#include "base/option.h"
#include "base/yaml.h"
#include "kolo/error.h"

typedef struct recipe {
    kolo_options *options;
    kolo_option_spelling spelling;
} recipe;

static int option_recipe_set(void *context, const char *key, const char *value, const char *where)
{
    recipe *r = context;
    KOLO_TRY(kolo_option_note(&r->spelling, key, where));
    return kolo_option_set(r->options, key, value, where);
}

static int recipe_read(kolo_options *options, const char *path, bool silent)
{
    static const kolo_yaml_form form = {"recipe", option_recipe_set};
    recipe r = {options, {.silent = silent}};
    return kolo_yaml_read(path, &form, &r);
}

int kolo_options_read_recipe(kolo_options *options, const char *path)
{
    return recipe_read(options, path, false);
}

int kolo_options_read_record(kolo_options *options, const char *path)
{
    return recipe_read(options, path, true);
}
