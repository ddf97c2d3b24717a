/* k: the radices by which members are grouped, as a user writes them and as algorithms read them. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/algorithm/build.h"
#include "comm/algorithm/stages.h"
#include "kolo/error.h"

/* Several numbers are taken as they are, if they fit: true. */
static bool listed(int n, const comm_radices *k, int radix[COMM_STAGES], int *steps)
{
    int64_t product = 1;
    if (!k->k[0] || !k->k[1]) return false;
    for (*steps = 0; *steps < COMM_STAGES && k->k[*steps] && product <= n; ++*steps)
        product *= radix[*steps] = k->k[*steps];
    if (product != n || (*steps < COMM_STAGES && k->k[*steps])) *steps = 0;
    return true;
}

static int repeated(int n, int k, int radix[COMM_STAGES])
{
    int steps = 0;
    for (int64_t d = 1; d < n; d *= k) radix[steps++] = k;
    return steps ? steps : (radix[0] = k, 1);
}

int comm_radices_powers(int n, const comm_radices *k, int radix[COMM_STAGES])
{
    int steps;
    return listed(n, k, radix, &steps) ? steps : repeated(n, k->k[0] ? comm_power_until(k->k[0]) : 4, radix);
}

int comm_radices_digits(int n, const comm_radices *k, int radix[COMM_STAGES])
{
    int steps;
    return listed(n, k, radix, &steps) ? steps : repeated(n, k->k[0] ? k->k[0] : 4, radix);
}

int comm_radices_factors(int n, const comm_radices *k, int radix[COMM_STAGES])
{
    int steps, first = k->k[0];
    if (listed(n, k, radix, &steps)) return steps;
    if (n == 1) return radix[0] = 1;
    steps = 0;
    for (; first && n % first == 0; n /= first) radix[steps++] = first;
    for (; n % 4 == 0; n /= 4) radix[steps++] = 4;
    for (int f = 2; n > 1; f++)
        for (; n % f == 0; n /= f) radix[steps++] = f;
    return steps;
}

int comm_radices_levels(int n, const comm_radices *k, int radix[COMM_STAGES])
{
    int steps;
    if (listed(n, k, radix, &steps)) return steps;
    if (!k->k[0] || n % k->k[0]) return 0;
    radix[0] = k->k[0];
    if (n == k->k[0]) return 1;
    radix[1] = n / k->k[0];
    return 2;
}

/* ---- words --------------------------------------------------------------------------------------------- */

int comm_radices_read(comm_radices *k, const char *text)
{
    const char *at = text;
    int64_t product = 1;
    *k = (comm_radices){{0}};
    for (int i = 0; i < COMM_STAGES - 1; i++) {
        char *end;
        errno = 0;
        long long v = *at >= '0' && *at <= '9' ? strtoll(at, &end, 10) : 0;
        if (v < 2 || errno || v > INT_MAX || (product *= v) > INT_MAX) break;
        k->k[i] = (int)v;
        if (!*end) return 0;
        if (*end != 'x') break;
        at = end + 1;
    }
    return kolo_fail(KOLO_EINPUT,
                     "\"%s\" is no k: numbers from 2 on with x between them, such as 4 or 4x8x16", text);
}

const char *comm_radices_text(const comm_radices *k, char text[COMM_RADICES_TEXT])
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < COMM_STAGES && k->k[i] && used < COMM_RADICES_TEXT; i++)
        used += (size_t)snprintf(text + used, COMM_RADICES_TEXT - used, "%s%d", i ? "x" : "", k->k[i]);
    return text;
}

/* ---- which --------------------------------------------------------------------------------------------- */

bool comm_radices_try(int n, int i, comm_radices *k)
{
    for (int a = 2; a <= n / 2; a++) {
        if (n % a) continue;
        *k = (comm_radices){{a, n / a}};
        if (i-- == 0) return true;
        for (int b = 2; b <= n / a / 2; b++) {
            if (n / a % b) continue;
            *k = (comm_radices){{a, b, n / a / b}};
            if (i-- == 0) return true;
        }
    }
    return false;
}

bool comm_radices_fit(const comm_algorithm_row *row, const comm_problem *p)
{
    int radix[COMM_STAGES];
    return !p->radix.k[0] || (row->radices && row->radices(p->members, &p->radix, radix) > 0);
}

double comm_radices_cheapest(const comm_algorithm_row *row, comm_problem *p, const comm_cost *c,
                             bool free_order)
{
    bool own = row->fits(p) && (free_order || row->ordered(p));
    double least = own ? row->cost(p, c) : INFINITY;
    if (p->radix.k[0] || !row->radices) return least;
    comm_radices best = p->radix, k;
    for (int i = 0; comm_radices_try(p->members, i, &k); i++) {
        p->radix = k;
        if (!row->fits(p) || !(free_order || row->ordered(p))) continue;
        double seconds = row->cost(p, c);
        if (!(seconds < .98 * least)) continue;
        least = seconds;
        best = k;
    }
    p->radix = best;
    return least;
}
