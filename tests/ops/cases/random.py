"""Random numbers, beside another implementation of Philox."""

import math

import torch
from cases.table import CASES, Input, case, exact, fixed

import euler_ir as ei


def philox_word(index, seed, step, stream):
    """Philox4x32-10 on Python ints: words 0 and 1 of the block of one element."""
    low = 2**32 - 1
    counter = [index & low, index >> 32, step & low, stream]
    key = [seed & low, seed >> 32 & low]
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [second >> 32 ^ counter[1] ^ key[0], second & low, first >> 32 ^ counter[3] ^ key[1], first & low]
        key = [key[0] + 0x9E3779B9 & low, key[1] + 0xBB67AE85 & low]
    return counter[:2]


def uniform_numbers(count, seed, step, stream, double):
    numbers = []
    for index in range(count):
        first, second = philox_word(index, seed, step, stream)
        numbers.append((first >> 11 << 32 | second) * 2.0**-53 if double else (first >> 8) * 2.0**-24)
    return torch.tensor(numbers, dtype=torch.float64)


def uniform_reference(shape, stream, double):
    def reference(seed, step):
        return uniform_numbers(math.prod(shape), int(seed), int(step), stream, double).reshape(shape)

    return reference


def normal_reference(shape, stream, double):
    def reference(seed, step):
        radius, angle = (uniform_reference(shape, stream + word, double)(seed, step) for word in range(2))
        # The angle as the operator forms it: the product rounds in its own type, and the cosine sees that.
        turn = 2 * math.pi * angle if double else (torch.tensor(2 * math.pi).float() * angle.float()).double()
        return torch.sqrt(-2 * torch.log(1 - radius)) * torch.cos(turn)

    return reference


for _shape in ((), (5,), (3, 7), (0, 3)):
    for _dtype in ("f32", "f64"):
        for _seed, _step in ((0, 0), (2**63 - 1, 2**40 + 7), (-1, 3)):
            _words = (Input((), "i64", fixed([_seed])), Input((), "i64", fixed([_step])))
            for _operator, _reference, _bound in (
                ("random_uniform", uniform_reference, exact),
                ("random_normal", normal_reference, lambda y, *words: 40.0),
            ):
                _stream = 2 * len(CASES)  # no two random operators of a graph share one, and a normal one takes two
                case(
                    "random",
                    f"{_operator} {_dtype}{list(_shape)} seed={_seed}",
                    lambda seed, step, name=_operator, shape=_shape, dtype=_dtype, stream=_stream: seed.graph.emit(
                        name, (seed, step), shape=shape, dtype=getattr(ei, dtype), stream=stream
                    ),
                    _reference(_shape, _stream, _dtype == "f64"),
                    *_words,
                    bound=_bound,
                    dtype=_dtype,
                )
