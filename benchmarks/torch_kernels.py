"""The kernels in torch: eager, with results in memory that is there already where torch takes it, or compiled."""

import torch
from torch.nn import functional

from benchmarks import kernel_cases as settings


def prepare(case, threads):
    """A function that runs the kernel once, and one that gives its results as arrays."""
    torch.set_num_threads(threads)
    operands = {name: torch.from_numpy(array) for name, array in case.arrays().items()}
    if case.kind == "adamw":
        return _adamw(**operands)
    make = _IN_PLACE.get(case.kind)
    return _keep(make(**operands) if make else lambda: _KINDS[case.kind](**operands))


def prepare_compiled(case, threads):
    """The same by torch.compile, which allocates its results."""
    torch.set_num_threads(threads)
    if case.kind not in _KINDS or case.kind.startswith("matmul"):
        return None
    operands = {name: torch.from_numpy(array) for name, array in case.arrays().items()}
    compiled = torch.compile(_KINDS[case.kind])
    return _keep(lambda: compiled(**operands))


def _keep(function):
    """``function`` with its last results kept."""
    kept = []

    def run():
        made = function()
        kept[:] = made if isinstance(made, (tuple, list)) else [made]

    return run, lambda: [tensor.detach().numpy() for tensor in kept]


def _adamw(p, g):
    p.requires_grad_()
    p.grad = g
    optimizer = torch.optim.AdamW(
        [p],
        lr=settings.LEARNING_RATE,
        betas=settings.BETAS,
        eps=settings.EPSILON,
        weight_decay=settings.WEIGHT_DECAY,
        fused=True,
    )
    return optimizer.step, lambda: [p.detach().numpy()]


def _gelu(x):
    return functional.gelu(x, approximate="tanh")


def _attention(q, k, v):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _attention_both_ways(q, k, v, g):
    inputs = [each.requires_grad_() for each in (q, k, v)]
    mixed = _attention(*inputs)
    return mixed, *torch.autograd.grad(mixed, inputs, g)


def _cross_entropy_both_ways(x, t):
    x.requires_grad_()
    loss = functional.cross_entropy(x, t)
    return loss, *torch.autograd.grad(loss, [x])


def _scatter_add(x, t):
    return torch.zeros(settings.TABLE).index_add_(0, t, x)


_KINDS = {
    "matmul NN": lambda a, b: a @ b,
    "matmul NT": lambda a, b: a @ b.T,
    "matmul TN": lambda a, b: a.T @ b,
    "linear+gelu": lambda x, w, b: _gelu(torch.addmm(b, x, w)),
    "attention": _attention,
    "attention, both ways": _attention_both_ways,
    "layer norm": lambda x, w, b: functional.layer_norm(x, w.shape, w, b),
    "softmax": lambda x: torch.softmax(x, -1),
    "gelu": _gelu,
    "cross-entropy": lambda x, t: functional.cross_entropy(x, t),
    "cross-entropy, both ways": _cross_entropy_both_ways,
    "gather": lambda x, t: x[t],
    "scatter-add": _scatter_add,
}


# Results in memory that is there already.


def _product_out(left, right):
    out = torch.empty(left.shape[0], right.shape[1])
    return lambda: torch.matmul(left, right, out=out)


def _linear_gelu_out(x, w, b):
    h, y = (torch.empty(x.shape[0], w.shape[1]) for _ in range(2))

    def run():
        torch.addmm(b, x, w, out=h)
        return torch.ops.aten.gelu.out(h, approximate="tanh", out=y)

    return run


def _layer_norm_out(x, w, b):
    y, mean, scale = torch.empty_like(x), torch.empty(len(x), 1), torch.empty(len(x), 1)
    return lambda: torch.ops.aten.native_layer_norm.out(x, w.shape, w, b, 1e-5, out0=y, out1=mean, out2=scale)[:1]


def _softmax_out(x):
    out = torch.empty_like(x)
    return lambda: torch.softmax(x, -1, out=out)


def _gelu_out(x):
    out = torch.empty_like(x)
    return lambda: torch.ops.aten.gelu.out(x, approximate="tanh", out=out)


def _gather_out(x, t):
    out = torch.empty(len(t), x.shape[1])
    return lambda: torch.index_select(x, 0, t, out=out)


def _scatter_add_out(x, t):
    out = torch.empty(settings.TABLE)
    return lambda: out.zero_().index_add_(0, t, x)


_IN_PLACE = {
    "matmul NN": lambda a, b: _product_out(a, b),
    "matmul NT": lambda a, b: _product_out(a, b.T),
    "matmul TN": lambda a, b: _product_out(a.T, b),
    "linear+gelu": _linear_gelu_out,
    "layer norm": _layer_norm_out,
    "softmax": _softmax_out,
    "gelu": _gelu_out,
    "gather": _gather_out,
    "scatter-add": _scatter_add_out,
}
