"""Shapes cover the area that geometry gives them."""

import numpy as np
import pytest

from cupola.tasks import make_task, specs
from cupola.tasks.canvas import Canvas

WHITE, BLACK = (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)
MIDDLE = np.array([0.3, -0.2])


def painted(draw) -> float:
    """Square metres that a shape paints on a canvas of 4 m."""
    canvas = Canvas(400, 4.0, (0.0, 0.0), WHITE)
    draw(canvas)
    return float((1 - canvas.image() / 255).mean() * 16)


@pytest.mark.parametrize(
    ("draw", "area"),
    [
        (lambda c: c.disc(MIDDLE, 0.7, BLACK), np.pi * 0.49),
        (lambda c: c.disc(MIDDLE, 0.7, BLACK, 0.25), np.pi * 0.49 / 4),
        (lambda c: c.ring(MIDDLE, 1.0, 0.2, BLACK), 2 * np.pi * 0.2),
        (lambda c: c.box(MIDDLE, (0.5, 0.25), 0.4, BLACK), 0.5),
        (lambda c: c.capsule(MIDDLE, MIDDLE + 0.6, 0.2, BLACK), 0.4 * 0.72**0.5 + np.pi * 0.04),
        (lambda c: c.wedge(MIDDLE, (0.5, 1.0), (2.9, 3.4), BLACK), 0.25 * 0.75),
        (lambda c: c.disc(np.array([9.0, 9.0]), 1.0, BLACK), 0.0),
        (lambda c: c.disc(np.array([2.0, 0.0]), 0.5, BLACK), np.pi * 0.125),
    ],
)
def test_areas(draw, area):
    assert painted(draw) == pytest.approx(area, rel=0.01, abs=1e-3)


def test_up_is_up_and_right_is_right():
    canvas = Canvas(100, 2.0, (5.0, 5.0), WHITE)
    canvas.disc(np.array([5.5, 5.8]), 0.1, (1.0, 0.0, 0.0))
    image = canvas.image()
    assert image[10, 75].tolist() == [255, 0, 0]
    assert image[90, 75].tolist() == image[10, 25].tolist() == [255, 255, 255]


@pytest.mark.parametrize("name", ["HopperSpeed", "AntSpeed", "SwimmerSpeed", "HumanoidCircle"])
def test_robots_stand_in_the_middle_of_their_picture(name):
    task = make_task(name, 2, (specs()[name].costs[0].name,), 1)
    task.reset(0)
    picture = task.render(1)
    assert picture.shape == (480, 480, 3)
    brown = np.linalg.norm(picture / 255 - (0.8, 0.6, 0.4), axis=2) < 0.05
    assert 200 < brown.sum() < 60_000
    _, columns = brown.nonzero()
    assert abs(columns.mean() - 240) < 30
    np.testing.assert_array_equal(picture, task.render(1))
