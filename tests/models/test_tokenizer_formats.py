"""Tokenizers as files: what is written here others read, and the other way round; what is not sound is refused."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiktoken
from tiktoken.load import load_tiktoken_bpe
from tiktoken_ext.openai_public import r50k_pat_str
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, trainers
from tokenizers import models as hf_models
from tokenizers import pre_tokenizers as hf_pre_tokenizers

from models.tokenizer.bpe import Tokenizer
from models.tokenizer.formats import FORMATS, gpt2_files, load_tokenizer, save_tokenizer
from models.tokenizer.gpt2_vocabulary import BYTE_FROM_ID, CHARACTER_FROM_ID

TEXT = "It's  a\r\n\ttest of Ünïcode 你好 😀 \0 and \x85 numbers 12345, don't you'LL\n\n  "

# --- This program's own format ---


def test_saving_and_loading_changes_nothing(tmp_path, gpt2, small_tokenizer):
    for tokenizer in (gpt2, small_tokenizer):
        path = tmp_path / "tokenizer.json"
        save_tokenizer(tokenizer, path)
        loaded = load_tokenizer(path)
        assert loaded.fingerprint == tokenizer.fingerprint
        assert (loaded.merges, loaded.special_tokens) == (tokenizer.merges, tokenizer.special_tokens)
        assert path.read_bytes().isascii() and b"\r" not in path.read_bytes()
        assert list(tmp_path.iterdir()) == [path]


def test_fingerprints_differ_whenever_encoding_does(small_tokenizer):
    merges, specials = small_tokenizer.merges, list(small_tokenizer.special_tokens)
    different = [
        Tokenizer(merges[:-1], specials), Tokenizer(merges, []), Tokenizer(merges, ["<|x|>"]),
        Tokenizer([merges[1], merges[0], *merges[2:]], specials), small_tokenizer,
        Tokenizer(merges, {specials[0]: 999}), Tokenizer(merges, specials, range(1, 257 + len(merges))),
    ]  # fmt: skip
    assert len({tokenizer.fingerprint for tokenizer in different}) == len(different)
    assert Tokenizer(merges, specials).fingerprint == small_tokenizer.fingerprint


def test_files_that_are_not_sound_tokenizers_are_refused(tmp_path, small_tokenizer):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(FileNotFoundError):
        load_tokenizer(path)
    save_tokenizer(small_tokenizer, path)
    sound = json.loads(path.read_text())
    for changes, message in (
        ({"version": 2}, "version 2"),
        ({"unicode": "17.0"}, "Unicode 17.0"),
        ({"merges": sound["merges"][:-1]}, "checksum"),
        ({"special_tokens": ["<|other|>"]}, "checksum"),
        ({"merges": None}, "checksum"),
    ):
        path.write_text(json.dumps({**sound, **changes}))
        with pytest.raises(ValueError, match=message):
            load_tokenizer(path)


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch, small_tokenizer):
    path = tmp_path / "tokenizer.json"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save_tokenizer(small_tokenizer, path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError, match="folder .* does not exist"):
        save_tokenizer(small_tokenizer, tmp_path / "missing" / "tokenizer.json")


def _write_gpt2_files(folder, merge_text, extra=(), changes=()):
    """A tiny vocabulary in GPT-2's two files."""
    tokens = [*CHARACTER_FROM_ID, *(line.replace(" ", "") for line in merge_text.split("\n")[1:] if line), *extra]
    ids = {token: token_id for token_id, token in enumerate(tokens)} | dict(changes)
    (folder / "encoder.json").write_text(json.dumps(ids), encoding="utf-8")
    (folder / "vocab.bpe").write_text(merge_text, encoding="utf-8", newline="")
    return folder / "encoder.json", folder / "vocab.bpe"


def test_gpt2_files_may_hold_merges_that_start_with_a_hash(tmp_path):
    files = _write_gpt2_files(tmp_path, "#version: 0.2\n# #\nĠ a\n", extra=["<|endoftext|>"])
    tokenizer = gpt2_files.read_pair(*files)
    assert [tokenizer.token_bytes(token_id) for token_id in (256, 257, 258)] == [b"##", b" a", b"<|endoftext|>"]
    spelled = ["# v", "#v e", "#ve r", "#ver s", "#vers i", "#versi o", "#versio n", "#version :"]
    with_header_as_merge = _write_gpt2_files(tmp_path, "\n".join(["#version: 0.2", *spelled]) + "\n")
    assert gpt2_files.read_pair(*with_header_as_merge).token_bytes(263) == b"#version:"


def test_gpt2_files_may_end_without_a_newline(tmp_path):
    with_last_newline = _write_gpt2_files(tmp_path, "#version: 0.2\n# #\nĠ a\n", extra=["<|endoftext|>"])
    tokenizer = gpt2_files.read_pair(*with_last_newline)
    without_last_newline = _write_gpt2_files(tmp_path, "#version: 0.2\n# #\nĠ a", extra=["<|endoftext|>"])
    assert gpt2_files.read_pair(*without_last_newline).fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize(
    ("merges", "extra", "changes", "message"),
    [
        ("#version: 0.2\na b c\n", (), (), "line 2"),
        ("#version: 0.2\na bc\n", (), (), "line 2"),
        ("#version: 0.2\na b\nb c\na b\n", (), (), "line 4: 'a' 'b' makes 'ab', as a merge before it does"),
        ("#version: 0.2\na b\n\nc d\n", (), (), "line 3"),
        ("#version: 0.2\na b\n", (), {"ab": 7}, "'ab' and '\\(' the same id 7"),
        ("#version: 0.2\na b\n", (), {"ab": "x"}, "'ab' the id 'x'"),
        ("#version: 0.2\na b\n", (), {"ab": True}, "'ab' the id True"),
        ("#version: 0.2\na b\n", (), {"<s>": -1}, "'<s>' the id -1"),
        ("#version: 0.2\na b\n", ("abc",), (), r"'abc' \(id 257\), but .*vocab.bpe has no merge .* 'ab c'"),
    ],
)
def test_gpt2_files_that_disagree_are_refused(tmp_path, merges, extra, changes, message):
    with pytest.raises(ValueError, match=message):
        gpt2_files.read_pair(*_write_gpt2_files(tmp_path, merges, extra, changes))


def test_gpt2_files_given_in_the_wrong_order_are_refused(tmp_path):
    encoder_json, vocab_bpe = _write_gpt2_files(tmp_path, "#version: 0.2\na b\n")
    with pytest.raises(ValueError, match="vocab.bpe is not JSON"):
        gpt2_files.read_pair(vocab_bpe, encoder_json)


def test_gpt2_files_that_are_no_vocabulary_are_refused(tmp_path):
    encoder_json, vocab_bpe = _write_gpt2_files(tmp_path, "#version: 0.2\na b\n")
    ids = json.loads(encoder_json.read_text())
    encoder_json.write_text(json.dumps({token: token_id for token, token_id in ids.items() if token not in "!\u0100"}))
    with pytest.raises(ValueError, match=r"encoder.json has no token for 2 of the 256 bytes \(0x21, 0x00\)"):
        load_tokenizer(tmp_path)
    vocab_bpe.unlink()
    for path in (tmp_path, encoder_json):
        with pytest.raises(FileNotFoundError, match="neither tokenizer.json nor .*vocab.bpe"):
            load_tokenizer(path)
    with pytest.raises(FileNotFoundError, match="nothing here"):
        load_tokenizer(tmp_path / "nothing here")


def test_a_vocabulary_whose_merges_were_cut_short_is_refused(tmp_path, small_tokenizer):
    save_tokenizer(small_tokenizer, tmp_path, "gpt2")
    lines = (tmp_path / "vocab.bpe").read_bytes().splitlines(keepends=True)
    for kept in (100, 255):
        (tmp_path / "vocab.bpe").write_bytes(b"".join(lines[:kept]))
        with pytest.raises(ValueError, match=r"has no merge that makes it.*cut short"):
            load_tokenizer(tmp_path)


def test_special_tokens_that_look_like_a_merge_can_be_named(tmp_path):
    files = _write_gpt2_files(tmp_path, "#version: 0.2\na b\n", extra=["abc"])
    tokenizer = load_tokenizer(files[0], special_tokens=["abc"])
    assert tokenizer.special_tokens == {"abc": 257}


def test_gpt2_files_without_last_newline_or_with_gaps_and_carriage_returns(tmp_path):
    files = _write_gpt2_files(tmp_path, "#version: 0.2\r\na b\r\n\u010a a\r\n", (), {"ab": 300, "<s>": 999})
    ids = json.loads(files[0].read_text()) | {"\u010aa": 301}
    files[0].write_text(json.dumps({token: token_id for token, token_id in ids.items() if not token.endswith("\r")}))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("ab\nab<s>", allowed_special="all") == [300, 198, 300, 999]
    assert tokenizer.encode("\na") == [198, 64] and tokenizer.encode_ordinary("x\na") == [87, 198, 64]
    assert tokenizer.vocab_size == 1000 and tokenizer.byte_lengths[999] == 3 and tokenizer.byte_lengths[998] == 0
    with pytest.raises(ValueError, match="998 is not in this vocabulary"):
        tokenizer.decode([998])


# --- All formats ---


def tokenizers_of_many_kinds():
    learned = Tokenizer.train(TEXT * 3, 300)
    count = 256 + len(learned.merges)
    return {
        "plain": learned,
        "without special tokens": Tokenizer(learned.merges, []),
        "without merges": Tokenizer([]),
        "special tokens first": Tokenizer(learned.merges, {"<s>": 0, "</s>": 1}, range(2, 2 + count)),
        "with gaps": Tokenizer(learned.merges, {"<|x|>": 9_000}, [*range(0, 512, 2), *range(600, 344 + count)]),
        "bytes by value": Tokenizer(learned.merges, ["<|x|>"], [*BYTE_FROM_ID, *range(256, count)]),
        "odd special tokens": learned.with_special_tokens(["a b\nc", "(.*)+[", "\\ ", "\r\n", "<|a|>", "<|a|>b"]),
    }


def path_for(folder, format):
    if format == "gpt2":
        return folder
    return folder / ("vocabulary.tiktoken" if format == "tiktoken" else "tokenizer.json")


@pytest.mark.parametrize("kind", tokenizers_of_many_kinds())
@pytest.mark.parametrize("format", FORMATS)
def test_round_trips_change_nothing(tmp_path, format, kind):
    tokenizer = tokenizers_of_many_kinds()[kind]
    save_tokenizer(tokenizer, path_for(tmp_path, format), format)
    loaded = load_tokenizer(path_for(tmp_path, format), tokenizer.special_tokens, "gpt2")
    assert loaded.fingerprint == tokenizer.fingerprint
    text = TEXT + "".join(tokenizer.special_tokens)
    assert loaded.encode(text, allowed_special="all") == tokenizer.encode(text, allowed_special="all")
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("format", FORMATS)
def test_gpt2_itself_goes_through_every_format(tmp_path, gpt2, format):
    save_tokenizer(gpt2, path_for(tmp_path, format), format)
    assert load_tokenizer(path_for(tmp_path, format), gpt2.special_tokens, "gpt2").fingerprint == gpt2.fingerprint


@pytest.mark.parametrize("format", FORMATS)
def test_text_formats_hold_only_line_feeds_and_utf8_under_any_locale(tmp_path, format):
    tokenizer = tokenizers_of_many_kinds()["odd special tokens"].with_special_tokens(["é你"])
    save_tokenizer(tokenizer, path_for(tmp_path, format), format)
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        assert b"\r" not in data and data.decode("utf-8")


def test_a_locale_that_is_not_utf8_changes_nothing(tmp_path):
    program = (
        "from models.tokenizer.bpe import Tokenizer; from models.tokenizer.formats import *;"
        "tokenizer = Tokenizer.train('n\\xe9 ' * 9, 260, ['\\xe9\\u4f60']);"
        "paths = {'native': 'a.json', 'huggingface': 'b.json', 'gpt2': '.', 'tiktoken': 'c.tiktoken'};"
        "[save_tokenizer(tokenizer, path, format) for format, path in paths.items()];"
        "loaded = [load_tokenizer(path, tokenizer.special_tokens, 'gpt2') for path in paths.values()];"
        "print({other.fingerprint for other in loaded} == {tokenizer.fingerprint})"
    )
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment = {**os.environ, **locale, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-X", "warn_default_encoding", "-W", "error::EncodingWarning", "-c", program]
    finished = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8")
    assert (finished.stdout, finished.stderr) == ("True\n", "")


def test_what_a_format_cannot_hold_is_refused(tmp_path):
    twice = Tokenizer([(0, 1), (1, 2), (256, 2), (0, 257)])
    for format in ("gpt2", "huggingface", "tiktoken"):
        with pytest.raises(ValueError, match="same bytes"):
            save_tokenizer(twice, path_for(tmp_path, format), format)
    backwards = Tokenizer([(0, 1), (1, 2)], [], [*range(256), 257, 256])
    with pytest.raises(ValueError, match="not in the order of its merges"):
        save_tokenizer(backwards, tmp_path / "x.tiktoken", "tiktoken")
    ambiguous = Tokenizer([(0, 1)], ['!"'])
    for format in ("gpt2", "huggingface"):
        with pytest.raises(ValueError, match="special token and an ordinary one"):
            save_tokenizer(ambiguous, path_for(tmp_path, format), format)
    with pytest.raises(ValueError, match="no tokenizer format 'pickle'. The formats are native, gpt2"):
        save_tokenizer(backwards, tmp_path / "x", "pickle")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_leaves_the_old_file_in_every_format(tmp_path, monkeypatch, small_tokenizer):
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    for format in FORMATS:
        with pytest.raises(OSError, match="No space left"):
            save_tokenizer(small_tokenizer, path_for(tmp_path, format), format)
    assert list(tmp_path.iterdir()) == []


# --- Hugging Face ---


@pytest.mark.parametrize("kind", tokenizers_of_many_kinds())
def test_tokenizers_reads_what_is_written(tmp_path, kind):
    tokenizer = tokenizers_of_many_kinds()[kind]
    save_tokenizer(tokenizer, tmp_path / "tokenizer.json", "huggingface")
    theirs = HuggingFaceTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = TEXT + "x".join(tokenizer.special_tokens)
    ids = theirs.encode(text).ids
    assert ids == tokenizer.encode(text, allowed_special="all")
    assert theirs.decode(ids, skip_special_tokens=False) == tokenizer.decode(ids) == text


def test_transformers_reads_what_is_written(tmp_path, small_tokenizer, corpus):
    import transformers

    text = corpus[:5_000] + TEXT
    save_tokenizer(small_tokenizer, tmp_path / "tokenizer.json", "huggingface")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert fast.encode(text) == small_tokenizer.encode(text)
    gpt2_files.write(small_tokenizer, tmp_path, gpt2_files.NAMES[1])
    named = transformers.GPT2Tokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"))
    assert named.encode(text) == small_tokenizer.encode(text)


def test_what_transformers_saves_is_read(tmp_path, small_tokenizer, corpus):
    import transformers

    gpt2_files.write(small_tokenizer, tmp_path, gpt2_files.NAMES[1])
    theirs = transformers.GPT2Tokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"))
    theirs.add_special_tokens({"additional_special_tokens": ["<|user|>", "<|end|>"]})
    theirs.add_tokens(["thou art"])
    theirs.save_pretrained(tmp_path / "saved")
    tokenizer = load_tokenizer(tmp_path / "saved")
    assert tokenizer.special_tokens == {"<|endoftext|>": 511, "<|user|>": 512, "<|end|>": 513, "thou art": 514}
    text = f"<|user|>{corpus[:20_000]}<|end|><|endoftext|>"
    assert tokenizer.encode(text, allowed_special="all") == theirs.encode(text)


def trained_by_hugging_face(corpus, special_tokens=("<|endoftext|>",)):
    tokenizer = HuggingFaceTokenizer(hf_models.BPE())
    tokenizer.pre_tokenizer = hf_pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=list(special_tokens),
        initial_alphabet=hf_pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([corpus[:50_000]], trainer)
    return tokenizer


@pytest.mark.parametrize("merges_as", ["pairs", "strings"])
def test_what_tokenizers_trained_is_read_with_its_own_ids(tmp_path, corpus, merges_as):
    theirs = trained_by_hugging_face(corpus, ["<|endoftext|>", "<|pad|>"])
    theirs.add_tokens(["Citizen"])
    document = json.loads(theirs.to_str())
    if merges_as == "strings":
        document["model"]["merges"] = [" ".join(merge) for merge in document["model"]["merges"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.special_tokens == {"<|endoftext|>": 0, "<|pad|>": 1, "Citizen": 700}
    text = corpus[50_000:70_000] + TEXT + "<|pad|> First Citizen<|endoftext|>"
    assert tokenizer.encode(text, allowed_special="all") == theirs.encode(text).ids

    theirs.model.save(str(tmp_path))
    (tmp_path / "tokenizer.json").unlink()
    two_files = load_tokenizer(tmp_path, special_tokens=["<|endoftext|>", "<|pad|>"])
    assert two_files.encode(corpus) == tokenizer.encode_ordinary(corpus)
    assert two_files.end_of_text_id == 0


BROKEN = {
    "normalizer is NFC": {"normalizer": {"type": "NFC"}},
    "pre_tokenizer is Whitespace, not ByteLevel": {"pre_tokenizer": {"type": "Whitespace"}},
    "pre_tokenizer is null": {"pre_tokenizer": None},
    "add_prefix_space false": {"pre_tokenizer": {"type": "ByteLevel", "use_regex": True}},
    "use_regex true": {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}},
    "post_processor is TemplateProcessing": {
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {}}]}
    },
    "post_processor is BertProcessing": {"post_processor": {"type": "BertProcessing"}},
    "decoder is Metaspace": {"decoder": {"type": "Metaspace"}},
    "model.type is 'Unigram'": {"model": {"type": "Unigram"}},
    "model.byte_fallback is True": {"model": {"byte_fallback": True}},
    "model.unk_token is '<unk>'": {"model": {"unk_token": "<unk>"}},
    "model.end_of_word_suffix is '</w>'": {"model": {"end_of_word_suffix": "</w>"}},
    "model.dropout is 0.1": {"model": {"dropout": 0.1}},
    "model.ignore_merges is True": {"model": {"ignore_merges": True}},
    "model.vocab is missing or not a table": {"model": {"vocab": None}},
    "model.merges is missing or not a list": {"model": {"merges": "a b"}},
    r"model.merges\[0\]: 'a b c' should be two tokens": {"model": {"merges": ["a b c"]}},
    r"model.merges\[1\]: \['a', 1\] should be two": {"model": {"merges": [["a", "b"], ["a", 1]]}},
    r"model.merges\[0\]: 'zz' 'b' is not a merge": {"model": {"merges": [["zz", "b"]]}},
    r"model.merges\[0\]: 'a' 'c' makes 'ac', which .* has no id for": {"model": {"merges": [["a", "c"]]}},
    "an id for 'ab', but it is no special token": {"model": {"merges": []}},
    r"added_tokens\[0\]: '<m>' has lstrip true": {"added_tokens": [{"id": 300, "content": "<m>", "lstrip": True}]},
    r"added_tokens\[0\] should be an object": {"added_tokens": ["<m>"]},
    "added_tokens gives 'ab' the id 300, model.vocab 256": {"added_tokens": [{"id": 300, "content": "ab"}]},
    "the same id 5": {"added_tokens": [{"id": 5, "content": "<m>"}]},
    "the id '5'": {"added_tokens": [{"id": "5", "content": "<m>"}]},
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_tokenizer_json_that_means_something_else_is_refused_by_name(tmp_path, message):
    path = tmp_path / "tokenizer.json"
    a, b = CHARACTER_FROM_ID.index("a"), CHARACTER_FROM_ID.index("b")
    save_tokenizer(Tokenizer([(a, b)], []), path, "huggingface")
    document = json.loads(path.read_text())
    changes = dict(BROKEN[message])
    changes["model"] = document["model"] | changes.get("model", {})
    path.write_text(json.dumps(document | changes))
    with pytest.raises(ValueError, match=rf"tokenizer\.json.*{message}"):
        load_tokenizer(path)


def test_a_vocabulary_without_all_bytes_is_refused(tmp_path):
    tokenizer = HuggingFaceTokenizer(hf_models.BPE())
    tokenizer.pre_tokenizer = hf_pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(["abc"], trainers.BpeTrainer(show_progress=False))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="no token for 253 of the 256 bytes.*initial_alphabet"):
        load_tokenizer(tmp_path)


# --- tiktoken ---


@pytest.mark.parametrize("kind", tokenizers_of_many_kinds())
def test_tiktoken_reads_what_is_written(tmp_path, reference, kind):
    tokenizer = tokenizers_of_many_kinds()[kind]
    path = tmp_path / "vocabulary.tiktoken"
    save_tokenizer(tokenizer, path, "tiktoken")
    theirs = tiktoken.Encoding(
        "x",
        pat_str=reference._pat_str,
        mergeable_ranks=load_tiktoken_bpe(str(path)),
        special_tokens=tokenizer.special_tokens,
    )
    assert theirs.encode_ordinary(TEXT * 2) == tokenizer.encode_ordinary(TEXT * 2)
    separate = " ".join(text for text in tokenizer.special_tokens if not text.startswith("<|a|>"))
    assert theirs.encode(separate, allowed_special="all") == tokenizer.encode(separate, allowed_special="all")


def test_a_tiktoken_file_is_read_only_with_pattern_and_special_tokens(tmp_path, reference, small_tokenizer):
    path = tmp_path / "vocabulary.tiktoken"
    save_tokenizer(small_tokenizer, path, "tiktoken")
    for missing in ({}, {"pattern": "gpt2"}, {"special_tokens": []}):
        with pytest.raises(ValueError, match="Give both"):
            load_tokenizer(path, **missing)
    with pytest.raises(ValueError, match=r"not by '\\\\S\+'"):
        load_tokenizer(path, [], r"\S+")
    for pattern in ("gpt2", reference._pat_str, r50k_pat_str):
        assert load_tokenizer(path, ["<|endoftext|>"], pattern).fingerprint == small_tokenizer.fingerprint


def encoded(token):
    return base64.b64encode(token)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"YWI= x", "line 257: 'YWI= x' should be a token in base64"),
        (b"YWI=", "line 257"),
        (b"YW?= 256", "line 257"),
        (b"YWI= 256 7", "line 257"),
        (b" 256", "line 257: the token is empty"),
        (b"\xff 256", "line 257: '..xff 256'"),
        (encoded(b"abc") + b" 256", r"line 257: b'abc' encodes to 3 tokens of lower rank"),
        (encoded(b"a") + b" 256", "line 257: the token b'a' stands here and in .* line 98"),
        (encoded(b"ab") + b" 97", "the same id 97"),
        (encoded(b"ab") + b" -1", "the id -1"),
    ],
)
def test_broken_tiktoken_files_are_refused_by_line(tmp_path, line, message):
    path = tmp_path / "broken.tiktoken"
    path.write_bytes(b"".join(b"%s %d\n" % (encoded(bytes([byte])), byte) for byte in range(256)) + line + b"\n")
    with pytest.raises(ValueError, match=message):
        load_tokenizer(path, [], "gpt2")


def test_a_tiktoken_file_without_a_byte_is_refused(tmp_path):
    (tmp_path / "x.tiktoken").write_bytes(b"YQ== 0\n")
    with pytest.raises(ValueError, match="no token for 255 of the 256 bytes, such as 0x00"):
        load_tokenizer(tmp_path / "x.tiktoken", [], "gpt2")


def test_every_token_of_a_tiktoken_file_encodes_to_itself(tmp_path, gpt2, reference):
    path = tmp_path / "gpt2.tiktoken"
    lines = [b"%s %d\n" % (encoded(token), rank) for token, rank in reference._mergeable_ranks.items()]
    path.write_bytes(b"".join(sorted(lines)))
    tokenizer = load_tokenizer(path, {"<|endoftext|>": 50256}, "gpt2")
    assert tokenizer.fingerprint == gpt2.fingerprint


# --- Hostile files ---


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"[1]", b"7", b"null", b"{", b'{"merges": []}', b"[" * 200_000, b'{"model": 7}', b"\0" * 100],
)
@pytest.mark.parametrize("name", ["tokenizer.json", "encoder.json", "vocab.json", "x.tiktoken"])
def test_no_content_is_more_than_a_line_of_error(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    for other in ("vocab.bpe", "merges.txt"):
        (tmp_path / other).write_bytes(b"#version: 0.2\n")
    with pytest.raises(ValueError, match=name.split(".")[0]) as raised:
        load_tokenizer(tmp_path / name, [], "gpt2")
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 400


def test_absurd_ids_and_special_tokens_name_the_file(tmp_path):
    files = _write_gpt2_files(tmp_path, "#version: 0.2\na b\n", (), {"<s>": 10**12})
    with pytest.raises(ValueError, match=r"encoder\.json: The token id 1000000000000 is not an integer from 0 to"):
        load_tokenizer(files[0])
    _write_gpt2_files(tmp_path, "#version: 0.2\na b\n", (), {"\ud800": 300})
    with pytest.raises(ValueError, match=r"encoder\.json: Special token '\\ud800'"):
        load_tokenizer(files[0])
    save_tokenizer(Tokenizer([]), tmp_path / "x.tiktoken", "tiktoken")
    with pytest.raises(ValueError, match=r"x\.tiktoken: Special token '<s>' cannot have the id 7"):
        load_tokenizer(tmp_path / "x.tiktoken", {"<s>": 7}, "gpt2")


def test_added_tokens_beside_the_two_files_are_read(tmp_path, small_tokenizer):
    gpt2_files.write(small_tokenizer, tmp_path, gpt2_files.NAMES[1])
    (tmp_path / "added_tokens.json").write_text('{"<|user|>": 513, "hello world": 512}')
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.special_tokens == {"<|endoftext|>": 511, "hello world": 512, "<|user|>": 513}
    (tmp_path / "added_tokens.json").write_text('{"<|user|>": 7}')
    with pytest.raises(ValueError, match="the same id 7"):
        load_tokenizer(tmp_path)


def test_two_files_are_kept_when_one_cannot_be_written(tmp_path, monkeypatch, small_tokenizer):
    save_tokenizer(small_tokenizer, tmp_path, "gpt2")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        save_tokenizer(Tokenizer([]), tmp_path, "gpt2")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
