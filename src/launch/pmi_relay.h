/* Between MPI and its launcher: every byte of PMI (versions 1 and 2) passes here. Where MPI cannot start it
 * prints its own words and asks the launcher to end the job with a status of its own, an error class (15
 * from MPICH), before anybody else can write; that request is held, and the owner called. */
#ifndef KOLO_LAUNCH_PMI_RELAY_H
#define KOLO_LAUNCH_PMI_RELAY_H

typedef struct kolo_pmi_relay kolo_pmi_relay;

/* Takes the place of PMI_FD until kolo_pmi_relay_started. failed: from a thread of its own; need not
 * return. NULL: there is no such socket, or no memory; MPI then talks to its launcher itself. */
kolo_pmi_relay *kolo_pmi_relay_open(void (*failed)(void *of), void *of);
/* MPI runs: what it asks for from now on is passed on. relay may be NULL. */
void kolo_pmi_relay_started(kolo_pmi_relay *relay);
/* Asks the launcher to end the job with this status. */
void kolo_pmi_relay_abort(kolo_pmi_relay *relay, int exit_status);

#endif
