"""Exported policies act as `predict` does, within 1e-6."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import cupola
from cupola.errors import CupolaError
from cupola.export.arrays import to_npz
from cupola.export.onnx import to_onnx

NAMES = ["robot", "arm", "menu"]
COUNT = 1000
ROOT = Path(__file__).parents[2]


def observations(policy: cupola.Policy) -> np.ndarray:
    """Ordinary ones around those of the training, and some that are clipped."""
    rng = np.random.default_rng(0)
    mean, std, seen = np.zeros(policy.obs_size), np.ones(policy.obs_size), policy.moments
    if seen.total > 0:
        mean[policy.inputs] = seen.mean
        std[policy.inputs] = np.sqrt(np.asarray(seen.squares) / seen.total) + 1e-3
    obs = mean + std * rng.normal(size=(COUNT, policy.obs_size))
    obs[::10] *= 100
    return obs.astype(np.float32)


def check(policy: cupola.Policy, obs: np.ndarray, actions: np.ndarray) -> None:
    expected = policy.predict(obs)
    assert actions.shape == expected.shape
    if policy.discrete:
        assert len(np.unique(expected)) > 1
        np.testing.assert_array_equal(actions, expected)
    else:
        np.testing.assert_allclose(actions, expected, rtol=1e-6, atol=1e-6)


def loader_of_the_docs():
    """`act` of the page, which loads the policy.npz of the working directory."""
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "docs/export.md").read_text(), re.DOTALL)
    (code,) = (snippet for snippet in snippets if "def act" in snippet)
    lines = [line for line in code.splitlines() if line]
    assert len(lines) == 10
    space: dict = {}
    exec(code, space)
    return space["act"]


@pytest.mark.parametrize("name", NAMES)
def test_the_loader_of_the_docs_acts_as_predict_does(policy_of, tmp_path, monkeypatch, name):
    policy = policy_of(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.npz").write_bytes(to_npz(policy))
    act, obs = loader_of_the_docs(), observations(policy)
    check(policy, obs, act(obs))
    assert act(obs[0]).shape == policy.predict(obs[0]).shape


def test_a_bundle_says_where_it_comes_from(policy_of, tmp_path):
    policy = policy_of("robot")
    (tmp_path / "policy.npz").write_bytes(to_npz(policy))
    with np.load(tmp_path / "policy.npz", allow_pickle=False) as arrays:
        about = json.loads(str(arrays["about"]))
    assert (about["task"], about["iteration"], about["observation"]) == ("HumanoidCircle", 2, 378)
    assert about["limits"] == policy.config.limits
    assert to_npz(policy) == to_npz(policy)


@pytest.mark.parametrize("name", NAMES)
def test_onnx_acts_as_predict_does(policy_of, name):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    policy = policy_of(name)
    data = to_onnx(policy)
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    obs = observations(policy)
    (actions,) = session.run(["action"], {"obs": obs})
    check(policy, obs, actions)
    assert actions.dtype == (np.int64 if policy.discrete else np.float32)
    (one,) = session.run(["action"], {"obs": obs[:1]})
    np.testing.assert_allclose(one, actions[:1], rtol=1e-5)
    about = json.loads(session.get_modelmeta().custom_metadata_map["about"])
    assert (about["task"], about["iteration"]) == (policy.config.task, 2)


def test_large_batches_and_small_ones_are_the_same_model(policy_of):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(to_onnx(policy_of("arm")))
    assert [(i.name, i.shape) for i in session.get_inputs()] == [("obs", ["N", 19])]
    assert [(o.name, o.shape) for o in session.get_outputs()] == [("action", ["N", 2, 2])]
    (none,) = session.run(None, {"obs": np.zeros((0, 19), np.float32)})
    assert none.shape == (0, 2, 2)


def test_without_the_package_a_sentence_says_what_to_install(policy_of, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(CupolaError, match=r"needs the package onnx: pip install 'cupola\[onnx\]'"):
        to_onnx(policy_of("robot"))
