"""PLY files, text and binary: the coordinates of `vertex` and the index lists of `face`.

A header names the elements, their counts and their properties: numbers, or lists of numbers, each preceded by
its length. All counts and lengths are checked against the size of the file before memory is allocated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from gcgp.mesh.files.parsing import (
    MAX_POLYGON_CORNERS,
    Polygons,
    check_corners,
    decoded,
    integer,
    point,
    shortened,
)

C_TYPES = ("char", "uchar", "short", "ushort", "int", "uint", "float", "double")
PLY_TYPES = dict(zip(C_TYPES, ("i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"), strict=True)) | {
    np.dtype(code).name: code for code in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
}
BYTE_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
INDEX_LISTS = ("vertex_indices", "vertex_index")
PLY_HEADER_END = re.compile(rb"^end_header[ \t]*\r?(\n|$)", re.MULTILINE)


@dataclass(frozen=True)
class Property:
    """A number in each row of an element, or a list of numbers if `length` is given."""

    name: str
    dtype: np.dtype
    length: np.dtype | None = None


@dataclass(frozen=True)
class Element:
    """A table of the file."""

    name: str
    count: int
    properties: list[Property] = field(default_factory=list)

    def column(self, names: Sequence[str], is_list: bool) -> int:
        """The index of the first property with one of these names, a list or not."""
        for i, column in enumerate(self.properties):
            if column.name in names and (column.length is not None) == is_list:
                return i
        kind = "list" if is_list else "property"
        raise ValueError(f"its element {self.name} has no {kind} {' or '.join(names)}")


def read_ply(content: bytes) -> tuple[np.ndarray, Polygons]:
    """Vertices `[V, 3]` and polygons of a PLY file."""
    end = PLY_HEADER_END.search(content)
    if content[:3] != b"ply" or end is None:
        raise ValueError("the file is truncated or damaged: it has no PLY header")
    order, elements = _header(decoded(content[: end.start()]).splitlines())
    names = [element.name for element in elements]
    for name, plural in (("vertex", "vertices"), ("face", "faces")):
        if names.count(name) != 1:
            raise ValueError(f"it contains no {plural}: it has no element {name}, or several")
        if elements[names.index(name)].count == 0:
            raise ValueError(f"it contains no {plural}")
    vertex, face = elements[names.index("vertex")], elements[names.index("face")]
    axes = [vertex.column([axis], is_list=False) for axis in "xyz"]
    indices = face.column(INDEX_LISTS, is_list=True)
    if face.properties[indices].dtype.kind == "f":
        raise ValueError("its faces name vertices by floating-point numbers")
    if order:
        return _read_binary(content, end.end(), elements, axes, indices)
    return _read_text(decoded(content[end.end() :]), elements, axes, indices)


def _header(lines: Sequence[str]) -> tuple[str, list[Element]]:
    """The byte order (empty for text) and the elements."""
    order: str | None = None
    elements: list[Element] = []
    for words in (line.split() for line in lines[1:]):
        if words[:1] == ["format"] and len(words) > 1:
            order = BYTE_ORDERS.get(words[1])
            if order is None:
                known = ", ".join(BYTE_ORDERS)
                raise ValueError(f"unknown format {shortened(words[1])}; expected one of {known}")
        elif words[:1] == ["element"] and len(words) == 3:
            count = integer(words[2], f"element {shortened(words[1])}")
            if count < 0:
                raise ValueError(f"element {shortened(words[1])}: its count is {count}")
            elements.append(Element(words[1], count))
        elif words[:1] == ["property"] and len(words) in (3, 5):
            if not elements:
                raise ValueError("a property before the first element")
            elements[-1].properties.append(_property(words, order or ""))
        elif words and words[0] not in ("comment", "obj_info"):
            raise ValueError(f"unknown line in its header: {shortened(' '.join(words))}")
    if order is None:
        raise ValueError("the file is truncated or damaged: its header names no format")
    return order, elements


def _property(words: Sequence[str], order: str) -> Property:
    kinds = words[2:4] if len(words) == 5 else words[1:2]
    for kind in kinds:
        if kind not in PLY_TYPES:
            raise ValueError(f"property {shortened(words[-1])} has the unknown type {shortened(kind)}")
    types = [np.dtype(order + PLY_TYPES[kind]) for kind in kinds]
    if len(words) == 3:
        return Property(words[-1], types[0])
    if words[1] != "list" or types[0].kind == "f":
        raise ValueError(f"the lists of {words[-1]} have lengths of type {kinds[0]}")
    return Property(words[-1], types[1], types[0])


def _read_text(
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
                f"{len(part)} rows for {element.count} of element {element.name}; the file is truncated"
            )
        start += len(part)
        if element.name == "vertex":
            columns = (_text_columns(row, element, i, max(axes)) for i, row in enumerate(part))
            points = [point([row[axis][0] for axis in axes], i) for i, row in enumerate(columns)]
        elif element.name == "face":
            lists = (_text_columns(row, element, i, indices)[indices] for i, row in enumerate(part))
            polygons = [[integer(word, f"face {i}") for word in words] for i, words in enumerate(lists)]
    return np.array(points).reshape(-1, 3), polygons


def _text_columns(row: str, element: Element, number: int, last: int) -> list[list[str]]:
    """The words of each property of a row, up to property `last`; of lists, without their lengths."""
    item = f"{element.name} {number}"
    words = iter(row.split(None, 4 * MAX_POLYGON_CORNERS))  # a hostile row may be much longer
    columns: list[list[str]] = []
    for column in element.properties[: last + 1]:
        length = 1
        if column.length is not None:
            length = integer(next(words, ""), item)
            if element.name == "face" and column.name in INDEX_LISTS:
                check_corners(length, number)
        columns.append(list(islice(words, max(0, min(length, len(row))))))
        if len(columns[-1]) < length:
            kind = "corners" if element.name == "face" else "numbers"
            raise ValueError(
                f"{item} has {len(columns[-1])} {kind}, not {length}; the file is truncated or damaged"
            )
    return columns


def _read_binary(
    content: bytes, start: int, elements: Sequence[Element], axes: Sequence[int], indices: int
) -> tuple[np.ndarray, Polygons]:
    points = np.zeros((0, 3))
    polygons: Polygons = []
    for element in elements:
        first = [column.dtype if column.length is None else column.length for column in element.properties]
        least = element.count * sum(dtype.itemsize for dtype in first)  # all lists may be empty
        if least > len(content) - start:
            raise ValueError(
                f"{element.count} of element {element.name} take at least {least} bytes, but "
                f"{len(content) - start} are left; the file is truncated or its counts are wrong"
            )
        if least == 0:
            continue
        table = _table(content, start, element)
        if table is None and element.name == "vertex":
            raise ValueError("its vertices have lists of different lengths, which is not supported")
        if table is None:
            lists, start = _rows(content, start, element, indices)
            polygons = lists if element.name == "face" else polygons
            continue
        start += table.nbytes
        if element.name == "vertex":
            with np.errstate(invalid="ignore"):  # a signaling NaN, which the mesh then rejects
                points = np.column_stack([table[f"value{i}"].astype(np.float64) for i in axes])
        elif element.name == "face":
            polygons = table[f"value{indices}"]
    return points, polygons


def _table(content: bytes, start: int, element: Element) -> np.ndarray | None:
    """All rows as a structured array if their lists are as long as those of the first row; else None."""
    fields: list[tuple[str, np.dtype] | tuple[str, np.dtype, tuple[int]]] = []
    lengths: dict[str, int] = {}
    position = start
    for i, column in enumerate(element.properties):
        if column.length is None:
            fields.append((f"value{i}", column.dtype))
            position += column.dtype.itemsize
            continue
        length = lengths[f"length{i}"] = _list_length(content, position, column, element, 0)
        fields += [(f"length{i}", column.length), (f"value{i}", column.dtype, (length,))]
        position += column.length.itemsize + length * column.dtype.itemsize
    layout = np.dtype(fields)
    if start + element.count * layout.itemsize > len(content):
        return None
    table = np.frombuffer(content, layout, count=element.count, offset=start)
    return table if all((table[name] == length).all() for name, length in lengths.items()) else None


def _rows(content: bytes, start: int, element: Element, indices: int) -> tuple[list[list[int]], int]:
    """Rows read one by one: the lists of property `indices` of faces, and the end of the element."""
    lists: list[list[int]] = []
    position = start
    for row in range(element.count):
        for i, column in enumerate(element.properties):
            length = 1
            if column.length is not None:
                length = _list_length(content, position, column, element, row)
                position += column.length.itemsize
            stop = position + length * column.dtype.itemsize
            if stop > len(content):
                raise ValueError(f"{element.name} {row}: the file is truncated")
            if element.name == "face" and i == indices:
                lists.append(np.frombuffer(content, column.dtype, count=length, offset=position).tolist())
            position = stop
    return lists, position


def _list_length(content: bytes, position: int, column: Property, element: Element, row: int) -> int:
    """The length of the list at a position, checked against the rest of the file."""
    assert column.length is not None
    rest = len(content) - position - column.length.itemsize
    if rest < 0:
        raise ValueError(f"{element.name} {row}: the file is truncated")
    length = int(np.frombuffer(content, column.length, count=1, offset=position)[0])
    if length < 0 or length * column.dtype.itemsize > rest:
        raise ValueError(
            f"{element.name} {row}: a list of {length} numbers in {rest} bytes; "
            "the file is truncated or damaged"
        )
    if element.name == "face" and column.name in INDEX_LISTS:
        check_corners(length, row)
    return length
