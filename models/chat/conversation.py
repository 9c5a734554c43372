"""Conversations: messages in files, and as token ids of which some are trained.

A conversation is a list of {"role": ..., "content": ...}: perhaps one message of the system, then user and assistant
in turn. As ids, a turn is the token of its role, its content as ordinary text, and END_OF_TURN. Nothing stands before
the first turn or after the last. Text is never tokenized across a border: what a user writes cannot forge a role, and
ids of a conversation begin with the ids of each of its beginnings.
"""

import json
import lzma
from dataclasses import dataclass
from pathlib import Path

from models.files import check_regular, replacing

ROLE_TOKENS = {"user": "<|user|>", "assistant": "<|assistant|>", "system": "<|system|>"}
END_OF_TURN = "<|end|>"
CHAT_TOKENS = (*ROLE_TOKENS.values(), END_OF_TURN)


@dataclass(frozen=True)
class Rendered:
    """A conversation as token `ids`; `trained` says of each whether a model is to learn to say it."""

    ids: list[int]
    trained: list[bool]


def render(conversation, tokenizer, train_on="all"):
    """`Rendered` messages. What the assistant says is trained, with the END_OF_TURN after it: in all of its turns, or
    with `train_on` "last" in its last turn alone.

    Raises ValueError for messages that are no conversation (see `check_conversation`), for another `train_on`, and
    for a tokenizer without CHAT_TOKENS.
    """
    check_conversation(conversation)
    if train_on not in ("all", "last"):
        raise ValueError(f"train_on must be 'all' or 'last', not {train_on!r}.")
    special = _chat_ids(tokenizer)
    turns = [index for index, message in enumerate(conversation) if message["role"] == "assistant"]
    taught = set(turns if train_on == "all" else turns[-1:])
    ids, trained = [], []
    for index, message in enumerate(conversation):
        said = [*tokenizer.encode_ordinary(message["content"]), special[END_OF_TURN]]
        ids += [special[ROLE_TOKENS[message["role"]]], *said]
        trained += [False, *(index in taught for _ in said)]
    return Rendered(ids, trained)


def render_prompt(messages, tokenizer):
    """Ids after which a model says the assistant's next turn: `messages`, of which the user's is last, and its token.

    They are the first ids of `render` of the same messages and any answer. Raises ValueError as `render` does, and
    when the user has not spoken last.
    """
    check_conversation(messages)
    if messages[-1]["role"] != "user":
        raise ValueError(f"The assistant answers the user, but the last message is of the {messages[-1]['role']}.")
    return render(messages, tokenizer).ids + [_chat_ids(tokenizer)[ROLE_TOKENS["assistant"]]]


def before_answer(conversation):
    """The messages before the assistant's first: what it is to answer."""
    return conversation[: next(place for place, each in enumerate(conversation) if each["role"] == "assistant")]


def check_conversation(messages):
    """Raise ValueError unless `messages` are a conversation: roles in turn, the user's first, and content of text."""
    if not isinstance(messages, list) or not messages:
        raise ValueError('A conversation is a list of at least one {"role": ..., "content": ...}.')
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict) or not all(isinstance(message.get(key), str) for key in ("role", "content")):
            raise ValueError(f'Message {number} is not {{"role": text, "content": text}}: {_shown(message)}.')
        if message["role"] not in ROLE_TOKENS:
            raise ValueError(f"Message {number} has the role {message['role']!r}. There are {', '.join(ROLE_TOKENS)}.")
    spoken = messages[1:] if messages[0]["role"] == "system" else messages
    if not spoken:
        raise ValueError("There is a message of the system alone. The user's comes after it.")
    for place, message in enumerate(spoken):
        wanted = ("user", "assistant")[place % 2]
        if message["role"] != wanted:
            number = len(messages) - len(spoken) + place + 1
            raise ValueError(
                f"Message {number} is of the {message['role']}, but it is the {wanted}'s turn. After at most one "
                "message of the system, user and assistant speak in turn."
            )


def read_conversations(path):
    """The conversations of a JSONL file, which may be compressed (`.xz`): one {"messages": [...]} a line.

    Other keys, and lines of blanks, are passed over. Raises FileNotFoundError, or ValueError that names file and line
    when a line is not JSON in UTF-8, is no conversation, has a message without text, or none of the assistant.
    """
    conversations = []
    for line, document in read_json_lines(path):
        messages = document.get("messages") if isinstance(document, dict) else None
        try:
            if messages is None:
                raise ValueError(f'Expected {{"messages": [...]}}, found {_shown(document)}.')
            check_conversation(messages)
            check_contents(messages)
            if all(message["role"] != "assistant" for message in messages):
                raise ValueError("The assistant says nothing, so there is nothing to learn.")
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: {error}") from None
        conversations.append([{key: message[key] for key in ("role", "content")} for message in messages])
    return conversations


def check_contents(messages):
    """Raise ValueError for a message without text, or with half of a surrogate pair, which is no text."""
    for number, message in enumerate(messages, 1):
        if not message["content"].strip():
            raise ValueError(f"Message {number}, of the {message['role']}, is empty.")
        try:
            message["content"].encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError(f"Message {number} contains half of a surrogate pair, which is not text.") from None


def read_json_lines(path):
    """Yield (line number, document) of a JSONL file, which may be compressed (`.xz`), except for blank lines.

    Raises OSError as `check_regular`, and ValueError that names the line that is not JSON in UTF-8.
    """
    path = Path(path)
    check_regular(path, "JSONL file")
    try:
        data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    except lzma.LZMAError as error:
        raise ValueError(f"{path} is not an xz file, or is damaged: {error}.") from None
    # Not splitlines: U+2028 and the like may stand inside of a JSON string.
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}, line {number}: not UTF-8 at byte {error.start} of the line.") from None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: not JSON: {error}.") from None


def write_json_lines(path, documents):
    """Write a JSONL file, a document a line. Raises OSError."""
    with replacing(path) as file:
        file.writelines(f"{json.dumps(document)}\n".encode() for document in documents)


def _chat_ids(tokenizer):
    special = tokenizer.special_tokens
    if missing := [token for token in CHAT_TOKENS if token not in special]:
        raise ValueError(
            f"The tokenizer has no {', '.join(missing)}: its model has not learned to chat. "
            "Fine-tune it on conversations first."
        )
    return special


def _shown(document):
    text = json.dumps(document, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
