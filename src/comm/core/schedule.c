#include "comm/core/schedule.h"

#include <stdlib.h>

int64_t comm_part(int64_t count, int parts, int i)
{
    int64_t at = (count + 15) / 16 * i / parts * 16;
    return at < count ? at : count;
}

void comm_schedule_free(comm_schedule *schedule)
{
    free(schedule->action);
    free(schedule->place);
    free(schedule->order);
    *schedule = (comm_schedule){0};
}
