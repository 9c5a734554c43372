"""What an element is made of, against what changes it."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.inspect.numerics.elements import parts_read


@pytest.mark.parametrize("key_heads", [1, 2, 6])
def test_a_head_of_attention_is_made_of_the_keys_that_it_shares(key_heads):
    with ei.Graph("attention") as graph:
        query, key, value = (ei.input(name, (2, heads, 3, 4)) for name, heads in zip("qkv", (6, key_heads, key_heads)))
        starts = ei.input("starts", (2, 6, 3), ei.i64)
        ei.output(y=ei.attention(query, key, value, causal=False, visible_from=starts))
    random = np.random.default_rng(0)
    arrays = {leaf.name: random.standard_normal(leaf.shape).astype(np.float32) for leaf in (query, key, value)}
    arrays["starts"] = np.zeros((2, 6, 3), np.int64)
    run, at = ei.compile(graph, backend="reference"), (1, 4, 2, 3)
    before = run(**arrays)["y"][at]
    parts = parts_read(graph.outputs["y"].op, list(arrays.values()), at)
    assert [part.operand for part in parts] == [0, 1, 2, 3]
    for part, name in zip(parts, arrays):
        inside = np.zeros(arrays[name].shape, bool)
        inside[tuple(slice(None) if place is None else place for place in part.place)] = True
        other = random.permutation(arrays[name].ravel()).reshape(inside.shape) if name in "qkv" else arrays[name] + 1
        for changed, differs in ((inside, True), (~inside, False)):
            after = run(**arrays | {name: np.where(changed, other, arrays[name])})["y"][at]
            assert (after != before) == differs, (name, differs)
