"""Continue a prompt with a GPT-2 that gpt2_train.py has trained.

    python examples/gpt2_sample.py out/gpt2/best.safetensors --prompt "ROMEO:"
"""

import argparse
import sys

import euler_ir as ei
from models.generation.sampler import Sampler
from models.generation.sampling import Sampling
from models.language_model import evaluation_graph
from models.training.checkpoint import Checkpoint


def main(arguments=None):
    """Exit status: 0 done, 2 wrong use."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("checkpoint")
    parser.add_argument("--prompt", default="\n", help="text to continue (default: a line break)")
    parser.add_argument("--tokens", type=int, default=200, help="how many to draw (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=0.8, help="0 takes the likeliest (default: %(default)s)")
    parser.add_argument("--top-k", type=int, help="draw among the k likeliest tokens (default: all)")
    parser.add_argument("--top-p", type=float, help="draw among the likeliest that reach probability p (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="decides what is drawn (default: %(default)s)")
    parser.add_argument("--weights", choices=["f32", "bf16", "i8"], default="f32", help="default: %(default)s")
    parser.add_argument("--device", choices=["cpu", "reference"], default="cpu", help="default: %(default)s")
    parser.add_argument("--threads", type=int, help="CPU threads (default: all cores)")
    options = parser.parse_args(arguments)
    sys.stdout.reconfigure(errors="replace")
    try:
        sampling = Sampling(options.temperature, options.top_k, options.top_p)
        checkpoint = Checkpoint.load(options.checkpoint)
        state = ei.initial_state(evaluation_graph(checkpoint.config, 1, 1))
        checkpoint.restore_parameters(state)
        weights = None if options.weights == "f32" else options.weights
        sampler = Sampler(checkpoint.config, state, checkpoint.tokenizer, weights, options.device, options.threads)
        print(options.prompt, end="")
        for piece in sampler.text(options.prompt, options.tokens, sampling, options.seed):
            print(piece, end="", flush=True)
        print()
    except (ValueError, OSError, ei.EulerError) as error:
        print(f"gpt2_sample.py: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
