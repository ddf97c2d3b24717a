/* darknet's .weights, written here number by number in the order of its parser.c: of a convolution with a
 * norm the norm's biases, its scales, the means, the variances, then the kernel (output, input, row, column);
 * of one without, biases and kernel. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ckpt/weights.h"
#include "kolo/error.h"
#include "models/models.h"
#include "tap.h"

static char folder[] = "/tmp/kolo-darknet-XXXXXX", cfg[64], path[64];

static kolo_graph *build(const char *text, int64_t classes)
{
    const kolo_model_config config = {.rows = 1, .classes = classes, .std = {1, 1, 1, 1}, .train = true};
    kolo_graph *g = NULL;
    FILE *f = fopen(cfg, "w");
    if (!f || fputs(text, f) < 0 || fclose(f)) printf("Bail out! %s\n", cfg), exit(1);
    if (kolo_model_graph(&g, cfg, &config) < 0) printf("Bail out! %s\n", kolo_error_text()), exit(1);
    return g;
}

/* 0.2.0, 64 images seen, then first, first + 1, ... */
static int open_numbers(kolo_weights **w, const kolo_graph *g, float first, int count)
{
    const int32_t head[5] = {0, 2, 0, 64, 0};
    FILE *f = fopen(path, "w");
    bool written = f && fwrite(head, sizeof head, 1, f) == 1;
    for (int i = 0; i < count && written; i++)
        written = fwrite(&(float){first + (float)i}, sizeof first, 1, f) == 1;
    if (!f || fclose(f) || !written) printf("Bail out! %s\n", path), exit(1);
    return kolo_weights_open(w, path, g);
}

/* Is NAME (a, b, c, d), and are its numbers first, first + 1, ...? */
static bool holds(const kolo_weights *w, const char *name, int rank, int64_t a, int64_t b, int64_t c,
                  int64_t d, int first)
{
    const kolo_weight *t = w ? kolo_weights_find(w, name) : NULL;
    const int64_t dim[] = {a, b, c, d};
    float x[256];
    int64_t n = 1;
    if (!t || t->rank != rank) return false;
    for (int k = 0; k < rank; k++) {
        if (t->dim[k] != dim[k]) return false;
        n *= dim[k];
    }
    kolo_weight_to_f32(t, x, n);
    for (int64_t i = 0; i < n; i++)
        if (x[i] != (float)(first + i)) return false;
    return true;
}

static void order(void)
{
    kolo_graph *g = build("[net]\nheight=8\nwidth=8\nchannels=3\n[convolutional]\nbatch_normalize=1\nfilters="
                          "2\nsize=3\npad=1\nactivation=leaky\n"
                          "[convolutional]\nfilters=4\nsize=1\nactivation=linear\n[avgpool]\n[softmax]\n",
                          0);
    kolo_weights *w = NULL;
    is_int(open_numbers(&w, g, 1, 8 + 54 + 4 + 8), 0, "two layers (%s)", kolo_error_text());
    ok(holds(w, "module_list.0.bn.bias", 1, 2, 0, 0, 0, 1), "first the norm's biases");
    ok(holds(w, "module_list.0.bn.weight", 1, 2, 0, 0, 0, 3), "its scales");
    ok(holds(w, "module_list.0.bn.running_mean", 1, 2, 0, 0, 0, 5), "the means");
    ok(holds(w, "module_list.0.bn.running_var", 1, 2, 0, 0, 0, 7), "the variances");
    ok(holds(w, "module_list.0.conv.weight", 4, 2, 3, 3, 3, 9),
       "the kernel, columns fastest, then rows, then inputs");
    ok(holds(w, "module_list.1.conv.bias", 1, 4, 0, 0, 0, 63), "of the second layer biases");
    ok(holds(w, "module_list.1.conv.weight", 4, 4, 2, 1, 1, 67), "and kernel");
    kolo_weights_close(&w);
    is_int(open_numbers(&w, g, 1, 62), 0, "a file may end behind the first layer");
    ok(w && kolo_weights_partial(w) && kolo_weights_count(w) == 5, "and says so");
    kolo_weights_close(&w);
    is_int(open_numbers(&w, g, 1, 62 + 7 + 14), 0, "a file of 7 classes for a network of 4 (%s)",
           kolo_error_text());
    ok(holds(w, "module_list.1.conv.bias", 1, 7, 0, 0, 0, 63) &&
           holds(w, "module_list.1.conv.weight", 4, 7, 2, 1, 1, 70),
       "is cut by its own count");
    kolo_weights_close(&w);
    is_int(open_numbers(&w, g, 1, 62 + 7 + 13), KOLO_EINPUT, "a number too few: %s", kolo_error_text());
    kolo_graph_destroy(&g);
}

#define NET                                                                                        \
    "[net]\nheight=32\nwidth=32\nchannels=1\n[convolutional]\nbatch_normalize=1\nfilters=2\nsize=" \
    "1\nactivation=leaky\n"
#define HEAD                                                                                          \
    "[convolutional]\nfilters=24\nsize=1\nactivation=linear\n[yolo]\nmask=0,1,2\nanchors=4,4,8,8,16," \
    "16\nclasses=3\n"

/* The head in the middle of the file has another length, so everything behind it stands elsewhere. */
static void heads(void)
{
    kolo_graph *g = build(
        NET HEAD
        "[route]\nlayers=0\n[convolutional]\nbatch_normalize=1\nfilters=1\nsize=1\nactivation=leaky\n" HEAD,
        3);
    kolo_weights *w = NULL;
    const int trunk = 10, middle = 6, outputs = 3 * (5 + 1); /* of one class */
    is_int(open_numbers(&w, g, 0, trunk + 3 * outputs + middle + 2 * outputs), 0,
           "a detector of one class for a network of 3 (%s)", kolo_error_text());
    ok(holds(w, "module_list.1.conv.weight", 4, outputs, 2, 1, 1, trunk + outputs),
       "the first head has 18 outputs");
    ok(holds(w, "module_list.4.conv.weight", 4, 1, 2, 1, 1, trunk + 3 * outputs + 4),
       "what stands behind it is where it should be");
    ok(holds(w, "module_list.5.conv.bias", 1, outputs, 0, 0, 0, trunk + 3 * outputs + middle),
       "and the second head has 18 too");
    kolo_weights_close(&w);
    is_int(open_numbers(&w, g, 0, trunk + 3 * outputs + middle + 2 * outputs + 1), KOLO_EINPUT,
           "a number too many: %s", kolo_error_text());
    kolo_graph_destroy(&g);
}

/* The graph of a training on a GPU, where norm, relu and max pool are one operation. */
static void joined(void)
{
    const kolo_model_config config = {.rows = 1,
                                      .height = 32,
                                      .width = 32,
                                      .channels = 3,
                                      .classes = 10,
                                      .std = {1, 1, 1},
                                      .train = true,
                                      .device = true};
    kolo_graph *g = NULL;
    kolo_weights *w = NULL;
    int norms = 0;
    if (kolo_model_graph(&g, "resnet18", &config) < 0) printf("Bail out! %s\n", kolo_error_text()), exit(1);
    for (int64_t i = 0; i < g->nodes; i++) norms += g->node[i].op == KOLO_OP_norm_max_pool;
    is_int(norms, 1, "a norm that is done with a max pool");
    is_int(open_numbers(&w, g, 1, 4 * 64 + 64 * 3 * 49), 0, "is found (%s)", kolo_error_text());
    ok(holds(w, "bn1.weight", 1, 64, 0, 0, 0, 65), "with its parameters");
    kolo_weights_close(&w);
    kolo_graph_destroy(&g);
}

int main(void)
{
    if (!mkdtemp(folder)) return 1;
    snprintf(cfg, sizeof cfg, "%s/net.cfg", folder);
    snprintf(path, sizeof path, "%s/net.weights", folder);
    order();
    heads();
    joined();
    unlink(cfg);
    unlink(path);
    rmdir(folder);
    return done_testing();
}
