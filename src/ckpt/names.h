/* The same tensor has other names in other programs: which ones a file uses, and how ours
 * are called elsewhere. */
#ifndef KOLO_CKPT_NAMES_H
#define KOLO_CKPT_NAMES_H

#include "ckpt/weights.h"

enum { NAME_LENGTH = 256 };
enum name_shape { name_shape_as_is, name_shape_flat, name_shape_window, name_shape_point };

typedef struct name_map name_map;

/* Whose names fit the network: those under which most of its tensors are in the file, ours where
 * others fit no better. A prefix of all names ("backbone.", "model.encoder.") is dropped where more fit
 * without. */
int kolo_names_recognise(kolo_weights *weights, const kolo_graph *graph, const name_map **map);
/* Tensors of the file get our names; those that no rule knows keep their own. */
int kolo_names_translate(kolo_weights *weights, const name_map *map);
/* For writing (names: KOLO_names_*): whose rules know all tensors of the network. KOLO_ECONFIG: nobody's. */
int kolo_names_choose(const kolo_graph *graph, int names, const name_map **map);
/* Their name and shape of our tensor; w has ours. false: no rule knows it, or it is too long. */
bool kolo_names_theirs(const name_map *map, kolo_weight *w, char name[NAME_LENGTH]);
/* "timm's" */
const char *kolo_names_program(const name_map *map);
/* What other programs save beside what was learned and can be made again: counters, index tables, masks. */
bool kolo_names_made_anew(const char *name);
/* Of a head that only trainings have, which a network may be without (auxiliary=0). */
bool kolo_names_auxiliary(const char *name);

#endif
