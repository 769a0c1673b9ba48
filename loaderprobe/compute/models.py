"""Small models of the textbooks, beside those of torchvision. Each takes images N x 3 x H x W of any size."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

SIDE = 32
"""Images are averaged, or repeated, to so many pixels a side; those of CIFAR's size stay as they are."""
HIDDEN = 1000


def lenet5(*, num_classes: int) -> nn.Module:
    """LeNet-5: two convolutions of 5 x 5 and three linear layers."""
    return nn.Sequential(
        OrderedDict(
            size=nn.AdaptiveAvgPool2d(SIDE),
            conv1=nn.Conv2d(3, 6, 5),
            relu1=nn.ReLU(inplace=True),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(6, 16, 5),
            relu2=nn.ReLU(inplace=True),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(16 * 5 * 5, 120),
            relu3=nn.ReLU(inplace=True),
            fc2=nn.Linear(120, 84),
            relu4=nn.ReLU(inplace=True),
            fc3=nn.Linear(84, num_classes),
        )
    )


def mlp(*, num_classes: int) -> nn.Module:
    """A perceptron with two hidden layers of 1,000 units."""
    return nn.Sequential(
        OrderedDict(
            size=nn.AdaptiveAvgPool2d(SIDE),
            flatten=nn.Flatten(),
            fc1=nn.Linear(3 * SIDE * SIDE, HIDDEN),
            relu1=nn.ReLU(inplace=True),
            fc2=nn.Linear(HIDDEN, HIDDEN),
            relu2=nn.ReLU(inplace=True),
            fc3=nn.Linear(HIDDEN, num_classes),
        )
    )
