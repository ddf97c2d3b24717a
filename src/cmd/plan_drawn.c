#include "cmd/plan_drawn.h"

#include "base/json.h"

static int rank_of(const kolo_session *s, int stage, int replica)
{
    return s->program ? kolo_grid_rank(&s->grid, stage, replica) : replica;
}

void kolo_drawn_ranks(const kolo_session *s, int stage, char *text, size_t size)
{
    const int n = s->replicas, first = rank_of(s, stage, 0), last = rank_of(s, stage, n - 1);
    if (n == 1) snprintf(text, size, "%d", first);
    else if (last - first == n - 1) snprintf(text, size, "%d..%d", first, last);
    else if (n == 2) snprintf(text, size, "%d, %d", first, last);
    else snprintf(text, size, "%d, %d .. %d", first, rank_of(s, stage, 1), last);
}

static const char *const lane_name[] = {"", ", sums", ", links"};

static const char *span_name(const kolo_play_span *p)
{
    if (p->lane == KOLO_PLAY_LINK) return "send";
    if (p->lane == KOLO_PLAY_SUM) return p->kind == KOLO_ACTION_GATHER ? "gather" : "reduction";
    return p->pass >= 0 ? kolo_pass_name[p->pass] : "rest";
}

void kolo_drawn_trace(FILE *f, const kolo_session *s, const kolo_play *p)
{
    fprintf(f, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    for (int k = 0; k < p->stages; k++) {
        char ranks[40];
        kolo_drawn_ranks(s, k, ranks, sizeof ranks);
        fprintf(f,
                "%s\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"stage %d: ranks "
                "%s\"}}",
                k ? "," : "", k, k, ranks);
        for (int lane = 0; lane < 3; lane++)
            fprintf(f,
                    ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":"
                    "\"stage %d%s\"}}",
                    k, lane, k, lane_name[lane]);
    }
    for (int64_t i = 0; i < p->spans; i++) {
        const kolo_play_span *a = &p->span[i];
        fprintf(f, ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,", span_name(a),
                span_name(a), a->stage, (int)a->lane);
        kolo_json_span(f, a->start, a->end);
        fprintf(f, ",\"args\":{\"micro_batch\":%d}}", a->slot);
    }
    fprintf(f, "\n]}\n");
}

/* ---- the SVG image ---- */

enum { LEFT = 90, TOP = 40, WIDE = 1000, HIGH = 640, LEAST = 2, MOST = 26 };

/* One stage's bar, which all its ranks use. */
static void draw_stage(FILE *f, const kolo_play *p, int stage, double row)
{
    const double scale = WIDE / p->step, bar = row > 8 ? row - 2 : row, sums = bar / 4;
    const int hue = (int)(360.0 * stage / p->stages + 210) % 360;
    fprintf(f, "<g id=\"stage%d\">\n", stage);
    for (int64_t i = 0; i < p->spans; i++) {
        const kolo_play_span *a = &p->span[i];
        if (a->stage != stage || a->lane == KOLO_PLAY_LINK) continue;
        const bool sum = a->lane == KOLO_PLAY_SUM;
        const int light = sum ? 25 : a->pass == KOLO_PASS_FORWARD ? 72 : a->pass >= 0 ? 52 : 40;
        fprintf(f,
                "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"hsl(%d,%d%%,%d%%)\"/>\n",
                a->start * scale, sum ? bar - sums : 0, (a->end - a->start) * scale, sum ? sums : bar - sums,
                hue, sum ? 10 : 65, light);
    }
    fprintf(f, "</g>\n");
}

void kolo_drawn_svg(FILE *f, const kolo_session *s, const kolo_play *p)
{
    double row = (double)HIGH / s->ranks;
    if (row < LEAST) row = LEAST;
    if (row > MOST) row = MOST;
    const double height = row * s->ranks;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<defs>\n",
            LEFT + WIDE + 20, TOP + height + 40);
    for (int k = 0; k < p->stages; k++) draw_stage(f, p, k, row);
    fprintf(
        f,
        "</defs>\n<text x=\"%d\" y=\"24\">%d ranks, %d stage%s: a step of %.3f ms, bubble %.1f %%</text>\n",
        LEFT, s->ranks, p->stages, p->stages > 1 ? "s" : "", p->step * 1e3, p->bubble * 100);
    const int every = (int)(14 / row) + 1;
    for (int k = 0; k < p->stages; k++)
        for (int r = 0; r < s->replicas; r++) {
            const int rank = rank_of(s, k, r);
            fprintf(f, "<use href=\"#stage%d\" x=\"%d\" y=\"%.2f\"/>\n", k, LEFT, TOP + rank * row);
            if (rank % every == 0)
                fprintf(f, "<text x=\"%d\" y=\"%.2f\" text-anchor=\"end\">rank %d</text>\n", LEFT - 6,
                        TOP + rank * row + 11, rank);
        }
    for (int i = 0; i <= 4; i++)
        fprintf(f, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"middle\">%.3f ms</text>\n", LEFT + WIDE * i / 4,
                TOP + height + 20, p->step * 1e3 * i / 4);
    fprintf(f, "</svg>\n");
}
