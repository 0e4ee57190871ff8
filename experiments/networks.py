"""Graph networks to compare with: ChebNet and MoNet in PyG's layers, trained by one cycle of steps.

The architecture is that of a small LeNet as in Monti et al. (2017): three convolutions with 32, 64 and 64
channels, with pooling between them, then a hidden layer; orders (25) and Gaussians (25) are theirs too. The
sizes are also those of sw-gong's implementation of MoNet, which follows that paper, and so are the 10
Gaussians on meshes. What we added is normalization of each layer's batches (of graphs) and another start of
the Gaussians, without which they hardly learn from few graphs, and one cycle of larger steps (Smith & Topin
2018), because 300 passes would take days here.
"""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from experiments.hierarchies import BatchLevel, Hierarchy
from experiments.mixing import chebyshev, mixed
from experiments.models import Fit, Note, Trained
from experiments.sets import held_out
from gcgp.descriptors.spectral import GeometryVectors
from gcgp.domain import Mesh, Signals

CHANNELS = (32, 64, 64)
HIDDEN = 128
WIDTH = 0.2
"""Of Gaussians at the start; coordinates are in [0, 1]."""
LEAST_BATCHES = 8
"""In a pass, however few signals there are."""
LARGEST_STEP = 3e-3
"""Of Adam, in the middle of training; it begins and ends far smaller."""
WEIGHT_DECAY = 1e-4
HELD_OUT = 0.1
"""Part of the training signals that says which pass is the best."""
LEAST_PASSES = 15


@dataclass(frozen=True)
class Recipe:
    """How a network is built and trained."""

    kernels: int
    """Gaussians of MoNet, orders of ChebNet."""
    normalized: bool
    """Whether layers are, over each batch."""
    dropout: float
    together: int
    """Signals of a batch, at most."""
    steps: int
    """With few signals there are more passes: at least so many steps."""


USUAL = Recipe(25, normalized=True, dropout=0.5, together=64, steps=1_000)
ON_MESHES = Recipe(10, normalized=False, dropout=0.2, together=2, steps=2_000)
"""Meshes come two at a time, too few to normalize a layer by: with that, and with half as many passes, held
out ones are predicted far worse."""


class GraphNetwork(nn.Module):
    """Convolutions with pooling between them, the mean over vertices, and two layers on that."""

    def __init__(self, kind: str, channels: int, classes: int, recipe: Recipe = USUAL) -> None:
        try:
            from torch_geometric.nn import ChebConv, GMMConv
        except ImportError as error:
            raise ImportError("graph networks need PyG: pip install 'gcgp[graphs]'") from error
        super().__init__()
        sizes = (channels, *CHANNELS)
        self.kind = kind
        if kind == "chebnet":
            layers = [ChebConv(a, b, recipe.kernels) for a, b in zip(sizes, CHANNELS, strict=False)]
        else:
            layers = [
                GMMConv(a, b, dim=2, kernel_size=recipe.kernels)
                for a, b in zip(sizes, CHANNELS, strict=False)
            ]
            for layer in layers:  # spread over the coordinates; where PyG puts them, most see no edge
                nn.init.uniform_(layer.mu, 0.0, 1.0)
                nn.init.constant_(layer.sigma, WIDTH)
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(size) if recipe.normalized else nn.Identity() for size in CHANNELS
        )
        self.head = nn.Sequential(
            nn.Linear(CHANNELS[-1], HIDDEN), nn.ELU(), nn.Dropout(recipe.dropout), nn.Linear(HIDDEN, classes)
        )

    def forward(
        self, values: Float[Tensor, "vertices channels"], levels: list[BatchLevel]
    ) -> Float[Tensor, "graphs classes"]:
        """Scores of each class."""
        from torch_geometric.utils import scatter

        x = values
        for depth, (layer, level) in enumerate(zip(self.layers, levels, strict=True)):
            seen = (
                chebyshev(layer, x, level.edges)
                if self.kind == "chebnet"
                else mixed(layer, x, level.edges, level.pseudo)
            )
            x = nn.functional.elu(self.norms[depth](seen))
            if level.parents is not None:
                x = scatter(x, level.parents, reduce="max")
        return self.head(scatter(x, levels[-1].graph_of, reduce="mean"))


def network(kind: str, recipe: Recipe = USUAL) -> Fit:
    """A graph network of this kind, trained."""

    def fit(train: Signals, labels: np.ndarray, inducing: int | None, seed: int) -> Trained:
        classes, codes = np.unique(labels, return_inverse=True)
        graphs = Hierarchy.of(train, len(CHANNELS))
        batches = replace(recipe, together=max(1, min(recipe.together, len(train) // LEAST_BATCHES)))
        with torch.random.fork_rng():  # layers and dropout draw from torch's own generator
            torch.manual_seed(seed)
            model = GraphNetwork(kind, train.channels, len(classes), batches)
            note = trained(model, graphs.batch, codes, seed, batches)

        def predict(signals: Signals) -> np.ndarray:
            own = Hierarchy.of(signals, len(CHANNELS), graphs.reach)
            return probabilities(model, own.batch, len(signals), batches.together)

        return Trained(predict, note)

    return fit


def mesh_network(train: Sequence[Mesh], labels: np.ndarray, inducing: int | None, seed: int) -> Trained:
    """A MoNet on meshes: no pooling, neighbors on the surface, geometry vectors of unit variance."""
    descriptor = GeometryVectors()
    described = descriptor.fit_transform(train)
    mean, spread = described.values.mean(axis=0), described.values.std(axis=0)

    def scaled(signals: Signals) -> Signals:
        return replace(signals, values=(signals.values - mean) / np.where(spread > 0, spread, 1.0))

    found = network("monet", ON_MESHES)(scaled(described), labels, inducing, seed)
    return replace(found, predict=lambda meshes: found.predict(scaled(descriptor.transform(meshes))))


def convolutional_network(
    train: Float[np.ndarray, "N H W"], labels: np.ndarray, inducing: int | None, seed: int
) -> Trained:
    """A small network on images: two convolutions of 5 × 5 pixels with pooling, and a hidden layer."""
    classes, codes = np.unique(labels, return_inverse=True)
    sides = [side // 2 // 2 for side in train.shape[1:]]

    def batch_of(images: np.ndarray) -> Batches:
        return lambda rows: (torch.from_numpy(images[rows][:, None].astype(np.float32)),)

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Conv2d(1, CHANNELS[0], 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(CHANNELS[0], CHANNELS[1], 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(CHANNELS[1] * sides[0] * sides[1], HIDDEN),
            nn.ReLU(),
            nn.Dropout(USUAL.dropout),
            nn.Linear(HIDDEN, len(classes)),
        )
        note = trained(model, batch_of(train), codes, seed, USUAL)
    return Trained(lambda images: probabilities(model, batch_of(images), len(images)), note)


Batches = Callable[[np.ndarray], tuple[Any, ...]]
"""What a network takes, for the signals of these numbers."""


def trained(model: nn.Module, batch: Batches, labels: np.ndarray, seed: int, recipe: Recipe) -> Note:
    """Train by Adam with one cycle of step sizes; keep the pass that predicts held-out training signals best.

    Where a class has but one signal none is held out, and those that are learned from say which pass it is.
    """
    every = np.arange(len(labels))
    learned, held = held_out(labels, HELD_OUT, seed) or (every, every)
    steps = -(-len(learned) // recipe.together)
    passes = max(LEAST_PASSES, -(-recipe.steps // steps))
    optimizer = torch.optim.Adam(model.parameters(), LARGEST_STEP, weight_decay=WEIGHT_DECAY)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, LARGEST_STEP, total_steps=passes * steps)
    rng, truth = np.random.default_rng(seed), torch.from_numpy(labels)
    best, best_pass, state, start = math.inf, 0, copy.deepcopy(model.state_dict()), time.perf_counter()
    for number in range(1, passes + 1):
        model.train()
        for rows in pieces(rng.permutation(learned), recipe.together):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(*batch(rows)), truth[rows]).backward()
            optimizer.step()
            cycle.step()
        found = probabilities(model, lambda rows: batch(held[rows]), len(held), recipe.together)
        loss = float(-np.log(np.maximum(found[np.arange(len(held)), labels[held]], 1e-12)).mean())
        if loss < best:
            best, best_pass, state = loss, number, copy.deepcopy(model.state_dict())
        seconds = time.perf_counter() - start
        told = f"  pass {number} of {passes}: held-out NLL {loss:.4f}, {seconds:.0f} s"
        print(told, file=sys.stderr, flush=True)
    model.load_state_dict(state)
    return {"passes": passes, "best_pass": best_pass, "held_out_nll": best}


@torch.no_grad()
def probabilities(model: nn.Module, batch: Batches, count: int, together: int = USUAL.together) -> np.ndarray:
    """Class probabilities of the first `count` signals."""
    model.eval()
    rows = np.arange(count)
    parts = [torch.softmax(model(*batch(some)).double(), dim=1) for some in pieces(rows, together)]
    return torch.cat(parts).numpy()


def pieces(rows: np.ndarray, together: int) -> Iterator[np.ndarray]:
    """So many rows at a time."""
    for start in range(0, len(rows), together):
        yield rows[start : start + together]
