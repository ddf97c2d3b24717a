/* How many unverified peers a listening socket accepts: a token bucket. A peer that proves to belong to the
 * job gives the token back, so only unverified ones are held up. While the bucket is empty they wait in the
 * kernel's queue, and the socket is not polled. Every listener of the project has one.
 *
 * The figures weigh two things. An unverified peer costs some 10 us (accept, one read, close), so a flood
 * costs its listener less than a hundredth of a core. A rank that calls in the midst of a flood waits behind
 * it in the queue, so a queue of some hundred must be gone within a fraction of a second. */
#ifndef KOLO_BASE_ADMISSION_H
#define KOLO_BASE_ADMISSION_H

#include <stdbool.h>

#define KOLO_ADMISSION_RATE 500.0 /* unverified peers a second */
enum { KOLO_ADMISSION_BURST = 128 };

/* All zeros: a full bucket. */
typedef struct kolo_admission {
    double spent, at; /* tokens that are missing; when that was counted (kolo_time) */
} kolo_admission;

bool kolo_admission_take(kolo_admission *a, double now);
void kolo_admission_give_back(kolo_admission *a);
/* Where take says no: seconds until a quarter of the bucket is there again, 0: it is. Listening may rest as
 * long. */
double kolo_admission_wait(kolo_admission *a, double now);

#endif
