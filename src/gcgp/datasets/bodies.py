"""Synthetic bodies: persons of different build in shared poses, each a closed mesh with its own faces."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array, diags_array
from scipy.spatial.transform import Rotation
from tqdm import tqdm

from gcgp._runtime.errors import check_integer
from gcgp.datasets.level_set import level_set
from gcgp.mesh import Mesh
from gcgp.mesh.decimation import decimate
from gcgp.mesh.report import components

# fmt: off
BODY_HEIGHTS = (1.55, 1.85)
"""Range of the heights of persons, in meters."""
BODY_LENGTHS = {
    "foot": 0.11, "ankle": 0.03, "shin": 0.25, "thigh": 0.24, "torso": 0.29, "neck": 0.055, "head": 0.135,
    "upper arm": 0.175, "forearm": 0.145, "hand": 0.075, "hips": 0.055, "shoulders": 0.11,
}
"""Mean lengths relative to the height; widths are measured from the middle of the body."""
UPRIGHT_PARTS = ("ankle", "shin", "thigh", "torso", "neck", "head")
"""The lengths that add up to the height."""
BODY_RADII = {
    "pelvis": 0.05, "waist": 0.048, "chest": 0.05, "collar": 0.04, "shoulder": 0.032, "elbow": 0.025,
    "wrist": 0.019, "palm": 0.024, "groin": 0.049, "knee": 0.033, "heel": 0.024, "toes": 0.02,
    "throat": 0.032, "chin": 0.042, "skull": 0.055,
}
"""Mean radii relative to the height."""
LENGTH_STD, RADIUS_STD, BUILD_STD = 0.05, 0.06, 0.06
"""Standard deviations of the logarithms of each length, of each radius, and of all radii together."""
TRUNK_ANGLES = {
    "spine bend": (0, -10, 25), "spine twist": (0, -25, 25), "spine lean": (0, -15, 15),
    "neck bend": (0, -20, 20), "neck twist": (0, -45, 45), "neck lean": (0, -15, 15),
}
LIMB_ANGLES = {
    "arm lift": (45, 40, 120), "arm swing": (0, -20, 60), "arm turn": (0, -10, 90), "elbow": (10, 0, 110),
    "leg raise": (0, -20, 55), "leg spread": (8, 6, 25), "knee": (5, 0, 70),
}
# fmt: on
SIDES = {"left": 1.0, "right": -1.0}
JOINT_ANGLES = TRUNK_ANGLES | {
    f"{side} {joint}": limits for side in SIDES for joint, limits in LIMB_ANGLES.items()
}
"""For each joint the angle at rest, the smallest and the largest, in degrees."""
ANGLE_STD = 3.0
"""Standard deviation of a joint angle between persons in the same pose, in degrees."""
BLENDS: list[tuple[tuple[str, ...], float]] = [
    (("pelvis", "left loin", "right loin", "left flank", "right flank", "left collar", "right collar"), 0.02),
    (("left collar", "right collar", "neck"), 0.015),
    (("neck", "head"), 0.01),
    *(
        (tuple(f"{side} {part}" if part != "pelvis" else part for part in parts), width)
        for side in SIDES
        for parts, width in [
            (("collar", "flank", "upper arm"), 0.015),
            (("upper arm", "forearm"), 0.006),
            (("forearm", "hand"), 0.006),
            (("pelvis", "loin", "thigh"), 0.015),
            (("thigh", "shin"), 0.006),
            (("shin", "foot"), 0.008),
        ]
    ),
]
"""Parts whose surfaces blend into each other, and the width of the blend in meters."""
MAX_LATTICE_SPACING = 0.03
"""In meters; wrists would be lost on a much coarser lattice."""
LATTICE_SPACING = 1.2
"""In meters times the square root of the number of vertices: gives about five times as many vertices."""
RELAXATION_STEPS = 5


@dataclass(frozen=True)
class Bodies:
    """Closed meshes of persons in poses, in meters: x to their left, y up from the ground, z to the front."""

    meshes: list[Mesh]
    persons: Int[np.ndarray, "N"]
    poses: Int[np.ndarray, "N"]

    def __len__(self) -> int:
        return len(self.meshes)


def articulated_bodies(
    persons: int = 10, poses: int = 10, vertices: int = 1000, random_state: int = 0
) -> Bodies:
    """Each person in each pose, one person after the other.

    A person is a set of lengths and radii, a pose a set of joint angles that all persons share up to a little
    noise, as in FAUST (Bogo et al. 2014). The surface is a level set around the bones, sampled on a lattice
    with its own position for each body, so no two meshes share their faces. All have genus 0 and the same
    number of vertices. A body does not depend on the numbers of persons and poses.

    >>> bodies = articulated_bodies(persons=1, poses=2, vertices=400)
    >>> bodies.meshes
    [Mesh('person 0, pose 0', 400 vertices, 796 faces), Mesh('person 0, pose 1', 400 vertices, 796 faces)]
    """
    check_integer("persons", persons)
    check_integer("poses", poses)
    check_integer("vertices", vertices, 200)
    check_integer("random_state", random_state, 0)
    pairs = list(itertools.product(range(persons), range(poses)))
    progress = tqdm(pairs, unit=" bodies", delay=1, disable=None)
    meshes = [_body(person, pose, vertices, random_state) for person, pose in progress]
    indices = np.array(pairs, dtype=np.int64)
    return Bodies(meshes, indices[:, 0], indices[:, 1])


def _body(person: int, pose: int, vertices: int, seed: int) -> Mesh:
    sizes = _sizes(_generator(seed, 0, person))
    rng = _generator(seed, 1, person, pose)
    rest, low, high = np.array(list(JOINT_ANGLES.values()), dtype=float).T
    angles = _generator(seed, 2, pose).uniform(low, high)
    angles = np.clip(angles + ANGLE_STD * rng.normal(size=len(angles)), low, high)
    # If limbs touch, the surface has handles: the pose is moved towards rest until they separate.
    for ease in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        flesh = _flesh(sizes, dict(zip(JOINT_ANGLES, angles + ease * (rest - angles), strict=True)))
        mesh = _mesh(flesh, vertices, rng)
        if mesh is not None:
            ground = mesh.vertices[:, 1].min()
            return Mesh(mesh.vertices - [0, ground, 0], mesh.faces, name=f"person {person}, pose {pose}")
    raise RuntimeError(f"person {person}, pose {pose}: no closed surface of genus 0, not even at rest")


def _generator(seed: int, *key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def _sizes(rng: np.random.Generator) -> dict[str, float]:
    """Lengths and radii of a person, in meters."""
    height = rng.uniform(*BODY_HEIGHTS)
    lengths = _varied(BODY_LENGTHS, LENGTH_STD, rng)
    upright = sum(lengths[name] for name in UPRIGHT_PARTS)
    radii = _varied(BODY_RADII, RADIUS_STD, rng)
    build = height * _varied({"build": 1.0}, BUILD_STD, rng)["build"]
    sizes = {name: value * height / upright for name, value in lengths.items()}
    return sizes | {name: value * build for name, value in radii.items()}


def _varied(means: dict[str, float], std: float, rng: np.random.Generator) -> dict[str, float]:
    factors = np.exp(std * rng.normal(size=len(means)).clip(-2, 2))
    return {name: mean * float(factor) for (name, mean), factor in zip(means.items(), factors, strict=True)}


@dataclass(frozen=True)
class Flesh:
    """Cones with round ends, some of which blend into each other."""

    starts: Float[np.ndarray, "P 3"]
    ends: Float[np.ndarray, "P 3"]
    radii: Float[np.ndarray, "P 2"]
    blends: list[tuple[list[int], float]]

    def distance(self, points: Float[np.ndarray, "M 3"]) -> Float[np.ndarray, "M"]:
        """Approximate distance to the surface in meters, negative inside."""
        bones = self.ends - self.starts
        squares = (bones**2).sum(axis=1)[:, None]
        along = bones @ points.T - (bones * self.starts).sum(axis=1)[:, None]
        share = np.clip(along / squares, 0, 1)
        apart = (points**2).sum(axis=1) - 2 * self.starts @ points.T + (self.starts**2).sum(axis=1)[:, None]
        apart += share * (share * squares - 2 * along)
        first, last = self.radii.T[:, :, None]
        parts = np.sqrt(np.maximum(apart, 0)) - first - share * (last - first)
        return np.min([_soft_minimum(parts[members], width) for members, width in self.blends], axis=0)


def _soft_minimum(values: Float[np.ndarray, "P M"], width: float) -> Float[np.ndarray, "M"]:
    """−w log Σ_p exp(−x_p / w): the minimum, and less where other values are close to it."""
    least = values.min(axis=0)
    return least - width * np.log(np.exp((least - values) / width).sum(axis=0))


def _flesh(sizes: dict[str, float], angles: dict[str, float]) -> Flesh:
    """The parts of a body by forward kinematics, with the middle of the pelvis at 0."""
    parts: dict[str, tuple[np.ndarray, np.ndarray, float, float]] = {}

    def add(name: str, start: np.ndarray, end: np.ndarray, first: str, last: str) -> np.ndarray:
        parts[name] = (start, end, sizes[first], sizes[last])
        return end

    spine = _rotation("XYZ", angles["spine bend"], angles["spine twist"], angles["spine lean"])
    neck = spine @ _rotation("XYZ", angles["neck bend"], angles["neck twist"], angles["neck lean"])
    hips, shoulders, torso = sizes["hips"], sizes["shoulders"], sizes["torso"]
    waist = np.array([0, 0.4 * torso, 0])
    throat = waist + spine @ [0, 0.55 * torso, 0]
    jaw = add("neck", throat, throat + neck @ [0, 0.05 * torso + sizes["neck"], 0], "throat", "throat")
    chin = jaw + neck @ [0, 0.7 * sizes["chin"], 0.2 * sizes["chin"]]
    add("head", chin, jaw + neck @ [0, sizes["head"] - sizes["skull"], 0], "chin", "skull")
    add("pelvis", np.array([-0.7 * hips, 0, 0]), np.array([0.7 * hips, 0, 0]), "pelvis", "pelvis")
    for side, sign in SIDES.items():
        # Limbs are laid out on the left; the mirror puts them on the right.
        mirror = np.diag([sign, 1.0, 1.0])
        bend = {name.removeprefix(f"{side} "): value for name, value in angles.items()}
        loin = waist + mirror @ [0.5 * hips, 0, 0]
        chest = waist + spine @ mirror @ [0.45 * shoulders, 0.35 * torso, 0]
        add(f"{side} loin", mirror @ [0.6 * hips, 0, 0], loin, "pelvis", "waist")
        add(f"{side} flank", loin, chest, "waist", "chest")

        frame = spine @ mirror @ _rotation("YZY", -bend["arm swing"], bend["arm lift"], bend["arm turn"])
        lower = frame @ _rotation("X", -bend["elbow"])
        collar = throat - spine @ [0, 0.05 * torso, 0]
        joint = throat + spine @ mirror @ [shoulders, 0, 0]
        joint = add(f"{side} collar", collar, joint, "collar", "shoulder")
        joint = add(f"{side} upper arm", joint, joint - frame[:, 1] * sizes["upper arm"], "shoulder", "elbow")
        joint = add(f"{side} forearm", joint, joint - lower[:, 1] * sizes["forearm"], "elbow", "wrist")
        add(f"{side} hand", joint, joint - lower[:, 1] * sizes["hand"], "wrist", "palm")

        frame = mirror @ _rotation("XZ", -bend["leg raise"], bend["leg spread"])
        lower = frame @ _rotation("X", bend["knee"])
        joint = mirror @ [hips, 0, 0]
        joint = add(f"{side} thigh", joint, joint - frame[:, 1] * sizes["thigh"], "groin", "knee")
        joint = add(f"{side} shin", joint, joint - lower[:, 1] * sizes["shin"], "knee", "heel")
        add(f"{side} foot", joint, joint + lower @ [0, -0.1, 1] * sizes["foot"], "heel", "toes")

    indices = {name: index for index, name in enumerate(parts)}
    starts, ends, first, last = zip(*parts.values(), strict=True)
    blends = [([indices[name] for name in names], width) for names, width in BLENDS]
    return Flesh(np.array(starts), np.array(ends), np.column_stack([first, last]), blends)


def _rotation(axes: str, *degrees: float) -> Float[np.ndarray, "3 3"]:
    return Rotation.from_euler(axes, degrees, degrees=True).as_matrix().reshape(3, 3)


def _mesh(flesh: Flesh, vertices: int, rng: np.random.Generator) -> Mesh | None:
    """The surface with that many vertices; None unless it is one closed piece of genus 0."""
    spacing = min(MAX_LATTICE_SPACING, LATTICE_SPACING / np.sqrt(vertices))
    frame = Rotation.from_quat(rng.normal(size=4)).as_matrix()
    centers = np.concatenate([flesh.starts, flesh.ends]) @ frame
    reach = np.concatenate([flesh.radii[:, 0], flesh.radii[:, 1]])[:, None] + 0.05
    low = (centers - reach).min(axis=0) - spacing * rng.random(3)
    cells = np.ceil(((centers + reach).max(axis=0) - low) / spacing).astype(int)
    points, faces = level_set(
        lambda points: flesh.distance((low + spacing * points) @ frame.T) / spacing, cells
    )
    fine = Mesh((low + spacing * points) @ frame.T, faces)
    return _relaxed(decimate(fine, vertices), flesh) if _is_sphere(fine) else None


def _is_sphere(mesh: Mesh) -> bool:
    """Whether a closed mesh is in one piece and without handles; faster than its report."""
    V, F = len(mesh.vertices), len(mesh.faces)
    return 2 * V - F == 4 and components(mesh.faces[:, [0, 1, 1, 2]].reshape(-1, 2), V)[0] == 1


def _relaxed(mesh: Mesh, flesh: Flesh) -> Mesh:
    """The mesh with vertices moved towards the mean of their neighbors, along the surface."""
    ends = np.concatenate([mesh.edges, mesh.edges[:, ::-1]])
    shape = (len(mesh.vertices), len(mesh.vertices))
    adjacency = csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=shape)
    mean = diags_array(1 / adjacency.sum(axis=1)) @ adjacency
    points = mesh.vertices
    for _ in range(RELAXATION_STEPS):
        points = _onto_surface(0.5 * points + 0.5 * (mean @ points), flesh)
    return Mesh(points, mesh.faces)


def _onto_surface(points: Float[np.ndarray, "V 3"], flesh: Flesh) -> Float[np.ndarray, "V 3"]:
    """A Newton step towards distance 0."""
    step = 1e-5
    moved = points + step * np.concatenate([np.zeros((1, 3)), np.eye(3)])[:, None]
    distance, *ahead = flesh.distance(moved.reshape(-1, 3)).reshape(4, -1)
    gradient = (np.array(ahead) - distance).T / step
    square = np.maximum((gradient**2).sum(axis=1), 0.25)
    return points - (distance / square)[:, None] * gradient
