"""The snippets of the pages on other libraries, run as they stand."""

import gc
import re
from pathlib import Path

import gymnasium
import pytest

DOCS = Path(__file__).parents[2] / "docs" / "tasks"


def run_page(name: str) -> dict:
    """All Python snippets of a page, one after the other."""
    space: dict = {}
    for code in re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL):
        exec(compile(code, name, "exec"), space)
    return space


def test_moving_from_safety_gymnasium_and_omnisafe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = run_page("moving.md")
    run = space["run"]
    assert run.config.limits == {"cost": 25.0}
    assert run.config.task == "PointGoal1"
    assert [record["steps"] for record in run.metrics] == [20_000, 40_000]
    assert space["run"].metrics[-1]["cost/cost"] is not None
    assert {"cost_sum", "cost_hazards"} <= set(space["info"])


@pytest.mark.filterwarnings("ignore")
def test_stable_baselines3_trains_unmodified(tmp_path, monkeypatch, capsys):
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_checker import check_env
    from stable_baselines3.common.env_util import make_vec_env

    monkeypatch.chdir(tmp_path)
    space = run_page("stable-baselines3.md")
    assert space["model"].num_timesteps == 1000
    assert sb3.PPO.load("point").num_timesteps == 2000
    assert re.search(r"return -?\d+\.\d, cost \d+, limit 25", capsys.readouterr().out)
    check_env(space["env"].unwrapped)
    envs = make_vec_env("cupola:cupola/SafetyPointGoal1-v0", n_envs=2)
    assert envs.render_mode == "rgb_array"
    envs.reset()
    assert envs.render().shape[2] == 3
    envs.close()


@pytest.mark.filterwarnings("ignore")
def test_minari_keeps_what_a_policy_did_with_its_costs(tmp_path, monkeypatch):
    pytest.importorskip("minari")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    space = run_page("minari.md")
    del space["env"]
    gc.collect()  # Minari leaves its temporary folder to Python, which warns
    assert space["dataset"].total_episodes == 3
    for seed, episode in enumerate(space["dataset"].iterate_episodes()):
        env = gymnasium.make("cupola/HopperSpeed-v0")
        env.reset(seed=seed)
        for step, action in enumerate(episode.actions):
            _, reward, _, _, info = env.step(action)
            assert reward == episode.rewards[step]
            for cost in ("speed", "effort"):
                assert info["costs"][cost] == episode.infos[cost][step + 1]
