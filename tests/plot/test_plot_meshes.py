import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gcgp import Mesh
from gcgp.plot import meshes as mesh_plots
from gcgp.plot.meshes import draw_mesh

SQUARE = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], dtype=float)
HALVES = np.array([[0, 1, 2], [0, 2, 3]])


@pytest.fixture(autouse=True)
def _few_polygons(monkeypatch):
    monkeypatch.setattr(mesh_plots, "MAX_POLYGONS", 2_000)


def pixels(mesh, shade, colors="RdBu_r", **options):
    """The plot of a mesh as an array `[200, 200, 3]`, top row first."""
    figure = Figure(figsize=(2, 2), dpi=100)
    draw_mesh(figure.add_axes((0, 0, 1, 1)), mesh, np.asarray(shade, dtype=float), colors, **options)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].astype(int)


def sphere():
    rings, around = np.meshgrid(np.linspace(0.1, np.pi - 0.1, 9), np.arange(12) * np.pi / 6, indexing="ij")
    vertices = np.stack(
        [np.sin(rings) * np.sin(around), np.cos(rings), np.sin(rings) * np.cos(around)], axis=-1
    )
    index = np.arange(108).reshape(9, 12)
    a, b = index[:-1], index[1:]
    c, d = np.roll(b, -1, axis=1), np.roll(a, -1, axis=1)
    faces = np.concatenate([np.stack([a, b, c], axis=-1), np.stack([a, c, d], axis=-1)]).reshape(-1, 3)
    return Mesh(vertices.reshape(-1, 3), faces)


def test_near_faces_hide_far_ones():
    both = Mesh(np.concatenate([SQUARE + np.array([0, 0, 1]), SQUARE]), np.concatenate([HALVES, HALVES + 4]))
    shade = np.repeat([1, -1], 4)
    red, _, blue = pixels(both, shade, symmetric=True, view=(0, 0))[100, 100]
    assert red > 1.5 * blue
    red, _, blue = pixels(both, shade, symmetric=True, view=(180, 0))[100, 100]
    assert blue > 1.5 * red


def test_azimuth_and_elevation():
    # A square that is red at +x, +y.
    mesh = Mesh(SQUARE, HALVES)
    shade = SQUARE[:, 0] + SQUARE[:, 1]
    front = pixels(mesh, shade, symmetric=True, view=(0, 0))
    assert front[40, 160, 0] > front[40, 160, 2]
    assert front[160, 40, 0] < front[160, 40, 2]
    behind = pixels(mesh, shade, symmetric=True, view=(180, 0))
    assert behind[40, 40, 0] > behind[40, 40, 2]
    # From above, +z is at the bottom of the plot.
    shelf = Mesh(SQUARE[:, [0, 2, 1]], HALVES)
    above = pixels(shelf, shelf.vertices[:, 2], symmetric=True, view=(0, 90))
    assert above[160, 100, 0] > above[160, 100, 2]
    assert above[40, 100, 0] < above[40, 100, 2]


def test_light_comes_from_above_for_either_orientation_of_faces():
    ball = sphere()
    picture = pixels(ball, np.ones(108), "Greys_r", view=(0, 0))
    assert picture[40, 100].sum() > 1.2 * picture[160, 100].sum()
    turned = Mesh(ball.vertices, ball.faces[:, ::-1])
    inside_out = pixels(turned, np.ones(108), "Greys_r", view=(0, 0))
    assert np.abs(inside_out - picture)[60:140, 60:140].mean() < 1


def test_an_outlier_does_not_change_other_colors():
    ball = sphere()
    shade = ball.vertices[:, 0].copy()
    usual = pixels(ball, shade, symmetric=True, view=(0, 0))
    shade[0] = 1000
    assert np.abs(pixels(ball, shade, symmetric=True, view=(0, 0)) - usual)[80:].max() < 40


def test_a_mesh_without_faces_gives_an_empty_plot():
    assert (pixels(Mesh(SQUARE, np.zeros((0, 3), dtype=int)), np.ones(4)) == 255).all()


def test_wrong_number_of_shades():
    with pytest.raises(ValueError, match=r"shade must have shape \[4\], got \[3\]"):
        pixels(Mesh(SQUARE, HALVES), np.ones(3))
