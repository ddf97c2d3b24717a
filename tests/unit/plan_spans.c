/* The cut of a chain into spans that are stored or done again: what dynamic programming finds takes exactly
 * as long as the best of all cuts, one by one, on random chains; it fits, and is what it says. */
#include <stdint.h>

#include "base/philox.h"
#include "plan/spans.h"
#include "tap.h"

enum { CHAINS = 10000, STEPS = 8 };

static uint64_t seed;
static int chain_number;
static uint32_t drawn;

static int64_t draw(int64_t below)
{
    return (int64_t)(kolo_philox(seed, (uint64_t)chain_number, drawn++).v[0] % (uint32_t)below);
}

typedef struct chain {
    kolo_spans spans;
    kolo_span_cost stored[STEPS], again[STEPS * STEPS];
} chain;

/* Some like networks (doing a span again keeps less), some of arbitrary numbers; of some no long spans. */
static void fill(chain *c)
{
    const int n = (int)draw(STEPS) + 1, longest = draw(4) ? n : (int)draw(n) + 1;
    const bool sane = draw(2);
    c->spans = (kolo_spans){.steps = n, .longest = longest, .stored = c->stored, .again = c->again};
    for (int i = 0; i < n; i++) {
        c->stored[i] = (kolo_span_cost){.kept = draw(20), .seconds = sane ? 0 : (double)draw(3)};
        c->stored[i].peak = c->stored[i].kept + draw(12);
    }
    for (int i = 0; i < n; i++) {
        int64_t sum = 0;
        for (int j = i; j < n && j - i < longest; j++) {
            kolo_span_cost *s = &c->again[i * longest + j - i];
            sum += c->stored[j].kept;
            s->kept = sane ? draw(c->stored[j].kept + 1) : draw(40);
            s->peak = (sane ? sum : s->kept) + draw(12);
            s->seconds = (sane && j > i ? s[-1].seconds : 0) + (double)draw(10);
        }
    }
}

/* All cuts from step `begin` on; the least seconds, or -1. */
static double all_cuts(const chain *c, int begin, int64_t kept, int64_t budget)
{
    const int n = c->spans.steps;
    double best = -1;
    if (begin == n) return 0;
    for (int end = begin; end <= n && end - begin <= c->spans.longest; end++) { /* end == begin: stored */
        const kolo_span_cost *s = end == begin ? &c->stored[begin] : kolo_span_again(&c->spans, begin, end);
        if (kept + s->peak > budget) continue;
        const double rest = all_cuts(c, end == begin ? begin + 1 : end, kept + s->kept, budget);
        if (rest >= 0 && (best < 0 || rest + s->seconds < best)) best = rest + s->seconds;
    }
    return best;
}

/* The cut that `first` says: its seconds; -1: no cut, or beyond the budget. */
static double follow(const chain *c, const int *first, int64_t budget)
{
    const int n = c->spans.steps;
    int64_t kept = 0;
    double seconds = 0;
    for (int i = 0; i < n;) {
        int end = i + 1;
        if (first[i] >= 0 && first[i] != i) return -1;
        while (first[i] == i && end < n && first[end] == i) end++;
        const kolo_span_cost *s = first[i] < 0 ? &c->stored[i] : kolo_span_again(&c->spans, i, end);
        if (kept + s->peak > budget) return -1;
        kept += s->kept;
        seconds += s->seconds;
        i = end;
    }
    return seconds;
}

int main(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 30;
    if (getenv("SEED")) seed = strtoull(getenv("SEED"), NULL, 0);
    diag("SEED=%llu", (unsigned long long)seed);
    int best = 0, fits = 0, none = 0, least = 0, all = 0;
    for (chain_number = 0; chain_number < CHAINS; chain_number++) {
        chain c;
        int first[STEPS];
        double seconds = -1;
        bool exact;
        drawn = 0;
        fill(&c);
        const int64_t low = kolo_spans_least(&c.spans), budget = low + draw(40) - 4;
        const double want = all_cuts(&c, 0, 0, budget);
        const int rc = kolo_spans_solve(&c.spans, budget, first, &seconds, &exact);
        all++;
        least += all_cuts(&c, 0, 0, low) >= 0 && all_cuts(&c, 0, 0, low - 1) < 0;
        none += want < 0;
        best +=
            want < 0 ? rc == 1 : rc == 0 && exact == (c.spans.longest >= c.spans.steps) && seconds == want;
        fits += rc == 1 || follow(&c, first, budget) == seconds;
    }
    is_int(best, CHAINS, "%d random chains: as fast as the best of all cuts, or none fits (%d)", all, none);
    is_int(fits, CHAINS, "each cut is within its budget and takes as long as it says");
    is_int(least, CHAINS, "the least budget fits, one byte less does not");
    ok(none > CHAINS / 100 && none < CHAINS / 2, "chains that nothing fits are among them: %d", none);
    return done_testing();
}
