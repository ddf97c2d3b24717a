"""Networks of Kolo in PyTorch, which torchvision does not have; of the others torchvision's."""
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """CIFAR residual block (He et al. 2015, section 4.2), shortcut A."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.extra = (outputs - inputs) // 2
        self.stride = stride

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        if self.stride != 1 or self.extra:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.extra, self.extra))
        return F.relu(y + x, inplace=True)


def resnet20(classes=10):
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    inputs = 16
    for outputs, first in ((16, 1), (32, 2), (64, 2)):
        for i in range(3):
            layers.append(Block(inputs, outputs, first if i == 0 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def lenet5(classes=10):
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5),
                         nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120,
                             84), nn.ReLU(), nn.Linear(84, classes))


def build(name):
    """The network and how many classes it has."""
    if name in ("resnet20", "lenet5"):
        return {"resnet20": resnet20, "lenet5": lenet5}[name](), 10
    import torchvision
    return getattr(torchvision.models, name)(), 1000
