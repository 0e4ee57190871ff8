"""Constructor arguments and labels as JSON and back."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

import gcgp
from gcgp._runtime.options import Options
from gcgp.io.values import parameter, plain_parameter, rebuild_labels


def round_trip(value):
    return parameter("value", json.loads(json.dumps(plain_parameter("value", value))))


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 0.1, "a", [1, ["b", None]], (1, ("x", 2.5)), [], np.float64(0.1), np.int8(3)],
    ids=repr,
)
def test_scalars_lists_and_tuples(value):
    loaded = round_trip(value)
    assert loaded == value
    assert type(loaded) in (type(value), type(getattr(value, "item", lambda: None)()))


@pytest.mark.parametrize(
    "array",
    [
        np.linspace(0, 1, 5, dtype=np.float32),
        np.arange(6).reshape(2, 3),
        np.array([2**64 - 1], dtype=np.uint64),
        np.array(["a", "bcd"]),
        np.array([True, False]),
        np.array(2.5),
        np.zeros((0, 3))[:0, 0],
    ],
    ids=repr,
)
def test_arrays(array):
    loaded = round_trip(array)
    assert loaded.dtype == array.dtype
    np.testing.assert_array_equal(loaded, array)
    if array.dtype.kind == "f":
        np.testing.assert_array_equal(round_trip(torch.from_numpy(array)), array)


@pytest.mark.parametrize(
    "kernel",
    [RBFKernel(ard_num_dims=3).double(), ScaleKernel(MaternKernel(nu=1.5, active_dims=[0, 2]))],
    ids=["double", "float"],
)
def test_kernels(kernel):
    for p in kernel.parameters():
        p.data += 0.3
    loaded = round_trip(kernel)
    assert str(loaded) == str(kernel)
    for name, tensor in kernel.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


@pytest.mark.parametrize(
    "weighting",
    [gcgp.Polar([1, 2], 4), gcgp.Box(3), gcgp.GaussianMixture([[0.1, 0.2]], scales=0.3)],
    ids=repr,
)
def test_weightings(weighting):
    loaded = round_trip(weighting)
    assert repr(loaded) == repr(weighting)
    for name, value in weighting.get_params().items():
        np.testing.assert_allclose(loaded.get_params()[name], value) if name != "on" else None
    if isinstance(weighting, gcgp.Polar):  # the angular width still follows from the number of angles
        assert repr(loaded.set_params(angles=8)) == repr(weighting.set_params(angles=8))


@pytest.mark.parametrize(
    "options",
    [
        gcgp.Patch(position=2.0),
        gcgp.PatchKernel(ScaleKernel(RBFKernel()), variance=3.0),
        gcgp.Learn(["radii", "alpha"], max_iter=4),
        gcgp.NaturalGradient(),
        gcgp.Dirichlet(0.1),
        gcgp.Runtime(memory_limit="1 GB"),
    ],
    ids=lambda options: type(options).__name__,
)
def test_options(options):
    loaded = round_trip(options)
    assert type(loaded) is type(options)
    assert repr(loaded) == repr(options)


@dataclass(eq=False, repr=False)
class UserOptions(Options):
    """Options of a user; gcgp.Patch within them."""

    level: int = 1
    patch: object = None

    def validate(self):
        if not isinstance(self.level, int):
            raise TypeError(f"level={self.level!r}: expected an integer")


def test_user_defined_options():
    loaded = round_trip(UserOptions(4, gcgp.Patch(False)))
    assert type(loaded) is UserOptions
    assert repr(loaded) == repr(UserOptions(4, gcgp.Patch(False)))
    description = plain_parameter("value", UserOptions())
    with pytest.raises(ValueError, match=r"^value: level='x': expected an integer"):
        parameter("value", description | {"parameters": {"level": "x"}})
    with pytest.raises(ValueError, match=r"^value.parameters: unknown key 'colour'"):
        parameter("value", description | {"parameters": {"colour": 1}})
    with pytest.raises(ValueError, match=r"uses the Options 'Elsewhere'.*import the module"):
        parameter("value", description | {"class": "Elsewhere"})


def test_invalid_options_are_refused_with_the_field():
    description = plain_parameter("kernel", gcgp.PatchKernel())
    description["parameters"]["lengthscale"] = -1.0
    with pytest.raises(ValueError, match=r"^parameters.kernel: lengthscale=-1.0: expected"):
        parameter("parameters.kernel", description)


def test_options_inside_options_have_a_limit():
    nested = {}
    for _ in range(20):
        nested = {"is": "options", "class": "Patch", "parameters": {"position": nested}}
    with pytest.raises(ValueError, match="fewer nested objects"):
        parameter("value", nested)


@pytest.mark.parametrize(
    "value",
    [{"a": 1}, object(), np.array([1j]), np.array(["2020-01-01"], dtype="M8[D]"), {1}],
    ids=lambda value: type(value).__name__,
)
def test_values_that_cannot_be_written(value):
    with pytest.raises(ValueError, match=r"^name=.* cannot be written to a model file"):
        plain_parameter("name", value)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"is": "array", "dtype": "int8", "items": [300]}, r"items = \[300\]: .* of values of dtype int8"),
        ({"is": "array", "dtype": "int64", "items": [0.5]}, ".* of values of dtype int64"),
        ({"is": "array", "dtype": "<U1", "items": ["ab"]}, ".* of values of dtype <U1"),
        ({"is": "array", "dtype": "float64", "items": ["1"]}, "of values of dtype float64"),
        ({"is": "array", "dtype": "float64", "items": [None]}, "of values of dtype float64"),
        (
            {"is": "array", "dtype": "float64", "items": [[1], [1, 2]]},
            "expected lists of equal lengths",
        ),
        ({"is": "array", "dtype": "object", "items": [1]}, "dtype = 'object': expected the name of a dtype"),
        ({"is": "set", "items": []}, "is = 'set': expected one of 'options'"),
        ({"is": "list", "items": {}}, "items = {}: expected a list"),
        (float("nan"), "value = nan: expected a number"),
        (2**80, "expected an integer"),
    ],
    ids=str,
)
def test_descriptions_that_are_refused(description, message):
    with pytest.raises(ValueError, match=message):
        parameter("value", description)


@pytest.mark.parametrize(
    "described",
    [
        {"is": "list", "items": ["a", "a"]},
        {"is": "list", "items": ["a"]},
        {"is": "list", "items": ["a", {"is": "options", "class": "Patch", "parameters": {}}]},
        {"is": "array", "dtype": "int64", "items": [[1, 2], [3, 4]]},
        "ab",
    ],
    ids=str,
)
def test_labels_that_are_refused(described):
    with pytest.raises(ValueError, match=r"^classes_ = .*: expected"):
        rebuild_labels("classes_", described)
