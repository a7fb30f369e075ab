"""Shapes cover the area that geometry gives them."""

import numpy as np
import pytest

from cupola.tasks.canvas import Canvas, caption

WHITE, BLACK = (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)
MIDDLE = np.array([0.3, -0.2])


def painted(draw) -> float:
    """Square metres that a shape paints on a canvas of 4 m."""
    canvas = Canvas((400, 400), 4.0, (0.0, 0.0), WHITE)
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
    canvas = Canvas((100, 100), 2.0, (5.0, 5.0), WHITE)
    canvas.disc(np.array([5.5, 5.8]), 0.1, (1.0, 0.0, 0.0))
    image = canvas.image()
    assert image[10, 75].tolist() == [255, 0, 0]
    assert image[90, 75].tolist() == image[10, 25].tolist() == [255, 255, 255]


def test_the_shorter_side_shows_the_span():
    wide, high = (Canvas(size, 2.0, (0.0, 0.0), WHITE) for size in ((200, 100), (100, 200)))
    assert (wide.half, high.half) == ((2.0, 1.0), (1.0, 2.0))
    for canvas, shape in ((wide, (100, 200, 3)), (high, (200, 100, 3))):
        canvas.disc(np.zeros(2), 0.5, BLACK)
        image = canvas.image()
        assert image.shape == shape
        black = (1 - image / 255).mean(axis=2)
        assert black.sum() / 50**2 == pytest.approx(np.pi * 0.25, rel=0.01)
        centre = [(np.arange(n) + 0.5) @ black.sum(axis=1 - i) for i, n in enumerate(shape[:2])]
        np.testing.assert_allclose(centre / black.sum(), [shape[0] / 2, shape[1] / 2])


def test_texts_stand_where_they_are_put():
    canvas = Canvas((200, 100), 1.0, (0.0, 0.0), WHITE)
    canvas.text(np.array([0.5, 0.0]), "8", BLACK, 0.4)
    rows, columns = (canvas.image() < 128).all(axis=2).nonzero()
    assert abs(columns.mean() - 150) < 3
    assert abs(rows.mean() - 50) < 4
    assert 20 < np.ptp(rows) < 42


def test_a_caption_covers_no_more_than_it_needs():
    picture = np.zeros((280, 400, 3), np.uint8)
    same = caption(picture, [])
    np.testing.assert_array_equal(same, picture)
    short, long = (caption(picture, [(text, BLACK)]) for text in ("a", "a long line"))
    assert not picture.any(), "the picture itself is left alone"
    for drawn in (short, long):
        assert drawn[0, 0].min() > 180
        assert not drawn[20:].any()
        assert not drawn[:, 200:].any()
    assert long.any(axis=(0, 2)).sum() > 2 * short.any(axis=(0, 2)).sum()
