"""Variants of mesh files, and hostile files: each is read, or raises a ValueError that names it."""

import logging
import struct
import time
import tracemalloc

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st

from gcgp.mesh.files.loading import load_mesh

SQUARE = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]
FACES = [[0, 1, 2], [0, 2, 3]]
POINTS = "0 0 0\n1 0 0\n1 1 0\n0 1 0\n"
OFF = f"OFF\n4 2 0\n{POINTS}3 0 1 2\n3 0 2 3\n"
OBJ = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nf 1 2 3\nf 1 3 4\n"
HEADER = (
    "ply\nformat ascii 1.0\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\n"
    "element face 2\nproperty list uchar int vertex_indices\nend_header\n"
)
PLY = f"{HEADER}{POINTS}3 0 1 2\n3 0 2 3\n"
BINARY = HEADER.replace("ascii", "binary_little_endian")
VALUES = np.array(SQUARE, dtype="<f4").tobytes()
STL = bytes(80) + struct.pack("<I", 1) + struct.pack("<12fH", *[0.0] * 3, *np.ravel(SQUARE[:3]), 0)


def rows(extra):
    return "".join(f"{x} {y} {z}{extra}\n" for x, y, z in SQUARE)


@pytest.mark.parametrize(
    ("head", "extra"),
    [
        ("off", ""),
        ("Off", ""),
        ("COFF", " 255 0 0 255"),
        ("COFF", " 0.5 0.5 0.5"),
        ("coff", " 255 0 0"),
        ("NOFF", " 0 0 1"),
        ("noff", " 0 0 1"),
        ("STOFF", " 0.5 0.25"),
        ("CNOFF", " 0 0 1 255 0 0 255"),
        ("NCOFF", " 0 0 1 255 0 0 255"),
        ("STNOFF", " 0 0 1 0.5 0.25"),
        ("STCNOFF", " 0 0 1 255 0 0 255 0.5 0.25"),
    ],
)
@pytest.mark.parametrize(
    "layout", ["rows", "one line", "one number per line", "counts in the head", "comments"]
)
def test_variants_of_off(write, head, extra, layout):
    text = f"{head}\n4 2 0\n{rows(extra)}3 0 1 2\n3 0 2 3\n"
    if layout == "one line":
        text = " ".join(text.split())
    elif layout == "one number per line":
        text = "\r\n".join(text.split())
    elif layout == "counts in the head":
        text = text.replace("\n", " ", 1)
    elif layout == "comments":
        text = "# made by hand: 4 2 0\n\n" + text.replace("\n", " # é 1 2 3\n# 7\n\n").replace(
            " 0\n", " 0 \n"
        )
    mesh = load_mesh(write("a.off", text))
    assert mesh.vertices.tolist() == SQUARE
    assert mesh.faces.tolist() == FACES


def test_polygons_of_an_off_file_on_one_line(write):
    mesh = load_mesh(write("a.off", f"OFF 4 2 0 {POINTS} 3 0 1 2 4 0 1 2 3".replace("\n", " ")))
    assert mesh.faces.tolist() == [[0, 1, 2], *FACES]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("4OFF", "four-dimensional"),
        ("C4OFF", "four-dimensional"),
        ("nOFF", "n-dimensional"),
        ("STnOFF", "n-dimensional"),
        ("4nOFF", "n-dimensional"),
        ("OFF BINARY", "binary"),
        ("XOFF", "first word is not OFF"),
    ],
)
def test_unknown_variants_of_off(write, head, message):
    with pytest.raises(ValueError, match=rf"a\.off: .*{message}"):
        load_mesh(write("a.off", OFF.replace("OFF", head)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.off", OFF.replace("3 0 2 3", "3 0 2 4"), "face 1 names vertex 4, but the vertices are 0 to 3"),
        ("a.off", OFF.replace("3 0 2 3", "3 0 -1 3"), "face 1 names vertex -1"),
        ("a.off", OFF.replace("3 0 2 3", "3 0 2 x"), "face 1: 'x' is not an integer"),
        ("a.off", OFF.replace("3 0 2 3", f"3 0 2 {2**64}"), f"face 1 names vertex {2**64}"),
        ("a.off", OFF.replace("3 0 1 2", "4 0 1 2 3").replace("3 0 2 3", "3 0 2 9"), "face 1 names vertex 9"),
        ("a.off", OFF.replace("3 0 2 3", "3 0 2 " + "9" * 5000), "face 1: '999.* is not an integer"),
        ("a.off", OFF.replace("1 1 0", "1 y 0"), "vertex 2: 'y' is not a number"),
        ("a.obj", OBJ.replace("f 1 3 4", "f 1 3 5"), "face 1 names vertex 5, but the vertices are 1 to 4"),
        ("a.obj", OBJ.replace("f 1 3 4", "f 1 3 -5"), "face 1 names vertex -5"),
        ("a.obj", OBJ.replace("f 1 3 4", "f 1 3 0"), "face 1 names vertex 0"),
        ("a.obj", OBJ.replace("f 1 3 4", f"f 1 3 {2**63}"), f"face 1 names vertex {2**63}"),
        ("a.obj", OBJ.replace("f 1 3 4", "f 1 3 /2"), "face 1: '' is not an integer"),
        ("a.obj", OBJ.replace("v 1 1 0", "v 1 y 0"), "vertex 2: 'y' is not a number"),
        ("a.ply", PLY.replace("3 0 2 3", "3 0 2 4"), "face 1 names vertex 4, but the vertices are 0 to 3"),
        ("a.ply", PLY.replace("3 0 2 3", "4 0 2 3 -4"), "face 1 names vertex -4"),
        ("a.ply", PLY.replace("3 0 2 3", f"3 0 2 {2**63}"), f"face 1 names vertex {2**63}"),
        ("a.ply", PLY.replace("1 1 0", "1 y 0"), "vertex 2: 'y' is not a number"),
        ("a.ply", PLY.replace("float z", "float w"), "no property z"),
        ("a.ply", PLY.replace("vertex_indices", "corners"), "no list vertex_indices"),
        ("a.ply", PLY.replace("uchar int", "float int"), "lists of vertex_indices .* float"),
        ("a.ply", PLY.replace("float x", "text x"), "unknown type 'text'"),
        ("a.ply", PLY.replace("vertex 4", "vertex -4"), "-4"),
        ("a.ply", PLY.replace("ascii", "utf8"), "unknown format"),
        ("a.ply", PLY.replace("element face 2\n", ""), "no element face"),
        ("a.ply", PLY.replace("element vertex 4\n", ""), "property before the first element"),
        (
            "a.ply",
            BINARY.encode() + VALUES + struct.pack("<B3i", 3, 0, 1, 2) + struct.pack("<B3i", 3, 0, -1, 7),
            "face 1 names vertex -1",
        ),
        (
            "a.ply",
            BINARY.encode()
            + bytes.fromhex("010080ff")
            + VALUES[4:]
            + struct.pack("<B3iB3i", *[3, 0, 1, 2] * 2),
            r"vertices\[0, 0\] is nan",
        ),
        ("a.stl", STL[:-1], "truncated"),
        ("a.stl", STL + b"\0", "truncated"),
    ],
)
def test_errors_name_the_defect(write, name, content, message):
    with pytest.raises(ValueError, match=rf"(?s){name}: .*{message}") as caught:
        load_mesh(write(name, content))
    assert len(str(caught.value)) < 600


MANY = 10**9
LONG = "3 " + " ".join(["0 1 2"] * 400_000)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.off", OFF.replace("4 2 0", f"{MANY} 2 0")),
        ("a.off", OFF.replace("4 2 0", f"4 {MANY} 0")),
        ("a.off", OFF.replace("4 2 0", f"4 {'9' * 5000} 0")),
        ("a.off", OFF.replace("3 0 2 3", f"{MANY} 0 2 3")),
        ("a.off", OFF.replace("3 0 2 3", "1200000" + LONG[1:])),
        ("a.off", f"OFF 4 2 0 {POINTS} 3 0 1 2 {'1200000' + LONG[1:]}".replace("\n", " ")),
        ("a.obj", OBJ + "f 1 2 3" + LONG[1:].replace("0", "4") + "\n"),
        ("a.ply", PLY.replace("vertex 4", f"vertex {MANY}")),
        ("a.ply", PLY.replace("face 2", f"face {MANY}")),
        ("a.ply", PLY.replace("face 2", f"face {'9' * 5000}")),
        ("a.ply", PLY.replace("element face", f"element other {MANY}\nproperty int a\nelement face")),
        ("a.ply", PLY.replace("3 0 2 3", f"{MANY} 0 2 3")),
        ("a.ply", PLY.replace("uchar", "int").replace("3 0 2 3", "1200000" + LONG[1:])),
        ("a.ply", BINARY.replace("vertex 4", f"vertex {MANY}").encode() + VALUES),
        ("a.ply", BINARY.replace("face 2", f"face {MANY}").encode() + VALUES),
        ("a.ply", BINARY.replace("uchar", "uint").encode() + VALUES + struct.pack("<I3i", MANY, 0, 1, 2)),
        ("a.ply", BINARY.replace("uchar", "int").encode() + VALUES + struct.pack("<i3i", -MANY, 0, 1, 2)),
        (
            "a.ply",
            BINARY.replace("uchar", "uint").replace("face 2", "face 1").encode()
            + VALUES
            + struct.pack("<I", 1_000_000)
            + bytes(4_000_000),
        ),
        (
            "a.ply",
            BINARY.replace("property list", "property list uint int other\nproperty list").encode()
            + VALUES
            + struct.pack("<I3i", MANY, 0, 1, 2),
        ),
        ("a.stl", STL[:80] + struct.pack("<I", MANY) + STL[84:]),
        ("a.stl", "solid a\n" + "facet normal 0 0 1\nouter loop\nvertex 0 0 0\n" * 10_000),
    ],
)
def test_impossible_counts_are_rejected_immediately(write, name, content, capfd, caplog):
    path = write(name, content)
    caplog.set_level(logging.DEBUG)
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(ValueError, match=rf"{name}: ") as caught:
        load_mesh(path)
    taken = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 1
    assert peak < 50 * 2**20
    assert len(str(caught.value)) < 600
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("encoding", ["ascii", "binary", "binary_big_endian"])
@pytest.mark.parametrize("mixed", [False, True])
def test_ply_with_other_elements_and_properties(write, encoding, mixed):
    order = ">" if encoding.endswith("big_endian") else "<"
    name = "binary_little_endian" if encoding == "binary" else f"{encoding}"
    header = (
        f"ply\r\nformat {name} 1.0\r\ncomment é\r\nobj_info made by hand\r\nelement camera 1\r\n"
        "property double focus\r\nproperty list uchar short flags\r\nelement vertex 5\r\n"
        "property uchar red\r\nproperty double z\r\nproperty float32 y\r\nproperty float x\r\n"
        "element face 3\r\nproperty uchar label\r\nproperty list uchar float texcoord\r\n"
        "property list uint8 uint vertex_index\r\nproperty short after\r\nelement empty 0\r\n"
        "property int a\r\nend_header\r\n"
    )
    vertices = [*SQUARE, [5, 6, 7]]
    faces = [[0, 1, 2], [0, 2, 3, 4], [1, 2, 4]] if mixed else [[0, 1, 2], [0, 2, 3], [1, 2, 4]]
    if encoding == "ascii":
        lines = ["1.5 2 7 8", *(f"255 {z} {y} {x}" for x, y, z in vertices)]
        lines += [f"7 2 0.5 0.5 {len(face)} {' '.join(map(str, face))} -1" for face in faces]
        content = header.encode() + "\r\n".join([*lines, ""]).encode()
    else:
        content = header.encode() + struct.pack(f"{order}dBhh", 1.5, 2, 7, 8)
        content += b"".join(struct.pack(f"{order}Bdff", 255, z, y, x) for x, y, z in vertices)
        for face in faces:
            content += struct.pack(f"{order}BB2fB{len(face)}Ih", 7, 2, 0.5, 0.5, len(face), *face, -1)
    mesh = load_mesh(write("a.ply", content))
    assert mesh.vertices.tolist() == vertices
    middle = [[0, 2, 3], [0, 3, 4]] if mixed else [[0, 2, 3]]
    assert mesh.faces.tolist() == [[0, 1, 2], *middle, [1, 2, 4]]


@pytest.mark.parametrize("encoding", ["ascii", "binary_little_endian"])
def test_ply_of_trimesh_in_either_encoding(tmp_path, encoding):
    other = trimesh.creation.icosphere(subdivisions=1)
    other.visual.vertex_colors = np.arange(42 * 4).reshape(42, 4) % 255
    (tmp_path / "a.ply").write_bytes(other.export(file_type="ply", encoding=encoding.partition("_")[0]))
    mesh = load_mesh(tmp_path / "a.ply")
    np.testing.assert_allclose(mesh.vertices, other.vertices, atol=1e-6)
    np.testing.assert_array_equal(mesh.faces, other.faces)


SEEDS = {
    "a.off": OFF.encode(),
    "b.off": " ".join(OFF.split()).encode(),
    "a.obj": OBJ.encode(),
    "a.ply": PLY.encode(),
    "b.ply": BINARY.encode() + VALUES + struct.pack("<B3iB3i", 3, 0, 1, 2, 3, 0, 2, 3),
    "a.stl": STL,
    "b.stl": trimesh.creation.box().export(file_type="stl_ascii").encode(),
}


@pytest.mark.parametrize("name", SEEDS)
@given(data=st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_damaged_files_are_read_or_raise_an_error(name, data, tmp_path_factory):
    content = bytearray(SEEDS[name])
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        stop = data.draw(st.integers(start, min(len(content), start + 12)))
        words = [
            b"",
            b"-1",
            b"1e999",
            b"nan",
            b"99999999999999999999",
            b"1000000000",
            b" ",
            b"\n",
            b"#",
            b"\xff",
        ]
        content[start:stop] = data.draw(st.sampled_from(words) | st.binary(max_size=6))
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    message, faces = "", 0
    try:
        faces = len(load_mesh(path).faces)
    except ValueError as error:
        message = str(error)
    assert faces > 0 or str(path) in message
    assert faces < 200
    assert len(message) < 600
