"""The case tables: shapes, class counts and batch sizes of every golden file."""

MODELS = {
    "mlp": dict(model="mlp", classes=10, batch=8, channels=1, size=[28, 28]),
    "lenet5": dict(model="lenet5", classes=10, batch=8, channels=1, size=[28, 28]),
    "resnet20_cifar_a": dict(model="resnet20_cifar", option="A", classes=10, batch=8, size=[32, 32]),
    "resnet20_cifar_b": dict(model="resnet20_cifar", option="B", classes=10, batch=8, size=[32, 32]),
    "resnet20_cifar_a_16": dict(model="resnet20_cifar", option="A", classes=10, batch=4, size=[16, 16]),
    "resnet20_cifar_b_16": dict(model="resnet20_cifar", option="B", classes=10, batch=4, size=[16, 16]),
    "resnet18_64": dict(model="resnet18", classes=10, batch=3, size=[64, 64]),
    "resnet18_64_bias": dict(model="resnet18", classes=10, batch=4, size=[64, 64], norm_bias=2.0),
    "resnet50_64_bias": dict(model="resnet50", classes=10, batch=4, size=[64, 64], norm_bias=2.0),
    "resnext50_32x4d_64_bias": dict(model="resnext50_32x4d", classes=10, batch=4, size=[64, 64],
                                    norm_bias=2.0),
    "resnet18_96": dict(model="resnet18", classes=10, batch=4, size=[96, 96]),
    "resnet18_224": dict(model="resnet18", classes=1000, batch=2, size=[224, 224]),
    "resnet50_96": dict(model="resnet50", classes=10, batch=4, size=[96, 96]),
    "resnet50_224": dict(model="resnet50", classes=1000, batch=2, size=[224, 224]),
    "resnext50_32x4d_96": dict(model="resnext50_32x4d", classes=10, batch=4, size=[96, 96]),
    "convnext_tiny_96": dict(model="convnext_tiny", classes=10, batch=4, size=[96, 96]),
    "convnext_tiny_224": dict(model="convnext_tiny", classes=1000, batch=2, size=[224, 224]),
    "swin_t_224": dict(model="swin_t", classes=1000, batch=2, size=[224, 224]),
    "swin_t_160": dict(model="swin_t", classes=10, batch=2, size=[160, 160]),
    "vit_s_16_224": dict(model="vit_s_16", classes=1000, batch=2, size=[224, 224]),
    "vit_s_16_64": dict(model="vit_s_16", classes=10, batch=3, size=[64, 64]),
    "vit_b_16_96": dict(model="vit_b_16", classes=10, batch=2, size=[96, 96]),
    "mobilenet_v2_96": dict(model="mobilenet_v2", classes=10, batch=4, size=[96, 96]),
    "mobilenet_v2_64_bias": dict(model="mobilenet_v2", classes=10, batch=4, size=[64, 64], norm_bias=2.0),
    "inception_v3_299": dict(model="inception_v3", classes=10, batch=2, size=[299, 299], auxiliary=0.4),
    "inception_v3_299_bias": dict(model="inception_v3", classes=10, batch=2, size=[299, 299], norm_bias=4.0,
                                  auxiliary=0.4),
    "inception_v3_128x96_bias": dict(model="inception_v3", classes=10, batch=4, size=[128, 96], norm_bias=4.0),
    "mobilenet_v3_small_96": dict(model="mobilenet_v3_small", classes=10, batch=4, size=[96, 96]),
    "mobilenet_v3_large_96": dict(model="mobilenet_v3_large", classes=10, batch=4, size=[96, 96]),
    "yolox_nano_128": dict(model="yolox_nano", classes=80, batch=2, size=[128, 128], gain=2.0),
    "yolox_tiny_96x160": dict(model="yolox_tiny", classes=80, batch=2, size=[96, 160], gain=2.0),
    "yolox_s_128": dict(model="yolox_s", classes=80, batch=2, size=[128, 128], gain=2.0),
}

OPS = {
    "conv": {
        "k1": dict(x=[2, 6, 5, 7], w=[4, 6, 1, 1]),
        "k1_s2": dict(x=[2, 6, 5, 7], w=[4, 6, 1, 1], stride=2),
        "k3_p1": dict(x=[2, 3, 6, 5], w=[4, 3, 3, 3], padding=1),
        "k3_p1_bias": dict(x=[2, 3, 6, 5], w=[4, 3, 3, 3], padding=1, bias=True),
        "k3_s2_p1": dict(x=[2, 3, 7, 8], w=[4, 3, 3, 3], stride=2, padding=1),
        "k3_p2_d2": dict(x=[1, 3, 7, 6], w=[4, 3, 3, 3], padding=2, dilation=2),
        "k3_valid": dict(x=[1, 3, 7, 6], w=[4, 3, 3, 3]),
        "k5_p2_bias": dict(x=[2, 1, 9, 8], w=[3, 1, 5, 5], padding=2, bias=True),
        "k5_bias": dict(x=[2, 2, 8, 9], w=[3, 2, 5, 5], bias=True),
        "k7_s2_p3": dict(x=[1, 3, 11, 13], w=[4, 3, 7, 7], stride=2, padding=3),
        "k4_s4_bias": dict(x=[2, 3, 8, 12], w=[5, 3, 4, 4], stride=4, bias=True),
        "k2_s2_bias": dict(x=[2, 4, 6, 7], w=[5, 4, 2, 2], stride=2, bias=True),
        "k3_groups2": dict(x=[2, 4, 5, 5], w=[6, 2, 3, 3], padding=1, groups=2),
        "k3_s2_groups4": dict(x=[1, 8, 6, 6], w=[8, 2, 3, 3], stride=2, padding=1, groups=4),
        "k7_p3_depthwise_bias": dict(x=[1, 4, 8, 7], w=[4, 1, 7, 7], padding=3, groups=4, bias=True),
        "k3_s2_p1_depthwise": dict(x=[2, 5, 7, 7], w=[5, 1, 3, 3], stride=2, padding=1, groups=5),
        "k3x1_p": dict(x=[1, 3, 5, 6], w=[2, 3, 3, 1], padding=[1, 0]),
        "one_pixel": dict(x=[3, 5, 1, 1], w=[4, 5, 3, 3], padding=1),
    },
    "batchnorm": {
        "train": dict(x=[4, 3, 5, 6], train=True),
        "eval": dict(x=[4, 3, 5, 6], train=False),
        "train_yolox": dict(x=[3, 4, 4, 5], train=True, eps=1e-3, momentum=0.03),
        "train_batch1": dict(x=[1, 5, 3, 3], train=True),
        "train_vector": dict(x=[6, 7], train=True),
    },
    "layernorm": {
        "last": dict(x=[3, 5, 8], eps=1e-5),
        "last_1e-6": dict(x=[2, 4, 3, 12], eps=1e-6),
        "channels_first": dict(x=[2, 8, 3, 5], eps=1e-6, first=True),
    },
    "linear": {
        "bias": dict(x=[5, 7], w=[4, 7], bias=True),
        "plain": dict(x=[3, 9], w=[6, 9], bias=False),
        "tokens": dict(x=[2, 6, 8], w=[5, 8], bias=True),
    },
    "map": [2, 4, 5, 7],
    "even_map": [2, 4, 6, 8],
    "logits": [6, 11],
    "pool": {
        "max_3_2_1": dict(name="maxpool", shape=[2, 3, 9, 8], kernel=3, stride=2, padding=1),
        "max_2_2": dict(name="maxpool", shape=[2, 3, 7, 8], kernel=2, stride=2, padding=0),
        "max_5_1_2": dict(name="maxpool", shape=[1, 3, 7, 6], kernel=5, stride=1, padding=2),
        "max_9_1_4": dict(name="maxpool", shape=[1, 2, 8, 7], kernel=9, stride=1, padding=4),
        "max_13_1_6": dict(name="maxpool", shape=[1, 2, 8, 7], kernel=13, stride=1, padding=6),
        "avg_2_2": dict(name="avgpool", shape=[2, 3, 6, 8], kernel=2, stride=2, padding=0),
        "avg_3_2_1": dict(name="avgpool", shape=[2, 3, 7, 7], kernel=3, stride=2, padding=1,
                          count_include_pad=True),
        "avg_3_2_1_inside": dict(name="avgpool", shape=[2, 3, 7, 7], kernel=3, stride=2, padding=1,
                                 count_include_pad=False),
    },
    "drop_path": dict(shape=[4, 3, 4, 5], mask=[1, 0, 1, 1], keep=0.8),
    "attention": {
        "plain": dict(n=1, h=4, w=8, c=8, heads=2, m=4, shift=0),
        "shift": dict(n=2, h=8, w=8, c=6, heads=2, m=4, shift=2),
        "m7_shift3": dict(n=1, h=14, w=14, c=4, heads=2, m=7, shift=3),
    },
    "attention_padded": {
        "shift": dict(n=1, h=5, w=7, c=6, heads=2, m=4, shift=2),
        "one_window": dict(n=1, h=3, w=7, c=6, heads=3, m=4, shift=2),
    },
    "merge": [2, 4, 6, 3],
}

_LENET = dict(model="lenet5", classes=10, batch=16, channels=1, size=[28, 28], steps=5)
_CIFAR = dict(model="resnet20_cifar", option="A", classes=10, batch=4, size=[16, 16], steps=5)
_SGD = dict(kind="sgd", lr=0.02, momentum=0.9)
_SGD_WD = dict(kind="sgd", lr=0.02, momentum=0.9, nesterov=True, weight_decay=5e-4)
_ADAMW = dict(kind="adamw", lr=1e-3, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.05, decay="matrices")
_LARS = dict(kind="lars", lr=2.0, momentum=0.9, trust_coeff=0.001, eps=1e-8, weight_decay=1e-4,
             decay="matrices")
_LARS_TF = dict(kind="lars_tf", lr=2.0, momentum=0.9, trust_coeff=0.001, eps=0.0, weight_decay=1e-4,
                decay="matrices",
                lr_scale=[1.0, 0.9, 0.7, 0.4, 0.1])
_LAMB = dict(kind="lamb", lr=5e-3, betas=[0.9, 0.999], eps=1e-6, weight_decay=0.01, max_grad_norm=1.0,
             decay="matrices")
_NOVOGRAD = dict(kind="novograd", lr=0.01, betas=[0.95, 0.98], eps=1e-8, weight_decay=1e-3, decay="matrices")
_RMSPROP = dict(kind="rmsprop", lr=1e-4, alpha=0.99, eps=1e-8, momentum=0.9, weight_decay=1e-4)

_RULES = {"sgd_momentum": _SGD, "sgd_nesterov_decay": _SGD_WD, "adamw": _ADAMW, "lars": _LARS,
          "lars_tf": _LARS_TF,
          "lamb": _LAMB, "novograd": _NOVOGRAD, "rmsprop": _RMSPROP,
          "sgd_clip_norm": {**_SGD, "clip_norm": 0.5}, "sgd_clip_value": {**_SGD, "clip_value": 0.01}}

TRAIN = {
    **{f"lenet5_{n}": dict(_LENET, optimizer=o) for n, o in _RULES.items()},
    **{f"resnet20_{n}": dict(_CIFAR, optimizer=o) for n, o in _RULES.items()},
    "resnet20_sgd_smooth": dict(_CIFAR, optimizer=_SGD_WD, smoothing=0.1),
    "lenet5_sgd_ema": dict(_LENET, optimizer=_SGD, ema=dict(decay=0.9)),
    "resnet20_sgd_ema": dict(_CIFAR, optimizer=_SGD_WD, ema=dict(decay=0.9)),
    "resnet20_sgd_ema_ramp": dict(_CIFAR, optimizer=_SGD_WD, ema=dict(decay=0.9998, ramp=2000)),
    "resnet20_sgd_freeze": dict(_CIFAR, optimizer=_SGD_WD, freeze="conv1,bn1,layer1"),
    "swin_t_adamw": dict(model="swin_t", classes=10, batch=2, size=[64, 64], steps=2,
                         optimizer={**_ADAMW, "clip_norm": 5.0}),
    "convnext_tiny_adamw": dict(model="convnext_tiny", classes=10, batch=2, size=[64, 64], steps=2,
                                optimizer=_ADAMW),
}

OPTIM_SIZES = dict(tensors={"a.conv.weight": [4, 3, 3, 3], "a.fc.weight": [5, 7], "a.bn.weight": [8],
                            "a.fc.bias": [5]},
                   steps=10, keep=[1, 2, 10])

OPTIM = {
    "sgd": dict(kind="sgd", lr=0.1),
    "sgd_decay": dict(kind="sgd", lr=0.1, weight_decay=0.01),
    "sgd_momentum": dict(kind="sgd", lr=0.1, momentum=0.9, weight_decay=0.01),
    "sgd_momentum_scaled": dict(kind="sgd", lr=0.1, momentum=0.9, weight_decay=0.01,
                                lr_scale=[1, 0.8, 0.6, 0.4, 0.2]),
    "sgd_nesterov": dict(kind="sgd", lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "sgd_dampening": dict(kind="sgd", lr=0.1, momentum=0.9, weight_decay=0.01, dampening=0.1),
    "sgd_matrices": dict(kind="sgd", lr=0.1, momentum=0.9, weight_decay=0.01, decay="matrices"),
    "adam": dict(kind="adam", lr=0.01, betas=[0.9, 0.999], eps=1e-8),
    "adam_decay": dict(kind="adam", lr=0.01, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.01),
    "adamw": dict(kind="adamw", lr=0.01, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.05),
    "adamw_matrices": dict(kind="adamw", lr=0.01, betas=[0.9, 0.98], eps=1e-6, weight_decay=0.05,
                           decay="matrices"),
    "lars": dict(kind="lars", lr=5.0, momentum=0.9, trust_coeff=0.001, eps=1e-8, weight_decay=1e-4,
                 decay="matrices"),
    "lars_all": dict(kind="lars", lr=5.0, momentum=0.9, trust_coeff=0.001, eps=0.0, weight_decay=1e-4),
    "lars_nesterov": dict(kind="lars", lr=5.0, momentum=0.9, nesterov=True, trust_coeff=0.001, eps=1e-8,
                          weight_decay=1e-4, decay="matrices"),
    "lars_scaled": dict(kind="lars", lr=5.0, momentum=0.9, trust_coeff=0.001, eps=0.0, weight_decay=1e-4,
                        decay="matrices", lr_scale=[1, 0.8, 0.6, 0.4, 0.2]),
    "lars_tf": dict(kind="lars_tf", lr=5.0, momentum=0.9, trust_coeff=0.001, eps=0.0, weight_decay=1e-4,
                    decay="matrices", lr_scale=[1, 0.8, 0.6, 0.4, 0.2]),
    "lars_clip": dict(kind="lars_clip", lr=0.05, momentum=0.9, trust_coeff=0.02, eps=1e-8, weight_decay=1e-4),
    "lamb": dict(kind="lamb", lr=0.01, betas=[0.9, 0.999], eps=1e-6, weight_decay=0.01, max_grad_norm=1.0,
                 decay="matrices"),
    "lamb_all": dict(kind="lamb", lr=0.01, betas=[0.9, 0.999], eps=1e-6, weight_decay=0.01,
                     max_grad_norm=None),
    "lamb_always": dict(kind="lamb", lr=0.01, betas=[0.9, 0.999], eps=1e-6, weight_decay=0.01,
                        max_grad_norm=1.0,
                        decay="matrices", always_adapt=True),
    "lamb_plain": dict(kind="lamb", lr=0.01, betas=[0.9, 0.999], eps=1e-6, weight_decay=0.01,
                       max_grad_norm=None,
                       bias_correction=False, always_adapt=True),
    "lamb_trust_clip": dict(kind="lamb", lr=0.01, betas=[0.9, 0.999], eps=1e-6, weight_decay=0.01,
                            max_grad_norm=None,
                            trust_clip=True),
    "novograd": dict(kind="novograd", lr=0.01, betas=[0.95, 0.98], eps=1e-8, weight_decay=0.001),
    "novograd_averaging": dict(kind="novograd", lr=0.1, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.01,
                               grad_averaging=True, decay="matrices"),
    "rmsprop": dict(kind="rmsprop", lr=0.01, alpha=0.99, eps=1e-8),
    "rmsprop_momentum": dict(kind="rmsprop", lr=0.01, alpha=0.9, eps=1e-8, momentum=0.9, weight_decay=0.01),
    "rmsprop_centered": dict(kind="rmsprop", lr=0.01, alpha=0.9, eps=1e-4, momentum=0.9, centered=True),
    "rmsprop_tf": dict(kind="rmsprop_tf", lr=0.01, alpha=0.9, eps=1e-3, momentum=0.9, weight_decay=0.01),
    "lookahead_initial": dict(kind="sgd", lr=0.1, momentum=0.9, lookahead=dict(k=3, alpha=0.5,
        slow_start="initial")),
    "lookahead_first_sync": dict(kind="sgd", lr=0.1, momentum=0.9,
                                 lookahead=dict(k=3, alpha=0.5, slow_start="first_sync")),
    "lookahead_adamw": dict(kind="adamw", lr=0.01, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.05,
                            lookahead=dict(k=4, alpha=0.8, slow_start="initial")),
    "clip_norm": dict(kind="sgd", lr=0.1, momentum=0.9, clip_norm=0.7),
    "clip_norm_idle": dict(kind="sgd", lr=0.1, momentum=0.9, clip_norm=1000.0),
    "clip_value": dict(kind="sgd", lr=0.1, momentum=0.9, clip_value=0.1),
}

SCHEDULES = {
    "constant_warmup": dict(kind="constant", steps=12, lr=0.4, warmup=5, warmup_from=0.05),
    "step": dict(kind="step", steps=20, lr=0.1, every=6, gamma=0.1),
    "step_warmup": dict(kind="step", steps=20, lr=0.1, every=6, gamma=0.1, warmup=3),
    "multistep": dict(kind="multistep", steps=20, lr=0.1, milestones=[7, 12, 18], gamma=0.1),
    "multistep_warmup": dict(kind="multistep", steps=20, lr=1.6, milestones=[7, 12, 18], gamma=0.1, warmup=4,
                             warmup_from=0.1),
    "cosine": dict(kind="cosine", steps=20, lr=0.5, end=0.0),
    "cosine_warmup_end": dict(kind="cosine", steps=30, lr=4e-3, end=1e-6, warmup=6),
    "poly2": dict(kind="poly", steps=20, lr=10.0, power=2.0, end=0.0),
    "poly2_warmup_end": dict(kind="poly", steps=25, lr=17.0, power=2.0, end=1e-4, warmup=5),
    "poly_half": dict(kind="poly", steps=10, lr=1.0, power=0.5, end=0.0),
    "linear_warmup": dict(kind="linear", steps=16, lr=1.7, end=0.0, warmup=4, warmup_from=1.7e-4),
    "exponential": dict(kind="exponential", steps=10, lr=0.1, gamma=0.9),
    "yolox": dict(kind="yolox", steps=40, lr=0.01, end=0.0005, warmup=5, warmup_shape="quadratic", hold=6),
    "onecycle_cosine": dict(kind="onecycle", steps=24, lr=0.1, pct_start=0.3, div_factor=25.0,
                            final_div_factor=1e4,
                            anneal="cos"),
    "onecycle_linear": dict(kind="onecycle", steps=20, lr=0.2, pct_start=0.25, div_factor=10.0,
                            final_div_factor=100.0,
                            anneal="linear"),
}

IMAGES = dict(resize=256, crop=224, photos=[
    "imagenet-sample/n02951585_can_opener.JPEG",
    "imagenet-sample/n01728572_thunder_snake.JPEG",
    "imagenet-sample/n02692877_airship.JPEG",
    "imagenet-sample/n02815834_beaker.JPEG",
    "imagenet-sample/n03992509_potter's_wheel.JPEG",
    "imagenet-sample/n03825788_nipple.JPEG",
    "imagenet-sample/n02002724_black_stork.JPEG",
    "imagenet-sample/n03920288_Petri_dish.JPEG",
    "imagenet-sample/n04604644_worm_fence.JPEG",
    "imagenet-sample/n01749939_green_mamba.JPEG",
    "imagenet-sample/n02109961_Eskimo_dog.JPEG",
    "imagenet-sample/n01622779_great_grey_owl.JPEG",
    "imagenet-sample/n02977058_cash_machine.JPEG",
    "imagenet-sample/n03109150_corkscrew.JPEG",
    "imagenet-sample/n03782006_monitor.JPEG",
    "imagenette224/train/n01440764/ILSVRC2012_val_00000293.JPEG",
    "imagenette224/train/n03000684/ILSVRC2012_val_00034727.JPEG",
    "imagenette224/val/n03028079/ILSVRC2012_val_00003351.JPEG",
    "imagenette224/val/n03888257/n03888257_13681.JPEG",
    "imagenette224/val/n03445777/n03445777_2312.JPEG",
    "odd-images/pil-pil_sample_cmyk.jpg",
    "odd-images/jd-ycck.jpg",
    "odd-images/jd-rgb.jpg",
    "odd-images/jd-restarts.jpg",
    "odd-images/jd-jpg-progressive.jpg",
    "odd-images/pil-hopper_orientation_6.jpg",
    "odd-images/ljt-testorig.jpg",
])

MIXING = dict(shape=[4, 3, 6, 8], classes=5, smoothing=0.1, lambdas=[0.25, 0.7],
              cuts=[[3, 2, 0.5], [7, 5, 0.4], [0, 0, 0.9]])

INVENTORY = dict(
    models={
        **{n: dict(name=n, classes=1000, size=224) for n in (
            "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d",
            "resnext101_32x8d",
            "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2", "convnext_tiny", "convnext_small",
            "convnext_base",
            "convnext_large", "swin_t", "swin_s", "swin_b", "vit_s_16", "vit_b_16", "mobilenet_v2",
            "mobilenet_v3_small", "mobilenet_v3_large")},
        **{f"resnet{d}_10_classes": dict(name=f"resnet{d}", classes=10, size=224) for d in (18, 34, 50, 101,
            152)},
        **{f"resnet{d}_cifar_{o}": dict(name=f"resnet{d}_cifar", option=o, classes=10, size=32)
           for d in (20, 32, 44, 56, 110) for o in "AB"},
        **{f"yolox_{s}": dict(name=f"yolox_{s}", classes=80, size=z) for s, z in
           (("nano", 416), ("tiny", 416), ("s", 640), ("m", 640), ("l", 640), ("x", 640))},
        "inception_v3": dict(name="inception_v3", classes=1000, size=299),
        "lenet5": dict(name="lenet5", classes=10, size=28, channels=1),
        "mlp": dict(name="mlp", classes=10, size=28, channels=1),
    },
    names=["lenet5", "mlp", "resnet20_cifar_A", "resnet20_cifar_B", "resnet18", "resnet50", "resnext50_32x4d",
           "convnext_tiny",
           "swin_t", "vit_s_16", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "inception_v3",
           "yolox_nano",
           "yolox_tiny", "yolox_s"])

KFAC = dict(rho=0.95, damping=[0.03, 0.001], lr=0.1, kappa=0.001, layers={
    "linear": dict(x=[8, 5], w=[4, 5], bias=True),
    "conv": dict(x=[4, 2, 5, 5], w=[3, 2, 3, 3], bias=True, stride=1, padding=1),
    "conv_stride2": dict(x=[3, 3, 6, 5], w=[4, 3, 2, 2], bias=False, stride=2, padding=0),
})

ADASUM = dict(ranks=[2, 3, 4, 5, 6, 7, 8], layers=[7, 1, 12, 5], common=0.8)

OVERLAP = dict(a=7, b=5, hand=[[0, 0, 10, 10], [0, 0, 10, 10], [10, 0, 20, 10], [5, 5, 15, 15], [2, 2, 4, 4],
                               [30, 30, 40, 45]])
NMS = dict(n=60, copies=5, jitter=0.5, classes=3, extent=100, thresholds=[0.3, 0.45, 0.65])
YOLOX_LOSS = dict(size=[64, 96], classes=5, b=3.0, reg=[0.75, 1.0], truth=[
    [[0, 20.5, 21.0, 20.0, 18.0], [3, 29.0, 25.5, 21.0, 24.0], [1, 67.0, 40.0, 36.0, 38.0],
     [2, 9.0, 55.0, 15.0, 16.0]],
    [],
    [[4, 12.0, 50.0, 21.0, 19.0], [2, 43.0, 30.0, 66.0, 60.0], [2, 48.0, 26.0, 40.0, 37.0],
     [1, 80.0, 12.0, 17.0, 22.0]],
])
COCO = {
    "coco_val": dict(annotations="detection/coco-json/annotations/instances_val2017.json", share=0.8),
    "coco_train": dict(annotations="detection/coco-json/annotations/instances_train2017.json", share=0.85),
}

# Late and averaged weights (gen/delayed.py).
_LATE = dict(model="lenet5", classes=10, batch=12, channels=1, size=[28, 28], steps=8, optimizer=_SGD)
_LATE_CIFAR = dict(model="resnet20_cifar", option="A", classes=10, batch=4, size=[16, 16], steps=6,
                   optimizer=dict(kind="sgd", lr=0.01, momentum=0.9))
_THREE = [["conv1"], ["conv2", "fc1"], ["fc2", "fc3"]]
DELAYED = {
    "lenet5_pipedream_2": dict(_LATE, mode="pipedream", stages=[["conv1", "conv2"], ["fc1", "fc2", "fc3"]]),
    "lenet5_pipedream_3": dict(_LATE, mode="pipedream", stages=_THREE),
    "lenet5_pipedream_4": dict(_LATE, mode="pipedream", stages=[["conv1"], ["conv2"], ["fc1"],
        ["fc2", "fc3"]]),
    "lenet5_pipelined_3": dict(_LATE, mode="pipelined", stages=_THREE),
    "lenet5_two_buffered": dict(_LATE, mode="two_buffered"),
    "lenet5_stale_2": dict(_LATE, mode="stale", tau=2),
    "resnet20_pipedream_3": dict(_LATE_CIFAR, mode="pipedream", stages=[["conv1", "bn1", "layer1"],
        ["layer2"], ["layer3", "linear"]]),
    "resnet20_two_buffered": dict(_LATE_CIFAR, mode="two_buffered"),
    "lenet5_local_sgd_2": dict(_LATE, mode="local_sgd", ranks=2, every=2, sync_steps=2),
    "lenet5_local_sgd_3": dict(_LATE, mode="local_sgd", ranks=3, every=3, sync_steps=0),
    "lenet5_pipedream_vertical_3": dict(_LATE, mode="pipedream_vertical", stages=_THREE),
    "lenet5_pipelined_spike_3": dict(_LATE, mode="pipelined", stages=_THREE, correction="spike"),
    "lenet5_pipelined_predict_3": dict(_LATE, mode="pipelined", stages=_THREE, correction="predict"),
    "lenet5_pipelined_both_3": dict(_LATE, mode="pipelined", stages=_THREE, correction="both"),
    "lenet5_diloco_2": dict(_LATE, mode="local_sgd", ranks=2, every=2, sync_steps=2,
        outer=dict(kind="nesterov", rate=0.7, momentum=0.9)),
    "lenet5_slowmo_3": dict(_LATE, mode="local_sgd", ranks=3, every=3, sync_steps=0,
        outer=dict(kind="slowmo", rate=0.9, momentum=0.6)),
    "lenet5_swap_2": dict(_LATE, mode="swap", ranks=2, sync_steps=4),
}

# Names of the input tensors, where not "input": chosen so that rounding flips no ReLU (see README.md).
INPUTS = {
    "models/mlp": "input11",  # 0 flips, margin 0.000404
    "models/lenet5": "input6",  # 0 flips, margin 0.000152
    "models/resnet20_cifar_b_16": "input2",  # 0 flips, margin 1.6e-05
    "models/resnet18_64": "input1",  # 0 flips, margin 5.53e-06
    "train/lenet5_sgd_momentum": "input3",  # 0 flips, margin 8.88e-06
    "train/lenet5_sgd_nesterov_decay": "input9",  # 0 flips, margin 4.64e-06
    "train/lenet5_adamw": "input6",  # 0 flips, margin 6.9e-06
    "train/lenet5_lars": "input9",  # 0 flips, margin 6.12e-06
    "train/lenet5_lars_tf": "input5",  # 0 flips, margin 5.32e-06
    "train/lenet5_lamb": "input6",  # 0 flips, margin 7.25e-06
    "train/lenet5_novograd": "input9",  # 0 flips, margin 3.92e-06
    "train/lenet5_sgd_clip_norm": "input3",  # 0 flips, margin 5.08e-06
    "train/lenet5_sgd_clip_value": "input6",  # 0 flips, margin 7.03e-06
    "train/resnet20_sgd_momentum": "input8",  # 0 flips, margin 3.34e-06
    "train/resnet20_sgd_nesterov_decay": "input5",  # 0 flips, margin 4.82e-06
    "train/resnet20_adamw": "input5",  # 0 flips, margin 4.09e-06
    "train/resnet20_lars": "input9",  # 0 flips, margin 3.32e-06
    "train/resnet20_lars_tf": "input9",  # 0 flips, margin 3.32e-06
    "train/resnet20_lamb": "input8",  # 0 flips, margin 3.08e-06
    "train/resnet20_sgd_clip_value": "input8",  # 0 flips, margin 6.87e-06
    "train/resnet20_sgd_smooth": "input5",  # 0 flips, margin 5.34e-06
    "train/lenet5_sgd_ema": "input3",  # 0 flips, margin 8.88e-06
    "train/resnet20_sgd_ema": "input5",  # 0 flips, margin 4.82e-06
    "train/resnet20_sgd_ema_ramp": "input5",  # 0 flips, margin 4.82e-06
    "train/resnet20_sgd_freeze": "input6",  # 0 flips, margin 3.63e-06
    "models/resnet18_64_bias": "input2",  # 0 flips, margin 3.39e-05
    "train/resnet20_rmsprop": "input3",  # 0 flips, margin 2.04e-06
    "train/lenet5_rmsprop": "input6",  # 0 flips, margin 5.7e-06
    "delayed/lenet5_pipedream_2": "input1",  # 0 flips, margin 8.25e-06
    "delayed/lenet5_pipedream_3": "input5",  # 0 flips, margin 5.91e-06
    "delayed/lenet5_pipedream_4": "input9",  # 0 flips, margin 1.27e-05
    "delayed/lenet5_pipelined_3": "input9",  # 0 flips, margin 1.29e-05
    "delayed/lenet5_two_buffered": "input1",  # 0 flips, margin 5.29e-06
    "delayed/lenet5_stale_2": "input12",  # 0 flips, margin 4.73e-06
    "delayed/resnet20_pipedream_3": "input5",  # 0 flips, margin 2.94e-06
    "delayed/resnet20_two_buffered": "input7",  # 0 flips, margin 2.52e-06
    "delayed/lenet5_local_sgd_2": "input12",  # 0 flips, margin 9.27e-06
    "delayed/lenet5_local_sgd_3": "input1",  # 0 flips, margin 9.79e-06
    "delayed/lenet5_swap_2": "input6",  # 0 flips, margin 1.19e-05
    "delayed/lenet5_pipelined_predict_3": "input9",  # 0 flips, margin 9.93e-06
    "delayed/lenet5_pipelined_both_3": "input5",  # 0 flips, margin 5.91e-06
    "delayed/lenet5_pipedream_vertical_3": "input3",  # 0 flips, margin 4.52e-06
    "delayed/lenet5_pipelined_spike_3": "input5",  # 0 flips, margin 5.19e-06
    "delayed/lenet5_diloco_2": "input",  # 0 flips, margin 1.15e-05
    "delayed/lenet5_slowmo_3": "input2",  # 0 flips, margin 1.66e-05
}
