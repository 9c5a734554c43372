"""A trained model that is looked into: its graphs, its weights, and its tokens as a person reads them."""

import functools

import numpy as np

import euler_ir as ei
from euler_ir import nn
from models.language_model import WholeTexts
from models.named_tensors import check_tensors, tensor_types
from models.training.checkpoint import Checkpoint


class Subject:
    """A model of any architecture with weights of its own: whatever is done to them, the given arrays stay as they are.

    `config` makes the model, `arrays` holds its parameters by name (more does no harm), `state` is the copy of them,
    `options` are the backend and the threads. Raises ValueError, with their names, for parameters that are missing or
    of another type.
    """

    def __init__(self, config, arrays, tokenizer, backend="cpu", threads=None):
        self.config, self.tokenizer = config, tokenizer
        self.options = {"backend": backend, "threads": threads}
        graph = self.graph(1)
        self.parameters = [parameter.op.attributes["name"] for parameter in graph.parameters]
        self.state = ei.State()
        for name in self.parameters:
            if name in arrays:
                self.state[name] = arrays[name]
        wanted = {leaf.name: f"{leaf.dtype.numpy}{list(leaf.shape)}" for leaf in graph.parameters}
        check_tensors(tensor_types(self.state), wanted, "What was given")

    @classmethod
    def load(cls, path, backend="cpu", threads=None):
        """That of a checkpoint. Raises as `Checkpoint.load` and as above."""
        checkpoint = Checkpoint.load(path)
        return cls(checkpoint.config, checkpoint.arrays, checkpoint.tokenizer, backend, threads)

    def graph(self, length, batch=1, sequence=None):
        """That of `look_graph` for this model."""
        return look_graph(self.config, length, batch, sequence)

    def compile(self, graph, state=None):
        """A function of the graph's inputs, by name, to its outputs by name, on `state`, by default the weights."""
        return functools.partial(ei.compile(graph, **self.options), self.state if state is None else state)

    def blocks(self):
        """Paths of the model's blocks, the modules that stand in a list, as `h.0`."""
        lists = [member for member in vars(self.config.build()).values() if isinstance(member, nn.ModuleList)]
        return [block.path for blocks in lists for block in blocks]

    def ids(self, text):
        """Ids of a text, [tokens]. Raises ValueError when there are none, or more than the model has positions."""
        ids = self.tokenizer.encode_ordinary(text)
        if not ids:
            raise ValueError("The text is empty. Give at least one character.")
        if len(ids) > self.config.context:
            raise ValueError(
                f"The text has {len(ids)} tokens, more than the {self.config.context} that the model sees at once. "
                "Give a shorter one."
            )
        return ids

    def id_of(self, text):
        """The one id of a text that is a single token. Raises ValueError for any other, with the tokens that it has."""
        ids = self.tokenizer.encode_ordinary(text)
        if len(ids) != 1:
            shown = " ".join(map(self.shown, ids)) or "none"
            raise ValueError(f"{text!r} is not one token of this model; its tokens are: {shown}. Choose one of them.")
        return ids[0]

    def shown(self, token_id):
        """A token in quotes, as Python writes its text, or its bytes where these are no text by themselves.

        An id of the model for which the tokenizer has no bytes is shown by its number.
        """
        try:
            data = self.tokenizer.token_bytes(token_id)
        except ValueError:
            return f"#{token_id}"
        try:
            return repr(data.decode("utf-8"))
        except UnicodeDecodeError:
            return repr(data)


def look_graph(config, length, batch=1, sequence=None):
    """A model on whole texts: `tokens`, i32[batch, length], to `features` and `logits`, f32[batch, length, ...].

    `sequence` stands for `WholeTexts(length)`. Raises ValueError for more tokens than the model has positions.
    """
    if not 1 <= length <= config.context:
        raise ValueError(f"{length} tokens are not between 1 and the {config.context} positions of the model.")
    with ei.Graph("look") as graph:
        tokens = ei.input("tokens", (batch, length), ei.i32)
        model = config.build()
        features = model(tokens, WholeTexts(length) if sequence is None else sequence)
        ei.output(features=features, logits=model.logits(features))
    return graph


def as_tokens(ids):
    """Ids as the input of a graph: i32[1, tokens]."""
    return np.asarray([ids], np.int32)


def log_probabilities(logits):
    """Of logits [..., vocab] in a graph, in f64, so that small differences are seen."""
    return ei.log_softmax(logits.cast(ei.f64), axis=-1)


def next_token_graph(subject, length):
    """`tokens`, i32[1, length], to `log_probabilities`, f64[vocab], of the token after them."""
    graph = subject.graph(length)
    with graph:
        ei.output(log_probabilities=log_probabilities(graph.outputs["logits"][0, length - 1]))
    return graph


def target_log_probability(graph):
    """f64[], in a graph of `next_token_graph`, that of the token which its new input `target`, i32[], says."""
    return ei.take(graph.outputs["log_probabilities"], ei.input("target", (), ei.i32), axis=0)


def next_log_probabilities(subject, ids):
    """f64[vocab], of the token after `ids`. Raises ValueError where they are not finite."""
    found = subject.compile(next_token_graph(subject, len(ids)))(tokens=as_tokens(ids))["log_probabilities"]
    check_finite(found)
    return found


def check_finite(array):
    """Raise ValueError for predictions that are NaN or infinite."""
    if not np.isfinite(array).all():
        raise ValueError("The model's predictions are not finite. Its weights are damaged; use another checkpoint.")


def divergence(first, second):
    """KL(first || second) in nats, of log-probabilities f64[..., vocab]; 0 log 0 is 0."""
    weight = np.exp(first)
    with np.errstate(invalid="ignore"):
        return np.where(weight > 0, weight * (first - second), 0.0).sum(-1)


def entropy(log_probability):
    """That of a distribution, in nats, of log-probabilities f64[..., vocab]."""
    return -divergence(log_probability, 0.0)
