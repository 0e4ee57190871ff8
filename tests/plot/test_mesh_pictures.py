import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gcgp.estimators.base import VertexEvidence
from gcgp.mesh import Mesh
from gcgp.plot import meshes as mesh_pictures
from gcgp.plot.meshes import draw_mesh, draw_mesh_evidence

SQUARE = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], dtype=float)
HALVES = np.array([[0, 1, 2], [0, 2, 3]])


@pytest.fixture(autouse=True)
def _coarse(monkeypatch):
    monkeypatch.setattr(mesh_pictures, "POLYGONS", 2_000)


def pixels(mesh, shade, colors="RdBu_r", **options):
    """The picture `[200, 200, 3]` of a mesh, first row on top."""
    figure = Figure(figsize=(2, 2), dpi=100)
    draw_mesh(figure.add_axes((0, 0, 1, 1)), mesh, np.asarray(shade, dtype=float), colors, **options)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].astype(int)


def sphere():
    rings, around = np.meshgrid(np.linspace(0.1, np.pi - 0.1, 9), np.arange(12) * np.pi / 6, indexing="ij")
    places = np.stack(
        [np.sin(rings) * np.sin(around), np.cos(rings), np.sin(rings) * np.cos(around)], axis=-1
    )
    number = np.arange(108).reshape(9, 12)
    a, b = number[:-1], number[1:]
    c, d = np.roll(b, -1, axis=1), np.roll(a, -1, axis=1)
    faces = np.concatenate([np.stack([a, b, c], axis=-1), np.stack([a, c, d], axis=-1)]).reshape(-1, 3)
    return Mesh(places.reshape(-1, 3), faces)


def test_what_is_near_hides_what_is_far():
    both = Mesh(np.concatenate([SQUARE + np.array([0, 0, 1]), SQUARE]), np.concatenate([HALVES, HALVES + 4]))
    shade = np.repeat([1, -1], 4)
    red, _, blue = pixels(both, shade, symmetric=True, view=(0, 0))[100, 100]
    assert red > 1.5 * blue
    red, _, blue = pixels(both, shade, symmetric=True, view=(180, 0))[100, 100]
    assert blue > 1.5 * red


def test_the_viewer_goes_round_and_up():
    # A square that is red on its left (+x), upper (+y) side.
    mesh = Mesh(SQUARE, HALVES)
    shade = SQUARE[:, 0] + SQUARE[:, 1]
    front = pixels(mesh, shade, symmetric=True, view=(0, 0))
    assert front[40, 160, 0] > front[40, 160, 2]
    assert front[160, 40, 0] < front[160, 40, 2]
    behind = pixels(mesh, shade, symmetric=True, view=(180, 0))
    assert behind[40, 40, 0] > behind[40, 40, 2]
    # From above, a shelf in front of a wall is seen lower down.
    shelf = Mesh(SQUARE[:, [0, 2, 1]], HALVES)
    above = pixels(shelf, shelf.vertices[:, 2], symmetric=True, view=(0, 90))
    assert above[160, 100, 0] > above[160, 100, 2]
    assert above[40, 100, 0] < above[40, 100, 2]


def test_light_falls_from_above_on_either_side_of_a_face():
    ball = sphere()
    picture = pixels(ball, np.ones(108), "Greys_r", view=(0, 0))
    assert picture[40, 100].sum() > 1.2 * picture[160, 100].sum()
    turned = Mesh(ball.vertices, ball.faces[:, ::-1])
    inside_out = pixels(turned, np.ones(108), "Greys_r", view=(0, 0))
    assert np.abs(inside_out - picture)[60:140, 60:140].mean() < 1


def test_one_strong_vertex_does_not_pale_the_others():
    ball = sphere()
    shade = ball.vertices[:, 0].copy()
    usual = pixels(ball, shade, symmetric=True, view=(0, 0))
    shade[0] = 1000
    assert np.abs(pixels(ball, shade, symmetric=True, view=(0, 0)) - usual)[80:].max() < 40


def test_a_mesh_without_faces_is_an_empty_picture():
    assert (pixels(Mesh(SQUARE, np.zeros((0, 3), dtype=int)), np.ones(4)) == 255).all()


def test_the_shade_of_each_vertex_is_needed():
    with pytest.raises(ValueError, match=r"shade must have shape \[4\], got \[3\]"):
        pixels(Mesh(SQUARE, HALVES), np.ones(3))


def some_evidence(counts, classes):
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(sum(counts), classes))
    return VertexEvidence(mean, np.ones_like(mean), np.concatenate([[0], np.cumsum(counts)]))


@pytest.mark.parametrize("classes", [2, 3])
def test_evidence_is_drawn(tmp_path, classes):
    meshes = [sphere(), Mesh(SQUARE, HALVES)]
    probabilities = np.full((2, classes), 1 / classes)
    path = tmp_path / "picture.png"
    draw_mesh_evidence(
        meshes, probabilities, some_evidence([108, 4], classes), list("abc")[:classes], ["a", "b"], path
    )
    assert path.read_bytes().startswith(b"\x89PNG")


def test_evidence_must_be_that_of_the_meshes(tmp_path):
    meshes = [sphere(), Mesh(SQUARE, HALVES)]
    probabilities = np.full((2, 2), 0.5)
    path = tmp_path / "picture.png"
    with pytest.raises(ValueError, match="2 meshes but evidence for 1"):
        draw_mesh_evidence(meshes, probabilities, some_evidence([108], 2), ["a", "b"], ["a", "b"], path)
    with pytest.raises(ValueError, match="mesh 1 has 4 vertices but evidence for 5"):
        draw_mesh_evidence(meshes, probabilities, some_evidence([108, 5], 2), ["a", "b"], ["a", "b"], path)
    assert not path.exists()
