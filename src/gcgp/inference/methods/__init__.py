"""Inference methods: from terms and training signals to a posterior. To add one, register it in `METHODS`."""

from gcgp.inference.method import InferenceMethod
from gcgp.inference.methods.closed_form import ClosedForm
from gcgp.inference.methods.natural_gradient import NaturalGradient
from gcgp.inference.methods.refined import Refined
from gcgp.inference.methods.svgp import SVGP

METHODS: dict[str, type[InferenceMethod]] = {
    "closed-form": ClosedForm,
    "refined": Refined,
    "natural-gradient": NaturalGradient,
    "svgp": SVGP,
}

__all__ = ["METHODS", "SVGP", "ClosedForm", "InferenceMethod", "NaturalGradient", "Refined"]
