/* darknet's cfg files: sections of key=value, a layer each, read as far as they say what the network is. How
 * it is trained is the recipe's affair, so the keys of [net] that are about that are passed over. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#include "base/file.h"
#include "kolo/error.h"
#include "models/darknet.h"

enum { KEYS = 48, LONGEST = 1 << 20 };

typedef struct section {
    int line;
    char *name; /* without brackets */
    int keys;
    char *key[KEYS], *value[KEYS];
    int key_line[KEYS];
} section;

typedef struct cfg {
    const char *path;
    char *text, *next; /* next: where reading goes on */
    int line;
    section s; /* the one at hand */
} cfg;

/* What is wrong in the section at hand; key: NULL, or the key that it is about. */
static int wrong(const cfg *c, const char *key, const char *what)
{
    for (int i = 0; key && i < c->s.keys; i++)
        if (!strcmp(c->s.key[i], key))
            return kolo_fail(KOLO_ECONFIG, "%s:%d: [%s] %s=%s: %s", c->path, c->s.key_line[i], c->s.name, key,
                             c->s.value[i], what);
    return kolo_fail(KOLO_ECONFIG, "%s:%d: [%s] %s%s%s", c->path, c->s.line, c->s.name, key ? key : "",
                     key ? " is missing: " : "", what);
}

/* ---- sections ------------------------------------------------------------------------------------------ */

/* The next line that says something, without remarks and (as darknet reads it) without any
 * blanks; NULL: the end. */
static char *next_line(cfg *c)
{
    while (*c->next) {
        char *line = c->next, *to = line;
        const size_t length = strcspn(line, "\n");
        c->next = line + length + (line[length] == '\n');
        c->line++;
        for (size_t i = 0; i < length && line[i] != '#' && line[i] != ';'; i++)
            if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') *to++ = line[i];
        if (to == line) continue;
        *to = 0;
        return line;
    }
    return NULL;
}

/* Where the next line that says something begins. */
static const char *ahead(const cfg *c)
{
    const char *at = c->next + strspn(c->next, " \t\r\n");
    while (*at == '#' || *at == ';') {
        at += strcspn(at, "\n");
        at += strspn(at, " \t\r\n");
    }
    return at;
}

static int read_pair(cfg *c, char *line)
{
    section *s = &c->s;
    char *equals = strchr(line, '=');
    if (!equals || equals == line)
        return kolo_fail(KOLO_ECONFIG, "%s:%d: \"%.40s\" is neither [section] nor key=value", c->path,
                         c->line, line);
    if (s->keys == KEYS)
        return kolo_fail(KOLO_ECONFIG, "%s:%d: [%s] has more than %d keys", c->path, c->line, s->name, KEYS);
    *equals = 0;
    for (int i = 0; i < s->keys; i++)
        if (!strcmp(s->key[i], line)) return wrong(c, line, "is said twice in this section; leave one out");
    s->key[s->keys] = line;
    s->value[s->keys] = equals + 1;
    s->key_line[s->keys++] = c->line;
    return 0;
}

/* Reads the next section: 1; 0 at the end. */
static int next_section(cfg *c)
{
    char *line = next_line(c);
    if (!line) return 0;
    const size_t length = strlen(line);
    if (*line != '[' || length < 3 || line[length - 1] != ']')
        return kolo_fail(KOLO_ECONFIG,
                         "%s:%d: \"%.40s\": the name of a section in brackets is meant, such as [net]",
                         c->path, c->line, line);
    line[length - 1] = 0;
    c->s = (section){.line = c->line, .name = line + 1};
    while (*ahead(c) != '[' && (line = next_line(c))) KOLO_TRY(read_pair(c, line));
    return 1;
}

/* ---- values -------------------------------------------------------------------------------------------- */

static const char *value_of(const cfg *c, const char *key)
{
    for (int i = 0; i < c->s.keys; i++)
        if (!strcmp(c->s.key[i], key)) return c->s.value[i];
    return NULL;
}

/* A whole number from `low` to `high`; where it is not there `absent`. */
static int number(const cfg *c, const char *key, long low, long high, long absent, long *value)
{
    const char *text = value_of(c, key);
    *value = absent;
    if (!text) return 0;
    char *end, say[96];
    *value = strtol(text, &end, 10);
    if (end != text && !*end && *value >= low && *value <= high) return 0;
    snprintf(say, sizeof say, "a whole number from %ld to %ld is meant", low, high);
    return wrong(c, key, say);
}

/* Numbers, comma separated: how many, or a failure. */
static int numbers(const cfg *c, const char *key, double low, double high, int most, double *value)
{
    const char *text = value_of(c, key);
    int n = 0;
    if (!text) return wrong(c, key, "this layer cannot do without");
    while (*text && n < most) {
        char *end;
        value[n] = strtod(text, &end);
        if (end == text || (*end && *end != ',') || !(value[n] >= low && value[n] <= high)) break;
        n++;
        if (!*end) return n;
        text = end + 1;
    }
    char say[128];
    snprintf(say, sizeof say, "at most %d numbers from %g to %g, comma separated, are meant", most, low,
             high);
    return wrong(c, key, say);
}

/* Refuses keys that are not among the words of `known`: they may change the network. */
static int only(const cfg *c, const char *known)
{
    for (int i = 0; i < c->s.keys; i++) {
        char word[64];
        snprintf(word, sizeof word, " %.60s ", c->s.key[i]);
        if (!strstr(known, word))
            return wrong(c, c->s.key[i],
                         "is not known here; leave it out if the network does not depend on it");
    }
    return 0;
}

static bool is_convolution(const cfg *c)
{
    return !strcmp(c->s.name, "convolutional") || !strcmp(c->s.name, "conv");
}

/* ---- layers -------------------------------------------------------------------------------------------- */

static int read_activation(const cfg *c, kolo_darknet_conv *conv)
{
    static const struct {
        const char *word;
        enum kolo_activation activation;
    } table[] = {{"leaky", KOLO_LEAKY_RELU},
                 {"swish", KOLO_SILU},
                 {"logistic", KOLO_SIGMOID},
                 {"tanh", KOLO_TANH},
                 {"gelu", KOLO_GELU_TANH}}; /* darknet has the approximation */
    const char *word = value_of(c, "activation");
    conv->linear = word && !strcmp(word, "linear");
    if (conv->linear) return 0;
    for (size_t i = 0; word && i < sizeof table / sizeof *table; i++)
        if (!strcmp(word, table[i].word)) {
            conv->activation = table[i].activation;
            return 0;
        }
    return wrong(c, "activation", "linear, leaky, swish, logistic, tanh and gelu are known here");
}

/* head: channels instead of `filters`, where not 0 */
static int convolutional(const cfg *c, kolo_darknet *d, int64_t head)
{
    long filters, size, stride, pad, padding, groups, norm;
    kolo_darknet_conv conv = {0};
    KOLO_TRY(only(c, " batch_normalize filters size stride pad padding groups activation "));
    KOLO_TRY(number(c, "filters", 1, 65536, 1, &filters));
    KOLO_TRY(number(c, "size", 1, 64, 1, &size));
    KOLO_TRY(number(c, "stride", 1, 64, 1, &stride));
    KOLO_TRY(number(c, "pad", 0, 1, 0, &pad));
    KOLO_TRY(number(c, "padding", 0, 64, 0, &padding));
    KOLO_TRY(number(c, "groups", 1, 65536, 1, &groups));
    KOLO_TRY(number(c, "batch_normalize", 0, 1, 0, &norm));
    KOLO_TRY(read_activation(c, &conv));
    conv.out = head ? head : filters;
    conv.kernel = size;
    conv.stride = stride;
    conv.pad = pad ? size / 2 : padding;
    conv.groups = groups;
    conv.norm = norm;
    return kolo_darknet_convolution(d, &conv);
}

static int maxpool(const cfg *c, kolo_darknet *d)
{
    long size, stride, padding;
    KOLO_TRY(only(c, " size stride padding "));
    KOLO_TRY(number(c, "stride", 1, 64, 1, &stride));
    KOLO_TRY(number(c, "size", 1, 16, stride, &size));
    KOLO_TRY(number(c, "padding", size - 1, size - 1, size - 1, &padding));
    return kolo_darknet_maxpool(d, size, stride);
}

static int route(const cfg *c, kolo_darknet *d)
{
    double from[8];
    int layer[8];
    long groups, group;
    KOLO_TRY(only(c, " layers groups group_id "));
    const int n = numbers(c, "layers", -KOLO_DARKNET_LAYERS, KOLO_DARKNET_LAYERS, 8, from);
    if (n < 0) return n;
    for (int i = 0; i < n; i++)
        if ((layer[i] = (int)from[i]) != from[i]) return wrong(c, "layers", "layers are whole numbers");
    KOLO_TRY(number(c, "groups", 1, 65536, 1, &groups));
    KOLO_TRY(number(c, "group_id", 0, groups - 1, 0, &group));
    return kolo_darknet_route(d, n, layer, (int)groups, (int)group);
}

static int shortcut(const cfg *c, kolo_darknet *d)
{
    long from;
    const char *activation = value_of(c, "activation");
    KOLO_TRY(only(c, " from activation "));
    if (!value_of(c, "from")) return wrong(c, "from", "the layer to be added, such as -3");
    KOLO_TRY(number(c, "from", -KOLO_DARKNET_LAYERS, KOLO_DARKNET_LAYERS, 0, &from));
    if (activation && strcmp(activation, "linear")) return wrong(c, "activation", "linear is known here");
    return kolo_darknet_shortcut(d, (int)from);
}

static int upsample(const cfg *c, kolo_darknet *d)
{
    long stride;
    KOLO_TRY(only(c, " stride "));
    KOLO_TRY(number(c, "stride", 1, 16, 2, &stride));
    return kolo_darknet_upsample(d, stride);
}

/* Anchors, one list for all heads, of which this head has three. Of training, ignore_thresh is as the loss
 * has it, and the rest is the recipe's. */
static int yolo(const cfg *c, kolo_darknet *d)
{
    double mask[3], anchor[18], ignore = 0.7;
    int32_t mine[3];
    KOLO_TRY(only(c, " mask anchors classes num jitter ignore_thresh truth_thresh random "));
    const int masks = numbers(c, "mask", 0, 8, 3, mask),
              n = masks < 0 ? masks : numbers(c, "anchors", 1e-3, 1e5, 18, anchor);
    if (n < 0) return n;
    if (masks != 3) return wrong(c, "mask", "three anchors for each head are known here");
    if (n % 2) return wrong(c, "anchors", "a width and a height for each");
    for (int i = 0; i < 3; i++) {
        mine[i] = (int32_t)mask[i];
        if (mine[i] != mask[i] || 2 * mine[i] >= n)
            return wrong(c, "mask", "numbers of anchors that are there");
        for (int k = 0; k < i; k++)
            if (mine[k] == mine[i]) return wrong(c, "mask", "three different anchors are meant");
    }
    if (value_of(c, "ignore_thresh")) KOLO_TRY(numbers(c, "ignore_thresh", 0.7, 0.7, 1, &ignore));
    float all[9][2] = {{0}};
    for (int i = 0; i < n; i++) all[i / 2][i % 2] = (float)anchor[i];
    if (d->heads && memcmp(all, d->anchor, sizeof all))
        return wrong(c, "anchors", "the first [yolo] has others; one list for all is known here");
    memcpy(d->anchor, all, sizeof all);
    return kolo_darknet_yolo(d, mine);
}

static int add_layer(const cfg *c, kolo_darknet *d, int64_t head)
{
    const char *name = c->s.name;
    if (is_convolution(c)) return convolutional(c, d, head);
    if (!strcmp(name, "maxpool")) return maxpool(c, d);
    if (!strcmp(name, "route")) return route(c, d);
    if (!strcmp(name, "shortcut")) return shortcut(c, d);
    if (!strcmp(name, "upsample")) return upsample(c, d);
    if (!strcmp(name, "yolo")) return yolo(c, d);
    if (!strcmp(name, "avgpool")) return kolo_darknet_avgpool(d);
    if (!strcmp(name, "softmax") || !strcmp(name, "cost")) return kolo_darknet_softmax(d);
    return wrong(
        c, NULL,
        "is no layer known here: convolutional, maxpool, route, shortcut, upsample, yolo, avgpool, softmax");
}

/* Says where, too, when the graph refuses a layer. */
static int one_layer(const cfg *c, kolo_darknet *d, int64_t head)
{
    const int rc = add_layer(c, d, head);
    return rc >= 0 || !strncmp(kolo_error_text(), c->path, strlen(c->path))
               ? rc
               : kolo_fail_in(rc, "%s:%d: [%s]: ", c->path, c->s.line, c->s.name);
}

/* ---- files --------------------------------------------------------------------------------------------- */

static int open_cfg(cfg *c, const char *path)
{
    *c = (cfg){.path = path};
    KOLO_TRY(kolo_file_read(path, &c->text, NULL));
    c->next = c->text;
    if (strlen(c->text) > LONGEST)
        return kolo_fail(KOLO_ECONFIG, "%s: more than %d bytes; that is no cfg file", path, LONGEST);
    const int rc = next_section(c);
    if (rc < 0) return rc;
    if (rc == 0 || (strcmp(c->s.name, "net") && strcmp(c->s.name, "network")))
        return kolo_fail(KOLO_ECONFIG, "%s:%d: a file begins with [net]", path, rc ? c->s.line : c->line);
    return 0;
}

/* What a file says of itself. head: section of a classifier's last convolution, which makes its classes. */
typedef struct about {
    long height, width, channels, classes;
    bool detector;
    int head;
} about;

static int scan_layers(cfg *c, about *a)
{
    int rc;
    for (int i = 0; (rc = next_section(c)) > 0; i++) {
        if (!strcmp(c->s.name, "yolo")) {
            const long before = a->detector ? a->classes : 0;
            KOLO_TRY(number(c, "classes", 1, 1 << 20, 20, &a->classes));
            if (before && before != a->classes)
                return wrong(c, "classes", "the first [yolo] has another number of them");
            a->detector = true;
        } else if (is_convolution(c) && !a->detector) {
            KOLO_TRY(number(c, "filters", 1, 65536, 1, &a->classes));
            a->head = i;
        }
    }
    return rc;
}

static int scan(const char *path, about *a)
{
    cfg c;
    int rc;
    *a = (about){.head = -1};
    KOLO_TRY_GOTO(rc, open_cfg(&c, path));
    KOLO_TRY_GOTO(rc, number(&c, "height", 1, 8192, 416, &a->height));
    KOLO_TRY_GOTO(rc, number(&c, "width", 1, 8192, 416, &a->width));
    KOLO_TRY_GOTO(rc, number(&c, "channels", 1, 4, 3, &a->channels));
    KOLO_TRY_GOTO(rc, scan_layers(&c, a));
    if (!a->detector && a->head < 0)
        rc = kolo_fail(KOLO_ECONFIG, "%s: there is neither [yolo] nor [convolutional]", path);
fail:
    free(c.text);
    return rc;
}

/* The layers before [yolo], and a classifier's last convolution, have the channels that
 * the class count wants. */
static int build_layers(cfg *c, kolo_darknet *d, const about *a, int64_t classes)
{
    int rc;
    for (int i = 0; (rc = next_section(c)) > 0; i++) {
        const int64_t head = a->detector    ? (!strncmp(ahead(c), "[yolo]", 6) ? 3 * (5 + classes) : 0)
                             : i == a->head ? classes
                                            : 0;
        KOLO_TRY(one_layer(c, d, head));
    }
    return rc;
}

static int build_cfg(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    cfg c;
    about a;
    kolo_darknet d = {.g = g, .classes = config->classes, .input = x};
    KOLO_TRY(scan(model->name, &a));
    int rc = open_cfg(&c, model->name);
    if (rc >= 0) rc = build_layers(&c, &d, &a, config->classes);
    free(c.text);
    return rc < 0 ? rc : kolo_darknet_finish(&d);
}

const kolo_model *kolo_darknet_model(const char *path)
{
    static _Thread_local char name[4096];
    static _Thread_local kolo_model model;
    about a;
    if (strlen(path) >= sizeof name) {
        kolo_fail(KOLO_ECONFIG, "model=%.60s...: the path is too long", path);
        return NULL;
    }
    if (scan(path, &a) < 0) return NULL;
    if (path != name) snprintf(name, sizeof name, "%s", path);
    model = (kolo_model){.name = name,
                         .source = "a cfg file of darknet",
                         .height = a.height,
                         .width = a.width,
                         .channels = a.channels,
                         .classes = a.classes,
                         .build = build_cfg,
                         .detector = a.detector ? "yolov3" : NULL,
                         .pixels = KOLO_PIXELS_UNIT};
    return &model;
}
