"""Cases: inputs to the constructors of `Signals`, and to `Mesh`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import scipy.sparse
import torch
import trimesh
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from benchmarks.fuzz import bases
from benchmarks.fuzz.draws import Draw
from benchmarks.fuzz.judging import check, check_finite
from benchmarks.fuzz.values import NAN, Change, hostile, scaled_only
from gcgp import GeometryVectors, Mesh, Signals
from gcgp.domain import as_signals
from gcgp.domain.base import Chart
from gcgp.mesh.spectrum import laplace_beltrami

Run = Callable[[], None]


def check_signals(signals: Signals, charted: bool = True) -> None:
    """Check that signals have consistent, finite arrays, and can be split, joined and charted."""
    check(signals.values.ndim == 2 and signals.values.dtype.kind == "f", f"values are {signals.values.dtype}")
    check_finite("values", signals.values)
    check(int(signals.offsets[-1]) == len(signals.values), "offsets do not end at the number of values")
    check(bool((signals.vertex_counts > 0).all()), "a signal without vertices")
    joined = Signals.concatenate([signals[:1], signals[-1:]])
    check(joined.values.shape[1] == signals.channels, "channels change when signals are joined")
    if charted and len(signals.values) < 2000:
        chart = signals.domains.chart(("rho",), 1.5)
        if isinstance(chart, Chart):
            check_chart(chart, int(signals.domains.vertex_counts.sum()))


def check_chart(chart: Chart, vertices: int) -> None:
    """Check that neighbors exist and have finite distances."""
    check(len(chart.row_offsets) == vertices + 1, "row_offsets for another number of vertices")
    if len(chart.neighbors):
        low, high = int(chart.neighbors.min()), int(chart.neighbors.max())
        check(low >= 0 and high < vertices, f"neighbors from {low} to {high} of {vertices} vertices")
    check_finite("rho", chart.coordinates["rho"])


def image_inputs(draw: Draw, folder: Path) -> Run:
    """Images of any type and shape."""
    shape = draw.value("shape", ((3, 4, 4), (2, 3, 5, 2), (1, 1, 1), (4, 1, 6), (2, 4, 4, 1), (3, 2, 2, 5)))
    array = hostile(draw, "images", draw.rng.normal(size=shape), 0.95)
    read = draw.named("through", {"X": as_signals, "from_images": Signals.from_images})
    return lambda: check_signals(read(array))


def _edges_out_of_range(draw: Draw, edges: Any) -> Any:
    changed = np.array(edges)
    if changed.size:
        numbers = (-1, 100, 2**31, 2**62, -(2**63), 10**9)
        changed.reshape(-1)[draw.integer(0, changed.size - 1)] = draw.value("end", numbers)
    return changed


def _as_adjacency(draw: Draw, edges: Any) -> Any:
    size = int(np.max(edges, initial=0)) + draw.value("extra rows", (1, 0, 3))
    weights = draw.value("entries", (1.0, 0.5, NAN, -1.0, 0.0))
    matrix = np.zeros((size, size))
    edges = np.asarray(edges)[(np.asarray(edges) < size).all(axis=1)]
    matrix[tuple(edges.T)] = weights
    return scipy.sparse.csr_array(matrix) if draw.chance(0.7) else matrix


EDGES: dict[str, Change] = {
    "self loops": lambda draw, edges: np.concatenate([edges, [[0, 0], [1, 1]]]),
    "duplicates": lambda draw, edges: np.concatenate([edges, edges[:, ::-1], edges]),
    "out of range": _edges_out_of_range,
    "none": lambda draw, edges: np.zeros((0, 2), dtype=np.int64),
    "empty list": lambda draw, edges: [],
    "floats": lambda draw, edges: edges + draw.value("added", (0.0, 0.5, NAN, 1e300)),
    "transposed": lambda draw, edges: edges.T,
    "sparse matrix": _as_adjacency,
    "unsigned": lambda draw, edges: edges.astype(np.uint8),
    "booleans": lambda draw, edges: edges > 0,
    "anything": lambda draw, edges: hostile(draw, "edges", edges, 1.0),
}


def hostile_graph(draw: Draw, item: bases.GraphArrays) -> bases.GraphArrays:
    """A graph with one or two changed fields."""
    fields = item._asdict()
    names = draw.rng.permutation(list(fields))[: draw.integer(1, 2)]
    for name in names.tolist():
        if name == "edges":
            fields[name] = draw.apply(name, EDGES, item.edges)
        else:
            fields[name] = hostile(draw, name, fields[name], 1.0)
    return bases.GraphArrays(**fields)


def graph_inputs(draw: Draw, folder: Path) -> Run:
    """Graphs, one of which is hostile, or one hostile graph for all signals."""
    vertices, channels = draw.value("vertices", (1, 2, 5)), draw.value("channels", (1, 2))
    lengths, coordinates = draw.chance(0.5), draw.chance(0.5)
    draw.note(f"lengths={lengths}, coordinates={coordinates}")
    strange = hostile_graph(draw, bases.graph(draw.rng, vertices, channels))
    if draw.chance(0.3):
        draw.note("on_graph")
        stack = draw.rng.normal(size=(3, vertices, channels))
        values = hostile(draw, "stack", stack, 0.5)
        return lambda: check_signals(
            Signals.on_graph(
                values,
                strange.edges,
                strange.lengths if lengths else None,
                strange.coordinates if coordinates else None,
            )
        )
    items = [bases.graph(draw.rng, 4, channels), strange]
    return lambda: check_signals(bases.graph_signals(items, lengths, coordinates))


def _face_changes(draw: Draw, faces: Any) -> Any:
    changed = np.array(faces)
    numbers = (-1, 6, 10**9, 2**62, 0, 1)
    changed[draw.integer(0, len(changed) - 1), draw.integer(0, 2)] = draw.value("corner", numbers)
    return changed


FACES: dict[str, Change] = {
    "as they are": lambda draw, faces: faces,
    "one corner changed": _face_changes,
    "duplicates": lambda draw, faces: np.concatenate([faces, faces[:3, ::-1], faces[:1]]),
    "degenerate": lambda draw, faces: np.concatenate([faces, [[0, 0, 1], [2, 2, 2]]]),
    "some removed": lambda draw, faces: faces[draw.rng.random(len(faces)) < 0.4],
    "none": lambda draw, faces: faces[:0],
    "random": lambda draw, faces: draw.rng.integers(0, 6, (draw.integer(1, 12), 3)),
    "anything": lambda draw, faces: hostile(draw, "faces", faces, 1.0),
}


def hostile_mesh(draw: Draw) -> tuple[Any, Any]:
    """Vertices and faces of a changed octahedron."""
    change = scaled_only if draw.chance(0.6) else hostile
    vertices = change(draw, "vertices", bases.OCTAHEDRON + draw.rng.normal(size=(6, 3)) / 5, 0.7)
    return vertices, draw.apply("faces", FACES, bases.FACES)


def mesh_inputs(draw: Draw, folder: Path) -> Run:
    """A hostile mesh: its report, charts, spectrum, and signals on it."""
    vertices, faces = hostile_mesh(draw)
    values = hostile(draw, "values", draw.rng.normal(size=(2, 6)), 0.3)
    use = draw.value("use", ("report", "charts", "spectrum", "signals", "descriptor", "trimesh"))
    reach = draw.value("reach", (0.5, 3.0, float("inf"))) if use == "charts" else 0.0
    kind = draw.value("kind", ("geodesic", "logmap")) if use == "charts" else "geodesic"

    def run() -> None:
        mesh: Any = Mesh(vertices, faces)
        if use == "report":
            repr(mesh.report())
            check_finite("area", mesh.area)
        elif use == "charts":
            chart = Signals.on_meshes([np.zeros(len(mesh.vertices))], [mesh]).domains.chart(
                ("rho", "theta", "rays:4"), reach, kind
            )
            check_chart(chart, len(mesh.vertices))  # type: ignore[arg-type]
            check_finite("rays", chart.coordinates["rays:4"])
        elif use == "spectrum":
            spectrum = laplace_beltrami(mesh, 4)
            check_finite("eigenvalues", spectrum.eigenvalues)
            check_finite("eigenfunctions", spectrum.eigenfunctions)
        elif use == "descriptor":
            check_signals(GeometryVectors(3, n_splines=4).fit_transform([mesh, mesh]), False)
        elif use == "trimesh":
            mesh = trimesh.Trimesh(mesh.vertices, mesh.faces, process=False)
            check_signals(Signals.on_meshes(values, [mesh, mesh]))
        else:
            check_signals(Signals.on_meshes(values, [mesh, mesh]))

    return run


def pyg_inputs(draw: Draw, folder: Path) -> Run:
    """Graphs of PyTorch Geometric with missing, unused and hostile fields."""
    items = []
    odd = draw.integer(0, 2)
    for n in range(3):
        item = bases.graph(draw.rng, 4)
        both = np.concatenate([item.edges, item.edges[:, ::-1]])
        values: dict[str, Any] = {"x": item.values, "edge_index": both.T}
        if odd == 0:
            values |= {"pos": item.coordinates, "edge_attr": np.ones((len(both), 1)), "y": np.array([n])}
        if n == 1:
            name = draw.value("field", list(values))
            values[name] = scaled_only(draw, name, values[name], 0.5)
            changes = {"removed": None, "shortened": values[name][..., :-1], "kept": values[name], "NaN": NAN}
            values[name] = draw.named("change", changes)
        fields = {key: torch.as_tensor(value) for key, value in values.items() if value is not None}
        if "edge_index" in fields and fields["edge_index"].ndim:
            with np.errstate(all="ignore"):
                fields["edge_index"] = fields["edge_index"].to(draw.one_of((torch.int64, torch.int32)))
        items.append(Data(**fields))
    lengths: Any = draw.value("edge_lengths", (None, None, False, "edge_attr", "nothing", True, 3))
    wrap = draw.value("as", ("list", "batch", "loader", "one", "shuffled", "mixed", "X"))

    def run() -> None:
        data: Any = items
        if wrap in ("batch", "loader", "shuffled"):
            try:
                batch = Batch.from_data_list(items)
                data = batch if wrap == "batch" else DataLoader(items, 2, shuffle=wrap == "shuffled")
            except Exception:  # PyTorch Geometric cannot batch these graphs
                data = items
        data = items[1] if wrap == "one" else [*items, 3] if wrap == "mixed" else data
        check_signals(as_signals(data) if wrap == "X" else Signals.from_pyg(data, lengths))

    return run


def networkx_inputs(draw: Draw, folder: Path) -> Run:
    """Graphs of NetworkX of any kind, with attributes of any kind."""
    kind = draw.named(
        "graph",
        {
            "path": nx.Graph,
            "directed": nx.DiGraph,
            "multiple edges": nx.MultiGraph,
            "directed multiple edges": nx.MultiDiGraph,
        },
    )
    strange: tuple[Any, ...] = (
        NAN,
        None,
        "a",
        [1.0, 2.0],
        [],
        {},
        1e40,
        10**400,
        np.ones((2, 2)),
        torch.ones(1),
        1j,
        True,
    )
    items = []
    for n in range(2):
        graph = kind()
        for v in range(draw.integer(0 if n else 1, 4)):
            graph.add_node(("v", v), x=float(draw.rng.normal()), pos=draw.rng.normal(size=2))
        nodes = list(graph.nodes)
        for v in range(len(nodes)):
            graph.add_edge(nodes[v], nodes[draw.integer(0, v)], weight=1.0)
        items.append(graph)
    if draw.chance(0.6) and len(items[1]):
        field = draw.value("field", ("x", "pos", "weight", "removed"))
        value = draw.value("value", strange)
        node = next(iter(items[1].nodes))
        if field == "removed":
            del items[1].nodes[node]["x"]
        elif field == "weight":
            nx.set_edge_attributes(items[1], value, "weight")
        else:
            items[1].nodes[node][field] = value
    options: dict[str, Any] = {
        "values": draw.value("values", ("x", "x", ["x", "x"], "y", "pos", [], 3)),
        "coordinates": draw.value("coordinates", (None, False, "pos", "nothing", 3)),
        "edge_lengths": draw.value("edge_lengths", (None, False, "weight", "nothing", 3)),
    }
    data = draw.named("data", {"list": items, "one": items[0], "mixed": [*items, 3], "none": [], "3": 3})
    return lambda: check_signals(Signals.from_networkx(data, **options))


def container_inputs(draw: Draw, folder: Path) -> Run:
    """Any object as X."""
    rng = draw.rng
    mesh = Mesh(bases.OCTAHEDRON, bases.FACES)
    image = rng.normal(size=(4, 4))
    things: dict[str, Any] = {
        "table": pd.DataFrame(image),
        "tables": [pd.DataFrame(image)] * 3,
        "panel": np.stack([image] * 3).astype(object),
        "sparse": scipy.sparse.csr_array(image),
        "list of sparse": [scipy.sparse.csr_array(image)] * 2,
        "mesh": mesh,
        "meshes": [mesh, mesh],
        "trimesh": trimesh.Trimesh(mesh.vertices, mesh.faces),
        "scene": trimesh.Scene([trimesh.Trimesh(mesh.vertices, mesh.faces)]),
        "mixed": [image, mesh],
        "signals and image": [Signals.from_images(image[None]), image],
        "signals": [Signals.from_images(image[None])] * 2,
        "different signals": [Signals.from_images(image[None]), bases.valid_signals("graphs", rng)],
        "strings": ["a", "b"],
        "none": None,
        "number": 3.5,
        "dictionary": {"x": image},
        "set": {1, 2},
        "generator": (item for item in [image, image]),
        "sizes": [rng.normal(size=(draw.integer(1, 5), draw.integer(1, 5))) for _ in range(4)],
        "channels": [rng.normal(size=(3, 3, draw.integer(1, 2))) for _ in range(3)],
        "tensors": [torch.as_tensor(image).to(torch.bfloat16).requires_grad_()] * 2,
        "object array": np.array([image, image[:2]], dtype=object),
        "matrix": np.asmatrix(image),
        "class": Signals,
        "edge_index": Data(edge_index=torch.zeros(2, 0, dtype=torch.int64)),
        "numpy graph": nx.path_graph(3),
        "nan": [NAN],
        "nested": [[[[[1.0]]]]],
        "deep": _nested(100),
    }
    thing = draw.named("X", things)
    return lambda: check_signals(as_signals(thing))


def _nested(depth: int) -> Any:
    item: Any = 1.0
    for _ in range(depth):
        item = [item]
    return item
