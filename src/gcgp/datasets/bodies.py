"""Bodies to try things on: people of different build in shared poses, each a closed mesh of its own."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.transform import Rotation
from tqdm import tqdm

from gcgp.datasets.level_set import level_set
from gcgp.mesh import Mesh
from gcgp.mesh.decimation import decimate

HEIGHTS = (1.55, 1.85)
"""Of the persons, in meters."""

LENGTHS = {
    "foot": 0.11,
    "ankle": 0.03,
    "shin": 0.25,
    "thigh": 0.24,
    "torso": 0.29,
    "neck": 0.055,
    "head": 0.135,
    "upper arm": 0.175,
    "forearm": 0.145,
    "hand": 0.075,
    "hips": 0.055,
    "shoulders": 0.11,
}
"""Of an average person, as shares of the height; those across the body are from its middle."""

UPRIGHT = ("ankle", "shin", "thigh", "torso", "neck", "head")
"""The lengths that add up to the height."""

GIRTHS = {
    "pelvis": 0.05,
    "waist": 0.048,
    "chest": 0.05,
    "collar": 0.04,
    "shoulder": 0.032,
    "elbow": 0.025,
    "wrist": 0.019,
    "palm": 0.024,
    "groin": 0.049,
    "knee": 0.033,
    "heel": 0.024,
    "toes": 0.02,
    "throat": 0.032,
    "chin": 0.042,
    "skull": 0.055,
}
"""Radii of an average person, as shares of the height."""

LENGTH_SPREAD, GIRTH_SPREAD, BUILD_SPREAD = 0.05, 0.06, 0.06
"""Standard deviations of a person's lengths, of its girths, and of all its girths together, as logarithms."""

ANGLES = {
    "spine bend": (0, -10, 25),
    "spine twist": (0, -25, 25),
    "spine lean": (0, -15, 15),
    "neck bend": (0, -20, 20),
    "neck twist": (0, -45, 45),
    "neck lean": (0, -15, 15),
    **{
        f"{side} {joint}": limits
        for side in ("left", "right")
        for joint, limits in {
            "arm lift": (45, 40, 120),
            "arm swing": (0, -20, 60),
            "arm turn": (0, -10, 90),
            "elbow": (10, 0, 110),
            "leg raise": (0, -20, 55),
            "leg spread": (8, 6, 25),
            "knee": (5, 0, 70),
        }.items()
    },
}
"""For each joint the angle at rest, the lowest and the highest, in degrees."""

ANGLE_NOISE = 3.0
"""Standard deviation, in degrees, by which persons differ in the same pose."""

JOINTS: list[tuple[tuple[str, ...], float]] = [
    (("pelvis", "left loin", "right loin", "left flank", "right flank", "left collar", "right collar"), 0.02),
    (("left collar", "right collar", "neck"), 0.015),
    (("neck", "head"), 0.01),
    *(
        (tuple(f"{side} {part}" if part != "pelvis" else part for part in parts), blend)
        for side in ("left", "right")
        for parts, blend in [
            (("collar", "flank", "upper arm"), 0.015),
            (("upper arm", "forearm"), 0.006),
            (("forearm", "hand"), 0.006),
            (("pelvis", "loin", "thigh"), 0.015),
            (("thigh", "shin"), 0.006),
            (("shin", "foot"), 0.008),
        ]
    ),
]
"""Parts that grow together, and over how many meters; parts that share no joint never do."""

SPACING = 0.03
"""Of the lattice, in meters; wrists would be lost on a much wider one."""

SPACING_OF_ONE = 1.2
"""Over the root of the number of vertices asked for: a lattice that gives about five times as many."""

RELAXATIONS = 5


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

    A person is a set of lengths and girths, a pose is a set of joint angles that all persons share up to a
    little noise, as in FAUST (Bogo et al. 2014). The flesh is a level set around the bones, cut by a lattice
    that lies differently for each body: no two meshes share their faces. All have genus 0 and the
    same number of vertices. A body is the same whatever else is drawn with it.

    >>> bodies = articulated_bodies(persons=1, poses=2, vertices=400)
    >>> bodies.meshes
    [Mesh('person 0, pose 0', 400 vertices, 796 faces), Mesh('person 0, pose 1', 400 vertices, 796 faces)]
    """
    for name, value, least in (
        ("persons", persons, 1),
        ("poses", poses, 1),
        ("vertices", vertices, 200),
        ("random_state", random_state, 0),
    ):
        if not isinstance(value, Integral) or value < least:
            raise ValueError(f"{name}={value!r} must be a whole number of at least {least}")
    pairs = list(itertools.product(range(persons), range(poses)))
    meshes = [
        _body(person, pose, vertices, random_state)
        for person, pose in tqdm(pairs, unit=" bodies", delay=1, disable=None)
    ]
    numbers = np.array(pairs, dtype=np.int64)
    return Bodies(meshes, numbers[:, 0], numbers[:, 1])


def _body(person: int, pose: int, vertices: int, seed: int) -> Mesh:
    sizes = _sizes(_generator(seed, 0, person))
    rng = _generator(seed, 1, person, pose)
    rest, low, high = np.array(list(ANGLES.values()), dtype=float).T
    angles = _generator(seed, 2, pose).uniform(low, high)
    angles = np.clip(angles + ANGLE_NOISE * rng.normal(size=len(angles)), low, high)
    # Limbs that touch leave a surface with handles: such a pose is brought towards rest until they part.
    for ease in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        flesh = _flesh(sizes, dict(zip(ANGLES, angles + ease * (rest - angles), strict=True)))
        mesh = _mesh(flesh, vertices, rng)
        if mesh is not None:
            ground = mesh.vertices[:, 1].min()
            return Mesh(mesh.vertices - [0, ground, 0], mesh.faces, name=f"person {person}, pose {pose}")
    raise RuntimeError(f"person {person}, pose {pose}: no closed surface of genus 0, not even at rest")


def _generator(seed: int, *key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def _sizes(rng: np.random.Generator) -> dict[str, float]:
    """Lengths and girths of a person, in meters."""
    height = rng.uniform(*HEIGHTS)
    lengths = _varied(LENGTHS, LENGTH_SPREAD, rng)
    upright = sum(lengths[name] for name in UPRIGHT)
    girths = _varied(GIRTHS, GIRTH_SPREAD, rng)
    build = height * _varied({"build": 1.0}, BUILD_SPREAD, rng)["build"]
    return {
        **{name: value * height / upright for name, value in lengths.items()},
        **{name: value * build for name, value in girths.items()},
    }


def _varied(averages: dict[str, float], spread: float, rng: np.random.Generator) -> dict[str, float]:
    factors = np.exp(spread * rng.normal(size=len(averages)).clip(-2, 2))
    return {
        name: value * float(factor) for (name, value), factor in zip(averages.items(), factors, strict=True)
    }


@dataclass(frozen=True)
class Flesh:
    """Cones with round ends, some of which grow together."""

    starts: Float[np.ndarray, "P 3"]
    ends: Float[np.ndarray, "P 3"]
    radii: Float[np.ndarray, "P 2"]
    joints: list[tuple[list[int], float]]

    def distance(self, points: Float[np.ndarray, "M 3"]) -> Float[np.ndarray, "M"]:
        """About the distance to the surface in meters, negative inside."""
        bones = self.ends - self.starts
        squares = (bones**2).sum(axis=1)[:, None]
        along = bones @ points.T - (bones * self.starts).sum(axis=1)[:, None]
        share = np.clip(along / squares, 0, 1)
        apart = (points**2).sum(axis=1) - 2 * self.starts @ points.T + (self.starts**2).sum(axis=1)[:, None]
        apart += share * (share * squares - 2 * along)
        first, last = self.radii.T[:, :, None]
        parts = np.sqrt(np.maximum(apart, 0)) - first - share * (last - first)
        return np.min([_soft_minimum(parts[members], blend) for members, blend in self.joints], axis=0)


def _soft_minimum(values: Float[np.ndarray, "P M"], blend: float) -> Float[np.ndarray, "M"]:
    """−b log Σ_p exp(−x_p / b): the least value, and less where others come close to it."""
    least = values.min(axis=0)
    return least - blend * np.log(np.exp((least - values) / blend).sum(axis=0))


def _flesh(sizes: dict[str, float], angles: dict[str, float]) -> Flesh:
    """The parts of a body by forward kinematics, the middle of the pelvis at 0."""
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
    for side, sign in (("left", 1.0), ("right", -1.0)):
        # A limb is laid out as a left one; the mirror makes a right one of it.
        mirror = np.diag([sign, 1.0, 1.0])
        bend = {name.removeprefix(f"{side} "): value for name, value in angles.items()}
        loin = waist + mirror @ [0.5 * hips, 0, 0]
        add(f"{side} loin", mirror @ [0.6 * hips, 0, 0], loin, "pelvis", "waist")
        add(
            f"{side} flank",
            loin,
            waist + spine @ mirror @ [0.45 * shoulders, 0.35 * torso, 0],
            "waist",
            "chest",
        )

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

    numbers = {name: number for number, name in enumerate(parts)}
    starts, ends, first, last = zip(*parts.values(), strict=True)
    return Flesh(
        np.array(starts),
        np.array(ends),
        np.column_stack([first, last]),
        [([numbers[name] for name in names], blend) for names, blend in JOINTS],
    )


def _rotation(axes: str, *degrees: float) -> Float[np.ndarray, "3 3"]:
    return Rotation.from_euler(axes, degrees, degrees=True).as_matrix().reshape(3, 3)


def _mesh(flesh: Flesh, vertices: int, rng: np.random.Generator) -> Mesh | None:
    """The surface with that many vertices; None where it is not one closed piece of genus 0."""
    spacing = min(SPACING, SPACING_OF_ONE / np.sqrt(vertices))
    frame = Rotation.from_quat(rng.normal(size=4)).as_matrix()
    balls = np.concatenate([flesh.starts, flesh.ends]) @ frame
    reach = np.concatenate([flesh.radii[:, 0], flesh.radii[:, 1]])[:, None] + 0.05
    low = (balls - reach).min(axis=0) - spacing * rng.random(3)
    cells = np.ceil(((balls + reach).max(axis=0) - low) / spacing).astype(int)
    places, faces = level_set(
        lambda points: flesh.distance((low + spacing * points) @ frame.T) / spacing, cells
    )
    fine = Mesh((low + spacing * places) @ frame.T, faces)
    return _relaxed(decimate(fine, vertices), flesh) if _is_sphere(fine) else None


def _is_sphere(mesh: Mesh) -> bool:
    """Whether a closed mesh is in one piece and without handles."""
    V, F = len(mesh.vertices), len(mesh.faces)
    pairs = mesh.faces[:, [0, 1, 1, 2]].reshape(-1, 2)
    joined = csr_array((np.ones(len(pairs), dtype=bool), (pairs[:, 0], pairs[:, 1])), shape=(V, V))
    return 2 * V - F == 4 and bool(connected_components(joined, directed=False)[0] == 1)


def _relaxed(mesh: Mesh, flesh: Flesh) -> Mesh:
    """Vertices moved towards the middle of their neighbors, along the surface."""
    V, edges = len(mesh.vertices), mesh.edges
    ends = np.concatenate([edges, edges[:, ::-1]])
    joined = csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(V, V))
    middle = diags_array(1 / joined.sum(axis=1)) @ joined
    places = mesh.vertices
    for _ in range(RELAXATIONS):
        places = _onto_surface(0.5 * places + 0.5 * (middle @ places), flesh)
    return Mesh(places, mesh.faces)


def _onto_surface(places: Float[np.ndarray, "V 3"], flesh: Flesh) -> Float[np.ndarray, "V 3"]:
    """A Newton step towards distance 0."""
    step = 1e-5
    moved = places + step * np.concatenate([np.zeros((1, 3)), np.eye(3)])[:, None]
    distance, *ahead = flesh.distance(moved.reshape(-1, 3)).reshape(4, -1)
    gradient = (np.array(ahead) - distance).T / step
    square = np.maximum((gradient**2).sum(axis=1), 0.25)
    return places - (distance / square)[:, None] * gradient
