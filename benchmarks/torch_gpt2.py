"""The training step of the same GPT-2 in torch: its fused attention, its fused AdamW, eager or compiled."""

import functools

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks import workload as settings


class Block(nn.Module):
    """Attention and MLP, each behind a layer norm and added to what it read."""

    def __init__(self, workload):
        super().__init__()
        width, bias = workload.width, workload.biases
        self.heads, self.gelu = workload.heads, workload.gelu
        linear = functools.partial(nn.Linear, bias=bias)
        self.ln_1 = nn.LayerNorm(width, bias=bias)
        self.attn = nn.ModuleDict({"c_attn": linear(width, 3 * width), "c_proj": linear(width, width)})
        self.ln_2 = nn.LayerNorm(width, bias=bias)
        self.mlp = nn.ModuleDict({"c_fc": linear(width, 4 * width), "c_proj": linear(4 * width, width)})

    def forward(self, x):
        batch, length, width = x.shape
        by_head = self.attn["c_attn"](self.ln_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = by_head.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attn["c_proj"](mixed.transpose(1, 2).reshape(batch, length, width))
        hidden = functional.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate=self.gelu)
        return x + self.mlp["c_proj"](hidden)


class GPT2(nn.Module):
    """Token ids and targets, i64[batch, length], to the mean loss. Parameters have the names of `models.gpt2`."""

    def __init__(self, workload):
        super().__init__()
        self.wte = nn.Embedding(workload.vocab_size, workload.width)
        self.wpe = nn.Embedding(workload.context, workload.width)
        self.h = nn.ModuleList(Block(workload) for _ in range(workload.layers))
        self.ln_f = nn.LayerNorm(workload.width, bias=workload.biases)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        logits = functional.linear(self.ln_f(x), self.wte.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def load(self, path):
        """Take the weights from a file of numpy's; a linear layer keeps the transpose of what is there."""
        with np.load(path) as arrays:
            for name, module in self.named_modules():
                for key, parameter in module.named_parameters(name, recurse=False):
                    array = torch.from_numpy(arrays[key])
                    linear = isinstance(module, nn.Linear) and array.ndim == 2
                    parameter.copy_(array.T if linear else array)


class TorchStep:
    """The step of a Workload, which begins with the weights in the file `weights`, or with torch's own."""

    compiled = False

    def __init__(self, workload, weights, threads, betas=settings.BETAS, device="cpu"):
        torch.set_num_threads(threads)
        self._model = GPT2(workload)
        if weights is not None:
            self._model.load(weights)
        self._model.to(device)
        self._parameters = list(self._model.parameters())
        self._optimizer = torch.optim.AdamW(
            [
                {"params": [p for p in self._parameters if p.ndim >= 2], "weight_decay": settings.WEIGHT_DECAY},
                {"params": [p for p in self._parameters if p.ndim < 2], "weight_decay": 0.0},
            ],
            lr=settings.LEARNING_RATE,
            betas=betas,
            eps=settings.EPSILON,
            fused=True,
        )
        self._loss = torch.compile(self._model) if self.compiled else self._model

    def prepare(self, tokens, targets):
        """The inputs of a step."""
        return torch.from_numpy(tokens).long(), torch.from_numpy(targets).long()

    def at_rate(self, inputs, learning_rate):
        """`inputs` of a step with another learning rate than the usual one."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        return inputs

    @torch.no_grad()
    def loss(self, inputs):
        """The mean loss on one batch, without training."""
        return self.forward(inputs).item()

    def forward(self, inputs):
        """The mean loss on one batch, which can be differentiated."""
        return self._loss(*inputs)

    def step(self, inputs):
        """Train on one batch and return its loss."""
        loss = self.forward(inputs)
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, settings.MAX_NORM, foreach=True)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return loss.item()


class CompiledTorchStep(TorchStep):
    """The same by torch.compile."""

    compiled = True
