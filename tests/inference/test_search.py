"""The pattern search."""

import math

import pytest

from gcgp.inference.search import pattern_search


def test_minimum_of_a_quadratic_is_found_to_the_smallest_step():
    def loss(point):
        return (point[0] - 3.3) ** 2 + 2 * (point[1] + 1.6) ** 2

    best, value = pattern_search(loss, (0.0, 0.0), [(1.0, 1.0), (0.5, 0.25), (0.1, 0.1)])
    assert best == pytest.approx((3.3, -1.6), abs=0.051)
    assert value == loss(best)


def test_no_neighbor_is_better_where_axes_interact():
    def loss(point):
        x, y = point[0] - 4, point[1] - 2
        return x**2 + y**2 + 1.2 * x * y

    (x, y), value = pattern_search(loss, (-3.0, 5.0), [(1.0, 1.0), (0.5, 0.25)])
    assert value < loss((-3.0, 5.0))
    for neighbor in ((x + 0.5, y), (x - 0.5, y), (x, y + 0.25), (x, y - 0.25)):
        assert value <= loss(neighbor)


def test_no_point_is_evaluated_twice():
    seen = []

    def loss(point):
        seen.append(point)
        return abs(point[0] - 2) + abs(point[1])

    pattern_search(loss, (0.0, 0.0), [(1.0, 1.0), (0.5, 0.5), (0.5, 0.5)])
    assert len(seen) == len(set(seen))


def test_nan_losses_are_avoided():
    def loss(point):
        return math.nan if point[0] > 2 else -point[0]

    assert pattern_search(loss, (0.0,), [(1.0,), (0.5,)]) == ((2.0,), -2.0)


def test_a_start_with_nan_loss_is_left():
    def loss(point):
        return math.nan if point[0] == 0 else (point[0] - 2) ** 2

    assert pattern_search(loss, (0.0,), [(1.0,)]) == ((2.0,), 0.0)


def test_a_loss_that_is_always_nan_stays_at_the_start():
    assert pattern_search(lambda _: math.nan, (1.0, 2.0), [(1.0, 1.0)]) == ((1.0, 2.0), math.inf)


@pytest.mark.parametrize("steps", [[], [(0.0, 0.0)]])
def test_no_free_axis_scores_the_start(steps):
    assert pattern_search(sum, (1.0, 2.0), steps) == ((1.0, 2.0), 3.0)


def test_axis_without_a_step_does_not_move():
    best, _ = pattern_search(lambda p: p[0] ** 2 + p[1] ** 2, (3.0, 3.0), [(1.0, 0.0)])
    assert best == (0.0, 3.0)
