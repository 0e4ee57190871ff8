"""Baseline networks: ChebNet and MoNet with the layers of PyG, and the training of all networks.

The architecture follows the small LeNet of Monti et al. (2017): three convolutions with 32, 64 and 64
channels, pooling between them, a hidden layer, and their numbers of orders (25) and Gaussians (25). These
sizes, and the 10 Gaussians on meshes, are also those of sw-gong's implementation of MoNet. We added batch
normalization and another initialization of the Gaussians, without which networks hardly learn from few
graphs, and one cycle of larger learning rates (Smith & Topin 2018), because 300 epochs would take days on two
cores.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from experiments.data import hold_out
from experiments.graph_convolutions import chebyshev_convolution, mixture_convolution
from experiments.graph_hierarchy import BatchLevel, Hierarchy
from experiments.metrics import negative_log_likelihood
from experiments.models import Fit, TrainedModel
from experiments.runs import print_progress
from gcgp import GeometryVectors, Mesh, Signals

CHANNELS = (32, 64, 64)
HIDDEN_UNITS = 128
INITIAL_WIDTH = 0.2
"""Width of the Gaussians before training; coordinates are in [0, 1]."""
MIN_BATCHES_PER_EPOCH = 8
MAX_LEARNING_RATE = 3e-3
"""Of Adam, in the middle of training; it is much lower at the start and at the end."""
WEIGHT_DECAY = 1e-4
HELD_OUT_SHARE = 0.1
"""Share of the training signals that decides which epoch is used."""
MIN_EPOCHS = 15


@dataclass(frozen=True)
class NetworkConfig:
    """How a network is built and trained."""

    kernels: int
    """Gaussians of MoNet, or orders of ChebNet."""
    batch_norm: bool
    dropout: float
    max_batch_size: int
    min_steps: int
    """With few signals there are more epochs, until there are this many steps."""
    pooling: bool = True


ON_GRAPHS = NetworkConfig(25, batch_norm=True, dropout=0.5, max_batch_size=64, min_steps=1_000)
ON_MESHES = NetworkConfig(10, batch_norm=False, dropout=0.2, max_batch_size=2, min_steps=2_000, pooling=False)
"""Batches of two meshes are too small for normalization: with it, and with half the steps, the NLL of
held-out meshes is far higher."""


class GraphNetwork(nn.Module):
    """Convolutions with pooling between them, the mean over vertices, and two linear layers."""

    def __init__(self, kind: str, channels: int, classes: int, config: NetworkConfig = ON_GRAPHS) -> None:
        try:
            from torch_geometric.nn import ChebConv, GMMConv
        except ImportError as error:
            raise ImportError("graph networks need PyG: pip install 'gcgp[graphs]'") from error
        super().__init__()
        self.kind = kind
        sizes = list(zip((channels, *CHANNELS), CHANNELS, strict=False))
        if kind == "chebnet":
            layers = [ChebConv(size_in, size_out, config.kernels) for size_in, size_out in sizes]
        else:
            layers = [GMMConv(a, b, dim=2, kernel_size=config.kernels) for a, b in sizes]
            for layer in layers:  # spread over all coordinates; with PyG's initialization most have no weight
                nn.init.uniform_(layer.mu, 0.0, 1.0)
                nn.init.constant_(layer.sigma, INITIAL_WIDTH)
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(size) if config.batch_norm else nn.Identity() for size in CHANNELS
        )
        self.head = nn.Sequential(
            nn.Linear(CHANNELS[-1], HIDDEN_UNITS),
            nn.ELU(),
            nn.Dropout(config.dropout),
            nn.Linear(HIDDEN_UNITS, classes),
        )

    def forward(
        self, values: Float[Tensor, "vertices channels"], levels: list[BatchLevel]
    ) -> Float[Tensor, "graphs classes"]:
        """Logits of each class."""
        from torch_geometric.utils import scatter

        x = values
        for layer, norm, level in zip(self.layers, self.norms, levels, strict=True):
            if self.kind == "chebnet":
                convolved = chebyshev_convolution(layer, x, level.edges)
            else:
                convolved = mixture_convolution(layer, x, level.edges, level.pseudo)
            x = nn.functional.elu(norm(convolved))
            if level.parents is not None:
                x = scatter(x, level.parents, reduce="max")
        return self.head(scatter(x, levels[-1].graph_of, reduce="mean"))


def graph_network(kind: str, config: NetworkConfig = ON_GRAPHS) -> Fit:
    """A `"monet"` or `"chebnet"` on signals."""

    def fit(train: Signals, labels: np.ndarray, inducing: int | None, seed: int) -> TrainedModel:
        classes, codes = np.unique(labels, return_inverse=True)
        depth = len(CHANNELS)
        graphs = Hierarchy.build(train, depth, config.pooling)
        batch_size = max(1, min(config.max_batch_size, len(train) // MIN_BATCHES_PER_EPOCH))
        with torch.random.fork_rng():  # layers and dropout use the global generator of torch
            torch.manual_seed(seed)
            model = GraphNetwork(kind, train.channels, len(classes), config)
            note = train_network(model, graphs.batch, codes, seed, batch_size, config.min_steps)

        def predict(signals: Signals) -> np.ndarray:
            hierarchy = Hierarchy.build(signals, depth, config.pooling, graphs.reach)
            return probabilities(model, hierarchy.batch, len(signals), batch_size)

        return TrainedModel(predict, note)

    return fit


def fit_mesh_network(
    train: Sequence[Mesh], labels: np.ndarray, inducing: int | None, seed: int
) -> TrainedModel:
    """A MoNet on meshes without pooling; its inputs are standardized geometry vectors."""
    descriptor = GeometryVectors()
    signals = descriptor.fit_transform(train)
    mean, std = signals.values.mean(axis=0), signals.values.std(axis=0)

    def standardize(signals: Signals) -> Signals:
        return replace(signals, values=(signals.values - mean) / np.where(std > 0, std, 1.0))

    network = graph_network("monet", ON_MESHES)(standardize(signals), labels, inducing, seed)
    return replace(network, predict=lambda meshes: network.predict(standardize(descriptor.transform(meshes))))


Batches = Callable[[np.ndarray], tuple[Any, ...]]
"""From indices of signals to the inputs of a network."""


def train_network(
    model: nn.Module,
    batch: Batches,
    labels: np.ndarray,
    seed: int,
    batch_size: int,
    min_steps: int,
    *,
    held_out_share: float = HELD_OUT_SHARE,
    distort: Batches | None = None,
) -> dict[str, Any]:
    """Train with Adam and one cycle of learning rates, and restore the epoch with the lowest held-out NLL.

    If a class has only one signal, none is held out, and the training signals decide. `distort` replaces
    `batch` in training steps.
    """
    everything = np.arange(len(labels))
    fitted, held_out = hold_out(labels, held_out_share, seed) or (everything, everything)
    epochs = max(MIN_EPOCHS, -(-min_steps // -(-len(fitted) // batch_size)))
    best, best_epoch, state, start = math.inf, 0, copy.deepcopy(model.state_dict()), time.perf_counter()
    for epoch in training_epochs(model, distort or batch, labels, fitted, seed, batch_size, epochs):
        predicted = probabilities(model, lambda rows: batch(held_out[rows]), len(held_out), batch_size)
        loss = negative_log_likelihood(predicted, labels[held_out])
        if loss < best:
            best, best_epoch, state = loss, epoch, copy.deepcopy(model.state_dict())
        seconds = time.perf_counter() - start
        print_progress(f"  epoch {epoch} of {epochs}: held-out NLL {loss:.4f}, {seconds:.0f} s")
    model.load_state_dict(state)
    return {"epochs": epochs, "best_epoch": best_epoch, "held_out_nll": best}


def training_epochs(
    model: nn.Module,
    batch: Batches,
    labels: np.ndarray,
    fitted: np.ndarray,
    seed: int,
    batch_size: int,
    epochs: int,
) -> Iterator[int]:
    """Train on the signals `fitted`, and yield the number of each epoch, from 1, when it ends."""
    steps = -(-len(fitted) // batch_size)
    optimizer = torch.optim.Adam(model.parameters(), MAX_LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, MAX_LEARNING_RATE, total_steps=epochs * steps)
    rng, truth = np.random.default_rng(seed), torch.from_numpy(labels)
    for epoch in range(1, epochs + 1):
        model.train()
        for rows in _batch_rows(rng.permutation(fitted), batch_size):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(*batch(rows)), truth[rows]).backward()
            optimizer.step()
            cycle.step()
        yield epoch


@torch.no_grad()
def probabilities(
    model: nn.Module, batch: Batches, count: int, batch_size: int
) -> Float[np.ndarray, "count C"]:
    """Class probabilities of the first `count` signals."""
    model.eval()
    parts = [
        torch.softmax(model(*batch(rows)).double(), dim=1)
        for rows in _batch_rows(np.arange(count), batch_size)
    ]
    return torch.cat(parts).numpy()


def _batch_rows(rows: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), batch_size):
        yield rows[start : start + batch_size]
