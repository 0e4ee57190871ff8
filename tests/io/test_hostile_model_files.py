"""Model files with changed contents and a checksum that matches them."""

import copy
import itertools
import json
import re
import time

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.pipeline import make_pipeline

import gcgp
from experiments.metrics import peak_memory
from gcgp import (
    GaussianMixture,
    GCGPClassifier,
    GCGPRegressor,
    GeometryVectors,
    Mesh,
    Patch,
    PatchKernel,
    Polar,
    Radial,
    Runtime,
    Signals,
)
from gcgp.io.container import checksum

RNG = np.random.default_rng(0)
FAST = {
    "n_inducing": 6,
    "kernel": PatchKernel(lengthscale=0.4, variance=3.0),
    "runtime": Runtime(progress=False),
}
CORNERS = np.concatenate([np.eye(3), -np.eye(3)])
FACES = np.array([[0, 1, 2], [1, 3, 2], [3, 4, 2], [4, 0, 2], [1, 0, 5], [3, 1, 5], [4, 3, 5], [0, 4, 5]])
DEEP = [0]
for _ in range(300):
    DEEP = [DEEP]
HOSTILE = [
    *(float("nan"), float("inf"), -1, 0, 1e308, 10**9, 2**63, 10**400, "", "x" * 100_000, [], {}, None, DEEP),
    {"class": "eval"},
]
REMOVED = object()


def images():
    data = RNG.random((12, 5, 5))
    model = GCGPClassifier([Polar([1], 2), "box"], patch=Patch(position=2.0), **FAST)
    return model.fit(data, ["a", "b", "c"] * 4), data


def graphs():
    data = Signals.on_graph(RNG.random((12, 4, 2)), [[0, 1], [1, 2], [2, 3]])
    mixture = GaussianMixture([[0.5, 0.5], [0.9, 0.1]], on=["degree"])
    model = GCGPRegressor(mixture, patch=Patch(bin_counts=True), **FAST)
    return model.fit(data, RNG.random(12)), data


def meshes():
    data = [Mesh(CORNERS * factors, FACES) for factors in RNG.uniform(0.5, 2, (8, 1, 3))]
    model = make_pipeline(GeometryVectors(3, n_splines=5), GCGPClassifier(Radial([0.0, 0.5]), **FAST))
    return model.fit(data, [0, 1] * 4), data


def contents(path):
    with safe_open(str(path), framework="pt") as file:
        metadata = file.metadata()
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        return json.loads(metadata["model"]), tensors, metadata


def write(path, description, tensors, metadata):
    text = description if isinstance(description, str) else json.dumps(description)
    save_file(tensors, str(path), metadata | {"model": text, "digest": checksum(text, tensors)})


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """The models are too small for several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=[images, graphs, meshes], ids=lambda make: make.__name__)
def saved(request, tmp_path_factory):
    model, data = request.param()
    path = tmp_path_factory.mktemp("models") / "model.gcgp"
    gcgp.save(model, path)
    return path, data[:2], contents(path)


def places(value, place=()):
    """The path to every item of nested objects and lists; of lists only the first and the last item."""
    if place:
        yield place
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*place, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            if i in (0, len(value) - 1):
                yield from places(item, (*place, i))


def changed(description, place, value):
    copied = copy.deepcopy(description)
    within = copied
    for key in place[:-1]:
        within = within[key]
    if value is REMOVED:
        del within[place[-1]]
    else:
        within[place[-1]] = value
    return copied


def refused_or_finite(path, data):
    """Whether the file was refused, with its path; a model that is loaded must predict finite numbers.

    It may also refuse the signals, if the file says that it was fitted to other domains or another chart.
    """
    start = time.process_time()
    model, message = None, ""
    try:
        model = gcgp.load(path)
    except ValueError as error:
        message = str(error)
    assert time.process_time() - start < 5  # seconds of this process, whatever else the machine does
    if model is None:
        assert str(path) in message
        assert len(message) < 2_000
        return True
    last = model[-1] if hasattr(model, "steps") else model
    assert last.runtime is None or last.runtime.checkpoint is None
    try:
        predictions = getattr(model, "predict_proba", model.predict)(data)
    except ValueError as error:
        if not re.search("but training had|chart", str(error)):
            raise
        return False
    assert np.isfinite(predictions).all()
    return False


def test_every_value_of_the_description(saved, tmp_path):
    """Two of the hostile values for each item, in turn."""
    _, data, (description, tensors, metadata) = saved
    path = tmp_path / "changed.gcgp"
    values = itertools.cycle((*HOSTILE, REMOVED))
    refused = total = 0
    for place in places(description):
        for value in itertools.islice(values, 2):
            write(path, changed(description, place, value), tensors, metadata)
            try:
                refused += refused_or_finite(path, data)
            except Exception as error:
                raise AssertionError(f"{place} = {str(value)[:40]}") from error
            total += 1
    assert refused > 0.8 * total


def test_unknown_keys(saved, tmp_path):
    _, data, (description, tensors, metadata) = saved
    path = tmp_path / "changed.gcgp"
    objects = [()] + [place for place in places(description) if isinstance(at(description, place), dict)]
    for place in objects:
        if place[-1:] == ("domain_signature_",):  # its keys depend on the kind of domain
            continue
        copied = copy.deepcopy(description)
        at(copied, place)["strange"] = 1
        write(path, copied, tensors, metadata)
        with pytest.raises(ValueError, match=r"changed.gcgp: .*strange"):
            gcgp.load(path)
    write(path, description, tensors, metadata | {"strange": "1"})
    with pytest.raises(ValueError, match=r"changed.gcgp: .*unknown key 'strange'"):
        gcgp.load(path)
    write(path, description, tensors | {"strange": torch.zeros(1)}, metadata)
    with pytest.raises(ValueError, match=r"changed.gcgp: .*'strange' belongs to no part"):
        gcgp.load(path)
    write(path, description, tensors, metadata)
    assert not refused_or_finite(path, data)


def tensor_changes(tensor):
    if tensor.is_floating_point():
        limit = torch.finfo(tensor.dtype).max
        for value in (float("nan"), float("inf"), -float("inf"), -1e30, 1e308, 0.0, -1.0):
            other = tensor.clone()
            other.view(-1)[-1] = value if not abs(value) > limit or np.isinf(value) else limit
            yield value, other
        yield "all huge", torch.full_like(tensor, limit)
        yield "all zero", torch.zeros_like(tensor)
        yield "half", tensor.half()
    else:
        yield "negative", -1 - tensor
        yield "large", tensor + 2**40
    yield "integers", tensor.to(torch.int32)
    yield "longer", torch.cat([tensor.reshape(1, -1)] * 2, dim=1).reshape(-1)
    yield "one dimension more", tensor[None]
    yield "empty", tensor.reshape(-1)[:0]


def test_every_tensor(saved, tmp_path):
    _, data, (description, tensors, metadata) = saved
    path = tmp_path / "changed.gcgp"
    for number, (key, tensor) in enumerate(tensors.items()):
        for change, other in list(tensor_changes(tensor))[number % 3 :: 3]:
            write(path, description, tensors | {key: other.contiguous()}, metadata)
            try:
                refused = refused_or_finite(path, data)
            except Exception as error:
                raise AssertionError(f"{key}: {change}") from error
            wrong = isinstance(change, str) and not change.startswith("all")
            if wrong or not np.isfinite(change if isinstance(change, float) else 0.0):
                assert refused or torch.equal(tensor, other), f"{key}: {change}"
        write(path, description, {name: t for name, t in tensors.items() if name != key}, metadata)
        assert refused_or_finite(path, data), f"{key} removed"


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    model, data = images()
    path = tmp_path_factory.mktemp("models") / "model.gcgp"
    model.save(path)
    return path, data, contents(path)


def kernel_chain(depth, kind="ScaleKernel"):
    chain = {"class": "RBFKernel", "active_dims": None, "ard_num_dims": None, "arguments": {}}
    for _ in range(depth):
        chain = {"class": kind, "active_dims": None, "parts": [chain]}
    return chain


def kernel_tree(depth):
    if depth == 0:
        return kernel_chain(0)
    return {"class": "AdditiveKernel", "active_dims": None, "parts": [kernel_tree(depth - 1)] * 8}


def nested_options(depth):
    options = None
    for _ in range(depth):
        options = {"is": "options", "class": "Patch", "parameters": {"position": options}}
    return options


PARAMETERS = ("steps", 0, "parameters")
FITTED = ("steps", 0, "fitted")
TERM = ("steps", 0, "terms", 0)
BOMBS = {
    "wide kernel": ((*TERM, "kernel", "ard_num_dims"), 2_000_000_000),
    "deep kernel": ((*TERM, "kernel"), kernel_chain(200)),
    "kernel as deep as GPyTorch takes long for": ((*TERM, "kernel"), kernel_chain(24)),
    "tree of kernels": ((*TERM, "kernel"), kernel_tree(4)),
    "deep sum": ((*TERM, "kernel"), kernel_chain(200, "AdditiveKernel")),
    "rotations": (
        (*TERM, "kernel"),
        {"class": "RotationAverage", "parts": [kernel_chain(0)]},
    ),
    "number of angles": ((*TERM, "weighting", "parameters", "angles"), 10**9),
    "number of angles in shorthand": ((*TERM, "weighting", "shorthand", "angles"), 10**9),
    "wide mixture": (
        (*PARAMETERS, "weighting"),
        {
            "is": "weighting",
            "class": "GaussianMixture",
            "parameters": {"means": [[0.0] * 100_000], "on": ["degree"]},
            "shorthand": {"scales": 1.0, "shear": None},
        },
    ),
    "angles of an option": (
        (*PARAMETERS, "weighting"),
        {
            "is": "weighting",
            "class": "Polar",
            "parameters": {"radii": [1.0], "angles": 10**9, "radial_width": 1.0, "angular_width": 1.0},
            "shorthand": {},
        },
    ),
    "kernel of an option": (
        (*PARAMETERS, "kernel"),
        {"is": "kernel", "kernel": kernel_chain(0) | {"ard_num_dims": 2 * 10**9}, "state": {}},
    ),
    "long strings": ((*FITTED, "classes_", "dtype"), "<U9999999"),
    "array of arrays": (
        (*PARAMETERS, "aggregate"),
        {"is": "array", "dtype": "100000000f8", "items": [1.0]},
    ),
    "array of strings": (
        (*PARAMETERS, "aggregate"),
        {"is": "array", "dtype": "<U9999999", "items": ["a"] * 1000},
    ),
    "many terms": (("steps", 0, "terms"), [{}] * 200_000),
    "many steps": (("steps",), [{}] * 200_000),
    "long history": ((*FITTED, "history_"), [[]] * 200_000),
    "long signature": ((*FITTED, "domain_signature_"), {str(i): i for i in range(10_000)}),
    "nested options": ((*PARAMETERS, "patch"), nested_options(100)),
    "abstract likelihood": (
        (*FITTED, "likelihood_"),
        {"is": "options", "class": "Likelihood", "parameters": {}},
    ),
    "other options as likelihood": (
        (*FITTED, "likelihood_"),
        {"is": "options", "class": "Patch", "parameters": {}},
    ),
    "nested lists": ((*PARAMETERS, "learn"), DEEP),
    "lists of lists": ((*PARAMETERS, "learn"), {"is": "list", "items": [[]] * 200_000}),
}


@pytest.mark.parametrize("name", BOMBS)
def test_small_files_that_ask_for_much(classifier, name, tmp_path):
    _, _, (description, tensors, metadata) = classifier
    path = tmp_path / "bomb.gcgp"
    write(path, changed(description, *BOMBS[name]), tensors, metadata)
    assert path.stat().st_size < 2**20
    start, before = time.process_time(), peak_memory()
    with pytest.raises(ValueError, match=r"bomb\.gcgp: not a valid gcgp model"):
        gcgp.load(path)
    assert time.process_time() - start < 5  # seconds of this process, whatever else the machine does
    assert peak_memory() - before < 0.2  # GB


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "1", "{", "[" * 100_000, '{"gcgp": ' * 100_000, "[" + "[]," * 300_000 + "[]]"],
    ids=lambda text: text[:8] or "empty",
)
def test_texts_that_are_no_descriptions(classifier, text, tmp_path):
    _, _, (_, tensors, metadata) = classifier
    path = tmp_path / "none.gcgp"
    write(path, text, tensors, metadata)
    with pytest.raises(ValueError, match=r"none\.gcgp: not a valid gcgp model"):
        gcgp.load(path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.uint8, torch.complex64])
def test_tensors_of_strange_dtypes(classifier, dtype, tmp_path):
    _, _, (description, tensors, metadata) = classifier
    path = tmp_path / "strange.gcgp"
    key = "steps.0.posterior.weights"
    write(path, description, tensors | {key: tensors[key].to(dtype)}, metadata)
    with pytest.raises(ValueError, match=r"strange\.gcgp: .*weights.* expected torch.float64"):
        gcgp.load(path)


@pytest.mark.parametrize("count", [2, 4])
def test_wrong_number_of_classes(classifier, count, tmp_path):
    _, _, (description, tensors, metadata) = classifier
    path = tmp_path / "classes.gcgp"
    place = (*FITTED, "classes_", "items")
    write(path, changed(description, place, ["a", "b", "c", "d"][:count]), tensors, metadata)
    with pytest.raises(ValueError, match=rf"classes\.gcgp: .*: 3 latent functions, expected {count}"):
        gcgp.load(path)


@pytest.mark.parametrize("device", ["meta", "x" * 1000, 10**9, None, ["cpu"], {}], ids=lambda d: str(d)[:9])
def test_a_device_that_this_machine_lacks_becomes_the_cpu(classifier, device, tmp_path):
    _, data, (description, tensors, metadata) = classifier
    path = tmp_path / "device.gcgp"
    place = (*PARAMETERS, "runtime", "parameters", "device")
    write(path, changed(description, place, device), tensors, metadata)
    model = gcgp.load(path)
    assert model.runtime.device == "cpu"
    assert np.isfinite(model.predict_proba(data[:2])).all()


def test_a_checkpoint_in_the_file_is_ignored(classifier, tmp_path):
    _, data, (description, tensors, metadata) = classifier
    path = tmp_path / "path.gcgp"
    target = tmp_path / "written"
    write(
        path,
        changed(description, (*PARAMETERS, "runtime", "parameters", "checkpoint"), str(target)),
        tensors,
        metadata,
    )
    model = gcgp.load(path)
    assert model.runtime.checkpoint is None
    model.fit(data, ["a", "b", "c"] * 4)
    assert not target.exists()


def at(description, place):
    for key in place:
        description = description[key]
    return description
