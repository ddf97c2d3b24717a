/* spatial=ROWSxCOLUMNS[,MODULE:ROWSxCOLUMNS ...]: what images are cut into, and layers further on. */
#include <stdio.h>
#include <string.h>

#include "kolo/error.h"
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
        "2x2, then those of later layers, such as 2x2,layer3:1x2,layer4:1x1",
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
    if (!parse_parts(parts, range->parts)) return malformed(s, "no rows and columns behind a module");
    s->cut_ranges++;
    return 0;
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
    if (s->options->halo == KOLO_halo_wide && (s->parts & KOLO_SESSION_TRAIN) &&
        s->spatial[0] * s->spatial[1] == 1)
        return kolo_fail(KOLO_ECONFIG,
                         "halo=wide: spatial=%s cuts no images, so there are no halos; give "
                         "parts, such as spatial=2x2, or leave halo= out",
                         s->options->spatial);
    return 0;
}
