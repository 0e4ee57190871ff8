"""The Laplace–Beltrami spectrum of a mesh."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.sparse import csc_matrix, diags
from scipy.sparse.linalg import eigsh

from gcgp._runtime.cache import cached
from gcgp._runtime.cache_file import check_layout, check_range
from gcgp._runtime.errors import check_integer
from gcgp.mesh.mesh import Mesh

SPECTRUM_VERSION = 3
"""To be raised when the result for the same mesh changes."""
SPECTRAL_SHIFT = 1.0
"""Shift of the shift-invert mode at unit area, where the first positive eigenvalue is about 10."""
DENSE_VERTICES_PER_PAIR = 5
"""Meshes with fewer vertices per eigenpair are solved faster by dense linear algebra."""
MIN_RELATIVE_AREA = 1e-12
"""Smallest area that counts, relative to the whole area (or to the squared extent)."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The K lowest solutions of Δφ = λφ on a mesh, as L φ_k = λ_k M φ_k with lumped mass M.

    Args:
        eigenvalues: `[K]`, ascending and not negative; 0 once per connected component.
        eigenfunctions: `[V, K]`, orthonormal with respect to `mass`; 0 at vertices without area.
        mass: `[V]`, the area of each vertex: a third of its triangles of the intrinsic Delaunay
            triangulation. They sum to the area of the mesh. On meshes with thin triangles they differ from
            `Mesh.vertex_areas` and give more accurate eigenvalues: for a square of 400 random points the
            error is 3 % instead of 20 %.
    """

    eigenvalues: Float[np.ndarray, "K"]
    eigenfunctions: Float[np.ndarray, "V K"]
    mass: Float[np.ndarray, "V"]

    def at_unit_area(self) -> Spectrum:
        """The spectrum of the same mesh scaled to area 1."""
        area = self.mass.sum()
        return Spectrum(self.eigenvalues * area, self.eigenfunctions * np.sqrt(area), self.mass / area)


def laplace_beltrami(mesh: Mesh, eigenpairs: int = 100) -> Spectrum:
    """The lowest `eigenpairs` of the Laplace–Beltrami operator, or as many as there are vertices with area.

    The operator is the tufted intrinsic Delaunay Laplacian (Sharp & Crane 2020, "A Laplacian for nonmanifold
    triangle meshes"), so any triangles with area are allowed; duplicate faces count once. On a boundary the
    normal derivative is 0. Eigenvalues scale as 1/length², eigenfunctions as 1/length. Spectra are
    cached on disk.

    >>> tetrahedron = Mesh(np.eye(4)[:, :3], [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]])
    >>> laplace_beltrami(tetrahedron).eigenfunctions.shape
    (4, 4)
    """
    check_integer("eigenpairs", eigenpairs)
    used = _vertices_with_area(mesh)
    arrays = cached(
        ("spectrum", SPECTRUM_VERSION, mesh.vertices, mesh.faces, int(eigenpairs)),
        lambda: _compute(mesh, used, int(eigenpairs)),
        lambda arrays: _check(arrays, len(used), min(int(eigenpairs), int(used.sum()))),
    )
    return Spectrum(**arrays)


def _check(arrays: dict[str, np.ndarray], vertices: int, eigenpairs: int) -> None:
    """Raise ValueError unless cached arrays can be those of a spectrum."""
    shapes = {"eigenvalues": (eigenpairs,), "eigenfunctions": (vertices, eigenpairs), "mass": (vertices,)}
    check_layout(arrays, {name: (np.float64, shape) for name, shape in shapes.items()})
    largest = float(np.finfo(np.float64).max)
    for name in shapes:
        check_range(name, arrays[name], -largest if name == "eigenfunctions" else 0, largest)
    if (np.diff(arrays["eigenvalues"]) < 0).any():
        raise ValueError("eigenvalues are not in ascending order")


def _compute(mesh: Mesh, used: Bool[np.ndarray, "V"], eigenpairs: int) -> dict[str, np.ndarray]:
    """The fields of the `Spectrum` of the vertices in use."""
    try:
        import robust_laplacian
    except ImportError as error:
        raise ImportError("spectra need robust-laplacian: pip install 'gcgp[meshes]'") from error
    renumbered = np.cumsum(used) - 1
    faces = renumbered[mesh.distinct_faces[used[mesh.distinct_faces].all(axis=1)]]
    area = mesh.vertex_areas[used].sum()
    length = np.sqrt(area)
    points = mesh.vertices[used]
    laplacian, lumped = robust_laplacian.mesh_laplacian((points - points.mean(axis=0)) / length, faces)
    # The library gives degenerate faces a little area, which would change the total.
    mass = lumped.diagonal() / lumped.diagonal().sum()
    eigenvalues, functions = _lowest(csc_matrix(laplacian), mass, eigenpairs)
    masses, eigenfunctions = np.zeros(len(used)), np.zeros((len(used), len(eigenvalues)))
    masses[used] = mass * area
    eigenfunctions[used] = functions / length
    return {"eigenvalues": eigenvalues / length**2, "eigenfunctions": eigenfunctions, "mass": masses}


def _vertices_with_area(mesh: Mesh) -> Bool[np.ndarray, "V"]:
    """Mask of the vertices of faces with area."""
    corners = mesh.vertices[mesh.faces.ravel()]
    extent = float(np.ptp(corners, axis=0).max()) if len(corners) else 0.0
    if not MIN_RELATIVE_AREA * extent**2 < mesh.area < np.inf:
        raise ValueError(f"{mesh.title}: its area is {mesh.area}; a spectrum needs a positive, finite one")
    return mesh.vertex_areas > MIN_RELATIVE_AREA * mesh.area


def _lowest(
    laplacian: csc_matrix, mass: Float[np.ndarray, "V"], eigenpairs: int
) -> tuple[Float[np.ndarray, "K"], Float[np.ndarray, "V K"]]:
    """The lowest solutions of L φ = λ M φ, in ascending order."""
    size = len(mass)
    if size < DENSE_VERTICES_PER_PAIR * eigenpairs:
        values, functions = _lowest_dense(laplacian.toarray(), mass, min(size, eigenpairs))
    else:
        # The default start of ARPACK is random, which would change the basis of an eigenspace.
        start = np.random.default_rng(0).standard_normal(size)
        values, functions = eigsh(laplacian, eigenpairs, diags(mass), sigma=-SPECTRAL_SHIFT, v0=start)
    order = np.argsort(values)
    return np.maximum(values[order], 0.0), functions[:, order]


def _lowest_dense(
    laplacian: Float[np.ndarray, "V V"], mass: Float[np.ndarray, "V"], eigenpairs: int
) -> tuple[Float[np.ndarray, "K"], Float[np.ndarray, "V K"]]:
    """The same from the largest μ of M^½ (L + sM)⁻¹ M^½, where λ = 1/μ − s.

    The inverse is accurate for tiny masses: in M^-½ L M^-½ rounding errors would exceed the low eigenvalues.
    """
    size, root = len(mass), np.sqrt(mass)
    factor = cho_factor(laplacian + np.diag(SPECTRAL_SHIFT * mass))
    inverse = root[:, None] * cho_solve(factor, np.diag(root))
    mu, x = eigh((inverse + inverse.T) / 2, subset_by_index=[size - eigenpairs, size - 1])
    return 1 / np.maximum(mu, np.finfo(float).eps) - SPECTRAL_SHIFT, x / root[:, None]
