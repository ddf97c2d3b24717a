#include "base/admission.h"

static double missing(kolo_admission *a, double now)
{
    const double left = a->spent - (now > a->at ? now - a->at : 0) * KOLO_ADMISSION_RATE;
    a->spent = left > 0 ? left : 0;
    a->at = now;
    return a->spent;
}

bool kolo_admission_take(kolo_admission *a, double now)
{
    if (missing(a, now) > KOLO_ADMISSION_BURST - 1) return false;
    a->spent += 1;
    return true;
}

void kolo_admission_give_back(kolo_admission *a) { a->spent = a->spent > 1 ? a->spent - 1 : 0; }

double kolo_admission_wait(kolo_admission *a, double now)
{
    const double more = missing(a, now) - 0.75 * KOLO_ADMISSION_BURST;
    return more > 0 ? more / KOLO_ADMISSION_RATE : 0;
}
