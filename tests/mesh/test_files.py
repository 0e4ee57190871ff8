import numpy as np
import pytest
import trimesh

from gcgp.mesh.files.loading import load_mesh, save_mesh
from gcgp.mesh.mesh import Mesh

ENDINGS = [".off", ".obj", ".ply", ".stl"]
OFF = "OFF\n# a comment\n4 2 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n3 0 1 2\n3 0 2 3\n"
PLY = (
    "ply\nformat ascii 1.0\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\n"
    "element face 2\nproperty list uchar int vertex_indices\nend_header\n"
    "0 0 0\n1 0 0\n1 1 0\n0 1 0\n3 0 1 2\n3 0 2 3\n"
)
SQUARE = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]


def dirty():
    """Two equal vertices, an isolated vertex, a duplicate and a degenerate face."""
    vertices = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [9, 9, 9], [0, 0, 0], [0, 0, 0.1]]
    return Mesh(vertices, [[0, 1, 2], [2, 1, 0], [4, 5, 1], [1, 1, 2]])


@pytest.mark.parametrize("ending", [".off", ".obj", ".ply"])
def test_defects_are_preserved(tmp_path, ending):
    mesh = dirty()
    save_mesh(mesh, tmp_path / f"dirty{ending}")
    again = load_mesh(tmp_path / f"dirty{ending}")
    np.testing.assert_array_equal(again.faces, mesh.faces)
    np.testing.assert_allclose(again.vertices, mesh.vertices, rtol=1e-7)
    assert again.name == "dirty"


@pytest.mark.parametrize("ending", ENDINGS)
def test_files_of_trimesh(tmp_path, ending):
    other = trimesh.creation.icosphere(subdivisions=1)
    other.export(tmp_path / f"sphere{ending}")
    mesh = load_mesh(str(tmp_path / f"sphere{ending}"))
    assert (len(mesh.vertices), len(mesh.faces)) == (42, 80)
    assert mesh.report().clean
    np.testing.assert_allclose(mesh.vertices[mesh.faces], other.triangles, atol=1e-6)


@pytest.mark.parametrize("ending", ENDINGS)
def test_trimesh_reads_saved_files(tmp_path, ending):
    other = trimesh.creation.torus(1.0, 0.3, major_sections=7, minor_sections=5)
    save_mesh(Mesh(other.vertices, other.faces), tmp_path / f"torus{ending}")
    np.testing.assert_allclose(
        trimesh.load_mesh(tmp_path / f"torus{ending}", process=False).triangles, other.triangles, atol=1e-6
    )


@pytest.mark.parametrize("ending", [".off", ".obj", ".ply"])
def test_files_are_exact(tmp_path, ending):
    vertices = np.random.default_rng(0).normal(size=(5, 3)) * [1e-30, 1, 1e30]
    save_mesh(Mesh(vertices, [[0, 1, 2], [2, 3, 4]]), tmp_path / f"mesh{ending}")
    np.testing.assert_array_equal(load_mesh(tmp_path / f"mesh{ending}").vertices, vertices)


def test_obj_with_normals_textures_groups_and_materials_keeps_its_vertices(write):
    text = (
        "mtllib none.mtl\no one\n"
        + "".join(f"v {x} {y} {z}\n" for x, y, z in [*SQUARE, (5, 5, 5)])
        + "vt 0 0\nvt 1 0\nvt 0 1\nvn 0 0 1\nvn 0 1 0\n"
        + "usemtl red\nf 1/1/1 2/2/1 3/3/1\ng two\nusemtl blue\nf 1/2/2 3/1/2 4/3/2\n"
        + "f 1//1 2//2 \\\n 4//1\nf -5 -4 -2\n"
    )
    mesh = load_mesh(write("mesh.obj", text))
    assert mesh.vertices.tolist() == [*SQUARE, [5, 5, 5]]
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 3], [0, 1, 3], [0, 1, 3]]


def test_negative_indices_of_obj_count_back_from_their_line(write):
    mesh = load_mesh(write("a.obj", "v 0 0 0\nv 1 0 0\nv 1 1 0\nf -3 -2 -1\nv 0 1 0\nf 1 3 -1\n"))
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 3]]


@pytest.mark.parametrize("uv", ["s", "texture_u"])
def test_ply_with_textures_keeps_its_vertices(write, uv):
    other = {"s": "t", "texture_u": "texture_v"}[uv]
    text = PLY.replace("float z\n", f"float z\nproperty float {uv}\nproperty float {other}\n")
    for x, y, z in SQUARE:
        text = text.replace(f"\n{x} {y} {z}\n", f"\n{x} {y} {z} 0.5 {x}\n")
    mesh = load_mesh(write("a.ply", text))
    assert mesh.vertices.tolist() == SQUARE
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 3]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("quad.off", OFF.replace("4 2 0", "4 1 0").replace("3 0 1 2\n3 0 2 3", "4 0 1 2 3 255 0 0")),
        ("quad.obj", "".join(f"v {x} {y} {z}\n" for x, y, z in SQUARE) + "f 1 2 3 4\n"),
        ("quad.ply", PLY.replace("face 2", "face 1").replace("3 0 1 2\n3 0 2 3", "4 0 1 2 3")),
    ],
)
def test_polygons_become_fans(write, name, text):
    assert load_mesh(write(name, text)).faces.tolist() == [[0, 1, 2], [0, 2, 3]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mixed.off", OFF.replace("3 0 2 3", "4 0 1 2 3")),
        ("mixed.ply", PLY.replace("3 0 2 3", "4 0 1 2 3")),
    ],
)
def test_triangles_and_polygons_stay_in_order(write, name, text):
    assert load_mesh(write(name, text)).faces.tolist() == [[0, 1, 2], [0, 1, 2], [0, 2, 3]]


def test_headers_of_off(write):
    for head in ("OFF 4 2 0", "OFF4 2 0", "COFF\n4 2 0", "OFF\n\n4 2"):
        mesh = load_mesh(write("a.off", OFF.replace("OFF\n# a comment\n4 2 0", head)))
        assert (mesh.vertices.tolist(), len(mesh.faces)) == (SQUARE, 2)


def test_stl_merges_only_equal_corners(write, tmp_path):
    vertices = np.array([*SQUARE, [0, 1, 1e-6]])
    save_mesh(Mesh(vertices, [[0, 1, 2], [0, 2, 3], [0, 2, 4]]), tmp_path / "a.stl")
    mesh = load_mesh(tmp_path / "a.stl")
    np.testing.assert_array_equal(mesh.vertices, vertices.astype(np.float32))
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 3], [0, 2, 4]]


@pytest.mark.parametrize("ending", ENDINGS)
def test_missing_and_empty_files(write, tmp_path, ending):
    with pytest.raises(FileNotFoundError, match=f"none{ending}: no such file"):
        load_mesh(tmp_path / f"none{ending}")
    with pytest.raises(ValueError, match=f"void{ending}: the file is empty"):
        load_mesh(write(f"void{ending}", " \n"))
    with pytest.raises(ValueError, match=f"rubbish{ending}: "):
        load_mesh(write(f"rubbish{ending}", b"\x00\xff\x80 rubbish\n" * 20))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.glb", "x", r"a.glb: unknown ending '.glb'; expected one of .off, .obj, .ply, .stl"),
        ("a.off", OFF[:-8], "5 lines for 4 vertices and 2 faces; the file is truncated"),
        ("a.off", OFF[:-3], "face 1 has 2 corners, not 3; the file is truncated or damaged"),
        ("a.off", OFF.replace("1 1 0\n", "1 1\n"), "vertex 2 has 2 coordinates"),
        ("a.off", OFF.replace("3 0 2 3", "3 0 2 4"), "a.off: face 1 names vertex 4"),
        ("a.off", OFF.replace("1 1 0\n", "1 nan 0\n"), r"vertices\[2, 1\] is nan"),
        ("a.off", "OFF\n4 0 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n", "a.off: it contains no faces"),
        ("a.off", "PLY\n4 0 0\n", "first word is not OFF"),
        ("a.obj", "v 0 0 0\nv 1 0 0\n", "a.obj: it contains no faces"),
        ("a.obj", "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 0 1 2\n", "a.obj: face 0 names vertex 0"),
        ("a.obj", "v 0 0 0\nv 1 0 0\nf 1 2\n", "face 0 has 2 corners"),
        ("a.ply", PLY[:-8], "a.ply: 1 rows for 2 of element face; the file is truncated"),
        ("a.ply", PLY[:-3], "a.ply: face 1 has 2 corners"),
        ("a.ply", PLY[:80], "a.ply: the file is truncated or damaged"),
        ("a.ply", PLY.replace("face 2", "face 0"), "a.ply: it contains no faces"),
        ("a.stl", "solid a\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\n", "a.stl: it contains no faces"),
    ],
)
def test_bad_files_are_named(write, name, content, message):
    with pytest.raises(ValueError, match=message):
        load_mesh(write(name, content))


@pytest.mark.parametrize("ending", [".ply", ".stl"])
def test_truncated_binary_files(tmp_path, ending):
    path = tmp_path / f"sphere{ending}"
    trimesh.creation.icosphere(subdivisions=1).export(path)
    whole = path.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 90, 10):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=f"sphere{ending}: .*truncated"):
            load_mesh(path)


def test_a_truncated_second_solid_of_an_stl_file(write):
    solid = trimesh.creation.icosphere(subdivisions=0).export(file_type="stl_ascii")
    assert len(load_mesh(write("a.stl", solid + solid)).faces) == 40
    with pytest.raises(ValueError, match=r"a.stl: .*truncated"):
        load_mesh(write("a.stl", solid + solid[:200]))


def test_saving_replaces_a_file_atomically(tmp_path, monkeypatch):
    path = tmp_path / "mesh.off"
    save_mesh(dirty(), path)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        save_mesh(Mesh(SQUARE, [[0, 1, 2]]), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["mesh.off"]
    with pytest.raises(ValueError, match=r"mesh.txt: unknown ending '.txt'"):
        save_mesh(dirty(), tmp_path / "mesh.txt")
