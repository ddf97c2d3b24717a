/* Norms in leaves, on a GPU. */
#include "cuda_rig.h"
#include "optim_leaves.h"

int main(void)
{
    const kolo_backend_config config = {.threads = 1, .deterministic = true};
    kolo_backend *backend = NULL;
    cuda_rig();
    leaves_check(kolo_backend_create(&backend, "cuda", &config));
    leaves_test(backend);
    kolo_backend_destroy(&backend);
    return done_testing();
}
