"""Shapes in signatures are checked while testing; modules with compiled loops are left as they are."""

from jaxtyping import install_import_hook

CHECKED = [
    "gcgp.domain.chart",
    "gcgp.domain.graphs",
    "gcgp.domain.grids",
    "gcgp.domain.signals",
    "gcgp.domain.pyg",
    "gcgp.weighting",
    "gcgp.patches.convolution",
    "gcgp.patches.patches",
    "gcgp.kernel",
    "gcgp.inference",
    "gcgp.surface",
]

install_import_hook(CHECKED, "shapes.typechecker")
