"""A policy as an ONNX model: pip install 'cupola[onnx]'."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from cupola.errors import CupolaError
from cupola.export.arrays import about, network_of
from cupola.policy import Policy
from cupola.tasks.base import Choice, Scaled

OPSET = 17
IR_VERSION = 8
"""Those of ONNX 1.12 (2022): today's runtimes and most older ones read them."""


def to_onnx(policy: Policy) -> bytes:
    """The policy as a model from `obs` [N, O] float32 to `action` [N, ...]."""
    try:
        import onnx
        from onnx import TensorProto, helper
    except ImportError:
        raise CupolaError(
            "a file .onnx needs the package onnx: pip install 'cupola[onnx]', or write a file .npz."
        ) from None
    network = network_of(policy)
    graph = _Graph()
    x = graph.add("Gather", "obs", network.inputs, axis=1)
    x = graph.add("Mul", graph.add("Sub", x, network.mean), network.scale)
    x = graph.add("Clip", x, -network.clip, network.clip)
    for weight, bias in network.layers[:-1]:
        x = graph.add("Tanh", graph.add("Gemm", x, weight, bias))
    x = graph.add("Gemm", x, *network.layers[-1])
    x, kind, shape = _decode(graph, x, network.actions, policy.act_size)
    graph.add("Identity", x, output="action")
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "policy",
            [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["N", policy.obs_size])],
            [helper.make_tensor_value_info("action", kind, ["N", *shape])],
            graph.constants,
        ),
        producer_name="cupola",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    helper.set_model_props(model, {"about": json.dumps(about(policy))})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


def _decode(
    graph: _Graph, x: str, actions: Scaled | Choice | None, act_size: int
) -> tuple[str, int, tuple[int, ...]]:
    """What `Scaled.decode` and `Choice.decode` do, with the type and shape of an action."""
    from onnx import TensorProto, helper

    if actions is None:
        return x, TensorProto.FLOAT, (act_size,)
    if isinstance(actions, Choice):
        chosen = graph.add("ArgMax", x, axis=1, keepdims=0)
        return graph.add("Add", chosen, np.array(actions.first, np.int64)), TensorProto.INT64, ()
    low, high = actions.low.astype(np.float64), actions.high.astype(np.float64)
    x = graph.add("Clip", x, np.float32(-1), np.float32(1))
    x = graph.add("Cast", x, to=TensorProto.DOUBLE)  # as predict does: bounds may be large
    x = graph.add("Reshape", x, np.array([0, *low.shape], np.int64))  # 0: as it was
    x = graph.add("Mul", graph.add("Add", x, np.float64(1)), np.float64(0.5))
    x = graph.add("Add", graph.add("Mul", x, high - low), low)
    x = graph.add("Min", graph.add("Max", x, low), high)
    kind = helper.np_dtype_to_tensor_dtype(actions.low.dtype)
    return graph.add("Cast", x, to=kind), kind, low.shape


class _Graph:
    """Nodes one after another, and the constants that they use."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: str | np.ndarray | np.generic, **attributes: Any) -> str:
        """Add a node; arrays among its inputs become constants. The name of its output."""
        from onnx import helper, numpy_helper

        output = attributes.pop("output", f"x{len(self.nodes)}")
        names = []
        for value in inputs:
            if not isinstance(value, str):
                name = f"c{len(self.constants)}"
                self.constants.append(numpy_helper.from_array(np.asarray(value), name))
                value = name
            names.append(value)
        self.nodes.append(helper.make_node(kind, names, [output], **attributes))
        return output
