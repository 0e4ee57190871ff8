"""Training steps of GPflow's convolutional SVGP on a problem that `benchmarks.gpflow` wrote.

    python gpflow_step.py float64|float32 PROBLEM.npz STEPS

It runs in GPflow's environment, without gcgp, and prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf


def main() -> None:
    dtype, path, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    gpflow.config.set_default_float(np.dtype(dtype).type)
    with np.load(path) as file:
        problem = {name: file[name].astype(dtype) for name in file.files}
    gpflow.config.set_default_jitter(float(problem["jitter"]))
    images, labels = problem["images"], problem["labels"][:, None]
    side, patch = images.shape[1], int(problem["patch_side"])
    base = gpflow.kernels.SquaredExponential(
        lengthscales=float(problem["lengthscale"]), variance=float(problem["variance"])
    )
    classes = problem["means"].shape[0]
    model = gpflow.models.SVGP(
        kernel=gpflow.kernels.Convolutional(base, [side, side], [patch, patch]),
        likelihood=gpflow.likelihoods.MultiClass(classes),
        inducing_variable=gpflow.inducing_variables.InducingPatches(problem["inducing"]),
        num_latent_gps=classes,
        num_data=len(images),
        q_mu=problem["means"].T,
        q_sqrt=problem["factors"],
        whiten=True,
    )
    gpflow.set_trainable(model.likelihood, False)  # its epsilon; ours is fixed too
    data = tf.constant(images.reshape(len(images), -1)), tf.constant(labels)
    optimizer = tf.keras.optimizers.Adam(1e-3)

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = model.training_loss(data)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    first = float(step())
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        float(step())
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(json.dumps({"loss": first, "seconds": seconds, "peak_gb": peak}))


if __name__ == "__main__":
    main()
