# The public API: what `import gcgp` offers.
from .datasets.bodies import articulated_bodies
from .datasets.mesh_folders import load_faust, load_mesh_folder
from .descriptors import GeometryVectors, HeatKernelSignature, WaveKernelSignature
from .domain.base import Domains
from .domain.signals import Signals
from .domain.superpixels import superpixels
from .estimators.classifier import GCGPClassifier
from .estimators.explain import evidence, predict_latent
from .estimators.options import Runtime
from .estimators.persistence import load, save
from .estimators.regressor import GCGPRegressor
from .estimators.sharding import shard
from .inference.likelihoods import Anchored, Dirichlet, Gaussian, RobustMax, Softmax
from .inference.methods import SVGP, ClosedForm, NaturalGradient, Refined
from .kernel.convolutional import ConvolutionalKernel
from .mesh.decimation import decimate
from .mesh.files.loading import load_mesh
from .mesh.mesh import Mesh
from .plot import plot_evidence, plot_learning, plot_mesh_evidence
from .selection.options import Aggregate, Learn, Patch, PatchKernel
from .weighting import Anisotropic, Box, GaussianMixture, GeodesicPolar, Polar, Radial, Weighting

__version__: str
