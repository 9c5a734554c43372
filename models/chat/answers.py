"""What a model answers, and how well it does."""

from models.chat.conversation import END_OF_TURN, before_answer, render_prompt
from models.generation.sampler import Sampler
from models.generation.sampling import Sampling

LIKELIEST = Sampling(temperature=0)
SHOWN = 3
"""Questions whose answers show what a model can do while it trains."""


class Answers:
    """Answers of a chat model. `state` holds its parameters and is read at each call."""

    def __init__(self, config, state, tokenizer, backend="cpu", threads=None):
        self._context, self._tokenizer = config.context, tokenizer
        self._sampler = Sampler(config, state, tokenizer, backend=backend, threads=threads)

    def answer(self, messages, count, sampling=LIKELIEST, seed=0):
        """(text, whether it ended): what the assistant says after `messages`, in up to `count` tokens.

        By default it is the likeliest token each time. An answer goes on as far as the context has room, where a model
        that does not end yet would cost much and show nothing new.
        """
        prompt = render_prompt(messages, self._tokenizer)
        count = min(count, max(1, self._context - len(prompt)))
        end = self._tokenizer.special_tokens[END_OF_TURN]
        ids = list(self._sampler.tokens(prompt, count, sampling, seed, stop_ids={end}))
        ended = ids[-1:] == [end]
        return self._tokenizer.decode(ids[: len(ids) - ended]), ended

    def measure(self, conversations, count):
        """{"ended", "exact_match"}: shares of conversations in which the first answer ends within `count` tokens, and
        in which it is the answer given there, to the letter. {} without conversations.
        """
        ended = exact = 0
        for messages in conversations:
            asked = before_answer(messages)
            text, has_ended = self.answer(asked, count)
            ended += has_ended
            exact += has_ended and text == messages[len(asked)]["content"]
        total = len(conversations)
        return {"ended": ended / total, "exact_match": exact / total} if total else {}


def shown_answers(answers, prompts, count):
    """What the first SHOWN of `prompts` ask, and answers of up to `count` tokens, as a person reads them."""
    lines = []
    for prompt in prompts[:SHOWN]:
        text, ended = answers.answer(prompt, count)
        lines += [f"> {prompt[-1]['content']}", text if ended else f"{text} ..."]
    return "\n".join(lines)


def in_terminal(rendered, tokenizer):
    """A rendered conversation as `rich.text.Text`: what is trained is green, and stands between « and ».

    Token by token, so that no border is hidden: neighbours differ in their shade.
    """
    from rich.text import Text

    text, inside = Text(), False
    for place, (token_id, is_trained) in enumerate(zip(rendered.ids, rendered.trained)):
        if is_trained != inside:
            text.append("»" if inside else "«")
            inside = is_trained
        shade = ("black on green", "black on bright_green") if is_trained else ("dim", "default")
        text.append(tokenizer.decode([token_id]), shade[place % 2])
    text.append("»" if inside else "")
    return text
