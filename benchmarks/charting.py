"""Geodesic charts of one mesh against potpourri3d's fast marching doing the same solves.

    python -m benchmarks.charting --json FILE [--faust FOLDER]

The mesh is an articulated body. A chart of V vertices with J rays needs V solves from the vertices and V·J
from the rays. potpourri3d cannot stop at a radius and solves the whole mesh every time; a sample of its
solves is timed, from the same sources. It uses one core; ours are timed on one core and on all. With a
folder of FAUST, the charts of its 100 meshes at the reach of the default weighting are timed too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
import potpourri3d

from benchmarks.timing import best_seconds, command_line, report
from experiments.metrics import peak_memory
from gcgp import Mesh, Signals, articulated_bodies, load_faust
from gcgp._runtime.cache import CACHE_VARIABLE
from gcgp.domain.mesh_charts import mesh_chart
from gcgp.mesh.geodesics.distances import distances, ray
from gcgp.mesh.geodesics.polar import blocks
from gcgp.mesh.geodesics.rays import first_directions
from gcgp.selection.weightings import resolve_weightings


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--faust", type=Path, metavar="FOLDER", help="also time the charts of FAUST")
    parser.add_argument("--vertices", type=int, default=2500)
    parser.add_argument("--rays", type=int, default=16)
    parser.add_argument("--reach", type=float, default=0.1, help="as a share of the geodesic diameter")
    parser.add_argument("--sample", type=int, default=24, help="sources whose solves are timed")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    os.environ[CACHE_VARIABLE] = "off"
    mesh = articulated_bodies(1, 1, options.vertices).meshes[0]
    diameter = float(max(distances(mesh, [int(np.argmax(distances(mesh, [0])))])))
    reach = options.reach * diameter
    sample = np.linspace(0, len(mesh.vertices) - 1, options.sample).astype(int)
    cores = numba.get_num_threads()
    first = first_directions(mesh.surface, True)

    def ours(sources: Any, radius: float, threads: int) -> None:
        numba.set_num_threads(threads)
        for _ in blocks(mesh.surface, sources, radius, options.rays, False, first):
            pass

    vertices = range(len(mesh.vertices))
    seconds = best_seconds(
        {
            "peer": peer_solves(mesh, sample, options.rays),
            "full, one core": lambda: ours(sample, np.inf, 1),
            "truncated": lambda: ours(vertices, reach, cores),
            "truncated, one core": lambda: ours(vertices, reach, 1),
        },
        options.rounds,
    )
    # A larger sample for all cores: the other one has too few blocks to distribute.
    larger = np.linspace(0, len(mesh.vertices) - 1, 64 * cores).astype(int)
    full = best_seconds({"full": lambda: ours(larger, np.inf, cores)}, options.rounds)["full"] / len(larger)
    numba.set_num_threads(cores)
    pairs = len(mesh_chart(mesh, ["rho", f"rays:{options.rays}"], np.inf).neighbors)
    peer = seconds["peer"] / options.sample * len(mesh.vertices)
    whole = {
        "full": full * len(mesh.vertices),
        "full, one core": seconds["full, one core"] / options.sample * len(mesh.vertices),
        "truncated": seconds["truncated"],
        "truncated, one core": seconds["truncated, one core"],
    }
    results: dict[str, Any] = {
        "speedup_truncated": peer / whole["truncated"],
        "speedup_truncated_one_core": peer / whole["truncated, one core"],
        "speedup_full": peer / whole["full"],
        "speedup_full_one_core": peer / whole["full, one core"],
        "peak_gb": peak_memory(),
        "seconds": {"potpourri3d": peer, **whole},
        "vertices": len(mesh.vertices),
        "rays": options.rays,
        "reach": reach,
        "pairs_full": pairs,
        "cores": cores,
    }
    rows = {f"seconds, potpourri3d, {(1 + options.rays) * len(mesh.vertices):,} solves": f"{peer:.1f}"}
    rows |= {f"seconds, {name}": f"{value:.2f}" for name, value in whole.items()}
    rows |= {
        "times faster, truncated": f"{results['speedup_truncated']:.0f}",
        "times faster, truncated, one core": f"{results['speedup_truncated_one_core']:.0f}",
        "times faster, full": f"{results['speedup_full']:.1f}",
        "times faster, full, one core": f"{results['speedup_full_one_core']:.1f}",
        "peak memory, with the full chart": f"{results['peak_gb']:.2f} GB",
    }
    if options.faust is not None:
        results["seconds_faust"] = time_all_charts(load_faust(options.faust, options.vertices).meshes)
        rows["seconds, FAUST's 100 meshes"] = f"{results['seconds_faust']:.0f}"
    title = f"Charts of {len(mesh.vertices)} vertices, {options.rays} rays, {cores} cores"
    report(f"{title}, truncated at {options.reach:.0%} of the diameter or full", rows, results, options.json)


def time_all_charts(meshes: Sequence[Mesh]) -> float:
    """Seconds for the charts of all meshes with the coordinates of the paper's bins."""
    signals = Signals.on_meshes([np.zeros((len(mesh.vertices), 1)) for mesh in meshes], meshes)
    (weighting,) = resolve_weightings("polar", signals.domains, "geodesic")
    start = time.perf_counter()
    for mesh in meshes:
        mesh_chart(mesh, weighting.coordinates, weighting.reach)
    return time.perf_counter() - start


def peer_solves(mesh: Mesh, sources: np.ndarray, rays: int) -> Any:
    """A function that solves from the sources and their rays, on one core."""
    solver = potpourri3d.MeshFastMarchingDistanceSolver(mesh.vertices, mesh.faces.astype(np.int32))
    starts = []
    for v in sources.tolist():
        starts.append([v])
        starts += [ray(mesh, v, j / rays, frame="curvature").tolist() for j in range(rays)]

    def run() -> None:
        for path in starts:
            solver.compute_distance([[(int(v), [])] for v in dict.fromkeys(path)])

    return run


if __name__ == "__main__":
    main()
