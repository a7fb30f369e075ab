"""Films: their clock, their numbers, what they mark."""

import io
import os
import sys

import numpy as np
import pytest
from PIL import Image

from cupola.errors import CupolaError
from cupola.tasks import make_task, specs
from cupola.tasks.canvas import ALARM
from cupola.types import Step
from cupola.video import encode, film
from cupola.video.film import Film, Limited

RED = np.rint(255 * np.array(ALARM)).astype(int)


def filmed(name, steps, episodes=1, limits=None, size=(64, 48), costs=None):
    """A film of random actions, and the steps that it was made of."""
    spec = specs()[name]
    given = {cost.name: cost.limit for cost in spec.costs if cost.limit is not None}
    made = Film(given if limits is None else limits, 0.9, episodes, size)
    task = make_task(name, episodes, costs or tuple(given), 1)
    task.reset(0)
    rng, running, taken = np.random.default_rng(0), np.ones(episodes, bool), []
    for _ in range(steps):
        step = task.step(rng.uniform(-1, 1, (episodes, spec.act_size)))
        taken.append(step)
        made.watch(task, running, step)
        running = running & ~(step.terminated | step.truncated)
    return made, taken


def red_columns(frame, row=-3):
    return np.flatnonzero((np.abs(frame[row].astype(int) - RED) < 12).all(axis=1))


def test_time_is_that_of_the_task():
    made, _ = filmed("PointGoal0", 200)
    # 50 steps a second, 1000 steps: 20 seconds, in at most 250 frames.
    assert made.times[:3] == pytest.approx([0.0, 0.08, 0.16])
    assert len(made.frames) == 50
    table, _ = filmed("TabularChain", 60)
    assert table.times[-1] == pytest.approx(49 / 4)
    assert len(table.frames) == 50
    assert table.complete
    assert table.end == table.times[-1] + film.HOLD


def test_longer_films_are_cut_and_their_frames_stay_few():
    made, _ = filmed("SafetyHalfCheetahVelocity-v1", 5)
    assert (made._horizon, made._stride) == (400, 2)  # 20 steps a second for 20 seconds
    fast, _ = filmed("HopperSpeed", 5)
    assert (fast._horizon, fast._stride) == (1000, 5)


@pytest.mark.parametrize(
    ("cost", "gamma", "steps", "allowance"),
    [
        (Limited("a", 25.0, False), 0.99, 1000, 0.025),
        (Limited("a", 10.0, True), 0.9, 10**6, 1.0),
        (Limited("a", 1.0 + 0.5 + 0.25, True), 0.5, 3, 1.0),
        (Limited("a", 3.0, True), 1.0, 3, 1.0),
        (Limited("a", None, False), 0.99, 1000, np.inf),
    ],
)
def test_a_cost_that_goes_on_for_ever_reaches_the_limit(cost, gamma, steps, allowance):
    assert cost.allowance(gamma, steps) == pytest.approx(allowance)


def test_steps_that_violate_a_limit_are_red_on_the_bar(monkeypatch):
    made, steps = filmed("TabularGrid", 50, size=(100, 48))
    length = 1 + next(i for i, step in enumerate(steps) if step.terminated[0] or step.truncated[0])
    costs = np.array([step.costs[0, 0] for step in steps[:length]])
    assert 0 < costs.sum() < length
    red = red_columns(made.frames[-1])
    expected = [column for column in range(100) if column // 2 < length and costs[column // 2]]
    np.testing.assert_array_equal(red, expected)  # 50 steps on 100 columns
    for i, frame in enumerate(made.frames[:-1]):
        framed = len(red_columns(frame, row=-8 - 20)) > 2
        assert framed == bool(costs[i]), "a red frame around the picture of such a step"


class Fake:
    """A task of two steps, whose pictures are black."""

    num_envs, fps, costs = 2, 10, ("cost", "other")

    class spec:  # noqa: N801
        time_limit = 100
        costs = (Limited("cost", 1.0, False), Limited("other", None, True))

    def render(self, index, width, height, end):
        return np.zeros((height, width, 3), np.uint8)

    def gauges(self, index):
        return []


def test_return_and_costs_are_added_up_as_their_limits_are(monkeypatch):
    texts = []
    monkeypatch.setattr(film, "write", lambda picture, at, text, *_: texts.append(text) or picture)
    made, no = Film({"cost": 1.0}, 0.5, 2, (64, 64)), np.zeros(2, bool)
    reward, costs = np.array([1.5, 0.25]), np.array([[1.0, 8.0], [0.0, 4.0]])
    for i in range(3):
        ended = np.array([i == 1, False])
        running = np.array([i < 2, True])
        made.watch(Fake(), running, Step(None, None, reward, costs, ended, no))
    last = texts[-8:]
    first = ["episode 1   0.2 s   ended", "return 3.00", "cost 2.00 / 1.00"]
    second = ["episode 2   0.3 s", "return 0.75", "cost 0.00 / 1.00"]
    others = ["cost other 12.0, discounted"], ["cost other 7.00, discounted"]
    assert last == [*first, *others[0], *second, *others[1]]


def read(data):
    image = Image.open(io.BytesIO(data))
    frames, durations = [], []
    for i in range(image.n_frames):
        image.seek(i)
        frames.append(np.asarray(image.convert("RGB")))
        durations.append(image.info["duration"])
    return frames, durations


def test_a_gif_lasts_as_long_as_the_task_and_repeats():
    made, _ = filmed("ProbeRegulator", 15, episodes=2, size=(80, 60))
    frames, durations = read(encode.to_gif(made))
    assert sum(durations) == pytest.approx(1000 * made.end, abs=10)
    assert len(frames) == len(made.frames) == 15
    for ours, theirs in zip(made.frames, frames, strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours.astype(int) - theirs).mean() < 4  # 96 colours
    assert b"NETSCAPE2.0" in encode.to_gif(made)


def test_a_gif_that_would_be_too_large_gets_fewer_frames_then_smaller(monkeypatch):
    made, _ = filmed("PointGoal1", 120, size=(120, 120))
    made.times = [time / 4 for time in made.times]
    monkeypatch.setattr(encode, "GIF_BYTES", len(encode.to_gif(made)) // 3)
    frames, durations = read(encode.to_gif(made))
    assert sum(durations) == pytest.approx(1000 * made.end, abs=10)
    assert len(frames) < len(made.frames)
    assert frames[0].shape[0] <= made.frames[0].shape[0]
    small = frames[-1]
    full = np.asarray(Image.fromarray(made.frames[-1]).resize(small.shape[1::-1]))
    assert np.abs(full.astype(int) - small).mean() < 6, "the end is kept"


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the package's reader
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_mp4_has_the_frames_at_their_times(tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    made, _ = filmed("ProbeRegulator", 15, episodes=2, size=(80, 60))
    path = tmp_path / "film.mp4"
    path.write_bytes(encode.to_mp4(made))
    frames = ffmpeg.read_frames(str(path))
    about = next(frames)
    assert about["fps"] == 4
    assert about["duration"] == pytest.approx(made.end, abs=0.3)
    width, height = about["size"]
    pictures = [np.frombuffer(raw, np.uint8).reshape(height, width, 3) for raw in frames]
    assert pictures[0].shape == made.frames[0].shape
    for i in (0, 7, 14):
        assert np.abs(pictures[i].astype(int) - made.frames[i]).mean() < 8


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="there is no fork")
def test_an_mp4_is_made_without_a_fork_which_jax_would_warn_of():
    pytest.importorskip("imageio_ffmpeg")
    forks = []
    os.register_at_fork(before=lambda: forks.append(1))
    encode.to_mp4(filmed("ProbeRegulator", 3, size=(80, 60))[0])
    assert forks == []


def test_without_ffmpeg_a_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(CupolaError, match=r"pip install 'cupola\[video\]', or write a file \.gif"):
        encode.check_video(tmp_path / "film.mp4")
    encode.check_video(tmp_path / "film.gif")
