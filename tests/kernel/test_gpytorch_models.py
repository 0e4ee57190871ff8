"""`ConvolutionalKernel` in a user's own GPyTorch models, compared with dense formulas."""

import copy

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

from gcgp.kernel import ConvolutionalKernel
from slow_reference import example_kernel, loop_kff, loop_kfu, ragged_patches

COUNTS = [3, 2, 4, 1, 3, 2]
TRAINING, TEST = slice(0, 4), slice(4, 6)


def close(actual, expected, tolerance=1e-9):
    torch.testing.assert_close(actual.detach(), expected.detach(), rtol=tolerance, atol=tolerance)


def indices(*signals):
    return torch.tensor(signals, dtype=torch.float64)[:, None]


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x, y, kernel):
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood().double())
        self.mean, self.kernel = gpytorch.means.ConstantMean().double(), kernel

    def forward(self, x):
        return MultivariateNormal(self.mean(x), self.kernel(x))


class Approximate(gpytorch.models.ApproximateGP):
    def __init__(self, kernel, points, **options):
        distribution = CholeskyVariationalDistribution(points.shape[-2], points.shape[:-2]).double()
        super().__init__(VariationalStrategy(self, points, distribution, **options))
        self.mean, self.kernel = gpytorch.means.ZeroMean(), kernel

    def forward(self, x):
        return MultivariateNormal(self.mean(x), self.kernel(x))


@pytest.fixture
def patches():
    return ragged_patches(COUNTS)


@pytest.fixture
def kernel():
    return ConvolutionalKernel(example_kernel("scaled rbf"))


@pytest.mark.parametrize("name", ["scaled rbf", "matern52 ard", "rational quadratic", "linear"])
def test_inputs_are_indices_of_signals(name, patches):
    kernel = ConvolutionalKernel(example_kernel(name)).on(patches)
    expected = loop_kff(kernel.base, patches, patches)
    left, right = indices(5, 0, 2, 2), indices(1, 3)
    with torch.no_grad():
        close(kernel(left, right).to_dense(), expected[[5, 0, 2, 2]][:, [1, 3]])
        close(kernel(left).to_dense(), expected[[5, 0, 2, 2]][:, [5, 0, 2, 2]])
        close(kernel(left, diag=True), expected.diagonal()[[5, 0, 2, 2]])
        close(kernel(left[:2], right, diag=True), expected[[5, 0], [1, 3]])
        close(kernel(left)[1:, :2].to_dense(), expected[[0, 2, 2]][:, [5, 0]])
        close(kernel(torch.tensor([0, 4])).to_dense(), expected[[0, 4]][:, [0, 4]])


def test_inputs_may_also_be_inducing_patches(kernel, patches):
    kernel, inducing = (
        ConvolutionalKernel(kernel.base, "mean").on(patches),
        ragged_patches([3], seed=5).values,
    )
    weighted = kernel.weighted(patches)
    signals, points = kernel.signal_inputs(torch.tensor([4, 1])), kernel.patch_inputs(inducing)
    mixed = torch.cat([signals[:1], points, signals[1:]])
    with torch.no_grad():
        kfu, kff = kernel.kfu(weighted, inducing), kernel.kff(weighted, weighted)
        close(kernel(points).to_dense(), kernel.kuu(inducing))
        close(kernel(signals, points).to_dense(), kfu[[4, 1]])
        close(kernel(points, signals).to_dense(), kfu[[4, 1]].T)
        whole = kernel(mixed).to_dense()
        close(whole[1:4][:, [0, 4]], kfu[[4, 1]].T)
        close(whole[[0, 4]][:, [0, 4]], kff[[4, 1]][:, [4, 1]])
        close(kernel(mixed, diag=True), whole.diagonal())


def test_the_kernel_on_patches_shares_parameters_and_state(patches):
    kernel = ConvolutionalKernel(example_kernel("rbf"), "mean", torch.rand(2).double())
    placed = kernel.on(ragged_patches([2, 2]))
    assert [*placed.parameters()] == [*kernel.parameters()]
    assert placed.state_dict().keys() == kernel.state_dict().keys()
    assert placed.aggregate == "mean"
    placed(indices(0, 1)).to_dense().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in kernel.parameters())


def test_patches_in_float32_are_computed_in_the_dtype_of_the_kernel(kernel):
    single = ragged_patches(COUNTS, dtype=torch.float32)
    exact = loop_kff(kernel.base, single.double(), single.double())
    close(kernel.on(single)(indices(*range(6))).to_dense(), exact)


def dense_posterior(model, kff, noise, y):
    """Conditioning on the training signals by dense matrices."""
    center = model.mean.constant.detach()
    covariance = kff[TRAINING, TRAINING] + noise * torch.eye(len(y), dtype=torch.float64)
    solved = torch.linalg.solve(covariance, kff[TRAINING, TEST]).T
    return center + solved @ (y - center), kff[TEST, TEST] - solved @ kff[TRAINING, TEST]


@pytest.mark.parametrize("scaled", [False, True])
def test_an_exact_gp_learns_and_predicts_as_dense_formulas_do(kernel, patches, scaled):
    x, y = indices(*range(6)), torch.tensor([0.3, -1.0, 2.0, 0.5], dtype=torch.float64)
    placed = kernel.on(patches)
    model = Exact(x[TRAINING], y, ScaleKernel(placed).double() if scaled else placed)
    likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    before, losses = copy.deepcopy(kernel.state_dict()), []
    for _ in range(5):
        optimizer.zero_grad()
        losses.append(-likelihood(model(x[TRAINING]), y))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0]
    assert not torch.equal(
        before["base.base_kernel.raw_lengthscale"], kernel.base.base_kernel.raw_lengthscale
    )
    model.eval()
    kff = loop_kff(kernel.base, patches, patches) * (model.kernel.outputscale.detach() if scaled else 1.0)
    mean, covariance = dense_posterior(model, kff, model.likelihood.noise.detach(), y)
    with torch.no_grad():
        posterior = model(x[TEST])
        close(posterior.mean, mean, 1e-7)
        close(posterior.covariance_matrix, covariance, 1e-7)
        samples = posterior.rsample(torch.Size([4000]))
    close(samples.mean(dim=0), mean, 0.3)
    close(samples.T.cov(), covariance, 0.3)


def test_the_marginal_likelihood_has_the_gradient_of_dense_matrices(kernel, patches):
    y = torch.tensor([0.3, -1.0, 2.0, 0.5], dtype=torch.float64)
    model = Exact(indices(*range(4)), y, kernel.on(patches))
    value = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(*model.train_inputs), y)
    covariance = kernel.kff(patches[TRAINING], patches[TRAINING]) + model.likelihood.noise * torch.eye(4)
    dense = torch.distributions.MultivariateNormal(model.mean.constant.expand(4), covariance).log_prob(y) / 4
    close(value, dense)
    for actual, expected in zip(
        torch.autograd.grad(value, kernel.parameters()),
        torch.autograd.grad(dense, kernel.parameters()),
        strict=True,
    ):
        close(actual, expected, 1e-7)


@pytest.mark.parametrize("points", ["patches", "signals"])
def test_an_approximate_gp_predicts_as_dense_formulas_do(kernel, patches, points):
    placed, inducing = kernel.on(patches), ragged_patches([3], seed=5).values
    x = placed.signal_inputs(torch.arange(6))
    with torch.no_grad():
        kff = kernel.kff(patches, patches)
        if points == "patches":
            locations, kuu, kfu = (
                placed.patch_inputs(inducing),
                kernel.kuu(inducing),
                kernel.kfu(patches, inducing),
            )
            close(kfu, loop_kfu(kernel.base, patches, inducing))
        else:
            locations, kuu, kfu = x[:3], kff[:3, :3], kff[:, :3]
        model = Approximate(placed, locations, learn_inducing_locations=points == "patches", jitter_val=1e-10)
        q = model.variational_strategy._variational_distribution
        model(x)  # initializes q(u)
        q.variational_mean.copy_(torch.tensor([0.5, -1.0, 2.0]))
        q.chol_variational_covar.copy_(torch.diag(torch.tensor([0.5, 0.3, 0.8])))
        model.eval()
        features = torch.linalg.solve_triangular(torch.linalg.cholesky(kuu), kfu.T, upper=False).T
        variance = torch.tensor([0.5, 0.3, 0.8], dtype=torch.float64).square()
        expected = kff + (features * (variance - 1)) @ features.T
        close(model(x).mean, features @ q.variational_mean, 1e-6)
        close(model(x).covariance_matrix, expected, 1e-6)
        close(model(x).variance, expected.diagonal(), 1e-6)


def test_an_approximate_gp_learns_inducing_patches_and_hyperparameters(kernel, patches):
    placed = kernel.on(patches)
    start = ragged_patches([3], seed=5).values
    model = Approximate(placed, placed.patch_inputs(start))
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    x, y = placed.signal_inputs(torch.arange(6)), torch.linspace(-1, 1, 6, dtype=torch.float64)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=6)
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.05)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        losses.append(-bound(model(x), y))
        losses[-1].backward()
        optimizer.step()
    learned = model.variational_strategy.inducing_points
    assert losses[-1] < losses[0]
    assert learned[:, 0].eq(-1).all()
    assert (learned[:, 1:] != start).all()


def test_inducing_patches_may_differ_between_latent_functions(kernel, patches):
    placed = kernel.on(patches)
    inducing = ragged_patches([6], seed=5).values.reshape(2, 3, 3)
    points = torch.stack([placed.patch_inputs(part) for part in inducing])
    x = placed.signal_inputs(torch.tensor([0, 3]))
    with torch.no_grad():
        actual = placed(x.expand(2, 2, -1), points).to_dense()
        diagonal = placed(points, diag=True)
    for n in range(2):
        close(actual[n], kernel.kfu(patches, inducing[n])[[0, 3]])
        close(diagonal[n], kernel.kuu(inducing[n]).diagonal())
    assert Approximate(placed, points)(x).mean.shape == (2, 2)


def test_a_kernel_without_patches_has_no_inputs(kernel):
    with pytest.raises(ValueError, match=r"no patches; use kernel.on\(patches\)"):
        kernel(indices(0)).to_dense()


@pytest.mark.parametrize("index", [6, 100, -1])
def test_an_index_of_no_signal_is_named(kernel, patches, index):
    with pytest.raises(ValueError, match=f"index {index}: expected indices of signals from 0 to 5"):
        kernel.on(patches)(indices(index)).to_dense()


def test_gpytorch_kernels_can_be_added(kernel, patches):
    placed = kernel.on(patches)
    both = placed + ConvolutionalKernel(RBFKernel().double(), "mean").on(patches)
    parts = [part(indices(1, 4)).to_dense() for part in both.kernels]
    close(both(indices(1, 4)).to_dense(), parts[0] + parts[1])
