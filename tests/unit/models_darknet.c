/* Networks of darknet: cfg files beside the built-in networks and published figures, clear refusals. */
#include <stdarg.h>
#include <unistd.h>

#include "kolo/error.h"
#include "models/models.h"
#include "tap.h"

static char folder[64], path[128];

static const char *put(const char *text)
{
    snprintf(path, sizeof path, "%s/net.cfg", folder);
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f)) printf("Bail out! %s\n", path), exit(1);
    return path;
}

static kolo_graph *build(const char *name, int64_t classes, bool train)
{
    const kolo_model_config config = {.rows = 1, .classes = classes, .std = {1, 1, 1, 1}, .train = train};
    kolo_graph *g = NULL;
    if (kolo_model_graph(&g, name, &config) < 0) diag("%s: %s", name, kolo_error_text());
    return g;
}

/* The published file, but for what concerns training. */
#define CONV(filters, size)                                                 \
    "[convolutional]\nbatch_normalize=1\nfilters=" #filters "\nsize=" #size \
    "\nstride=1\npad=1\nactivation=leaky\n\n"
#define PLAIN "[convolutional]\nsize=1\nstride=1\npad=1\nfilters=255\nactivation=linear\n\n"
#define POOL(stride) "[maxpool]\nsize=2\nstride=" #stride "\n\n"
#define YOLO(mask)                                                                                  \
    "[yolo]\nmask = " mask                                                                          \
    "\nanchors = 10,14,  23,27,  37,58,  81,82,  135,169,  344,319\nclasses=80\nnum=6\njitter=.3\n" \
    "ignore_thresh = .7\ntruth_thresh = 1\nrandom=1\n\n"
static const char tiny[] =
    "[net]\n# Training\nbatch=64\nsubdivisions=2\nwidth=416\nheight=416\nchannels=3\nlearning_rate=0.001\n"
    "policy=steps\nsteps=400000,450000\nscales=.1,.1\n\n" CONV(16, 3) POOL(2) CONV(32, 3) POOL(2) CONV(64, 3)
        POOL(2) CONV(128, 3) POOL(2) CONV(256, 3) POOL(2) CONV(512, 3) POOL(1)
            CONV(1024, 3) "###########\n" CONV(256, 1) CONV(512, 3)
                PLAIN YOLO("3,4,5") "[route]\nlayers = -4\n\n" CONV(
                    128, 1) "[upsample]\nstride=2\n\n[route]\nlayers = -1, 8\n\n" CONV(256, 3)
                    PLAIN YOLO("0,1,2");

static bool same_attributes(const kolo_attributes *a, const kolo_attributes *b)
{
    return !memcmp(a->kernel, b->kernel, sizeof a->kernel) &&
           !memcmp(a->stride, b->stride, sizeof a->stride) && !memcmp(a->pad, b->pad, sizeof a->pad) &&
           !memcmp(a->beyond, b->beyond, sizeof a->beyond) && a->activation == b->activation &&
           a->slope == b->slope && !memcmp(a->anchor, b->anchor, sizeof a->anchor) &&
           !memcmp(a->mask, b->mask, sizeof a->mask);
}

static bool same(const kolo_graph *a, const kolo_graph *b)
{
    bool same = a && b && a->tensors == b->tensors && a->nodes == b->nodes;
    for (int64_t t = 0; same && t < a->tensors; t++)
        same = !strcmp(a->tensor[t].name, b->tensor[t].name) && a->tensor[t].rank == b->tensor[t].rank &&
               !memcmp(a->tensor[t].dim, b->tensor[t].dim, (size_t)a->tensor[t].rank * sizeof(int64_t));
    for (int64_t i = 0; same && i < a->nodes; i++)
        same = a->node[i].op == b->node[i].op && same_attributes(&a->node[i].a, &b->node[i].a);
    return same;
}

/* Floats of a .weights file: all parameters and running statistics. */
static int64_t stored(const kolo_graph *g)
{
    int64_t sum = 0;
    for (int64_t t = 0; t < g->tensors; t++)
        if (g->tensor[t].role == KOLO_ROLE_PARAM || g->tensor[t].role == KOLO_ROLE_BUFFER)
            sum += kolo_tensor_count(&g->tensor[t]);
    return sum;
}

static void published(void)
{
    kolo_graph *cfg = build(put(tiny), 0, true), *own = build("yolov3_tiny", 0, true),
               *big = build("yolov3", 0, false);
    ok(same(cfg, own), "yolov3-tiny.cfg and yolov3_tiny are one network");
    is_int(stored(own), 8858734, "yolov3-tiny.weights holds so many floats");
    is_int(stored(big), 62001757, "and yolov3.weights so many");
    ok(big->heads == 3 && kolo_graph_find(big, "module_list.105.conv.bias") >= 0 &&
           kolo_graph_find(big, "module_list.81.conv.bias") >= 0 &&
           kolo_graph_find(big, "module_list.93.conv.bias") >= 0,
       "its three heads are layers 81, 93, 105");
    const kolo_tensor *const fine = &big->tensor[big->head[0]];
    ok(fine->dim[2] == 52 && big->tensor[big->head[2]].dim[2] == 13 && fine->dim[1] == 255,
       "finest first: 52, 26, 13");
    kolo_graph_destroy(&cfg);
    cfg = build(path, 3, true);
    is_int(cfg ? cfg->tensor[cfg->head[0]].dim[1] : 0, 24, "with 3 classes its heads have 24 channels");
    kolo_graph_destroy(&cfg);
    kolo_graph_destroy(&own);
    kolo_graph_destroy(&big);
    const kolo_model *m = kolo_model_find(path);
    float mean[4], std[4];
    ok(m && m->height == 416 && m->classes == 80 && !strcmp(m->detector, "yolov3") &&
           kolo_model_pixels(m, mean, std) && mean[0] == 0 && std[2] == 1,
       "the file says 416 pixels from 0 to 1, and boxes of 80 classes");
}

static void classifier(void)
{
    static const char text[] =
        "[net]\nheight=64 ; a "
        "remark\nwidth=48\n\n[convolutional]\nfilters=8\nsize=3\npad=1\nactivation=swish\n"
        "[convolutional]\nfilters=7\n activation = linear\r\n[avgpool]\n[softmax]\n";
    kolo_graph *g = build(put(text), 0, true);
    ok(g && g->classes == 7 && g->tensor[g->input].dim[1] == 64 && g->tensor[g->input].dim[2] == 48,
       "a classifier of 7 classes, 64 x 48");
    kolo_graph_destroy(&g);
    g = build(path, 12, false);
    ok(g && g->classes == 12, "or of 12, if the recipe says so");
    kolo_graph_destroy(&g);
    g = build(
        put("[net]\nheight=8\nwidth=8\n[convolutional]\nfilters=3\nactivation=gelu\n[avgpool]\n[softmax]\n"),
        0, false);
    int64_t tanh_form = 0;
    for (int64_t i = 0; g && i < g->nodes; i++)
        tanh_form += g->node[i].op == KOLO_OP_activation && g->node[i].a.activation == KOLO_GELU_TANH;
    is_int(tanh_form, 1, "gelu is the approximation that darknet has");
    kolo_graph_destroy(&g);
}

static void refused(const char *what, const char *word, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void refused(const char *what, const char *word, const char *format, ...)
{
    char text[4096];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    const kolo_model_config config = {.rows = 1, .std = {1, 1, 1, 1}, .train = true};
    kolo_graph *g = NULL;
    const int rc = kolo_model_graph(&g, put(text), &config);
    ok(rc == KOLO_ECONFIG && !g && strstr(kolo_error_text(), word), "%s: %s", what,
       kolo_error_text() + strlen(folder));
    kolo_graph_destroy(&g);
}

static void bad_files(void)
{
    const char *const net = "[net]\nwidth=32\nheight=32\n",
                      *const conv = "[convolutional]\nfilters=21\nsize=1\nactivation=linear\n",
                      *const yolo = "[yolo]\nanchors=1,2,3,4,5,6\nclasses=2\n";
    refused("an empty file", "[net]", "\n# nothing\n");
    refused("another beginning", ":1:", "%s", conv);
    refused("no section", "neither [section] nor key=value", "%swords\n", net);
    refused("a word for a number", ":3: [net] height=x", "[net]\nwidth=32\nheight=x\n%s", conv);
    refused("a side of 9999", "1 to 8192", "[net]\nwidth=9999\n%s", conv);
    refused("said twice", "twice", "[net]\nwidth=32\nwidth=64\n%s", conv);
    refused("an unknown layer", ":4: [lstm]", "%s[lstm]\n%s", net, conv);
    refused("an unknown key", "dilation=2", "%s[convolutional]\nfilters=2\ndilation=2\nactivation=linear\n",
            net);
    refused("an unknown activation", "activation=mish", "%s[convolutional]\nfilters=2\nactivation=mish\n",
            net);
    refused("no activation", "activation is missing", "%s[convolutional]\nfilters=2\n[avgpool]\n", net);
    refused("a layer to come", "refers to layer 7", "%s%s[route]\nlayers=7\n", net, conv);
    refused("a layer before the first", ":8: [shortcut]", "%s%s[shortcut]\nfrom=-5\n%s", net, conv, conv);
    refused("half of a layer", "whole numbers", "%s%s[route]\nlayers=-1.5\n", net, conv);
    refused("no such group", "group_id=2", "%s%s[route]\nlayers=-1\ngroups=2\ngroup_id=2\n%s", net, conv,
            conv);
    refused("groups that do not divide", "no group", "%s%s[route]\nlayers=-1\ngroups=5\n%s", net, conv, conv);
    refused("maps of two sizes",
            "size=", "%s%s[maxpool]\nsize=2\nstride=2\n[route]\nlayers=-1,0\n%s%smask=0,1,2\n", net, conv,
            conv, yolo);
    refused("an anchor that is not there", "mask=0,1,3", "%s%s%smask=0,1,3\n", net, conv, yolo);
    refused("two anchors a head", "three anchors", "%s%s%smask=0,1\n", net, conv, yolo);
    refused("no anchors", "anchors is missing", "%s%s[yolo]\nclasses=2\nmask=0,1,2\n", net, conv);
    refused("one anchor thrice", "mask=0,0,0", "%s%s%smask=0,0,0\n", net, conv, yolo);
    refused("other anchors than the first's", ":17: [yolo] anchors=1,2,3,4,5,7",
            "%s%s%smask=0,1,2\n%s[yolo]\nanchors=1,2,3,4,5,7\nclasses=2\nmask=0,1,2\n", net, conv, yolo,
            conv);
    refused("other classes than the first's", ":18: [yolo] classes=3",
            "%s%s%smask=0,1,2\n%s[yolo]\nanchors=1,2,3,4,5,6\nclasses=3\nmask=0,1,2\n", net, conv, yolo,
            conv);
    refused("an odd number of anchors' sides", "a width and a height",
            "%s%s[yolo]\nclasses=2\nmask=0,1,2\nanchors=1,2,3,4,5,6,7\n", net, conv);
    refused("another threshold", "ignore_thresh=.5", "%s%s%smask=0,1,2\nignore_thresh=.5\n", net, conv, yolo);
    refused("a layer before all", "no layer before it", "%s[route]\nlayers=0\n%s", net, conv);
    refused("a section without its bracket", ":4: \"[convolutional\": the name of a section in brackets",
            "%s[convolutional\n%s", net, conv);
    refused("an end that is none", "end it with [yolo], or with [avgpool]", "%s%s", net, conv);
    refused("a head that is none", "are not a head's", "%s%s[maxpool]\nsize=2\nstride=2\n%smask=0,1,2\n", net,
            "[convolutional]\nfilters=8\nactivation=linear\n", yolo);
    const kolo_model_config config = {.rows = 1, .std = {1, 1, 1, 1}};
    kolo_graph *g;
    ok(kolo_model_graph(&g, "/nonexistent/x.cfg", &config) < 0 &&
           strstr(kolo_error_text(), "/nonexistent/x.cfg"),
       "a file that is not there: %s", kolo_error_text());
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/kolo-darknet-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    published();
    classifier();
    bad_files();
    unlink(path);
    rmdir(folder);
    return done_testing();
}
