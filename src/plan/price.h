/* Price: bytes, arithmetic and, for known rates, time of a plan's step, by class (graph/classes.def).
 * Roofline: a call takes as long as its bytes or its arithmetic at the rate that its class reaches, whichever
 * is longer, and a launch. */
#ifndef KOLO_PLAN_PRICE_H
#define KOLO_PLAN_PRICE_H

#include "plan/plan.h"
#include "plan/rates.h"

typedef struct kolo_cost {
    int64_t calls;
    double read, written; /* bytes of this rank's memory */
    double spared;        /* not counted in read: kolo_traffic */
    double flops;
    double sent;    /* bytes that leave this rank */
    double seconds; /* 0 without rates */
    double memory;  /* of them: where the bytes take longer than the arithmetic */
} kolo_cost;

typedef struct kolo_price {
    kolo_cost of[KOLO_CLASSES], all; /* all: without communication, which runs beside */
    double waited;                   /* seconds in which the step waits for communication */
    double step;                     /* seconds */
} kolo_price;

/* What each action moves and computes: cost[plan->actions], one call each, no times. */
int kolo_plan_costs(const kolo_plan *plan, kolo_cost *cost);
/* The same with the seconds of every action at these rates, but of messages: those are a fabric's. */
int kolo_plan_roofline(const kolo_plan *plan, const kolo_rates *rates, bool tf32, kolo_cost *cost);
/* Of one micro-batch of every operation: seconds[graph->nodes]. */
int kolo_plan_roofline_nodes(const kolo_plan *plan, const kolo_rates *rates, bool tf32, double *seconds);
/* rates: NULL where nothing is known of times. tf32: f32 products at that rate. */
int kolo_plan_price(const kolo_plan *plan, const kolo_rates *rates, bool tf32, kolo_price *price);
/* The table. where: what the rates are of and from, for its heading; rows: of the global batch. */
int kolo_price_print(const kolo_price *price, const kolo_plan *plan, const kolo_rates *rates,
                     const char *where, void *file);

#endif
