"""Preference data: two answers to the same messages, of which one is the better."""

from dataclasses import dataclass

from models.chat.conversation import before_answer, check_contents, check_conversation, read_json_lines, render
from models.chat.packing import shifted
from models.random_streams import random_stream


@dataclass(frozen=True)
class Pair:
    """Messages, the last of the user, and two answers of the assistant."""

    prompt: list
    chosen: str
    rejected: str

    def conversations(self):
        """The two conversations that end with the answers: (chosen, rejected)."""
        return [[*self.prompt, {"role": "assistant", "content": text}] for text in (self.chosen, self.rejected)]


def read_pairs(path):
    """The pairs of a JSONL file: {"prompt": [messages], "chosen": text, "rejected": text} a line.

    Raises FileNotFoundError, or ValueError that names file and line: as `read_conversations`, and for answers that do
    not differ.
    """
    pairs = []
    for line, document in read_json_lines(path):
        try:
            pairs.append(_pair_of(document))
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: {error}") from None
    return pairs


def _pair_of(document):
    keys = ("prompt", "chosen", "rejected")
    if not isinstance(document, dict) or any(key not in document for key in keys):
        raise ValueError('Expected {"prompt": [messages], "chosen": text, "rejected": text}.')
    pair = Pair(*(document[key] for key in keys))
    check_conversation(pair.prompt)
    if pair.prompt[-1]["role"] != "user":
        raise ValueError(f"The prompt's last message is of the {pair.prompt[-1]['role']}, not of the user.")
    for conversation in pair.conversations():
        check_conversation(conversation)
        check_contents(conversation)
    if pair.chosen == pair.rejected:
        raise ValueError("Chosen and rejected are the same answer, so neither is better.")
    return pair


def sides(pair, tokenizer, context):
    """`shifted` of both conversations, (chosen, rejected), of which only the answer, with its end, is trained.

    What both do not leave room for in `context` tokens is cut from the head of the prompt, the same from both. None
    when an answer does not fit as a whole: cut, it would teach never to end.
    """
    rendered = [render(conversation, tokenizer, "last") for conversation in pair.conversations()]
    found = [shifted(each) for each in rendered]
    excess = max(0, *(len(tokens) - context for tokens, _ in found))
    prompt_length = rendered[0].trained.index(True)
    # The last id of the prompt predicts the first of the answer, and so has to stay.
    if excess > prompt_length - 1:
        return None
    return [(tokens[excess:], targets[excess:]) for tokens, targets in found]


# -- making them -------------------------------------------------------------------------------------------------------

_MADE_STREAM = 0x7061697273


def made_pairs(conversations, seed=0):
    """Pairs of answers: chosen is the first that is given in each of `conversations`, rejected a worse one.

    The worse ones are of three kinds in turn: the answer to another question (fluent and wrong), the right one broken
    off after at most half of its words, and the right one whose last words are said again. No person has judged
    anything: they teach to keep to the question, to finish, and to end. A function of the seed; where an answer is too
    short for its kind, it is another question's.
    """
    random = random_stream(seed, _MADE_STREAM)
    prompts = [before_answer(messages) for messages in conversations]
    answers = [messages[len(prompt)]["content"] for prompt, messages in zip(prompts, conversations)]
    pairs = []
    for number, (prompt, answer) in enumerate(zip(prompts, answers)):
        words = answer.split(" ")
        match number % 3 if len(words) > 3 else 0:
            case 0:
                rejected = _another(answer, answers, random.integers(len(answers)))
            case 1:
                rejected = " ".join(words[: random.integers(1, len(words) // 2 + 1)])
            case 2:
                rejected = " ".join([*words, *words[-random.integers(1, 4) :] * random.integers(2, 4)])
        if rejected and rejected.strip():
            pairs.append(Pair(prompt, answer, rejected))
    return pairs


def _another(answer, answers, start):
    """The next of `answers` from `start` on, around the end, that is not `answer`; None if all are."""
    return next((other for other in (*answers[start:], *answers[:start]) if other != answer), None)
