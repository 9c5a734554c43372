"""What weights in fewer bits cost a GPT-2 that gpt2_train.py has trained: its loss on a text with each kind of weights.

    python examples/gpt2_evaluate.py out/gpt2/best.safetensors models/corpora/shakespeare.txt
"""

import argparse
import sys

import euler_ir as ei
from euler_ir.quantization import quantized_state
from models.command_line import add_machine_options, exit_status
from models.data.corpus import read_corpus, split_corpus
from models.language_model import evaluation_graph
from models.training.checkpoint import Checkpoint
from models.training.evaluation import Evaluation

BATCH_SIZE = 16


def main(arguments=None):
    """Exit status: 0 done, 2 wrong use."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("checkpoint")
    parser.add_argument("text", help="UTF-8; its last tenth is predicted, which training on it never sees")
    add_machine_options(parser)
    options = parser.parse_args(arguments)
    return exit_status("gpt2_evaluate.py", lambda: evaluate(options))


def evaluate(options):
    checkpoint = Checkpoint.load(options.checkpoint)
    config, tokenizer = checkpoint.config, checkpoint.tokenizer
    graph = evaluation_graph(config, 1, 1)
    state = ei.initial_state(graph)
    checkpoint.restore_parameters(state)
    tokens = tokenizer.encode_to_numpy(split_corpus(read_corpus(options.text))[1], allowed_special="all")
    context = checkpoint.settings.get("context", config.context)
    for weights in (None, "bf16", "i8"):
        kept = quantized_state(graph, state, weights) if weights else state
        evaluation = Evaluation(config, tokenizer, BATCH_SIZE, context, weights, options.device, options.threads)
        found = evaluation.of(kept, [tokens])
        if found is None:
            raise ValueError(f"{options.text} is too short: its last tenth holds less than two tokens.")
        size = sum(kept[name].nbytes for name in kept)
        print(
            f"{weights or 'f32':4}  {size / 2**20:8.2f} MiB  loss {found.loss:.4f}, "
            f"{found.bits_per_byte:.4f} bits a byte, perplexity {found.perplexity:.2f}"
        )


if __name__ == "__main__":
    sys.exit(main())
