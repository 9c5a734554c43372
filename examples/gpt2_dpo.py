"""Tune a chat model of gpt2_sft.py on pairs of answers of which one is better (direct preference optimisation).

    python examples/make_preferences.py out/chat/train.jsonl --out out/preferences.jsonl
    python examples/gpt2_dpo.py out/chat/latest.safetensors --pairs out/preferences.jsonl --out out/chat-dpo
    python examples/gpt2_dpo.py --out out/chat-dpo --resume
"""

import sys

from models.chat.preference_tuning import PreferenceSettings, resume_preference_tuning, start_preference_tuning
from models.training.checkpoint import Checkpoint
from models.training.command_line import COMMON, Parser, given, train

SETTINGS = (*COMMON, "pairs", "loss", "beta", "label_smoothing", "sft_weight")


def parse_arguments(arguments):
    parser = Parser(__doc__)
    parser.add_argument("model", nargs="?", help="checkpoint to start from, which is also the reference")
    parser.add_argument("--pairs", help='JSONL, {"prompt": [messages], "chosen": text, "rejected": text} a line')
    parser.add_argument("--loss", choices=["dpo", "ipo", "hinge"], help="default: dpo")
    parser.add_argument("--beta", type=float, help="how dear distance from the reference is (default: 0.1)")
    parser.add_argument("--label-smoothing", type=float, help="share of pairs that may be the wrong way (default: 0)")
    parser.add_argument("--sft-weight", type=float, help="weight of the chosen answers' own loss (default: 0)")
    parser.add_argument("--reference-free", action="store_true", help="compare with no reference")
    parser.add_common(PreferenceSettings, "out/gpt2-dpo", "1e-4 for small models, less for wide ones")
    options = parser.parse_args(arguments)
    if not options.resume and options.model is None:
        parser.error("the following argument is required: model, the checkpoint to start from")
    if not options.resume and options.pairs is None:
        parser.error("the following argument is required: --pairs, which make_preferences.py can make")
    return options


def open_run(options):
    asked = given(options, SETTINGS) | ({"reference_free": True} if options.reference_free else {})
    if options.resume:
        return resume_preference_tuning(options.out, asked, options.device, options.threads)
    model = Checkpoint.load(options.model)
    settings = PreferenceSettings.for_model(model.config, start_from=options.model, **asked)
    return start_preference_tuning(options.out, settings, model, options.device, options.threads)


def main(arguments=None):
    """Exit status: that of `train`."""
    return train("gpt2_dpo.py", open_run, parse_arguments(arguments))


if __name__ == "__main__":
    sys.exit(main())
