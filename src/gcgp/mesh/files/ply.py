"""Reading PLY files, text and binary: the coordinates of `vertex` and the lists of vertices of `face`.

A header names the elements, how many there are of each, and their properties: numbers, or lists of numbers,
each with its length before it. Every count and length is checked against the size of the file before
anything is allocated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gcgp.mesh.files.parsing import (
    Polygons,
    check_corners,
    decoded,
    integer,
    point,
    shortened,
)

TYPES = {
    "char": "i1",
    "uchar": "u1",
    "short": "i2",
    "ushort": "u2",
    "int": "i4",
    "uint": "u4",
    "float": "f4",
    "double": "f8",
    "int8": "i1",
    "uint8": "u1",
    "int16": "i2",
    "uint16": "u2",
    "int32": "i4",
    "uint32": "u4",
    "int64": "i8",
    "uint64": "u8",
    "float16": "f2",
    "float32": "f4",
    "float64": "f8",
}
ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
INDEX_LISTS = ("vertex_indices", "vertex_index")
END = re.compile(rb"^end_header[ \t]*\r?(\n|$)", re.MULTILINE)


@dataclass(frozen=True)
class Property:
    """A number of each row of an element, or a list of numbers if `length` is given."""

    name: str
    dtype: np.dtype
    length: np.dtype | None = None

    @property
    def least_bytes(self) -> int:
        """Bytes that it takes in a binary file, of an empty list if it is one."""
        return self.dtype.itemsize if self.length is None else self.length.itemsize


@dataclass(frozen=True)
class Element:
    """A table of the file."""

    name: str
    count: int
    properties: list[Property] = field(default_factory=list)

    def place(self, names: Sequence[str], is_list: bool) -> int:
        """The number of the first property with one of these names, a list or not."""
        for i, each in enumerate(self.properties):
            if each.name in names and (each.length is not None) == is_list:
                return i
        kind = "list" if is_list else "property"
        raise ValueError(f"its element {self.name} has no {kind} {' or '.join(names)}")


def read_ply(content: bytes) -> tuple[np.ndarray, Polygons]:
    """Vertices `[V, 3]` and polygons of a PLY file."""
    end = END.search(content)
    if content[:3] != b"ply" or end is None:
        raise ValueError("the file is cut off or damaged: it has no header of a PLY file")
    order, elements = _header(decoded(content[: end.start()]).splitlines())
    names = [element.name for element in elements]
    for name, plural in (("vertex", "vertices"), ("face", "faces")):
        if names.count(name) != 1:
            raise ValueError(f"it holds no {plural}: it has no element {name}, or several")
        if elements[names.index(name)].count == 0:
            raise ValueError(f"it holds no {plural}")
    vertex, face = elements[names.index("vertex")], elements[names.index("face")]
    axes = [vertex.place([axis], is_list=False) for axis in "xyz"]
    indices = face.place(INDEX_LISTS, is_list=True)
    if face.properties[indices].dtype.kind == "f":
        raise ValueError("its faces name vertices by numbers of a floating-point type")
    if order:
        return _binary(content, end.end(), elements, axes, indices)
    return _text(decoded(content[end.end() :]), elements, axes, indices)


def _header(lines: Sequence[str]) -> tuple[str, list[Element]]:
    """The byte order (empty: text) and the elements."""
    order: str | None = None
    elements: list[Element] = []
    for words in (line.split() for line in lines[1:]):
        if words[:1] == ["format"] and len(words) > 1:
            order = ORDERS.get(words[1])
            if order is None:
                raise ValueError(f"unknown format {shortened(words[1])}; expected one of {', '.join(ORDERS)}")
        elif words[:1] == ["element"] and len(words) == 3:
            count = integer(words[2], f"element {shortened(words[1])}")
            if count < 0:
                raise ValueError(f"element {shortened(words[1])}: there cannot be {count}")
            elements.append(Element(words[1], count))
        elif words[:1] == ["property"] and len(words) in (3, 5):
            if not elements:
                raise ValueError("a property before the first element")
            elements[-1].properties.append(_property(words, order or ""))
        elif words and words[0] not in ("comment", "obj_info"):
            raise ValueError(f"the line {shortened(' '.join(words))} of its header is not known")
    if order is None:
        raise ValueError("the file is cut off or damaged: its header names no format")
    return order, elements


def _property(words: Sequence[str], order: str) -> Property:
    kinds = words[2:4] if len(words) == 5 else words[1:2]
    for kind in kinds:
        if kind not in TYPES:
            raise ValueError(f"property {shortened(words[-1])} has the unknown type {shortened(kind)}")
    types = [np.dtype(order + TYPES[kind]) for kind in kinds]
    if len(words) == 3:
        return Property(words[-1], types[0])
    if words[1] != "list" or types[0].kind == "f":
        raise ValueError(f"the lists of {words[-1]} have lengths of type {kinds[0]}")
    return Property(words[-1], types[1], types[0])


def _text(
    text: str, elements: Sequence[Element], axes: Sequence[int], indices: int
) -> tuple[np.ndarray, Polygons]:
    rows = [row for row in text.splitlines() if row.strip()]
    points: list[list[float]] = []
    polygons: list[list[int]] = []
    start = 0
    for element in elements:
        part = rows[start : start + element.count] if element.properties else []
        if element.properties and len(part) < element.count:
            raise ValueError(
                f"{len(part)} rows for {element.count} of element {element.name}; the file is cut off"
            )
        start += len(part)
        if element.name == "vertex":
            points = [_text_point(row, element, axes, i) for i, row in enumerate(part)]
        elif element.name == "face":
            polygons = [_text_polygon(row, element, indices, i) for i, row in enumerate(part)]
    return np.array(points).reshape(-1, 3), polygons


def _text_point(row: str, element: Element, axes: Sequence[int], vertex: int) -> list[float]:
    if all(each.length is None for each in element.properties[: max(axes)]):
        words = row.split(None, max(axes) + 1)
        return point([words[i] for i in axes if i < len(words)], vertex)
    starts = _text_starts(row.split(), element, max(axes), f"vertex {vertex}")
    return point([row.split()[starts[i]] for i in axes], vertex)


def _text_polygon(row: str, element: Element, indices: int, face: int) -> list[int]:
    start, rest = 0, row
    if indices:
        words = row.split()
        start = _text_starts(words, element, indices, f"face {face}")[indices]
        rest = " ".join(words[start:])
    corners = integer(rest.split(None, 1)[0], f"face {face}")
    check_corners(corners, face)
    words = rest.split(None, corners + 1)[1 : corners + 1]
    if len(words) < corners:
        raise ValueError(
            f"face {face} has {len(words)} corners, not {corners}; the file is cut off or damaged"
        )
    return [integer(word, f"face {face}") for word in words]


def _text_starts(words: Sequence[str], element: Element, last: int, item: str) -> list[int]:
    """Where the properties of a row start, up to the last one that is needed."""
    starts = [0]
    for each in element.properties[:last]:
        if starts[-1] >= len(words):
            break
        length = 1 if each.length is None else 1 + integer(words[starts[-1]], item)
        starts.append(starts[-1] + max(1, length))
    if len(starts) <= last or starts[last] >= len(words):
        raise ValueError(f"{item} has too few numbers; the file is cut off or damaged")
    return starts


def _binary(
    content: bytes, start: int, elements: Sequence[Element], axes: Sequence[int], indices: int
) -> tuple[np.ndarray, Polygons]:
    points = np.zeros((0, 3))
    polygons: Polygons = []
    for element in elements:
        least = sum(each.least_bytes for each in element.properties)
        room = len(content) - start
        if element.count * least > room:
            raise ValueError(
                f"{element.count} of element {element.name} take at least {element.count * least} bytes, "
                f"but {room} are left; the file is cut off or its counts are wrong"
            )
        if least == 0 or element.count == 0:
            continue
        table = _even_rows(content, start, element)
        if table is not None:
            start += table.nbytes
            if element.name == "vertex":
                with np.errstate(invalid="ignore"):  # a signalling NaN, which the mesh then rejects
                    points = np.column_stack([table[f"value{i}"].astype(np.float64) for i in axes])
            elif element.name == "face":
                polygons = table[f"value{indices}"]
        elif element.name == "vertex":
            raise ValueError("its vertices have lists of different lengths, which is not supported")
        else:
            lists, start = _uneven_rows(content, start, element, indices)
            if element.name == "face":
                polygons = lists
    return points, polygons


def _even_rows(content: bytes, start: int, element: Element) -> np.ndarray | None:
    """The rows as one table if all lists are as long as those of the first row; else None."""
    fields: list[tuple[str, np.dtype] | tuple[str, np.dtype, tuple[int]]] = []
    lengths: dict[str, int] = {}
    place = start
    for i, each in enumerate(element.properties):
        if each.length is None:
            fields.append((f"value{i}", each.dtype))
            place += each.dtype.itemsize
            continue
        length = _list_length(content, place, each, element, 0)
        lengths[f"length{i}"] = length
        fields += [(f"length{i}", each.length), (f"value{i}", each.dtype, (length,))]
        place += each.length.itemsize + length * each.dtype.itemsize
    layout = np.dtype(fields)
    if start + element.count * layout.itemsize > len(content):
        return None
    table = np.frombuffer(content, layout, count=element.count, offset=start)
    return table if all((table[name] == length).all() for name, length in lengths.items()) else None


def _uneven_rows(content: bytes, start: int, element: Element, indices: int) -> tuple[list[list[int]], int]:
    """Row by row; the lists of property `indices` if this is the element of faces, and where it ends."""
    lists: list[list[int]] = []
    place = start
    for row in range(element.count):
        for i, each in enumerate(element.properties):
            length = 1
            if each.length is not None:
                length = _list_length(content, place, each, element, row)
                place += each.length.itemsize
            stop = place + length * each.dtype.itemsize
            if stop > len(content):
                raise ValueError(f"{element.name} {row}: the file is cut off")
            if element.name == "face" and i == indices:
                lists.append(np.frombuffer(content, each.dtype, count=length, offset=place).tolist())
            place = stop
    return lists, place


def _list_length(content: bytes, place: int, each: Property, element: Element, row: int) -> int:
    """The length of a list that starts at a place, checked against what is left of the file."""
    assert each.length is not None
    first = place + each.length.itemsize
    if first > len(content):
        raise ValueError(f"{element.name} {row}: the file is cut off")
    length = int(np.frombuffer(content, each.length, count=1, offset=place)[0])
    if length < 0 or first + length * each.dtype.itemsize > len(content):
        raise ValueError(
            f"{element.name} {row}: a list of {length} numbers in {len(content) - first} bytes; "
            "the file is cut off or damaged"
        )
    if element.name == "face" and each.name in INDEX_LISTS:
        check_corners(length, row)
    return length
