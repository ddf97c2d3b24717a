/* k: the radices by which members are grouped, as a user writes them and as algorithms read them. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/algorithm/build.h"
#include "comm/algorithm/stages.h"
#include "kolo/error.h"

int comm_radices_of(enum comm_grouping how, int n, const comm_radices *k, int radix[COMM_STAGES])
{
    int steps = 0, first = k->k[0];
    int64_t product = 1;
    if (first && k->k[1]) { /* several are taken as they are, if they fit */
        for (; steps < COMM_STAGES && k->k[steps] && product <= n; steps++)
            product *= radix[steps] = k->k[steps];
        return product != n || (steps < COMM_STAGES && k->k[steps]) ? 0 : steps;
    }
    if (how == COMM_LEVELS) {
        if (!first || n % first) return 0;
        radix[0] = first;
        radix[1] = n / first;
        return n == first ? 1 : 2;
    }
    if (how == COMM_FACTORS) {
        if (n == 1) return radix[0] = 1;
        for (; first && n % first == 0; n /= first) radix[steps++] = first;
        for (; n % 4 == 0; n /= 4) radix[steps++] = 4;
        for (int f = 2; n > 1; f++)
            for (; n % f == 0; n /= f) radix[steps++] = f;
        return steps;
    }
    radix[0] = first = !first ? 4 : how == COMM_POWERS ? comm_power_until(first) : first;
    for (; product < n; product *= first) radix[steps++] = first;
    return steps ? steps : 1;
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
    text[0] = 0;
    for (int i = 0; i < COMM_STAGES && k->k[i]; i++)
        kolo_append(text, COMM_RADICES_TEXT, "%s%d", i ? "x" : "", k->k[i]);
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
    return !p->radix.k[0] ||
           (row->radices && comm_radices_of(row->radices, p->members, &p->radix, radix) > 0);
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
