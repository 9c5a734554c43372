"""Attention and its gradient."""

import math

import numpy as np
import torch
from cases.table import Input, attention_bound, case, fixed, indices

from euler_ir import tensor as T


def shared_by(query, each):
    """``each`` with heads repeated, so that there are as many as the query has."""
    same = query.shape[:-2] == each.shape[:-2]
    return each if same else each.repeat_interleave(query.shape[-3] // each.shape[-3], -3)


def attention_reference(query, key, value, causal, scale=None, visible_from=None):
    """Aligned at the last query and the last key; a row without a key gives 0 and the logsumexp -inf.

    ``visible_from`` broadcasts to the query's rows.
    """
    key, value = (shared_by(query, each) for each in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    queries, keys = scores.shape[-2:]
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if causal:
        seen = torch.tril(seen, keys - queries)
    if visible_from is not None:
        seen = (seen & (torch.arange(keys) >= visible_from[..., None])).expand(scores.shape)
    blind = ~seen.any(-1, keepdim=True)
    scores = scores.masked_fill(~seen & ~blind, -math.inf)
    weights = torch.softmax(scores, -1).masked_fill(blind, 0) if keys else scores
    return weights @ value, torch.logsumexp(scores, -1).masked_fill(blind[..., 0], -math.inf)


for _lead, _queries, _keys, _width, _value_width in (
    ((), 4, 4, 8, 8), ((2, 3), 5, 5, 4, 4), ((1,), 1, 6, 3, 3), ((2,), 3, 7, 4, 2), ((2,), 7, 3, 4, 4),
    ((2,), 4, 0, 4, 4), ((2,), 0, 4, 4, 4), ((0,), 3, 3, 4, 4), ((), 1, 1, 1, 1), ((), 9, 9, 63, 63),
):  # fmt: skip
    for _causal in (False, True):
        for _result in (0, 1):
            for _dtype in ("f32", "f64"):
                case(
                    "attention",
                    f"{'attention_with_logsumexp' if _result else 'attention'}{' causal' if _causal else ''}",
                    lambda q, k, v, causal=_causal, result=_result: T.attention_with_logsumexp(q, k, v, causal)[result],
                    lambda q, k, v, causal=_causal, result=_result: attention_reference(q, k, v, causal)[result],
                    Input(_lead + (_queries, _width), _dtype),
                    Input(_lead + (_keys, _width), _dtype),
                    Input(_lead + (_keys, _value_width), _dtype),
                    bound=attention_bound,
                    orders=2,
                )
for _heads, _key_heads in (((2, 6), (2, 2)), ((3,), (1,))):
    for _causal in (False, True):
        for _result in (0, 1):
            case(
                "attention",
                f"{'attention_with_logsumexp' if _result else 'attention'}{' causal' if _causal else ''} grouped",
                lambda q, k, v, causal=_causal, result=_result: T.attention_with_logsumexp(q, k, v, causal)[result],
                lambda q, k, v, causal=_causal, result=_result: attention_reference(q, k, v, causal)[result],
                Input((*_heads, 3, 4), "f64"),
                Input((*_key_heads, 5, 4), "f64"),
                Input((*_key_heads, 5, 2), "f64"),
                bound=attention_bound,
                orders=2,
            )
# Texts of 2, 3 and 1 keys; a query that sees all, one that sees none; numbers out of range.
_VISIBLE_FROM = [0, 0, 2, 2, 2, 5], [-(2**31), 0, 1, 2**31 - 1, 6, -1]
for _heads, _key_heads, _keys in (((2, 3), (2, 3), 6), ((2, 6), (2, 2), 6), ((2, 2), (2, 1), 8), ((2, 1), (2, 1), 0)):
    for _causal in (False, True):
        for _result in (0, 1):
            case(
                "attention",
                f"attention{'_with_logsumexp' if _result else ''}{' causal' if _causal else ''} visible_from",
                lambda q, k, v, f, causal=_causal, result=_result: T.attention_with_logsumexp(
                    q, k, v, causal, visible_from=f
                )[result],
                lambda q, k, v, f, causal=_causal, result=_result: attention_reference(
                    q, k, v, causal, None, f
                )[result],
                Input((*_heads, 6, 4), "f64"),
                Input((*_key_heads, _keys, 4), "f64"),
                Input((*_key_heads, _keys, 2), "f64"),
                Input((2, 1, 6), "i32", fixed(_VISIBLE_FROM)),
                bound=attention_bound,
                orders=2,
            )
case(
    "attention",
    "attention visible_from for each head",
    lambda q, k, v, f: T.attention(q, k, v, visible_from=f),
    lambda q, k, v, f: attention_reference(q, k, v, True, None, f)[0],
    Input((3, 6, 4), "bf16"),
    Input((3, 6, 4), "bf16"),
    Input((3, 6, 4), "bf16"),
    Input((3, 6), "i8", indices(6)),
    bound=attention_bound,
)
for _dtype in ("f16", "bf16"):
    _same = Input((2, 6, 8), _dtype)
    case(
        "attention",
        "attention half",
        T.attention,
        lambda q, k, v: attention_reference(q, k, v, True)[0],
        _same,
        _same,
        _same,
        bound=attention_bound,
    )
    case(
        "attention",
        "attention_with_logsumexp half",
        lambda q, k, v: T.attention_with_logsumexp(q, k, v)[1],
        lambda q, k, v: attention_reference(q, k, v, True)[1],
        _same,
        _same,
        _same,
        bound=attention_bound,
        dtype="f32",
    )
case(
    "attention",
    "attention same",
    lambda x: T.attention(x, x, x),
    lambda x: attention_reference(x, x, x, True)[0],
    Input((2, 5, 4), "f64"),
    bound=lambda y, x: 200 * (1 + np.abs(x).max() ** 2),
    orders=2,
)
case(
    "attention",
    "attention scale",
    lambda q, k, v: T.attention(q, k, v, False, 0.3),
    lambda q, k, v: attention_reference(q, k, v, False, 0.3)[0],
    Input((2, 3, 4), "f64"),
    Input((2, 5, 4), "f64"),
    Input((2, 5, 4), "f64"),
    bound=attention_bound,
    orders=2,
)
case(
    "attention",
    "attention of width 0",
    T.attention,
    lambda q, k, v: attention_reference(q, k, v, True, 1.0)[0],
    Input((2, 0), "f64"),
    Input((2, 0), "f64"),
    Input((2, 3), "f64"),
    bound=attention_bound,
)



def attention_gradient_reference(query, key, value, logsumexp, d_output, delta, causal, scale, visible_from=None):
    """The formulas of the gradient in which the logsumexp and delta are operands of their own."""
    scores = query @ key.mT * scale
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool)
    if causal:
        seen = torch.tril(seen, scores.shape[-1] - scores.shape[-2])
    if visible_from is not None:
        seen = seen & (torch.arange(scores.shape[-1]) >= visible_from[..., None])
    weights = torch.where(seen, torch.exp(torch.where(seen, scores, 0) - logsumexp[..., None]), 0)
    by_scores = weights * (d_output @ value.mT - delta[..., None]) * scale
    return by_scores @ key, by_scores.mT @ query, weights.mT @ d_output


def attention_gradient_bound(result, query, key, value, logsumexp, d_output, delta, visible_from=None):
    largest = (np.abs(x).max(initial=0) for x in (query, key, value, logsumexp, d_output, delta))
    q, k, v, sums, g, along = largest
    width = query.shape[-1] + value.shape[-1]
    weight = np.exp(q * k * width**0.5 + sums)
    count = width + key.shape[-2] + query.shape[-2] + 16
    return count * (1 + q * k + sums) * (1 + g * v + along) * (1 + q + k) * weight


for _lead, _queries, _keys, _width, _value_width in (((), 4, 4, 8, 8), ((2, 3), 5, 3, 4, 2), ((2,), 3, 0, 2, 2)):
    for _causal in (False, True):
        for _result in (0, 1, 2):
            for _dtype, _wide in (("f32", "f32"), ("f64", "f64"), ("f16", "f32")):
                case(
                    "attention",
                    f"attention_gradient{' causal' if _causal else ''} {_result}",
                    lambda *operands, causal=_causal, result=_result: operands[0].graph.emit(
                        "attention_gradient", operands, causal=causal, scale=0.5
                    )[result],
                    lambda *operands, causal=_causal, result=_result: attention_gradient_reference(
                        *operands, causal, 0.5
                    )[result],
                    Input(_lead + (_queries, _width), _dtype),
                    Input(_lead + (_keys, _width), _dtype),
                    Input(_lead + (_keys, _value_width), _dtype),
                    Input(_lead + (_queries,), _wide),
                    Input(_lead + (_queries, _value_width), _dtype),
                    Input(_lead + (_queries,), _wide),
                    bound=attention_gradient_bound,
                    dtype=_dtype,
                    orders=2 if _dtype == _wide else 0,
                )
for _causal in (False, True):
    for _result in (0, 1, 2):
        case(
            "attention",
            f"attention_gradient visible_from{' causal' if _causal else ''} {_result}",
            lambda *operands, causal=_causal, result=_result: operands[0].graph.emit(
                "attention_gradient", operands, causal=causal, scale=0.5
            )[result],
            lambda *operands, causal=_causal, result=_result: attention_gradient_reference(
                *operands[:6], causal, 0.5, operands[6]
            )[result],
            Input((2, 6, 4), "f64"),
            Input((2, 6, 4), "f64"),
            Input((2, 6, 2), "f64"),
            Input((2, 6), "f64"),
            Input((2, 6, 2), "f64"),
            Input((2, 6), "f64"),
            Input((2, 6), "i64", fixed(_VISIBLE_FROM)),
            bound=attention_gradient_bound,
            orders=2,
        )
