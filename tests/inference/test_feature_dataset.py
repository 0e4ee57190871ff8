"""Features of all signals, in memory or in a file."""

import numpy as np
import torch

from gcgp._runtime.processes import SINGLE_PROCESS
from gcgp.domain import Signals
from gcgp.inference.feature_dataset import FeatureDataset
from gcgp.inference.features import Chunk
from gcgp.inference.likelihoods import Softmax
from gcgp.inference.natural_gradient import fit_sites
from gcgp.inference.training_set import TrainingSet


def test_features_beyond_the_memory_limit_are_in_a_file(dataset, flat):
    count, size = dataset.features.shape
    signals = Signals.from_images(np.zeros((count, 2, 2)))
    data = TrainingSet(
        signals, dataset.observations, torch.ones(count).double(), 3, SINGLE_PROCESS, first=0, count=count
    )
    in_file = FeatureDataset.allocate(size, data, torch.float64, memory=8)
    diagonal = dataset.features.square().sum(dim=1) + dataset.residual
    for run in (slice(0, 11), slice(11, count)):
        in_file.fill(Chunk(run, dataset.features[run], diagonal[run]))
    torch.testing.assert_close(in_file.residual, dataset.residual)
    in_file.residual[:] = dataset.residual
    assert fit_sites(flat, in_file, Softmax(), 2.0).bound == fit_sites(flat, dataset, Softmax(), 2.0).bound


def test_local_rows_are_those_of_this_process(dataset):
    second = FeatureDataset(dataset.features, dataset.residual, dataset.observations, first=10, total=90)
    assert second.local(torch.tensor([3, 10, 12, 49, 50])).tolist() == [0, 2, 39]
    assert (len(second), second.count) == (40, 90)
