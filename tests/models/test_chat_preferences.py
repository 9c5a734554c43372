"""Losses of pairs of answers against published and hand-computed values, finite differences and torch; their data."""

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import euler_ir as ei
from euler_ir import optim
from models.chat.pairs import Pair, made_pairs, read_pairs, sides
from models.chat.preference_tuning import Sides
from models.chat.preferences import Preference, reference_graph
from models.chat.reference import read_reference, reference_log_probs, write_reference
from models.data.batches import IGNORED_LABEL
from models.gpt2 import GPT2Config
from models.language_model import accumulation_graphs, train_graph
from models.named_tensors import tensors_digest
from models.tokenizer.bpe import Tokenizer

pytestmark = pytest.mark.usefixtures("compiled_once")

BYTES = Tokenizer([], ["<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"])
USER, ASSISTANT, END = 257, 258, 260
CONFIG = GPT2Config(BYTES.vocab_size, 16, layers=1, heads=2, width=8)


def asked(text):
    return [{"role": "user", "content": text}]


PAIRS = [Pair(asked("A"), "BB", "C"), Pair(asked("?!"), "yes", "no"), Pair(asked("x"), "y", "zzzzz")]


def loss_and_gradient(preference, log_probs, reference, counts=(1, 1)):
    """Of one pair: the loss, and its derivatives by both log-probabilities."""
    with ei.Graph("pair") as graph:
        inputs = [ei.input(name, (1, 2)) for name in ("log_probs", "reference", "counts")]
        loss = ei.sum(preference.of(*inputs))
        ei.output(loss=loss, gradient=ei.gradient(loss, inputs[:1])[0])
    arrays = {"log_probs": log_probs, "reference": reference, "counts": counts}
    arrays = {name: np.array([values], np.float32) for name, values in arrays.items()}
    found = ei.compile(graph, backend="reference")(ei.State(), **arrays)
    return float(found["loss"]), found["gradient"][0].tolist()


@pytest.mark.parametrize(
    "preference, log_probs, loss, slope",
    [
        (Preference(), (-10, -12), 0.62095705, -0.04625702),
        (Preference(label_smoothing=0.1), (-10, -12), 0.63595705, -0.03625702),
        (Preference(), (-11, -11.5), math.log(2), -0.05),
        (Preference("ipo"), (-10, -12), 12.25, -7.0),
        (Preference("hinge"), (-10, -12), 0.85, -0.1),
        (Preference("hinge", beta=1.0), (-10, -12), 0.0, 0.0),
        (Preference(), (-1e4, 0), 1000.05, -0.1),
        (Preference(), (0, -1e4), 0.0, 0.0),
    ],
)
def test_golden_losses_and_their_slopes(preference, log_probs, loss, slope):
    found, (by_chosen, by_rejected) = loss_and_gradient(preference, log_probs, (-11, -11.5))
    assert found == pytest.approx(loss, rel=1e-6, abs=1e-7)
    assert by_chosen == pytest.approx(slope, rel=1e-6, abs=1e-9) and by_rejected == -by_chosen


@pytest.mark.parametrize("loss", ["dpo", "ipo", "hinge"])
def test_slopes_are_finite_differences(loss):
    preference = Preference(loss, beta=0.3, label_smoothing=0.2 if loss == "dpo" else 0, sft_weight=0.5)
    log_probs, reference, counts = np.array([-3.0, -5.0]), (-4.0, -4.5), (3, 7)
    _, gradient = loss_and_gradient(preference, log_probs, reference, counts)
    for place in (0, 1):
        step = np.eye(2)[place] * 2**-6
        above, below = (loss_and_gradient(preference, log_probs + s, reference, counts)[0] for s in (step, -step))
        assert gradient[place] == pytest.approx((above - below) / 2**-5, rel=1e-3)


def test_lengths_matter_to_ipo_alone():
    pair = ((-10, -12), (-11, -11.5))
    assert loss_and_gradient(Preference(), *pair, counts=(2, 5)) == loss_and_gradient(Preference(), *pair)
    found, _ = loss_and_gradient(Preference("ipo"), *pair, counts=(2, 5))
    assert found == pytest.approx((1 / 2 + 0.5 / 5 - 5) ** 2, rel=1e-6)


def torch_losses(state, batch, preference):
    """(loss of each pair, parameters), from scratch, in f64."""
    parameters = {name: torch.tensor(np.float64(array), requires_grad=True) for name, array in state.items()}

    def norm(x, name):
        return F.layer_norm(x, (8,), parameters[f"{name}.weight"], parameters[f"{name}.bias"])

    def linear(x, name):
        return x @ parameters[f"{name}.weight"] + parameters[f"{name}.bias"]

    def log_prob(tokens, targets):
        x = parameters["wte.weight"][torch.tensor(tokens)] + parameters["wpe.weight"][: len(tokens)]
        heads = linear(norm(x, "h.0.ln_1"), "h.0.attn.c_attn").reshape(-1, 3, 2, 4).permute(1, 2, 0, 3)
        query, key, value = heads
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(0, 1).reshape(-1, 8)
        x = x + linear(mixed, "h.0.attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, "h.0.ln_2"), "h.0.mlp.c_fc"), approximate="tanh"), "h.0.mlp.c_proj")
        log_probs = torch.log_softmax(norm(x, "ln_f") @ parameters["wte.weight"].T, -1)
        return sum(log_probs[place, target] for place, target in enumerate(targets) if target != IGNORED_LABEL)

    losses = []
    for tokens, targets, reference in zip(batch["tokens"], batch["targets"], batch["reference"]):
        chosen, rejected = (log_prob(*side) for side in zip(tokens, targets))
        h = (chosen - rejected) - (float(reference[0]) - float(reference[1]))
        counts = (targets != IGNORED_LABEL).sum(1)
        loss = -F.logsigmoid(preference.beta * h)
        if preference.loss == "hinge":
            loss = torch.relu(1 - preference.beta * h)
        if preference.loss == "ipo":
            each = (chosen - float(reference[0])) / counts[0] - (rejected - float(reference[1])) / counts[1]
            loss = (each - 1 / (2 * preference.beta)) ** 2
        losses.append(loss - preference.sft_weight * chosen / counts[0])
    return losses, parameters


def random_state(graph):
    """LayerNorm's ones and zeros, and small weights, would hide what is not read."""
    state = ei.initial_state(graph)
    for number, name in enumerate(sorted(parameter.op.attributes["name"] for parameter in graph.parameters)):
        state[name] = np.random.default_rng(number).normal(0, 0.3, state[name].shape).astype(np.float32)
    return state


@pytest.mark.parametrize(
    "preference, backend",
    [
        (Preference(beta=0.5), "reference"),
        (Preference("ipo"), "reference"),
        (Preference("hinge", sft_weight=0.7), "cpu"),
    ],
)
def test_the_whole_model_against_torch(preference, backend):
    with ei.Graph("pairs") as graph:
        total, count, measures = preference(CONFIG, 4, 16, training=True)
        gradients = optim.gradients(total)
        named = {p.op.attributes["name"].replace(".", "_"): g for p, g in gradients.items()}
        ei.output(total=total, count=count, **measures, **named)
    state, data = random_state(graph), Sides(PAIRS, BYTES, 16)
    data.reference = np.array([[-11, -5], [-20, -14], [-9, -31]], np.float32)
    batch = data.batch(range(3), 4)  # one row stays empty
    found = ei.compile(graph, backend=backend)(state, **batch)
    losses, parameters = torch_losses(state, {name: array[:3] for name, array in batch.items()}, preference)
    sum(losses).backward()
    assert found["count"] == 3
    assert float(found["total"]) == pytest.approx(sum(losses).item(), rel=1e-5)
    for name, parameter in parameters.items():
        wanted = parameter.grad.numpy()
        np.testing.assert_allclose(found[name.replace(".", "_")], wanted, rtol=1e-4, atol=2e-5 * np.abs(wanted).max())
    log_probs = np.array([found["log_prob_chosen"], found["log_prob_rejected"]])
    ratios = log_probs - data.reference.sum(0)
    np.testing.assert_allclose([found["reward_chosen"], found["reward_rejected"]], ratios * preference.beta, rtol=1e-4)
    np.testing.assert_allclose(found["margin"], (ratios[0] - ratios[1]) * preference.beta, rtol=1e-3)
    np.testing.assert_allclose(found["kl_estimate"], ratios.mean(), rtol=1e-4)


def test_where_the_reference_is_the_policy_the_loss_is_ln_2_and_then_moves():
    """Accuracy is 0 at first: a tie is no success."""
    graph = train_graph(CONFIG, 3, 16, objective=Preference())
    state, data = random_state(graph), Sides(PAIRS, BYTES, 16)
    shape = data.batches(2), 2, 16
    data.reference = reference_log_probs(CONFIG, state, *shape)[:3]
    kept = data.reference.copy()
    run = ei.compile(graph)
    outputs = [run(state, learning_rate=np.float32(1e-2), **data.batch(range(3), 3)) for _ in range(10)]
    assert float(outputs[0]["loss"]) == pytest.approx(math.log(2), abs=1e-6)
    assert outputs[0]["accuracy"] == 0 and outputs[-1]["accuracy"] == 1
    assert outputs[-1]["loss"] < 0.6 and outputs[-1]["margin"] > 0.1
    assert data.reference.tobytes() == kept.tobytes()
    assert not any(np.shares_memory(array, data.reference) for array in state.values())


def test_the_gradient_of_a_step_does_not_depend_on_how_its_pairs_are_spread():
    data = Sides(PAIRS, BYTES, 16)
    data.reference = np.array([[-11, -5], [-20, -14], [-9, -31]], np.float32)
    found = []
    for batch_size in (3, 2, 1):
        accumulate, apply = accumulation_graphs(CONFIG, batch_size, 16, objective=Preference("hinge"))
        state = random_state(accumulate).add(apply)
        for batch in data.batches(batch_size):
            ei.compile(accumulate, backend="reference")(state, **batch)
        outputs = ei.compile(apply, backend="reference")(state, learning_rate=np.float32(0))
        names = ("loss", "gradient_norm", "margin", "accuracy", "log_prob_chosen")
        found.append([float(outputs[name]) for name in names])
    np.testing.assert_allclose(found, [found[0]] * 3, rtol=1e-5)


# -- the data ----------------------------------------------------------------------------------------------------------


def test_both_sides_have_the_same_prompt_and_each_its_end():
    (tokens, targets), (other_tokens, other_targets) = sides(Pair(asked("A"), "BB", "C"), BYTES, 16)
    ignored = IGNORED_LABEL
    assert tokens.tolist() == [USER, 32, END, ASSISTANT, 33, 33]
    assert targets.tolist() == [ignored] * 3 + [33, 33, END]
    assert other_tokens.tolist() == [USER, 32, END, ASSISTANT, 34]
    assert other_targets.tolist() == [ignored] * 3 + [34, END]


def test_an_earlier_answer_is_not_trained():
    prompt = [*asked("A"), {"role": "assistant", "content": "B"}, *asked("C")]
    for _, targets in sides(Pair(prompt, "D", "EE"), BYTES, 16):
        assert (targets[:-3] == IGNORED_LABEL).all() and targets[-1] == END


def test_the_heads_of_both_prompts_are_cut_alike_and_answers_never():
    pair = Pair(asked("AAAA"), "BBBB", "C")  # prompt 7, answers 5 and 2 ids: 11 and 8 tokens
    whole = sides(pair, BYTES, 11)
    for context in range(1, 12):
        found = sides(pair, BYTES, context)
        cut = 11 - context
        if cut > 6:  # the assistant's token is the last of the prompt, and stays
            assert found is None
            continue
        for part, (tokens, targets) in zip(whole, found):
            assert tokens.tolist() == part[0][cut:].tolist() and targets.tolist() == part[1][cut:].tolist()
            assert targets[-1] == END
    data = Sides([pair, Pair(asked("A"), "B", "C")], BYTES, 4)
    assert data.left_out == 1 and len(data.sides) == len(data.pairs) == 1


def test_an_empty_row_counts_for_nothing():
    with ei.Graph("pairs") as graph:
        total, count, measures = Preference()(CONFIG, 2, 16, training=True)
        ei.output(total=total, count=count, **measures)
    found = ei.compile(graph, backend="reference")(random_state(graph), **Sides([], BYTES, 16).batch([], 2))
    assert all(float(value) == 0 for value in found.values())


def test_what_a_preference_does_not_know():
    for given, words in (
        ({"loss": "ppo"}, "no loss 'ppo'"),
        ({"beta": 0}, "beta must be above 0"),
        ({"label_smoothing": 0.5}, "below 0.5"),
        ({"label_smoothing": 0.1, "loss": "ipo"}, "belongs to the loss dpo"),
        ({"sft_weight": -1}, "sft_weight must be 0 or above"),
    ):
        with pytest.raises(ValueError, match=words):
            Preference(**given)


def test_files_of_pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    good = {"prompt": asked("A"), "chosen": "B", "rejected": "C"}
    path.write_text(json.dumps(good) + "\n")
    assert read_pairs(path) == [Pair(asked("A"), "B", "C")]
    for wrong, words in (
        ([1], "Expected"),
        ({"prompt": asked("A"), "chosen": "B"}, "Expected"),
        (good | {"prompt": []}, "at least one"),
        (good | {"prompt": [*asked("A"), {"role": "assistant", "content": "B"}]}, "of the assistant, not of"),
        (good | {"rejected": " "}, "Message 2, of the assistant, is empty"),
        (good | {"rejected": 3}, "Message 2 is not"),
        (good | {"rejected": "B"}, "the same answer"),
    ):
        path.write_text(f"{json.dumps(good)}\n{json.dumps(wrong)}\n")
        with pytest.raises(ValueError, match=f"pairs.jsonl, line 2: .*{words}"):
            read_pairs(path)


def test_pairs_are_made_of_conversations():
    answers = ["one two three four five", "six seven eight nine ten", "alpha beta gamma delta", "short"]
    conversations = [[*asked(str(i)), {"role": "assistant", "content": text}] for i, text in enumerate(answers)] * 10
    pairs = made_pairs(conversations, seed=1)
    assert pairs == made_pairs(conversations, seed=1) != made_pairs(conversations, seed=2)
    kinds = set()
    for pair in pairs:
        assert pair.chosen == answers[int(pair.prompt[0]["content"])] != pair.rejected
        words, worse = pair.chosen.split(), pair.rejected.split()
        if pair.rejected in answers:
            kinds.add("another's")
        elif len(worse) < len(words):
            assert worse == words[: len(worse)] and 1 <= len(worse) <= len(words) // 2
            kinds.add("broken off")
        else:
            assert worse[: len(words)] == words and set(worse[len(words) :]) <= set(words[-3:])
            kinds.add("repeated")
    assert len(kinds) == 3 and len(pairs) > 25


def test_the_reference_is_kept_with_its_identity(tmp_path):
    path, log_probs = tmp_path / "reference", {"train": np.array([[-1.5, -2.5]], np.float32)}
    write_reference(path, log_probs, "weights", "data")
    assert read_reference(path, "weights", "data")["train"].tolist() == [[-1.5, -2.5]]
    with pytest.raises(ValueError, match="of another reference"):
        read_reference(path, "others", "data")
    with pytest.raises(ValueError, match="of other pairs"):
        read_reference(path, "weights", "others")
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(ValueError, match="is damaged"):
        read_reference(path, "weights", "data")
    arrays = {"a": np.zeros(3, np.float32), "b": np.ones((2, 2), np.float32)}
    changed = arrays | {"b": np.ones((4, 1), np.float32)}
    assert tensors_digest(arrays) == tensors_digest(dict(reversed(arrays.items()))) != tensors_digest(changed)


def test_log_probabilities_of_the_reference_against_torch():
    graph = reference_graph(CONFIG, 2, 16)
    state, data = random_state(graph), Sides(PAIRS, BYTES, 16)
    found = reference_log_probs(CONFIG, state, data.batches(2), 2, 16)
    zero = data.batch(range(3), 3)
    chosen_alone = Preference("hinge", beta=1e-9, sft_weight=1.0)
    losses, _ = torch_losses(state, zero, chosen_alone)
    counts = [len(pair.chosen) + 1 for pair in PAIRS]
    wanted = [-(loss.item() - 1) * count for loss, count in zip(losses, counts)]
    np.testing.assert_allclose(found[:3, 0], wanted, rtol=1e-5)
