"""Features of signals whose classes overlap, for variational inference."""

import pytest
import torch

from gcgp.inference.feature_dataset import FeatureDataset
from gcgp.inference.natural_gradient import Sites

CLASSES, SIZE, COUNT = 3, 6, 40


@pytest.fixture
def dataset():
    torch.manual_seed(0)
    labels = torch.arange(COUNT) % CLASSES
    features = torch.randn(COUNT, SIZE, dtype=torch.float64)
    features[:, :CLASSES] += 1.5 * torch.nn.functional.one_hot(labels, CLASSES)
    return FeatureDataset(features, torch.rand(COUNT, dtype=torch.float64) * 0.1, labels)


@pytest.fixture
def flat():
    """Sites that say nothing."""
    return Sites(*torch.zeros(2, COUNT, CLASSES, dtype=torch.float64))
