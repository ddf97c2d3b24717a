/* kolo-shards: one line of the table in kolo-shards.c and one file shards_NAME.c a subcommand. */
#ifndef HDF5_TOOLS_SHARDS_H
#define HDF5_TOOLS_SHARDS_H

/* argv[0] is the subcommand's name. Returns 0, or a negative status with the error text set. */
typedef int shards_function(int argc, char **argv);

typedef struct shards_command {
    const char *name, *usage, *help;
    shards_function *run;
} shards_command;

shards_function shards_info, shards_verify, shards_show;

#endif
