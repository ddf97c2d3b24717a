/* Training through plan and executor against PyTorch: every loss, gradient norm and weight of some steps. */
#include "golden_train.h"

int main(void)
{
    static const char *const names[] = {"lenet5_sgd_momentum",
                                        "lenet5_sgd_nesterov_decay",
                                        "lenet5_sgd_clip_norm",
                                        "lenet5_sgd_clip_value",
                                        "lenet5_sgd_ema",
                                        "lenet5_adamw",
                                        "lenet5_lamb",
                                        "lenet5_lars",
                                        "lenet5_lars_tf",
                                        "lenet5_novograd",
                                        "lenet5_rmsprop",
                                        "resnet20_lamb",
                                        "resnet20_sgd_momentum",
                                        "resnet20_sgd_nesterov_decay",
                                        "resnet20_sgd_clip_norm",
                                        "resnet20_sgd_clip_value",
                                        "resnet20_sgd_ema",
                                        "resnet20_sgd_ema_ramp",
                                        "resnet20_sgd_smooth"};
    char path[512];
    kolo_backend *backend = NULL;
    kolo_backend_config config = {.threads = 1, .direct = true};
    if (kolo_backend_create(&backend, "cpu", &config) < 0) {
        ok(0, "backend: %s", kolo_error_text());
        return done_testing();
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, GOLDEN_FOLDER "/train/%s.json", names[i]);
        cJSON *json = golden_read(path);
        if (!json) ok(0, "%s can be read", path);
        else golden_train_case(names[i], json, backend);
        cJSON_Delete(json);
    }
    kolo_backend_destroy(&backend);
    return done_testing();
}
