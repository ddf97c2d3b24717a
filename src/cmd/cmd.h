/* Commands of `kolo`: one row a subcommand, one file a subcommand. Only here may a process end. */
#ifndef KOLO_CMD_H
#define KOLO_CMD_H

#include <signal.h>

#include "base/option.h"
#include "exec/exec.h"
#include "launch/launch.h"
#include "train/train.h"

struct kolo_session;
typedef struct kolo_command {
    /* letters: of options.def; the options that its command line may have */
    const char *name, *letters, *usage, *help;
    int (*run)(int n, char **words); /* words after the subcommand; returns 0 or a negative status */
} kolo_command;

extern const kolo_command kolo_command_table[];
extern const int kolo_command_count;
/* `letters` of the command that runs: other options on its command line are refused. `kolo bench`, which does
 * several things, says which. */
extern const char *kolo_command_letters;

/* For kolo_option_hooks.positional: takes any word. */
int kolo_command_skip_word(void *context, const char *word);
/* Removes WORD from words if it is there. */
bool kolo_command_flag(int *n, char **words, const char *word);
/* Recipe (if the first word is no key=value) < site < environment < the other words. At most `extra` further
 * positional words go to positional[]; the rest is an error. A recipe is a path, or a name in share/recipes.
 * Of commands that train, an option that has no effect beside the others is refused. Caller frees options. */
int kolo_command_options(kolo_options *options, int n, char **words, int extra, const char **positional);
/* As above without a recipe word: all positional words go to positional[]. */
int kolo_command_words(kolo_options *options, int n, char **words, int extra, const char **positional);
/* As above, but the first positional word is a recipe, *recipe, if kolo_recipe_is; else *recipe is NULL. */
int kolo_command_first(kolo_options *options, const char **recipe, int n, char **words, int extra,
                       const char **positional);
/* As kolo_command_words over the recipe that the folder of a run keeps, but for what is of scope HERE.
 * options: as one of these has read them; they are replaced, and freed on an error too. run: may be
 * theirs. */
int kolo_command_run(kolo_options *options, const char *run, int n, char **words, int extra,
                     const char **positional);
/* Initial values, then the weights of `file`, or else those of the checkpoint of `run` that checkpoint=
 * names. *step (may be NULL): of that checkpoint, or 0. Collective. */
int kolo_command_weights(struct kolo_session *session, const char *file, const char *run, int64_t *step);
/* The path of a recipe: a file, or a name in share/recipes; KOLO_ECONFIG: neither, with those that
 * are near. Caller frees. */
int kolo_recipe_find(const char *word, char **path);
/* Is a word that may also be an image or a file meant for one: it ends in .yaml, or is a name in
 * share/recipes and of no file here. */
bool kolo_recipe_is(const char *word);
/* Each with what its comment says and what it reaches. */
int kolo_recipe_print_all(void);
/* The whole recipe of Kolo's that is called so; 1: there is none. */
int kolo_recipe_print(const char *word);
/* What `kolo help` says of an option's values: integer, a|b. */
void kolo_help_values(const kolo_option_entry *entry, char *text, size_t size);
/* The first of the ways to call a command that a usage lists, " | " apart; *usage becomes the rest.
 * NULL: there are no more. */
const char *kolo_help_way(const char **usage, int *length);
void kolo_help_man(void);
/* Rows COMMAND TAB WORD TAB VALUES TAB HELP: a word that may follow the command (empty: kolo itself), as
 * `key=`; what may follow that: words, FILE, nothing. */
void kolo_help_completion(void);
/* The installed share/kolo (or the source tree's share): recipes, minislurm. Static text. */
const char *kolo_command_share(void);

/* The job this process belongs to; started once, finished or aborted by main. */
int kolo_command_launch(const kolo_options *options, kolo_launch **launch);
/* A launch of one, for commands that need no peers (plan, export). */
int kolo_command_alone(kolo_launch **launch);
/* From here on SIGUSR1, SIGTERM and SIGINT ask for an orderly end: kolo_command_stop becomes a kolo_stop.
 * Until somebody asks for that word, there is nothing that would have to be saved, and SIGTERM and SIGINT end
 * the process at once (75). SIGUSR1, which Slurm may send early, waits. */
void kolo_command_catch(void);
enum kolo_stop kolo_command_asked(void);
extern volatile sig_atomic_t kolo_command_stop;

/* What `kolo bench` can measure beside training: words after its name. */
/* Sums in the buckets of training. */
int kolo_bench_gradients(int n, char **words);
/* The collectives of libkolo_comm; words[0] is the name of one. */
bool kolo_bench_is_collective(const char *name);
int kolo_bench_collective(int n, char **words);
int kolo_bench_tune(int n, char **words);
/* The operations of a training, for `kolo plan`. */
int kolo_bench_kernels(int n, char **words);
int kolo_bench_algorithms(void);
/* Takes KEY=NUMBER, with K, M or G for powers of 1024, out of the words; the number is at least `low`. */
int kolo_bench_take(int *n, char **words, const char *key, int64_t low, int64_t *value);
/* Prints the time of the plan's actions, measured over `steps` steps, by kind and by kernel.
 * profile: [plan->actions]. */
int kolo_bench_profile(const kolo_plan *plan, const kolo_exec_profile *profile, int64_t steps);

#define COMMAND(name, ...) int kolo_command_##name(int n, char **words);
#include "cmd/commands.def"
#undef COMMAND

#endif
