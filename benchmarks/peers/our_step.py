"""Training steps of gcgp on the problem that `gpflow_step` solves: same arguments, same line of JSON."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import torch
from gpytorch.kernels import RBFKernel

from experiments.metrics import peak_memory
from gcgp._runtime.history import History
from gcgp._runtime.processes import SINGLE_PROCESS
from gcgp.domain import Signals
from gcgp.inference import Features, Term
from gcgp.inference.likelihoods import RobustMax
from gcgp.inference.methods import SVGP
from gcgp.inference.parameters import Parameters, scalar_parameter, trainable_term
from gcgp.inference.svgp import FreePosterior, RecomputedFeatures, StochasticBound, adam
from gcgp.inference.training_set import TrainingSet
from gcgp.kernel import ConvolutionalKernel
from gcgp.patches import Convolution
from gcgp.weighting import Box

LEARNED = ("lengthscale", "vertex_weights", "inducing")


def main() -> None:
    path, dtype, steps = sys.argv[2], getattr(torch, sys.argv[1]), int(sys.argv[3])
    with np.load(path) as file:
        problem = {name: torch.from_numpy(file[name]) for name in file.files}
    base = RBFKernel(ard_num_dims=problem["inducing"].shape[1]).double()
    base.lengthscale = problem["lengthscale"].expand_as(base.lengthscale)
    patch = int(problem["patch_side"])
    per_image = (problem["images"].shape[1] - patch + 1) ** 2
    weights = torch.ones(per_image, dtype=torch.float64)
    kernel = ConvolutionalKernel(base, aggregate="mean", vertex_weights=weights).to(dtype)
    # GPflow adds its jitter to a Kuu that has the variance in it.
    jitter = float(problem["jitter"] / problem["variance"])
    term = Term(Convolution(Box(patch), dtype=dtype), kernel, problem["inducing"].to(dtype), jitter)
    term, parameters = trainable_term(term, LEARNED, {"bins": slice(0, problem["inducing"].shape[1])})
    log_variance = problem["variance"].log().requires_grad_()
    parameters.append(scalar_parameter("variance", log_variance))
    classes, size = problem["means"].shape
    posterior = FreePosterior.prior(size, classes, log_variance, dtype)
    with torch.no_grad():
        posterior.distribution.variational_mean.copy_(problem["means"])
        posterior.distribution.chol_variational_covar.copy_(problem["factors"])
    signals = Signals.from_images(problem["images"].numpy())
    labels = problem["labels"].long()
    losses, clock = History(log=False), [time.perf_counter()]
    count = len(labels)
    data = TrainingSet(signals, labels, torch.ones(count), classes, SINGLE_PROCESS, first=0, count=count)
    source = RecomputedFeatures(Features([term], 1 << 30), signals)
    adam(
        StochasticBound(posterior, source, lambda step: RobustMax(), data),
        Parameters(parameters),
        epochs=steps + 1,  # of one step each: the batch is the whole set
        batch_size=len(labels),
        learning_rate=SVGP().learning_rate,
        history=losses,
        report=lambda steps: clock.append(time.perf_counter()),
    )
    loss = -losses.steps[0].value * len(labels)
    print(json.dumps({"loss": loss, "seconds": np.diff(clock)[1:].tolist(), "peak_gb": peak_memory()}))


if __name__ == "__main__":
    main()
