/* spatial=ROWSxCOLUMNS[,MODULE:ROWSxCOLUMNS ...][,MODULE:tensor[=PARTS] ...]: what images are cut into, and
 * layers further on; from a module on, channels instead. */
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
        "2x2, then those of later layers, such as 2x2,layer3:1x2,layer4:1x1, or tensor=N, where channels are "
        "cut instead of maps: 2x2,layer4:tensor=4",
        s->options->spatial, why);
}

/* "tensor", as many parts as the image, or "tensor=PARTS"; 0: neither. */
static int parse_channels(const kolo_session *s, const char *text)
{
    int parts;
    char rest;
    if (!strcmp(text, "tensor")) return s->spatial[0] * s->spatial[1];
    return sscanf(text, "tensor=%4d%c", &parts, &rest) == 1 && parts > 0 ? parts : 0;
}

static int parse_range(kolo_session *s, char *text)
{
    char *parts = strrchr(text, ':');
    if (s->cut_ranges == SESSION_CUT_RANGES) return malformed(s, "too many modules");
    kolo_cut_range *range = &s->cut_range[s->cut_ranges];
    const bool behind = s->cut_ranges && range[-1].channels;
    if (!parts || parts == text)
        return malformed(s, "no module and its parts, MODULE:ROWSxCOLUMNS or MODULE:tensor=PARTS");
    *parts++ = 0;
    if ((size_t)snprintf(range->from, sizeof range->from, "%s", text) >= sizeof range->from)
        return malformed(s, "a module of such a long name there is not");
    range->channels = parse_channels(s, parts);
    if (range->channels) range->parts[0] = range->parts[1] = 1;
    else if (behind) return malformed(s, "where channels are cut maps are whole, and so are all behind");
    else if (!parse_parts(parts, range->parts))
        return malformed(s, "neither rows and columns nor tensor=PARTS behind a module");
    s->cut_ranges++;
    return 0;
}

/* Channels of late layers have the ranks of the image's parts; those of all layers ranks of their own. */
static int check_channels(const kolo_session *s)
{
    if (!s->cut_ranges || !s->cut_range[s->cut_ranges - 1].channels) return 0;
    const kolo_cut_range *last = &s->cut_range[s->cut_ranges - 1];
    if (s->options->tensor > 1)
        return kolo_fail(KOLO_ECONFIG,
                         "spatial=%s: channels from %s on, and tensor=%ld: channels of all layers; give one "
                         "of them",
                         s->options->spatial, last->from, (long)s->options->tensor);
    if (kolo_is_adasum(s->options))
        return kolo_fail(KOLO_ECONFIG,
                         "spatial=%s: reduce=adasum combines whole tensors, and channels from %s on are in "
                         "parts; use reduce=fast or reduce=canonical",
                         s->options->spatial, last->from);
    for (int r = 0; r < s->cut_ranges; r++)
        if (s->cut_range[r].channels > KOLO_MAX_ARGS)
            return kolo_fail(KOLO_ECONFIG, "spatial=: %s:tensor=%d: up to %d parts are possible",
                             s->cut_range[r].from, s->cut_range[r].channels, KOLO_MAX_ARGS);
    for (int r = 0; r < s->cut_ranges; r++)
        if (s->cut_range[r].channels > 1) return 0;
    return malformed(s, "channels in one part are not cut: the image is in one; say how many, tensor=PARTS");
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
