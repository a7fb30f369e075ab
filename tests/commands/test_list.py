"""`cupola list`."""

import pytest

from cupola.algos import load_algorithm, presets, summary
from cupola.algos import names as algorithm_names
from cupola.tasks import specs


@pytest.fixture
def lines(command) -> list[list[str]]:
    status, out, err = command("list")
    assert (status, err) == (0, "")
    return [line.split() for line in out.splitlines()]


def test_every_algorithm_with_what_it_is_and_its_presets(lines):
    for name in algorithm_names():
        (row,) = (line for line in lines if line[:1] == [name])
        module = load_algorithm(name)
        title = module.__doc__.partition("\n")[0]
        assert " ".join(row[1:]) == f"{title} [{', '.join(module.PRESETS)}]"


def test_what_is_read_without_loading_an_algorithm_is_what_it_has():
    for name in algorithm_names():
        module = load_algorithm(name)
        assert presets(name) == list(module.PRESETS)
        assert module.__doc__.startswith(summary(name) + "\n")


def test_every_task_with_its_whole_name_sizes_and_costs_on_one_line(lines):
    for name, spec in specs().items():
        (row,) = (line for line in lines if line[:1] == [name])
        assert row[1:3] == [str(spec.obs_size), str(spec.act_size)]
        text = " ".join(row[3:])
        for cost in spec.costs:
            limit = "" if cost.limit is None else f" <= {cost.limit:g}"
            assert f"{cost.name}{limit}" in text
            if cost.limit is not None:
                assert ("discounted" in text) == cost.discounted


def test_families_say_what_they_are_and_that_there_are_environments_of_ones_own(command):
    out = command("list")[1]
    assert "Safety Gym: a robot drives to goals or buttons" in out
    assert "gym:Pendulum-v1" in out
    assert "env:package.module:function" in out
