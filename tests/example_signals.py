"""Small classification problems that several tests use."""

import numpy as np

from gcgp import Signals


def bars(count=60, side=9, seed=0):
    """Images of a bright row (class 0) or column (class 1) on noise."""
    rng = np.random.default_rng(seed)
    images = 0.1 * rng.random((count, side, side))
    labels = np.arange(count) % 2
    for image, label in zip(images, labels, strict=True):
        position = rng.integers(1, side - 1)
        image[(position, slice(None)) if label == 0 else (slice(None), position)] += 1.0
    return images, labels


def rings_and_paths(count=40, seed=0, coordinates=False):
    """Graphs of different sizes: a closed ring (class 0) or an open path (class 1), constant values."""
    rng = np.random.default_rng(seed)
    values, edges, positions = [], [], []
    labels = np.arange(count) % 2
    for label in labels:
        size = int(rng.integers(5, 9))
        chain = [[i, i + 1] for i in range(size - 1)]
        edges.append(chain + ([[size - 1, 0]] if label == 0 else []))
        values.append(np.ones(size))
        angle = np.linspace(0, 2 * np.pi if label == 0 else 1.0, size, endpoint=False)
        positions.append(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    return Signals.from_graphs(values, edges, coordinates=positions if coordinates else None), labels
