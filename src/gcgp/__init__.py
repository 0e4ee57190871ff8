"""Graph convolutional Gaussian processes: learn from few labeled signals on images, graphs and meshes.

The names of the public API are listed in `__init__.pyi`; each is imported when it is first used, because
torch, scikit-learn and Numba together take seconds to import.

>>> import gcgp
>>> gcgp.GCGPClassifier(n_inducing=100)
GCGPClassifier(n_inducing=100)
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
