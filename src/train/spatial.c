/* spatial=ROWSxCOLUMNS[,MODULE:ROWSxCOLUMNS ...][,MODULE:tensor]: what images are cut into, and layers
 * further on; from the last module on, channels instead. */
#include <stdio.h>
#include <string.h>

#include "kolo/error.h"
#include "optim/optim.h"
#include "train/parts.h"

static bool parse_parts(const char *text, int parts[2])
{
    char rest;
    return sscanf(text, "%4dx%4d%c", &parts[0], &parts[1], &rest) == 2 && parts[0] > 0 && parts[1] > 0;
}

static int malformed(const kolo_session *s, const char *why)
{
    return kolo_fail(
        KOLO_ECONFIG,
        "spatial=%s: %s; give the rows and the columns of parts that images are cut into, such as "
        "2x2, then those of later layers, such as 2x2,layer3:1x2,layer4:1x1, or tensor, where channels are "
        "cut "
        "instead of maps: 2x2,layer4:tensor",
        s->options->spatial, why);
}

static int parse_range(kolo_session *s, char *text)
{
    char *parts = strrchr(text, ':');
    if (s->cut_ranges == SESSION_CUT_RANGES) return malformed(s, "too many modules");
    kolo_cut_range *range = &s->cut_range[s->cut_ranges];
    if (!parts || parts == text) return malformed(s, "no module and its parts, MODULE:ROWSxCOLUMNS");
    *parts++ = 0;
    if ((size_t)snprintf(range->from, sizeof range->from, "%s", text) >= sizeof range->from)
        return malformed(s, "a module of such a long name there is not");
    if (s->cut_ranges && s->cut_range[s->cut_ranges - 1].channels)
        return malformed(s, "where channels are cut maps are whole, and so is all behind");
    range->channels = !strcmp(parts, "tensor");
    if (range->channels) range->parts[0] = range->parts[1] = 1;
    else if (!parse_parts(parts, range->parts)) return malformed(s, "no rows and columns behind a module");
    s->cut_ranges++;
    return 0;
}

/* Channels of late layers have the ranks of the image's parts; those of all layers ranks of their own. */
static int check_channels(const kolo_session *s)
{
    if (!s->cut_ranges || !s->cut_range[s->cut_ranges - 1].channels) return 0;
    if (s->options->tensor > 1)
        return kolo_fail(KOLO_ECONFIG,
                         "spatial=%s: channels from %s on, and tensor=%ld: channels of all layers; give one "
                         "of them",
                         s->options->spatial, s->cut_range[s->cut_ranges - 1].from, (long)s->options->tensor);
    if (kolo_is_adasum(s->options))
        return kolo_fail(KOLO_ECONFIG,
                         "spatial=%s: reduce=adasum combines whole tensors, and channels from %s on are in "
                         "parts; use reduce=fast or reduce=canonical",
                         s->options->spatial, s->cut_range[s->cut_ranges - 1].from);
    if (s->spatial[0] * s->spatial[1] > 1) return 0;
    return malformed(s, "the image is in one part, so channels would be, too");
}

int session_parse_spatial(kolo_session *s)
{
    char text[1024], *rest = text;
    if ((size_t)snprintf(text, sizeof text, "%s", s->options->spatial) >= sizeof text)
        return malformed(s, "too long");
    const char *image = strsep(&rest, ",");
    if (!parse_parts(image, s->spatial)) return malformed(s, "no rows and columns");
    s->cut_ranges = 0;
    while (rest) KOLO_TRY(parse_range(s, strsep(&rest, ",")));
    KOLO_TRY(check_channels(s));
    if (s->options->halo == KOLO_halo_wide && (s->parts & KOLO_SESSION_TRAIN) &&
        s->spatial[0] * s->spatial[1] == 1)
        return kolo_fail(KOLO_ECONFIG,
                         "halo=wide: spatial=%s cuts no images, so there are no halos; give "
                         "parts, such as spatial=2x2, or leave halo= out",
                         s->options->spatial);
    return 0;
}
