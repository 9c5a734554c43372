"""What a person reads when the tensors of a file are not those of the model."""

import pytest

from models.named_tensors import check_tensors


def test_equal_tensors_pass():
    check_tensors({}, {}, "nothing")
    check_tensors({"b": (2,), "a": ()}, {"a": (), "b": (2,)}, "x.safetensors")


def test_every_kind_of_difference_is_named_at_once():
    found = {"h.0.bias": (3,), "h.0.weight": (3, 4), "score.weight": (2, 2), "same": (1,)}
    wanted = {"h.0.bias": (4,), "h.0.weight": (4, 3), "wte.weight": (5, 4), "same": (1,)}
    with pytest.raises(ValueError) as caught:
        check_tensors(found, wanted, "x.safetensors")
    assert str(caught.value) == (
        "x.safetensors does not fit the model: 1 missing: wte.weight; 1 unexpected: score.weight; "
        "2 misshaped: h.0.bias (is [3], should be [4]), h.0.weight (is [3, 4], should be [4, 3])."
    )


def test_types_may_stand_for_shapes():
    with pytest.raises(ValueError, match=r"1 misshaped: a \(is f16\[2\], should be f32\[2\]\)"):
        check_tensors({"a": "f16[2]"}, {"a": "f32[2]"}, "The checkpoint")


def test_a_long_list_is_cut_and_counted():
    with pytest.raises(ValueError, match=r"^x does not .* 30 missing: a00, .*, a07, and 22 more\.$"):
        check_tensors({}, {f"a{number:02}": (1,) for number in range(30)}, "x")
