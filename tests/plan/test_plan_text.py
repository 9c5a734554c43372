"""The plan as text."""

import euler_ir as ei
from euler_ir import compiler


def plan():
    with ei.Graph("small") as graph:
        x = ei.input("x", (4, 8))
        w = ei.parameter("w", (8, 8), ei.initializers.Ones())
        h = ei.tanh(x @ w)
        ei.output(y=h @ w, x=x)
        ei.update(w, w * 0.5)
    return compiler.lower(graph).plan


def test_a_small_plan_prints_as_it_always_did():
    assert str(plan()) == """\
plan @small {
  buffer 0 x: f32[4, 8], 128 bytes, input
  buffer 1 w: f32[8, 8], 256 bytes, parameter
  buffer 2 y: f32[4, 8], 128 bytes, output
  buffer 3 x: f32[4, 8], 128 bytes, output
  buffer 4 h.tanh: f32[4, 8], 128 bytes, arena + 0, phases 1 to 2
  phase 0:
    copy 0 -> 3, 128 bytes
  phase 1:
    matmul f32 4 x 8 @ 8 x 8: 0[ld 8] @ 1[ld 8] -> 4[ld 8]
      epilogue tanh
        nest over 4 x 8: 4 -> 4
  phase 2:
    matmul f32 4 x 8 @ 8 x 8: 4[ld 8] @ 1[ld 8] -> 2[ld 8]
  phase 3:
    kernel pointwise, 512 bytes moved
      nest over 64: 1 -> 1
  1 kernels of 1 loop nests, 2 matrix products, 0 attentions
  arena 128 bytes, least possible 128
}
"""


def test_the_text_is_the_same_each_time():
    assert str(plan()) == str(plan())
