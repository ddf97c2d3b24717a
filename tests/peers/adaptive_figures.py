"""Makes tests/golden_adaptive.h: torch's adaptive average pooling to 7 x 7 pixels, and its gradient, of the
maps that VGG makes of images of 32, 64, 96, 160, 224, 288 and 161 x 97 pixels. In f64, of the numbers of
tests/unit/models_parts.c.

usage: adaptive_figures.py > tests/golden_adaptive.h        (torch)
"""
import torch

MAPS = [(1, 1), (2, 2), (3, 3), (5, 5), (7, 7), (9, 9), (5, 3)]
MOST = max(h * w for h, w in MAPS)


def noise(n, step=1):
    return torch.tensor([(step * i + 1) * 2654435761 % 1000003 / 500000 - 1 for i in range(n)],
                        dtype=torch.float64)


def numbers(t):
    lines, line = [], "    "
    for v in t.flatten().tolist():
        word = f"{v:.9g}, "
        if len(line) + len(word) > 150:
            lines.append(line.rstrip())
            line = "    "
        line += word
    return "\n".join(lines + [line.rstrip().rstrip(",")])


print("/* Made by tests/peers/adaptive_figures.py: torch %s. */" % torch.__version__.split("+")[0])
print("#ifndef TESTS_GOLDEN_ADAPTIVE_H\n#define TESTS_GOLDEN_ADAPTIVE_H\n\n#include <stdint.h>\n")
print("static const struct {\n    int64_t height, width;\n    double y[49], dx[%d];\n} golden_adaptive[] = "
    "{" % MOST)
for height, width in MAPS:
    x = noise(height * width).view(1, 1, height, width).requires_grad_()
    y = torch.nn.AdaptiveAvgPool2d((7, 7))(x)
    y.backward(noise(49, 7).view(1, 1, 7, 7))
    print("    {%d, %d, {\n%s},\n    {\n%s}}," % (height, width, numbers(y), numbers(x.grad)))
print("};\n\n#endif")
