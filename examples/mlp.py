"""A first model: an MLP that learns XOR, training step included."""

import numpy as np

import euler_ir as ei
from euler_ir import nn, optim


def train_graph():
    model = nn.Sequential(nn.Linear(2, 16), ei.tanh, nn.Linear(16, 1))
    with ei.Graph("train") as graph:
        x, y = ei.input("x", (4, 2)), ei.input("y", (4, 1))
        loss = ((model(x) - y) ** 2).mean()
        optim.AdamW(learning_rate=0.05).step(loss)
        ei.output(loss=loss)
    return graph


if __name__ == "__main__":
    graph = train_graph()
    step, state = ei.compile(graph), ei.initial_state(graph)
    corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    for number in range(200):
        result = step(state, x=corners, y=corners.sum(1, keepdims=True) % 2)
    print(f"loss after {number + 1} steps: {result['loss']:.1e}")
