/* Norms in leaves, in host memory. */
#include "optim_leaves.h"

int main(void)
{
    const kolo_backend_config config = {.threads = 1, .deterministic = true};
    kolo_backend *backend = NULL;
    if (kolo_backend_create(&backend, "cpu", &config) < 0) {
        printf("Bail out! %s\n", kolo_error_text());
        return 1;
    }
    leaves_test(backend);
    kolo_backend_destroy(&backend);
    return done_testing();
}
