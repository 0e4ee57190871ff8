import numpy as np
import pytest
import trimesh

from gcgp.datasets.mesh_folders import load_faust, load_mesh_folder
from gcgp.mesh.files.loading import save_mesh
from gcgp.mesh.mesh import Mesh

SPHERE = trimesh.creation.icosphere(subdivisions=1)
NAMES = ["b.off", "a.ply", "c.obj"]


def write(path, size=1.0):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_mesh(Mesh(size * SPHERE.vertices, SPHERE.faces), path)


@pytest.fixture
def flat(tmp_path):
    for name in NAMES:
        write(tmp_path / name)
    (tmp_path / "readme.txt").write_text("not a mesh")
    return tmp_path


def names(found):
    return [mesh.name for mesh in found.meshes]


def test_subfolders_are_labels(tmp_path):
    for name in ("horse/2.off", "horse/1.stl", "cat/1.ply", "cat/notes.txt"):
        if name.endswith("txt"):
            (tmp_path / name).write_text("")
        else:
            write(tmp_path / name)
    (tmp_path / "empty").mkdir()
    found = load_mesh_folder(tmp_path)
    assert names(found) == ["1", "1", "2"]
    assert found.labels.tolist() == ["cat", "horse", "horse"]
    assert len(found) == 3
    write(tmp_path / "stray.off")
    with pytest.raises(ValueError, match=r"stray.off: it has no label"):
        load_mesh_folder(tmp_path)


def test_a_function_of_the_name(flat):
    found = load_mesh_folder(str(flat), labels=lambda name: ord(name) - ord("a"), vertices=20)
    assert names(found) == ["a", "b", "c"]
    assert found.labels.tolist() == [0, 1, 2]
    assert [len(mesh.vertices) for mesh in found.meshes] == [20] * 3


@pytest.mark.parametrize("head", ["", "file,label\n", "\ufeffFile, Label\n"])
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("c.obj,cat\nb,dog\n\na.ply,cat\n", ["cat", "dog", "cat"]),
        ("a,3\nb,2\nc,1\n", [3, 2, 1]),
        ("a,3\nb,2.5\nc,1\n", [3.0, 2.5, 1.0]),
        ('a,"x, y"\nb,2\nc,1\n', ["x, y", "2", "1"]),
    ],
)
def test_a_table(flat, head, rows, expected):
    table = flat / "labels.csv"
    table.write_text(head + rows, encoding="utf-8")
    found = load_mesh_folder(flat, labels=table)
    assert names(found) == ["a", "b", "c"]
    assert found.labels.tolist() == expected
    assert found.labels.dtype.kind == np.array(expected).dtype.kind


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,1\nb,2\n", "labels.csv: no label for c.obj"),
        ("a,1\nb,2\nc,3\nd,4\n", "labels.csv: 0 files for 'd', whose label is '4'"),
        ("a,1\nb,2\nc,3\na.ply,4\n", "labels.csv: 'a.ply' has two labels, '1' and '4'"),
        ("a,1,2\n", "labels.csv: the row 'a,1,2' has 3 columns"),
    ],
)
def test_tables_that_do_not_match_the_files(flat, rows, message):
    (flat / "labels.csv").write_text(rows)
    with pytest.raises(ValueError, match=message):
        load_mesh_folder(flat, labels=flat / "labels.csv")


def test_two_files_of_one_name_need_their_endings(flat):
    write(flat / "a.off")
    table = flat / "labels.csv"
    table.write_text("a,1\nb,2\nc,3\n")
    with pytest.raises(ValueError, match="2 files for 'a'"):
        load_mesh_folder(flat, labels=table)
    table.write_text("a.ply,1\nb,2\nc,3\na.off,0\n")
    assert load_mesh_folder(flat, labels=table).labels.tolist() == [0, 1, 2, 3]


def test_folders_without_meshes(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        load_mesh_folder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"no meshes \(.off, .obj, .ply, .stl\) in its subfolders"):
        load_mesh_folder(tmp_path)
    with pytest.raises(ValueError, match=r"no meshes .* in it$"):
        load_mesh_folder(tmp_path, labels=str.upper)


def test_errors_name_the_file(flat):
    (flat / "b.off").write_text("OFF\n3 1 0\n")
    with pytest.raises(ValueError, match=r"b.off: 0 lines for 3 vertices"):
        load_mesh_folder(flat, labels=str.upper)


@pytest.mark.parametrize("place", ["", "registrations", "training/registrations", "shapes"])
def test_faust(tmp_path, monkeypatch, place):
    ending = ".off" if place == "shapes" else ".ply"
    for i in range(100):
        write(tmp_path / "faust" / place / f"tr_reg_{i:03}{ending}", size=1 + i)
    found = load_faust(tmp_path / "faust", vertices=30)
    assert len(found) == 100
    assert found.labels.tolist() == [i // 10 for i in range(100)]
    assert found.poses.tolist() == [i % 10 for i in range(100)]
    assert names(found) == [f"tr_reg_{i:03}" for i in range(100)]
    assert {len(mesh.vertices) for mesh in found.meshes} == {30}
    monkeypatch.setenv("GCGP_DATA", str(tmp_path))
    sizes = [np.abs(mesh.vertices).max() for mesh in load_faust().meshes]
    np.testing.assert_allclose(sizes / sizes[0], np.arange(1, 101), rtol=1e-6)


def test_faust_is_not_there(tmp_path, monkeypatch):
    monkeypatch.delenv("GCGP_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="no folder given for FAUST, and GCGP_DATA is not set"):
        load_faust()
    with pytest.raises(FileNotFoundError, match=r"no .ply or .off file for tr_reg_000, .* and 95 more"):
        load_faust(tmp_path)
    for i in set(range(100)) - {7, 41}:
        write(tmp_path / f"tr_reg_{i:03}.off")
    with pytest.raises(FileNotFoundError, match=r"no .ply or .off file for tr_reg_007, tr_reg_041$"):
        load_faust(tmp_path)
