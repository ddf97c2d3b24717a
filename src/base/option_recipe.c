/* Recipes: flat YAML, each key an option. */
#include "base/option.h"
#include "base/yaml.h"

static int option_recipe_set(void *context, const char *key, const char *value, const char *where)
{
    return kolo_option_set(context, key, value, where);
}

int kolo_options_read_recipe(kolo_options *options, const char *path)
{
    static const kolo_yaml_form form = {"recipe", option_recipe_set};
    return kolo_yaml_read(path, &form, options);
}
