"""Gradients of the objective of learning, against finite differences in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gpytorch.priors import GammaPrior
from scipy.spatial import ConvexHull

from gcgp import Layer, Mesh
from gcgp._runtime.processes import SINGLE_PROCESS
from gcgp.domain import Signals
from gcgp.inference import Features, Term
from gcgp.inference.likelihoods import Dirichlet, Gaussian, Softmax, normal_draws
from gcgp.inference.parameters import Parameters, learnable_names, scalar_parameter, term_parameters
from gcgp.inference.svgp import FreePosterior, RecomputedFeatures, StochasticBound
from gcgp.inference.training_set import TrainingSet
from gcgp.kernel import ConvolutionalKernel, RotationAverage, base_kernel
from gcgp.kernel.base import set_lengthscales
from gcgp.layers import fit_layers
from gcgp.layers.convolution import layered
from gcgp.patches import Convolution
from gcgp.selection.objective import Anchors, Objective, Scored
from gcgp.weighting import Anisotropic, Box, GaussianMixture, GeodesicPolar, Polar, Radial

STEP = 1e-5


def images(count=6):
    return Signals.from_images(np.random.default_rng(0).random((count, 5, 5)))


def graphs(count=6):
    rng = np.random.default_rng(1)
    sizes = rng.integers(5, 9, count)
    edges = [
        np.concatenate([np.stack([np.arange(n - 1), np.arange(1, n)], axis=1), [[0, n // 2], [1, n - 1]]])
        for n in sizes
    ]
    return Signals.from_graphs(
        [rng.random((n, 2)) for n in sizes], edges, coordinates=[4 * rng.random((n, 2)) for n in sizes]
    )


def meshes(count=4):
    rng = np.random.default_rng(2)
    points = rng.normal(size=(count, 40, 3))
    points /= np.linalg.norm(points, axis=2, keepdims=True)
    balls = [Mesh(p * rng.uniform(0.8, 1.2, 3), ConvexHull(p).simplices) for p in points]
    return Signals.on_meshes([rng.random(40) for _ in balls], balls)


def objective(
    signals,
    weighting,
    *,
    names=None,
    kernel="rbf",
    position=False,
    bin_counts=False,
    rotation_average=False,
    vertex_weights=False,
    anchored=True,
    regression=False,
    by_bound=False,
    memory=1 << 30,
    layers=(),
):
    """An objective of all parameters of its term, or of the named ones."""
    torch.manual_seed(0)
    convolution = Convolution(
        weighting.double(), bin_counts=bin_counts, position=position, dtype=torch.float64
    )
    convolution = layered(convolution, fit_layers(layers, signals, torch.float64))
    columns = convolution.columns(signals)
    made = convolution.patches(signals)
    base = base_kernel(kernel, columns).double()
    scales = 0.5 + torch.rand(made.values.shape[1], dtype=torch.float64)
    if rotation_average:
        scales[:] = 0.7
    set_lengthscales(base, scales)
    if rotation_average:
        base = RotationAverage(base, weighting.rotations)
    per_signal = int(made.offsets[1])
    weights = 0.5 + torch.rand(per_signal, dtype=torch.float64) if vertex_weights else None
    rows = torch.linspace(0, len(made.values) - 1, 7).long()
    term = Term(
        replace(convolution, reach=1.3 * weighting.reach),
        ConvolutionalKernel(base, "mean", weights),
        made.values[rows].detach().clone(),
        jitter=1e-4,
    )
    if names is None:
        names = [
            name for name in learnable_names(term, columns, True) if name not in ("lengthscale", "inducing")
        ]
        if rotation_average:
            names.append("lengthscale")
        if not anchored:
            names.append("inducing")
    parameters = term_parameters(term, names, columns)
    assert {name for parameter in parameters for name in parameter.names} >= set(names)
    term.convolution.weighting.requires_grad_(False)
    term.kernel.requires_grad_(False)
    for parameter in parameters:
        parameter.tensor.requires_grad_(True)
    log_noise, log_variance = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (-2.0, 1.5))
    parameters += [scalar_parameter("variance", log_variance), scalar_parameter("noise", log_noise)]
    count = len(signals)
    group = torch.zeros(count, dtype=torch.int64) if regression else torch.arange(count) % 2
    targets = torch.linspace(-1, 2, count, dtype=torch.float64) if regression else torch.ones(count).double()
    classes = 1 if regression else 2
    scored = Scored(torch.arange(1, count), normal_draws(classes, 16))
    return Objective(
        Features([term], memory),
        TrainingSet(signals, group, targets, classes, SINGLE_PROCESS, first=0, count=count),
        Gaussian() if regression else Dirichlet(),
        log_noise,
        log_variance,
        Parameters(parameters),
        [Anchors(signals, made.vertices[rows]) if anchored else None],
        None if by_bound else scored,
    )


def assert_gradient_is_right(function):
    """In a random direction of each parameter."""
    rng = np.random.default_rng(3)
    x = 0.05 * rng.normal(size=function.parameters.size)
    alone = function.value(x)
    value, gradient = function(x)
    assert value == pytest.approx(alone, rel=1e-9)
    start = 0
    for parameter in function.parameters.parts:
        direction = np.zeros_like(x)
        direction[start : start + parameter.size] = rng.normal(size=parameter.size)
        start += parameter.size
        ahead, behind = (function.value(x + sign * STEP * direction) for sign in (1, -1))
        numeric = (ahead - behind) / (2 * STEP)
        assert gradient @ direction == pytest.approx(numeric, rel=1e-5, abs=1e-8), parameter.names
        assert abs(numeric) > 1e-9, parameter.names


FAMILIES = {
    "polar on images": (images, Polar([1.0, 1.8], 4, 0.7)),
    "polar on graphs": (graphs, Polar([0.0, 1.5], 4, 0.8)),
    "rings": (graphs, Radial([0.0, 1.5], 0.8)),
    "sums": (graphs, Radial([0.0, 1.5], 0.8, normalize=False)),
    "anisotropic": (graphs, Anisotropic([0.0, 1.2], 3, 1.1, 0.6)),
    "mixture": (graphs, GaussianMixture([[0.3, 0.6], [0.7, 0.2]], 0.4, 0.1, on=["degree"], reach=1.5)),
    "box": (images, Box(side=3)),
    "rays on meshes": (meshes, GeodesicPolar([0.0, 0.6], 3, 0.4)),
    "angles on meshes": (meshes, Polar([0.0, 0.6], 3, 0.4)),
}


@pytest.mark.parametrize("by_bound", [True, False], ids=["bound", "leave-one-out"])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_of_all_families_and_parameters(family, by_bound):
    make, weighting = FAMILIES[family]
    assert_gradient_is_right(objective(make(), weighting, by_bound=by_bound))


@pytest.mark.parametrize("regression", [True, False])
@pytest.mark.parametrize("by_bound", [True, False])
@pytest.mark.parametrize("anchored", [True, False])
def test_gradients_with_both_likelihoods_with_and_without_anchors(regression, by_bound, anchored):
    assert_gradient_is_right(
        objective(
            graphs(), Polar([0.5, 1.5], 3, 0.8), regression=regression, by_bound=by_bound, anchored=anchored
        )
    )


LAYERS = {
    "image, stride": (
        images,
        Box(3, inside=False),
        [Layer(Polar([1.0, 1.8], 4, 0.7), n_anchors=4, average=0.8, stride=2)],
    ),
    "image, two layers": (images, Box(1), [Layer(Polar([0.5, 1.0], 3, 0.7), n_anchors=3)] * 2),
    "graph, coordinates": (graphs, Radial([0.0, 1.5], 0.8), [Layer(Polar([1.0, 2.0], 4, 0.9), n_anchors=4)]),
    "graph, counts": (
        graphs,
        Radial([0.0], 0.8),
        [
            Layer(Radial([0.0, 1.0], 0.6, normalize=False), n_anchors=4, kernel="rbf", bin_counts=True),
            Layer(Radial([0.0, 1.0], 0.6), n_anchors=3, average=1.0),
        ],
    ),
    "graph, pooled": (
        graphs,
        Radial([0.0], 0.8),
        [
            Layer(Radial([0.0, 1.0], 0.6, normalize=False), n_anchors=4, kernel="rbf", skip=True),
            Layer(Radial([0.0, 1.0], 0.6), n_anchors=4, skip=True, pool="sum"),
        ],
    ),
    "image, flattened": (
        images,
        Radial([0.0], 0.8),
        [Layer(Polar([0.5, 1.0], 3, 0.7), n_anchors=3, stride=2, pool="flatten")],
    ),
    "mesh, rotations": (
        meshes,
        Radial([0.0, 0.6], 0.4),
        [Layer(GeodesicPolar([0.2, 0.6], 3, 0.4), n_anchors=3, average=0.4)],
    ),
}


@pytest.mark.parametrize("by_bound", [True, False], ids=["bound", "leave-one-out"])
@pytest.mark.parametrize("case", LAYERS)
def test_gradients_through_layers(case, by_bound):
    """With respect to anchors, lengthscales and weightings of all layers, and to what follows them."""
    make, weighting, layers = LAYERS[case]
    function = objective(make(), weighting, layers=layers, by_bound=by_bound)
    names = [name for part in function.parameters.parts for name in part.names]
    assert names.count("layers.anchors") == names.count("layers.lengthscale") == len(layers)
    assert "layers.radii" in names
    assert_gradient_is_right(function)


def test_gradients_through_layers_with_free_inducing_patches():
    layer = Layer(Radial([0.0, 1.0], 0.6), n_anchors=4)
    assert_gradient_is_right(objective(graphs(), Radial([0.0], 0.5), layers=[layer], anchored=False))


@pytest.mark.parametrize("kernel", ["rbf", "matern32", "matern52"])
def test_gradients_of_kernels_with_bin_counts_and_position(kernel):
    assert_gradient_is_right(
        objective(graphs(), Radial([0.5, 1.5], 0.8), kernel=kernel, bin_counts=True, position=True)
    )


def test_gradients_of_vertex_weights():
    function = objective(images(4), Radial([0.0, 1.0], 0.6), vertex_weights=True, names=["vertex_weights"])
    assert_gradient_is_right(function)


def test_gradients_of_rotation_averages():
    weighting = Polar([1.0, 1.8], 3, 0.7)
    assert_gradient_is_right(
        objective(images(), weighting, rotation_average=True, names=["lengthscale", "radii"])
    )


def test_runs_of_signals_do_not_change_the_result():
    x = np.full(3, 0.1)
    names = ["lengthscale"]
    whole, parts = (
        objective(graphs(), Radial([0.5, 1.5], 0.8), names=names, memory=memory)(x) for memory in (1 << 30, 1)
    )
    assert whole[0] == pytest.approx(parts[0], rel=1e-12)
    np.testing.assert_allclose(whole[1], parts[1], rtol=1e-9)


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_features_are_kept_for_the_second_pass_as_far_as_memory_allows(kept, monkeypatch):
    monkeypatch.setattr("gcgp.selection.objective.RUN_BYTES", 1)  # each signal is a run
    function = objective(graphs(), Radial([0.5, 1.5], 0.8), names=["lengthscale", "radii"])
    x = np.full(function.parameters.size, 0.1)
    value, gradient = function(x)  # which has no room yet
    room = sum(function._traced_bytes(run) for run in function._runs()[:kept]) + 1
    monkeypatch.setattr(Objective, "_free_bytes", lambda self: room)
    twice, compute = [], Objective._chunk
    monkeypatch.setattr(Objective, "_chunk", lambda *given: twice.append(len(given) == 3) or compute(*given))
    again, other = function(x)
    assert sum(twice) == len(function.data.signals) - kept
    assert again == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(other, gradient, rtol=1e-9)


class Batch:
    """The bound of a batch of signals as a function of all that is learned beside q."""

    def __init__(self, closed, regression, memory):
        self.parameters = closed.parameters
        torch.manual_seed(1)
        free = FreePosterior.prior(closed.features.size, closed.data.groups, closed.log_variance)
        for leaf in free.distribution.parameters():
            torch.nn.init.normal_(leaf, 0.0, 0.3)
        self.bound = StochasticBound(
            free,
            RecomputedFeatures(replace(closed.features, memory=memory), closed.data.signals),
            lambda step: Gaussian(closed.log_parameter.exp()) if regression else Softmax(),
            closed.data,
        )

    def __call__(self, x):
        self.parameters.set(x)
        return self.bound.estimate(np.array([4, 0, 3])), self.parameters.gradient(x)

    def value(self, x):
        return self(x)[0]


@pytest.mark.parametrize("memory", [1 << 30, 1], ids=["at once", "one by one"])
@pytest.mark.parametrize("regression", [True, False])
def test_gradients_of_the_bound_of_a_batch(regression, memory):
    closed = objective(graphs(), Polar([0.5, 1.5], 3, 0.8), regression=regression, anchored=False)
    if not regression:  # a class likelihood has no noise
        closed = replace(closed, parameters=Parameters(closed.parameters.parts[:-1]))
    assert_gradient_is_right(Batch(closed, regression, memory))


@pytest.mark.parametrize("by_bound", [True, False], ids=["bound", "leave-one-out"])
def test_gradients_of_kernels_with_priors(by_bound):
    def made(prior):
        function = objective(
            graphs(), Radial([0.5, 1.5], 0.8), by_bound=by_bound, names=["lengthscale", "radii"]
        )
        if prior is not None:
            base = function.features.terms[0].kernel.base
            base.register_prior("lengthscale_prior", prior, "lengthscale")
        return function

    prior = GammaPrior(3.0, 6.0).double()
    with_prior, without = made(prior), made(None)
    x = np.full(with_prior.parameters.size, 0.1)
    gained = with_prior.value(x) - without.value(x)
    lengthscale = with_prior.features.terms[0].kernel.base.lengthscale
    expected = prior.log_prob(lengthscale.detach()).sum() / len(with_prior.data.signals)
    assert gained == pytest.approx(float(expected), rel=1e-9)
    assert_gradient_is_right(with_prior)
