"""`cupola render`, and the videos of `cupola eval`."""

import numpy as np
import pytest
from PIL import Image

from cupola.tasks import make_task


def length(path) -> float:
    with Image.open(path) as image:
        total = 0
        for i in range(image.n_frames):
            image.seek(i)
            total += image.info["duration"]
    return total / 1000


def test_render_films_a_task(command, tmp_path):
    status, out, err = command("render", "ProbeRegulator", "--episodes", "2")
    assert (status, err) == (0, "")
    assert out.startswith("ProbeRegulator.gif: 4.5 s in real time, ")
    assert length(tmp_path / "ProbeRegulator.gif") == pytest.approx(4.5)
    before = (tmp_path / "ProbeRegulator.gif").read_bytes()
    assert "exists: name another file, or add --force" in command("render", "ProbeRegulator")[2]
    assert command("render", "ProbeRegulator", "--force", "--actions", "zero")[0] == 0
    assert (tmp_path / "ProbeRegulator.gif").read_bytes() != before


def test_a_picture_is_the_start_of_an_episode(command, tmp_path):
    arguments = ("--out", "p.png", "--seed", "3", "--width", "200", "--height", "100")
    status, out, _ = command("render", "PointGoal1", *arguments)
    assert (status, out) == (0, "p.png: 200 x 100 pixels\n")
    task = make_task("PointGoal1", 1, ("cost",))
    task.reset(3)
    with Image.open(tmp_path / "p.png") as image:
        np.testing.assert_array_equal(np.asarray(image), task.render(0, 200, 100))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("Nowhere",), "unknown task 'Nowhere'"),
        (("PointGoal1", "--out", "film.avi"), ".gif, .mp4 or .png: not film.avi"),
        (("PointGoal1", "--out", "no/film.gif"), "there is no directory no"),
        (("PointGoal1", "--episodes", "5"), "--episodes must be 1 to 4"),
        (("PointGoal1", "--width", "3"), "must be 16 to 4096"),
        (("PointGoal1", "--actions", "wild"), "wild"),
    ],
)
def test_what_cannot_be_drawn_is_refused(complaint, arguments, says):
    assert says in complaint("render", *arguments)


def test_eval_films_the_episodes_that_it_measures(command, probe_run, tmp_path):
    plain = command("eval", probe_run, "--episodes", "6")
    status, out, err = command("eval", probe_run, "--episodes", "6", "--video", "film.gif")
    assert (status, err) == (0, "")
    assert out.startswith(plain[1]), "a film changes no number"
    assert out.splitlines()[-1].startswith("film.gif: 1.0 s in real time")
    with Image.open(tmp_path / "film.gif") as image:
        assert image.size[0] == 4 * 240
    again = command("eval", probe_run, "--video", "film.gif")
    assert (again[0], again[1]) == (1, "")
    assert "film.gif exists" in again[2]


def test_eval_refuses_another_kind_of_file(complaint, probe_run):
    assert "a file .gif or .mp4: not film.png" in complaint(
        "eval", probe_run, "--video", "film.png"
    )
