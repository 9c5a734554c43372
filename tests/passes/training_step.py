"""One step of training that meets most operators; a module of its own, so that other processes build it too."""

import euler_ir as e
from euler_ir.initializers import Normal, Zeros


def step():
    graph = e.Graph("step")
    with graph:
        x, labels = e.input("x", (8, 16)), e.input("labels", (8,), e.i32)
        weight = e.parameter("weight", (16, 16), Normal(0.5))
        moment = e.state("moment", (16, 16), Zeros())
        hidden = e.tensor.dropout(e.layer_norm(x @ weight, x[0], x[1]), 0.25, 1, 2)
        hidden = 0.5 * hidden * (1 + e.erf(hidden / 2**0.5))
        hidden = hidden + e.attention(hidden, hidden, hidden)
        loss = e.mean(e.cross_entropy(hidden, labels))
        (gradient,) = e.gradient(loss, [weight])
        new = moment * 0.5 + gradient
        e.output(loss=loss)
        e.update(moment, new)
        e.update(weight, weight - 0.1 * new)
    return graph
