"""Straight lines on triangles: rays that leave a vertex and run on over unfolded faces, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

from gcgp.mesh.geodesics.tables import apex, corner_angle, length_between, third_vertex


@njit(cache=True, nogil=True)
def trace(surface, v, direction, length, seen, stamp, path):  # type: ignore[no-untyped-def]
    """Follow the ray that leaves `v` at the angle `direction` of its fan; return the length of its path.

    `path` receives v and, at each edge that the ray crosses, the nearer end of the edge, never one twice in
    a row. The ray ends after `length`, at a boundary, or where it enters a face for the second time; faces
    entered are those whose `seen` is `stamp`. In the plane of the unfolded faces v is the origin.
    """
    path[0] = v
    count = 1
    start, stop = surface.fan_offsets[v], surface.fan_offsets[v + 1]
    if start == stop or surface.fan_totals[v] <= 0:
        return count
    sector = start
    while sector + 1 < stop and surface.fan_starts[sector + 1] <= direction:
        sector += 1
    face, corner = surface.fan_faces[sector], surface.fan_corners[sector]
    p, q = surface.faces[face, (corner + 1) % 3], surface.faces[face, (corner + 2) % 3]
    if surface.fan_turned[sector]:
        p, q = q, p
    turn = direction - surface.fan_starts[sector]
    wide = corner_angle(surface.vertices, v, p, q)
    vp, vq = length_between(surface.vertices, v, p), length_between(surface.vertices, v, q)
    # The ray runs along the first axis, with p below it and q above.
    px, py = vp * np.cos(turn), -vp * np.sin(turn)
    qx, qy = vq * np.cos(wide - turn), vq * np.sin(wide - turn)
    while count < len(path):
        seen[face] = stamp
        height = qy - py
        part = -py / height if height > 0 else 0.5
        part = min(1.0, max(0.0, part))
        if px + part * (qx - px) > length:
            break
        nearer = p if part <= 0.5 else q
        if nearer != path[count - 1]:
            path[count] = nearer
            count += 1
        corner = 0
        while surface.faces[face, corner] == p or surface.faces[face, corner] == q:
            corner += 1
            if corner == 3:
                return count
        face = surface.across[face, corner]
        if face < 0 or seen[face] == stamp:
            break
        r = third_vertex(surface.faces, face, p, q)
        side = np.hypot(qx - px, qy - py)
        if r < 0 or side == 0:
            break
        along, beyond = apex(
            side, length_between(surface.vertices, r, p), length_between(surface.vertices, r, q)
        )
        ux, uy = (qx - px) / side, (qy - py) / side
        rx, ry = px + along * ux + beyond * uy, py + along * uy - beyond * ux
        if ry > 0:
            q, qx, qy = r, rx, ry
        else:
            p, px, py = r, rx, ry
    return count


@njit(cache=True, nogil=True)
def first_directions(surface, by_curvature):  # type: ignore[no-untyped-def]
    """For each vertex the angle of its fan at which the first ray leaves.

    Along the longest edge; or along the principal direction of the larger curvature (Taubin 1995), on the
    side that faces the centroid of the mesh. Where all directions are alike it is the longest edge again.
    """
    vertices = surface.vertices
    directions = np.zeros(len(vertices))
    centroid = np.zeros(3)
    for v in range(len(vertices)):
        centroid += vertices[v] / len(vertices)
    for v in range(len(vertices)):
        start, stop = surface.fan_offsets[v], surface.fan_offsets[v + 1]
        longest = 0.0
        normal = np.zeros(3)
        axis = np.zeros(3)
        for i in range(start, stop):
            p, q = sector_ends(surface, i)
            a, b = vertices[p] - vertices[v], vertices[q] - vertices[v]
            normal += np.cross(a, b)
            # The last edge of an open fan is nobody's first.
            for edge, angle in ((a, surface.fan_starts[i]), (b, _sector_end(surface, v, i))):
                length = np.sqrt(np.dot(edge, edge))
                if length > longest * (1 + 1e-9):
                    longest = length
                    axis = edge
                    directions[v] = angle
        size = np.sqrt(np.dot(normal, normal))
        if not by_curvature or longest == 0 or size <= 1e-12 * longest**2:
            continue
        normal = normal / size
        axis = axis - normal * np.dot(axis, normal)
        size = np.sqrt(np.dot(axis, axis))
        if size <= 1e-9 * longest:
            continue
        axis = axis / size
        aside = np.cross(normal, axis)
        directions[v] = _principal(surface, v, normal, axis, aside, centroid, directions[v])
    return directions


@njit(cache=True, nogil=True)
def _principal(surface, v, normal, axis, aside, centroid, longest):  # type: ignore[no-untyped-def]
    """The principal direction as an angle of the fan; `longest` is that of the longest edge, along `axis`."""
    vertices = surface.vertices
    xx, xy, yy, total = 0.0, 0.0, 0.0, 0.0
    for i in range(surface.fan_offsets[v], surface.fan_offsets[v + 1]):
        p, q = sector_ends(surface, i)
        weight = np.sqrt(np.sum(np.cross(vertices[p] - vertices[v], vertices[q] - vertices[v]) ** 2))
        for w in (p, q):
            edge = vertices[w] - vertices[v]
            squared = np.dot(edge, edge)
            x, y = np.dot(edge, axis), np.dot(edge, aside)
            flat = x * x + y * y
            if squared == 0 or flat == 0:
                continue
            curvature = weight * 2 * np.dot(normal, edge) / squared
            xx += curvature * x * x / flat
            xy += curvature * x * y / flat
            yy += curvature * y * y / flat
            total += abs(curvature)
    spread = np.hypot(0.5 * (xx - yy), xy)
    if spread <= 1e-6 * total:
        return longest
    angle = 0.5 * np.arctan2(2 * xy, xx - yy)  # of the larger eigenvalue
    if abs(3 * (0.5 * (xx + yy) - spread) - (0.5 * (xx + yy) + spread)) > abs(
        3 * (0.5 * (xx + yy) + spread) - (0.5 * (xx + yy) - spread)
    ):
        angle += np.pi / 2
    towards = np.cos(angle) * axis + np.sin(angle) * aside
    if np.dot(towards, centroid - vertices[v]) < 0:
        angle += np.pi
        towards = -towards
    return _fan_angle(surface, v, towards, axis, aside)


@njit(cache=True, nogil=True)
def _fan_angle(surface, v, towards, axis, aside):  # type: ignore[no-untyped-def]
    """The angle of the fan at which a direction of the tangent plane leaves, from the edge nearest to it."""
    vertices = surface.vertices
    total = surface.fan_totals[v]
    wanted = np.arctan2(np.dot(towards, aside), np.dot(towards, axis))
    nearest, found = np.inf, 0.0
    for i in range(surface.fan_offsets[v], surface.fan_offsets[v + 1]):
        ends = sector_ends(surface, i)
        for k in range(2):
            edge = vertices[ends[k]] - vertices[v]
            at = np.arctan2(np.dot(edge, aside), np.dot(edge, axis))
            off = np.remainder(wanted - at + np.pi, 2 * np.pi) - np.pi
            if abs(off) < nearest - 1e-12:
                nearest = abs(off)
                base = surface.fan_starts[i] if k == 0 else _sector_end(surface, v, i)
                found = base + off * (total / (2 * np.pi) if surface.fan_closed[v] else 1.0)
    if surface.fan_closed[v]:
        return np.remainder(found, total)
    return min(max(found, 0.0), total)


@njit(cache=True, nogil=True, inline="always")
def sector_ends(surface, i):  # type: ignore[no-untyped-def]
    """The two neighbors between which a sector of a fan lies, in the order of the fan."""
    face, corner = surface.fan_faces[i], surface.fan_corners[i]
    p, q = surface.faces[face, (corner + 1) % 3], surface.faces[face, (corner + 2) % 3]
    return (q, p) if surface.fan_turned[i] else (p, q)


@njit(cache=True, nogil=True, inline="always")
def _sector_end(surface, v, i):  # type: ignore[no-untyped-def]
    return surface.fan_starts[i + 1] if i + 1 < surface.fan_offsets[v + 1] else surface.fan_totals[v]
