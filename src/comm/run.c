#include "comm/transport.h"

#include <string.h>

static char *address(const comm_run *run, comm_place place) { return run->buffer[place.buffer] + (size_t)place.at * run->width; }

int comm_run_poll(comm_run *run)
{
    const comm_transport *t = run->transport;
    while (run->at < run->schedule->actions) {
        const comm_action *a = &run->schedule->action[run->at];
        int rc = 1;
        switch (a->kind) {
        case COMM_SEND: rc = t->send(run->lane, run->rank_of[a->peer], run->tag, address(run, a->left), a->count, run->width); break;
        case COMM_RECEIVE: rc = t->receive(run->lane, run->rank_of[a->peer], run->tag, address(run, a->out), a->count, run->width); break;
        case COMM_COMBINE: run->combine(address(run, a->out), address(run, a->left), address(run, a->right), a->count); break;
        case COMM_COPY: memmove(address(run, a->out), address(run, a->left), (size_t)a->count * run->width); break;
        case COMM_CALL: rc = run->call(run->context, run, a); break;
        case COMM_WAIT:
            rc = t->done(run->lane, a->count);
            if (rc == 0) return 0;
            break;
        }
        if (rc < 0) return rc;
        run->at++;
    }
    return 1;
}
