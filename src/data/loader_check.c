/* What a loader can do with a configuration, and what it chooses where the configuration leaves it open. */
#include "base/memory.h"
#include "base/option.h"
#include "base/part.h"
#include "base/thread.h"
#include "data/augment/augment.h"
#include "data/loader_parts.h"
#include "data/shard/targets.h"
#include "kolo/error.h"

static int check_shape(const kolo_loader_config *c)
{
    if (c->channels != 1 && c->channels != 3)
        return kolo_fail(KOLO_ECONFIG, "loader: %d channels; 1 or 3 are possible", c->channels);
    const kolo_sides *s = &c->sides;
    if (s->low && (!c->train || s->low < 1 || s->step < 1 || s->every < 1 ||
                   s->low + (kolo_sides_count(s) - 1) * s->step != c->height || c->width != c->height))
        return kolo_fail(KOLO_EINTERNAL, "loader: sides %d to %d of images of %d x %d", s->low, s->high,
                         c->height, c->width);
    if (c->height < 1 || c->width < 1 || c->height > 8192 || c->width > 8192)
        return kolo_fail(KOLO_ECONFIG, "loader: images of %d x %d pixels; 1 to 8192 a side are possible",
                         c->height, c->width);
    if (c->dataset) {
        const kolo_dataset_info *info = kolo_dataset_get_info(c->dataset);
        if (info->channels == 3 && c->channels == 1)
            return kolo_fail(
                KOLO_EINPUT,
                "data set %s has colour images, the network takes 1 channel; pack again with --color gray",
                info->name);
        if (info->classes > c->classes)
            return kolo_fail(KOLO_EINPUT, "data set %s has %d classes, the network %d; set classes=%d",
                             info->name, info->classes, c->classes, info->classes);
    }
    return 0;
}

static int64_t choose_words(const kolo_loader_config *c)
{
    if (c->image_labels) return 2 * (int64_t)c->classes;
    if (c->train && c->class_weight) return 2;
    return c->words ? c->words : c->train && kolo_mix_wanted(&c->mix) ? 3 : 1;
}

/* Labels of the whole split, as many classes as the network has. */
static int check_image_labels(const kolo_loader_config *c)
{
    const kolo_image_labels *l = c->image_labels;
    if (!c->dataset || l->samples != kolo_dataset_get_info(c->dataset)->count)
        return kolo_fail(KOLO_EINTERNAL, "loader: image labels of %lld samples", (long long)l->samples);
    if (l->classes == c->classes) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "the data set has image labels of %d classes, the network has %d; set classes=%d",
                     l->classes, c->classes, l->classes);
}

static int check_boxes(const kolo_loader_config *c)
{
    const kolo_targets *t = c->dataset ? kolo_dataset_targets(c->dataset) : NULL;
    if (c->channels != 3 || c->words % 5 != 1)
        return kolo_fail(KOLO_EINTERNAL, "loader: boxes in %d channels, %lld words", c->channels,
                         (long long)c->words);
    if (!c->dataset || (t && t->box_offset)) return 0;
    return kolo_fail(KOLO_EINPUT,
                     "data set %s has no boxes; pack a source that has them (COCO, VOC, YOLO, Open Images)",
                     kolo_dataset_get_info(c->dataset)->name);
}

static bool mixes(const kolo_loader_config *c)
{
    return c->train && !kolo_loader_has_boxes(c) && kolo_mix_wanted(&c->mix);
}

int loader_check(const kolo_loader_config *c, int64_t count)
{
    if (c->ranks < 1 || c->rank < 0 || c->rank >= c->ranks)
        return kolo_fail(KOLO_EINTERNAL, "loader: rank %d of %d", c->rank, c->ranks);
    if (c->batch < 1 || c->batch % c->ranks != 0)
        return kolo_fail(KOLO_ECONFIG, "batch=%lld does not divide among %d ranks; use a multiple of %d",
                         (long long)c->batch, c->ranks, c->ranks);
    if (count < 1) return kolo_fail(KOLO_EINPUT, "the data set has no samples");
    if (c->train && c->tail == KOLO_tail_drop && count < c->batch)
        return kolo_fail(
            KOLO_ECONFIG,
            "batch=%lld is larger than the data set (%lld samples); use a smaller batch or tail=pad",
            (long long)c->batch, (long long)count);
    const int64_t words = choose_words(c);
    if (c->image_labels) KOLO_TRY(check_image_labels(c));
    else if (kolo_loader_has_boxes(c)) KOLO_TRY(check_boxes(c));
    else if (words != 3 && (words > 2 || mixes(c) || (words == 2) != (c->train && c->class_weight)))
        return kolo_fail(KOLO_EINTERNAL, "loader: labels of %lld words", (long long)words);
    const int64_t unit = 2 * (c->repeat > 0 ? c->repeat : 1);
    if (mixes(c) && c->batch / c->ranks % unit != 0)
        return kolo_fail(
            KOLO_ECONFIG,
            "mixup and cutmix mix rows of one rank: batch=%lld gives each of %d ranks %lld rows, which is no "
            "multiple of %lld (2 x repeat); use a batch that is a multiple of %lld",
            (long long)c->batch, c->ranks, (long long)(c->batch / c->ranks), (long long)unit,
            (long long)(unit * c->ranks));
    if (c->parts && !(c->dataset && kolo_loader_cuts(c)))
        return kolo_fail(KOLO_EINTERNAL, "loader: parts of images that are changed as a whole");
    return check_shape(c);
}

bool kolo_loader_cuts(const kolo_loader_config *c)
{
    const bool changed = (c->augment && *c->augment) || kolo_mix_wanted(&c->mix) || kolo_loader_has_boxes(c);
    return c->train && !changed && !(c->serve && *c->serve);
}

static size_t sample_bytes(const kolo_loader_config *c, kolo_window window[KOLO_LOADER_PARTS])
{
    size_t bytes = c->parts ? 0 : (size_t)c->height * (size_t)c->width * (size_t)c->channels;
    for (int i = 0; i < c->parts; i++) {
        const int *g = c->grid, row = c->part[i] / g[1], column = c->part[i] % g[1];
        kolo_window *w = &window[i];
        w->top = (int)kolo_part_start(c->height, g[0], row);
        w->left = (int)kolo_part_start(c->width, g[1], column);
        w->height = (int)kolo_part_start(c->height, g[0], row + 1) - w->top;
        w->width = (int)kolo_part_start(c->width, g[1], column + 1) - w->left;
        bytes += (size_t)w->height * (size_t)w->width * (size_t)c->channels;
    }
    return bytes;
}

static size_t next_line(size_t at, size_t bytes) { return kolo_round_up(at + bytes, KOLO_ALIGN); }

void loader_lay_slot(loader_layout *l, int64_t rows, int64_t words, size_t pixels)
{
    *l = (loader_layout){.labels = next_line(0, pixels)};
    l->samples = next_line(l->labels, sizeof(int32_t) * (size_t)(rows * words));
    l->bytes = kolo_round_up(next_line(l->samples, sizeof(int64_t) * (size_t)rows), 4096);
}

void loader_point_slot(loader_slot *s, const loader_layout *l, uint8_t *base)
{
    s->pixels = base;
    s->labels = (int32_t *)(base + l->labels);
    s->samples = (int64_t *)(base + l->samples);
}

int loader_choose_slots(const kolo_loader_config *c) { return (c->prefetch > 0 ? c->prefetch : 3) + 1; }

size_t kolo_loader_memory_bytes(const kolo_loader_config *c)
{
    loader_layout layout;
    kolo_window window[KOLO_LOADER_PARTS];
    const size_t sample = sample_bytes(c, window);
    const int64_t rows = c->batch / c->ranks;
    loader_lay_slot(&layout, rows, choose_words(c), sample * (size_t)rows);
    return layout.bytes * (size_t)loader_choose_slots(c);
}

int loader_make_recipe(kolo_recipe *r, const kolo_loader_config *config)
{
    r->config = *config;
    r->config.augment = r->config.shuffle = r->config.serve = NULL; /* the caller's texts are not kept */
    r->config.node_of = NULL;
    if (!config->train || config->repeat < 1) r->config.repeat = 1;
    if (!mixes(config)) r->config.mix = (kolo_mix_config){0};
    r->config.words = choose_words(config);
    r->windows = config->parts;
    r->sample_bytes = sample_bytes(config, r->window);
    if (config->train)
        KOLO_TRY(kolo_augment_parse(config->augment, r->augment, KOLO_AUGMENT_MOST, &r->augments));
    if (!config->dataset) return 0;
    const kolo_dataset_info *info = kolo_dataset_get_info(config->dataset);
    kolo_view view;
    kolo_view_center(&view, config->height, config->width, config->height, config->width,
                     config->train ? 0 : config->resize);
    r->direct = !kolo_loader_has_boxes(config) && !r->windows && info->encoding == KOLO_ENCODING_RAW &&
                info->height == config->height && info->width == config->width &&
                info->channels == config->channels &&
                kolo_view_is_whole(&view, config->height, config->width);
    return 0;
}

/* Canvases and slots have room for the largest. */
int loader_make_sized(kolo_loader *l, const kolo_loader_config *config)
{
    const int sides = kolo_sides_count(&config->sides);
    if (!sides) return 0;
    l->sized = kolo_alloc((size_t)sides * sizeof *l->sized);
    if (!l->sized) return KOLO_ENOMEM;
    for (int i = 0; i < sides; i++) {
        kolo_loader_config one = *config;
        one.height = one.width = one.detect.height = one.detect.width =
            config->sides.low + i * config->sides.step;
        KOLO_TRY(loader_make_recipe(&l->sized[i], &one));
    }
    return 0;
}

int loader_choose_readers(const kolo_loader_config *c)
{
    if (c->readers > 0) return c->readers;
    if (!c->dataset) return 1;
    const int cpus = kolo_cpu_count();
    if (kolo_dataset_get_info(c->dataset)->encoding == KOLO_ENCODING_RAW) return cpus < 2 ? 1 : 2;
    return cpus < 16 ? cpus : 16;
}

/* Large chunks where a row costs a microsecond, single rows where it costs a decode; pairs that are
 * mixed stay together. */
int64_t loader_choose_chunk(const kolo_loader *l)
{
    const kolo_loader_config *c = &l->recipe.config;
    const bool jpeg = c->dataset && kolo_dataset_get_info(c->dataset)->encoding != KOLO_ENCODING_RAW;
    const int64_t share = (l->rows + 2 * l->readers - 1) / (2 * l->readers);
    const int64_t most = jpeg ? 4 : l->recipe.sample_bytes < 16384 ? 256 : 8;
    const int64_t chunk = share < most ? share : most, unit = kolo_mix_wanted(&c->mix) ? 2 * c->repeat : 1;
    return (chunk + unit - 1) / unit * unit;
}
