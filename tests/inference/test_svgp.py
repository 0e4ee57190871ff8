"""Stochastic variational inference in batches."""

import numpy as np
import pytest
import torch

from gcgp._runtime.processes import ProcessGroup
from gcgp.inference.feature_dataset import FeatureDataset
from gcgp.inference.likelihoods import Softmax
from gcgp.inference.svgp import CachedFeatures, FreePosterior, StochasticBound


def test_a_batch_is_unbiased(dataset):
    free = FreePosterior.prior(dataset.features.shape[1], 3, torch.zeros((), dtype=torch.float64))
    bound = StochasticBound(free, CachedFeatures(dataset), lambda step: Softmax(), dataset)
    batches = np.random.default_rng(0).permutation(len(dataset)).reshape(4, -1)
    parts = [bound.estimate(indices) for indices in batches]
    whole = bound.estimate(np.arange(len(dataset)))
    assert np.mean(parts) == pytest.approx(whole, rel=1e-12)


def test_processes_share_a_batch(dataset):
    free = FreePosterior.prior(dataset.features.shape[1], 3, torch.zeros((), dtype=torch.float64))
    indices = np.array([3, 30, 17, 5])
    whole = StochasticBound(free, CachedFeatures(dataset), lambda step: Softmax(), dataset)
    parts = []
    for rank, part in enumerate([slice(0, 15), slice(15, 40)]):
        tensors = dataset.features[part], dataset.residual[part], dataset.observations[part]
        data = FeatureDataset(*tensors, ProcessGroup(rank, 2), part.start, len(dataset))
        bound = StochasticBound(free, CachedFeatures(data), lambda step: Softmax(), data)
        parts.append(bound.estimate(indices))
    assert sum(parts) == pytest.approx(whole.estimate(indices), rel=1e-12)
