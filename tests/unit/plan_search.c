/* The search against trying all points of 10,000 small random grids, and what it says when time is up. */
#include "plan/search.h"

#include <math.h>
#include <string.h>

#include "tap.h"

enum { AXES = 4, CHOICES = 4, POINTS = 256 };

typedef struct grid {
    int axes, choices[AXES];
    double price[POINTS];
    int asked, most; /* points priced; 0: any number */
} grid;

static uint64_t state = 20240229;
static int draw(int n)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (int)(state >> 33) % n;
}

static int number(const grid *g, const int *point)
{
    int at = 0;
    for (int i = 0; i < g->axes; i++) at = at * g->choices[i] + point[i];
    return at;
}

static int price(void *of, const int *point, double *seconds)
{
    grid *g = of;
    g->asked++;
    *seconds = g->price[number(g, point)];
    return 0;
}

/* The least of all that begin so, times a factor that differs from beginning to beginning: a bound, of any
 * tightness. */
static int bound(void *of, const int *point, int set, double *least)
{
    const grid *g = of;
    int first = 0, count = 1;
    for (int i = 0; i < g->axes; i++) {
        first = first * g->choices[i] + (i < set ? point[i] : 0);
        if (i >= set) count *= g->choices[i];
    }
    *least = INFINITY;
    for (int i = first; i < first + count; i++)
        if (g->price[i] < *least) *least = g->price[i];
    *least *= (first * 7 + set * 3) % 5 / 4.0;
    if (isnan(*least)) *least = 0;
    return 0;
}

/* Any number: an order to look in, nothing more. */
static double guess(void *of, const int *point, int set)
{
    const grid *g = of;
    return (number(g, point) * 13 + set) % 11;
}

static bool is_over(void *of)
{
    const grid *g = of;
    return g->most && g->asked >= g->most;
}

static grid make_grid(void)
{
    grid g = {.axes = 1 + draw(AXES)};
    int points = 1;
    for (int i = 0; i < g.axes; i++) points *= g.choices[i] = 1 + draw(CHOICES);
    for (int i = 0; i < points; i++) g.price[i] = draw(9) ? 1 + draw(20) : INFINITY; /* many are equal */
    return g;
}

static kolo_search_space space_of(grid *g)
{
    kolo_search_space s = {.axes = g->axes, .of = g, .bound = bound, .price = price, .over = is_over};
    if (draw(2)) s.guess = guess;
    memcpy(s.choices, g->choices, sizeof g->choices);
    return s;
}

static int points_of(const grid *g)
{
    int points = 1;
    for (int i = 0; i < g->axes; i++) points *= g->choices[i];
    return points;
}

static int least_of(const grid *g)
{
    int best = 0;
    for (int i = 1; i < points_of(g); i++)
        if (g->price[i] < g->price[best]) best = i;
    return best;
}

int main(void)
{
    int wrong = 0, priced = 0, all = 0, loose = 0;
    for (int n = 0; n < 10000; n++) {
        grid g = make_grid();
        kolo_search_result r;
        const kolo_search_space s = space_of(&g);
        const int best = least_of(&g), rc = kolo_search_run(&s, &r);
        const bool none = isinf(g.price[best]);
        const bool same = none ? isinf(r.price) : number(&g, r.point) == best && r.bound >= r.price;
        wrong += rc < 0 || !same;
        priced += g.asked;
        all += points_of(&g);
        /* the same with less time: what it says is true */
        g.asked = 0;
        g.most = 1 + draw(4);
        kolo_search_run(&s, &r);
        loose += !(r.bound <= g.price[best] && r.price >= g.price[best]);
    }
    is_int(wrong, 0, "10,000 random grids: what is found is the first of the least");
    ok(priced < all / 2, "less than half of their points were priced (%d of %d)", priced, all);
    is_int(loose, 0, "when time is up the bound is below the least, the price not");
    return done_testing();
}
