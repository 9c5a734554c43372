"""A conversation with a model: it remembers what has been said as far as the model can see, and streams answers."""

import json

from models.chat.conversation import check_conversation, read_json_lines, render_prompt
from models.files import replacing
from models.generation.sampling import Sampling
from models.generation.stopping import TextStream

LONGEST_ANSWER = 200
"""Tokens of an answer at most, unless half of the model's context is less."""


class Session:
    """Answers of a model that was fine-tuned on conversations, through `sampler`.

    `messages` hold what was said, without the system prompt `system`, which may be changed at any time, as may
    `sampling`. What the model sees is the system prompt and as many of the last turns as leave room for an answer of
    `longest_answer` tokens; `unseen` counts the messages before them. The same seed and the same messages, from the
    beginning on, give the same answers.
    """

    def __init__(self, sampler, system=None, sampling=Sampling(), seed=0, longest_answer=None):
        """Raises ValueError for a tokenizer without tokens of a chat, or no room for both a message and an answer."""
        usual = min(LONGEST_ANSWER, sampler.context // 2)
        self.longest_answer = usual if longest_answer is None else longest_answer
        if self.longest_answer < 1:
            raise ValueError(f"An answer must have room for at least 1 token, not {self.longest_answer}.")
        if self.longest_answer >= sampler.context:
            raise ValueError(
                f"Answers of up to {self.longest_answer} tokens leave no room for messages: the model sees "
                f"{sampler.context} tokens together. Ask for shorter answers."
            )
        render_prompt([{"role": "user", "content": ""}], sampler.tokenizer)
        self.system, self.sampling = system, sampling
        self._sampler, self._seed = sampler, seed
        self._reader = sampler.reader()
        # A role's token, or the end of a text, ends an answer as well as the end of a turn does.
        self._stop_ids = frozenset(sampler.tokenizer.special_tokens.values())
        self.reset()

    def reset(self):
        """Forget what was said; the system prompt stays."""
        self.messages, self.unseen = [], 0
        self._answers = 0

    def answer(self, text):
        """Yield pieces of the answer to `text`. Message and answer are kept, also of an answer that is broken off.

        An answer without any text is no turn: then neither is kept. Raises ValueError, and changes nothing, when the
        message is empty, or too long to be seen as a whole.
        """
        if not text.strip():
            raise ValueError("The message is empty.")
        asked = {"role": "user", "content": text}
        prompt, self.unseen = self._prompt([*self.messages, asked])
        stream, said = TextStream(self._sampler.tokenizer), []
        self._answers += 1
        settings = self.longest_answer, self.sampling, self._seed + self._answers - 1, self._stop_ids
        try:
            for token_id in self._sampler.tokens(prompt, *settings, reader=self._reader):
                piece = stream.finish() if token_id in self._stop_ids else stream.push(token_id)
                if piece:
                    said.append(piece)
                    yield piece
            if rest := stream.finish():
                said.append(rest)
                yield rest
        finally:
            if said:
                self.messages += [asked, {"role": "assistant", "content": "".join(said)}]

    def take_back(self):
        """Forget the last turn, and return the text of its message; None when nothing was said yet."""
        if not self.messages:
            return None
        text = self.messages[-2]["content"]
        del self.messages[-2:]
        self.unseen = 0
        return text

    def save(self, path):
        """Write the conversation as a line of JSON, such as fine-tuning reads. Raises OSError."""
        with replacing(path) as file:
            line = json.dumps({"messages": self._with_system(self.messages)}, ensure_ascii=False) + "\n"
            # From a command line half of a surrogate pair may come.
            file.write(line.encode("utf-8", "replace"))

    def load(self, path):
        """Go on with the first conversation of a file that `save` has written, or one to fine-tune on.

        Raises OSError, or ValueError for a file that is something else, or a conversation that the assistant does not
        end; then nothing changes.
        """
        line, document = next(read_json_lines(path), (1, None))
        messages = document.get("messages") if isinstance(document, dict) else None
        try:
            check_conversation(messages)
            if messages[-1]["role"] != "assistant":
                raise ValueError("The assistant has not spoken last.")
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: {error}") from None
        self.reset()
        has_system = messages[0]["role"] == "system"
        self.system = messages[0]["content"] if has_system else None
        self.messages = [{key: each[key] for key in ("role", "content")} for each in messages[has_system:]]

    def _with_system(self, messages):
        return messages if self.system is None else [{"role": "system", "content": self.system}, *messages]

    def _prompt(self, messages):
        """Ids of the last turns of `messages` that there is room for, and how many messages come before them."""
        room = self._sampler.context - self.longest_answer
        # What was not seen once is not seen again: with each turn there is less room.
        for unseen in range(self.unseen, len(messages), 2):
            ids = render_prompt(self._with_system(messages[unseen:]), self._sampler.tokenizer)
            if len(ids) <= room:
                return ids, unseen
        raise ValueError(
            f"The message is too long: {'' if self.system is None else 'with the system prompt '}it takes {len(ids)} "
            f"tokens, and there is room for {room}, the model's {self._sampler.context} less {self.longest_answer} for "
            "the answer. Shorten it."
        )
