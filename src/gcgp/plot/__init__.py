"""Plots of evidence and of learning; they need matplotlib (extra `plot`).

Input: a fitted model and signals. Output: a matplotlib figure.
"""

try:
    import matplotlib as _matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError("plots need matplotlib: pip install 'gcgp[plot]'") from error

from gcgp.plot.evidence import plot_evidence, plot_mesh_evidence
from gcgp.plot.learning import plot_learning

__all__ = ["plot_evidence", "plot_learning", "plot_mesh_evidence"]
