"""Cases: mesh files of every format and variant, damaged in various ways."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import trimesh

from benchmarks.fuzz import bases
from benchmarks.fuzz.draws import Draw
from benchmarks.fuzz.judging import check, check_finite
from gcgp import Mesh, load_mesh

Run = Callable[[], None]
MAX_MESSAGE = 600
WORDS = (
    *(b"", b"-1", b"0", b"1e999", b"-1e999", b"nan", b"inf", b"1e40", b"1e-320", b"99999999999999999999"),
    *(b"1000000000", b"2147483648", b"9223372036854775808", b"4294967295", b"3.5", b"1_0", b"0x10", b"1d5"),
    *(
        b" ",
        b"\n",
        b"\r",
        b"\t",
        b"#",
        b"\\\n",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\0",
        b"OFF",
        b"/",
        b"//",
        b"1/1/1",
    ),
    *(
        b"element face 1000000000\n",
        b"property list uint uint vertex_indices\n",
        b"end_header\n",
        b"f 1 2 3\n",
    ),
    *(b"v 0 0\n", b"endfacet", b"solid", b"9" * 5000, b"3 0 1 2\n" * 50, b"1e5", b"+1", b"-0"),
)


def off(draw: Draw) -> bytes:
    """An OFF file of any variant and layout."""
    extras = {
        "": "",
        "C": " 255 0 0 255",
        "N": " 0 0 1",
        "ST": " 0.5 0.25",
        "CN": " 0 0 1 1 0 0 1",
        "4": " 1",
    }
    head = draw.value("variant", list(extras))
    rows = [f"{x} {y} {z}{extras[head]}" for x, y, z in bases.OCTAHEDRON]
    faces = [f"3 {a} {b} {c}" for a, b, c in bases.FACES] + ["4 0 1 3 4", "5 0 1 3 4 2", "2 0 1", "1 0"]
    faces = faces[: draw.value("faces", (8, 8, 10, 12))]
    word = draw.value("word", ("OFF", "off", "Off"))
    text = "\n".join([f"{head}{word}", f"{len(rows)} {len(faces)} 0", *rows, *faces, ""])
    layout = draw.value("layout", ("rows", "one line", "one word per line", "comments"))
    if layout == "one line":
        text = " ".join(text.split())
    elif layout == "one word per line":
        text = "\r\n".join(text.split())
    elif layout == "comments":
        text = text.replace("\n", " # note 1 2 3\n\n")
    return text.encode()


def obj(draw: Draw) -> bytes:
    """An OBJ file with indices of any style."""
    style = draw.value("style", ("{0}", "{0}/{0}", "{0}//{0}", "{0}/{0}/{0}", "-{1}"))
    rows = [f"v {x} {y} {z}" for x, y, z in bases.OCTAHEDRON]
    faces = ["f " + " ".join(style.format(v + 1, 6 - v) for v in face) for face in bases.FACES]
    normals = ["vn 0 0 1", "vt 0 0"] * 6
    return "\n".join(["# obj", "mtllib none.mtl", *rows, *normals, "usemtl a", *faces, ""]).encode()


def ply(draw: Draw) -> bytes:
    """A PLY file in any encoding, with other properties."""
    encoding = draw.value("encoding", ("ascii", "binary_little_endian", "binary_big_endian"))
    kinds = {"uchar": "B", "int": "i", "uint": "I", "short": "h"}
    count, index = draw.value("list", ("uchar", "int", "uint")), draw.value("index", ("int", "uint", "short"))
    header = (
        f"ply\nformat {encoding} 1.0\ncomment test\nelement vertex 6\nproperty float x\n"
        f"property float y\nproperty float z\nproperty uchar red\nelement face 8\n"
        f"property list {count} {index} vertex_indices\nelement other 1\nproperty list uchar float a\n"
        "end_header\n"
    ).encode()
    if encoding == "ascii":
        rows = [f"{x} {y} {z} 255" for x, y, z in bases.OCTAHEDRON]
        rows += [f"3 {a} {b} {c}" for a, b, c in bases.FACES] + ["2 0.5 0.5", ""]
        return header + "\n".join(rows).encode()
    order = "<" if "little" in encoding else ">"
    body = b"".join(struct.pack(f"{order}fffB", *row, 255) for row in bases.OCTAHEDRON)
    form = f"{order}{kinds[count]}3{kinds[index]}"
    body += b"".join(struct.pack(form, 3, *map(int, face)) for face in bases.FACES)
    return header + body + struct.pack(f"{order}Bff", 2, 0.5, 0.5)


@cache
def _exported(kind: str) -> bytes:
    mesh = trimesh.Trimesh(bases.OCTAHEDRON, bases.FACES, process=False)
    content = mesh.export(file_type=kind)
    return content.encode() if isinstance(content, str) else bytes(content)


def stl(draw: Draw) -> bytes:
    """A binary or an ASCII STL file."""
    return _exported(draw.value("encoding", ("stl", "stl_ascii")))


FORMATS = {"off": off, "obj": obj, "ply": ply, "stl": stl}


def _replace_word(draw: Draw, content: bytes) -> bytes:
    words = content.split(b" ")
    words[draw.integer(0, len(words) - 1)] = draw.value("word", WORDS)
    return b" ".join(words)


def _replace_bytes(draw: Draw, content: bytes) -> bytes:
    start = draw.integer(0, len(content))
    stop = min(len(content), start + draw.integer(0, 12))
    return content[:start] + draw.value(f"bytes {start} to {stop}", WORDS) + content[stop:]


def _replace_number(draw: Draw, content: bytes) -> bytes:
    start = draw.integer(0, max(0, len(content) - 4))
    number = draw.value(f"number at {start}", (0, 1, 255, 2**31, 2**32 - 1, 10**9, 0x7F800000, 0x7FC00000))
    return content[:start] + struct.pack("<I", number) + content[start + 4 :]


def _random_bytes(draw: Draw, content: bytes) -> bytes:
    array = bytearray(content)
    for _ in range(draw.integer(1, 5)):
        array[draw.integer(0, len(array) - 1)] = draw.integer(0, 255)
    return bytes(array)


DAMAGE: dict[str, Callable[[Draw, bytes], bytes]] = {
    "word": _replace_word,
    "bytes": _replace_bytes,
    "number": _replace_number,
    "random bytes": _random_bytes,
    "cut off": lambda draw, content: content[: draw.integer(0, len(content))],
    "doubled": lambda draw, content: content + content,
    "line removed": lambda draw, content: b"\n".join(_without_one(draw, content.split(b"\n"))),
    "word removed": lambda draw, content: b" ".join(_without_one(draw, content.split(b" "))),
    "tail": lambda draw, content: content + draw.value("tail", WORDS),
    "Windows line ends": lambda draw, content: content.replace(b"\n", b"\r\n"),
}


def _without_one(draw: Draw, items: list[bytes]) -> list[bytes]:
    del items[draw.integer(0, len(items) - 1)]
    return items


def mesh_files(draw: Draw, folder: Path) -> Run:
    """A file that is read, or rejected by a ValueError that contains its path."""
    ending = draw.value("format", list(FORMATS))
    content = FORMATS[ending](draw)
    for _ in range(draw.integer(0, 3)):
        content = draw.apply("damage", DAMAGE, content) if content else content
    path = folder / f"case.{draw.value('ending', (ending, ending, ending.upper(), *FORMATS))}"
    path.write_bytes(content)

    def run() -> None:
        try:
            mesh = load_mesh(path)
        except ValueError as error:
            check(str(path) in str(error), f"the path is not in the error {str(error)[:200]!r}")
            check(len(str(error)) < MAX_MESSAGE, f"an error of {len(str(error))} characters")
            raise
        check_mesh(mesh, len(content))

    return run


def check_mesh(mesh: Mesh, size: int) -> None:
    """Check that faces are not more than the file can contain, and refer to existing vertices."""
    check(0 < len(mesh.faces) <= size, f"{len(mesh.faces)} faces from {size} bytes")
    check(int(mesh.faces.min()) >= 0 and int(mesh.faces.max()) < len(mesh.vertices), "faces out of range")
    check_finite("vertices", mesh.vertices)
    check_finite("areas", np.asarray(mesh.vertex_areas))
    repr(mesh.report())
