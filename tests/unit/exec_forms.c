/* One executor carries out plans for batches of several shapes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec_forms.h"

int main(void)
{
    kolo_backend *backend = rig_backend(1, true);
    const rig_config large = {.model = "resnet20", .rows = 4, .side = 24, .channels = 3, .ema = true};
    forms_check(backend, &large);
    kolo_backend_destroy(&backend);
    return done_testing();
}
