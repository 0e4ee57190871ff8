"""Rays: straight lines on a mesh that leave a vertex and continue over unfolded faces; compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

from gcgp.mesh.geodesics.unfolding import corner_angle, length_between, opposite_corner, unfolded


@njit(cache=True, nogil=True)
def trace(surface, v, direction, length, seen, stamp, path):  # type: ignore[no-untyped-def]
    """Follow the ray that leaves `v` at the fan angle `direction`; return the length of its path.

    `path` receives v and, at each edge that the ray crosses, the nearer end of the edge, without immediate
    repetitions. The ray ends after `length`, at a boundary, or where it enters a face for the second time;
    `seen` is `stamp` at the faces it entered. A direction beyond the total angle is taken modulo that.
    """
    path[0] = v
    count = 1
    start, stop, total = surface.fan_offsets[v], surface.fan_offsets[v + 1], surface.fan_totals[v]
    if start == stop or total <= 0:
        return count
    if direction > total:
        direction -= total
    sector = start
    while sector + 1 < stop and surface.fan_starts[sector + 1] <= direction:
        sector += 1
    face = surface.fan_faces[sector]
    p, q = surface.fan_ends[sector, 0], surface.fan_ends[sector, 1]
    turn = direction - surface.fan_starts[sector]
    width = corner_angle(surface.vertices, v, p, q)
    vp, vq = length_between(surface.vertices, v, p), length_between(surface.vertices, v, q)
    # In the plane of the unfolded faces v is the origin and the ray the first axis, with p below and q above.
    px, py = vp * np.cos(turn), -vp * np.sin(turn)
    qx, qy = vq * np.cos(width - turn), vq * np.sin(width - turn)
    while count < len(path):
        seen[face] = stamp
        height = qy - py
        part = min(1.0, max(0.0, -py / height)) if height > 0 else 0.5
        if px + part * (qx - px) > length:
            break
        nearer = p if part <= 0.5 else q
        if nearer != path[count - 1]:
            path[count] = nearer
            count += 1
        corner = opposite_corner(surface.faces, face, p, q)
        face = surface.across[face, corner] if corner >= 0 else -1
        if face < 0 or seen[face] == stamp:
            break
        corner = opposite_corner(surface.faces, face, p, q)
        if corner < 0 or (px == qx and py == qy):
            break
        r = surface.faces[face, corner]
        to_p, to_q = length_between(surface.vertices, r, p), length_between(surface.vertices, r, q)
        rx, ry = unfolded(px, py, qx, qy, to_p, to_q)
        if ry > 0:
            q, qx, qy = r, rx, ry
        else:
            p, px, py = r, rx, ry
    return count


@njit(cache=True, nogil=True)
def first_directions(surface, by_curvature):  # type: ignore[no-untyped-def]
    """For each vertex the fan angle at which the first ray leaves.

    Along the longest edge, or along the principal direction of the larger curvature (Taubin 1995), on the
    side that faces the centroid of the mesh. Without a principal direction it is the longest edge again.
    """
    vertices = surface.vertices
    directions = np.zeros(len(vertices))
    centroid = np.zeros(3)
    for v in range(len(vertices)):
        centroid += vertices[v] / len(vertices)
    for v in range(len(vertices)):
        longest = 0.0
        normal = np.zeros(3)
        axis = np.zeros(3)
        for i in range(surface.fan_offsets[v], surface.fan_offsets[v + 1]):
            p, q = surface.fan_ends[i, 0], surface.fan_ends[i, 1]
            a, b = vertices[p] - vertices[v], vertices[q] - vertices[v]
            normal += np.cross(a, b)
            # Both edges, as the last edge of an open fan is the first edge of no sector.
            for edge, angle in ((a, surface.fan_starts[i]), (b, sector_stop(surface, v, i))):
                length = np.sqrt(np.dot(edge, edge))
                if length > longest * (1 + 1e-9):
                    longest, axis, directions[v] = length, edge, angle
        size = np.sqrt(np.dot(normal, normal))
        if not by_curvature or longest == 0 or size <= 1e-12 * longest**2:
            continue
        normal = normal / size
        axis = axis - normal * np.dot(axis, normal)
        size = np.sqrt(np.dot(axis, axis))
        if size <= 1e-9 * longest:
            continue
        axis = axis / size
        directions[v] = _principal_direction(surface, v, normal, axis, centroid, directions[v])
    return directions


@njit(cache=True, nogil=True)
def _principal_direction(surface, v, normal, axis, centroid, longest):  # type: ignore[no-untyped-def]
    """The principal direction as a fan angle; `longest` is that of the longest edge, along `axis`."""
    vertices = surface.vertices
    aside = np.cross(normal, axis)
    xx, xy, yy, total = 0.0, 0.0, 0.0, 0.0
    for i in range(surface.fan_offsets[v], surface.fan_offsets[v + 1]):
        p, q = surface.fan_ends[i, 0], surface.fan_ends[i, 1]
        weight = np.sqrt(np.sum(np.cross(vertices[p] - vertices[v], vertices[q] - vertices[v]) ** 2))
        for w in (p, q):
            edge = vertices[w] - vertices[v]
            squared = np.dot(edge, edge)
            x, y = np.dot(edge, axis), np.dot(edge, aside)
            projected = x * x + y * y
            if squared == 0 or projected == 0:
                continue
            curvature = weight * 2 * np.dot(normal, edge) / squared
            xx += curvature * x * x / projected
            xy += curvature * x * y / projected
            yy += curvature * y * y / projected
            total += abs(curvature)
    spread = np.hypot(0.5 * (xx - yy), xy)
    if spread <= 1e-6 * total:
        return longest
    angle = 0.5 * np.arctan2(2 * xy, xx - yy)  # of the eigenvector with eigenvalue `high`
    low, high = 0.5 * (xx + yy) - spread, 0.5 * (xx + yy) + spread
    if abs(3 * low - high) > abs(3 * high - low):  # principal curvatures, up to a factor
        angle += np.pi / 2
    towards = np.cos(angle) * axis + np.sin(angle) * aside
    if np.dot(towards, centroid - vertices[v]) < 0:
        towards = -towards
    return _fan_angle(surface, v, towards, axis, aside)


@njit(cache=True, nogil=True)
def _fan_angle(surface, v, towards, axis, aside):  # type: ignore[no-untyped-def]
    """The fan angle of a direction in the tangent plane, measured from the nearest edge."""
    vertices, total, closed = surface.vertices, surface.fan_totals[v], surface.fan_closed[v]
    wanted = np.arctan2(np.dot(towards, aside), np.dot(towards, axis))
    smallest, angle = np.inf, 0.0
    for i in range(surface.fan_offsets[v], surface.fan_offsets[v + 1]):
        for k in range(2):
            edge = vertices[surface.fan_ends[i, k]] - vertices[v]
            edge_angle = np.arctan2(np.dot(edge, aside), np.dot(edge, axis))
            off = np.remainder(wanted - edge_angle + np.pi, 2 * np.pi) - np.pi
            if abs(off) < smallest - 1e-12:
                smallest = abs(off)
                base = surface.fan_starts[i] if k == 0 else sector_stop(surface, v, i)
                angle = base + off * (total / (2 * np.pi) if closed else 1.0)
    return np.remainder(angle, total) if closed else min(max(angle, 0.0), total)


@njit(cache=True, nogil=True, inline="always")
def sector_stop(surface, v, i):  # type: ignore[no-untyped-def]
    """The fan angle at which a sector of vertex `v` ends."""
    return surface.fan_starts[i + 1] if i + 1 < surface.fan_offsets[v + 1] else surface.fan_totals[v]
