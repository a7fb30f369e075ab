"""The robots' models come with Gymnasium: a release that edits one must not go unnoticed.

If a sum differs, a robot is not the one that the documented results were measured on. Look at what
changed before writing down a new sum.
"""

import hashlib

import pytest

from cupola.tasks.speed import ROBOTS, model_path

SHA256 = {
    "Ant": "cd5f83ef0ea35b0969e65d360c5bacd5b74ccaef6b27e4433b5168c605e3e2be",
    "HalfCheetah": "11797a5d69e8ac955e89ca6fdd3a0087f1c990094fda401ac51420de1b6c5494",
    "Hopper": "3ce93a055ffdcd83c0c701d2400768e40d2cbb9532f3c4ae33377c27f8b39f9e",
    "Humanoid": "85816f372c826d2094b4a598918233bd9c5843b2439119eece2733bdc2e0d073",
    "Swimmer": "25b0d46bf5522920fea6a579353aee39d391ad9e2a0574b53f83704c11b21b12",
    "Walker2d": "ac13373c7ac9003a5311c4704b314ed11149b3dd7600bbc02770487300f9ad2d",
}


@pytest.mark.parametrize("name", ROBOTS)
def test_the_model_is_the_known_one(name):
    assert hashlib.sha256(model_path(ROBOTS[name]).read_bytes()).hexdigest() == SHA256[name]


@pytest.mark.parametrize("name", ROBOTS)
def test_the_model_refers_to_no_other_file(name):
    text = model_path(ROBOTS[name]).read_text()
    assert "<include" not in text
    assert "file=" not in text
