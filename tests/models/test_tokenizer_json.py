"""Hugging Face's tokenizer.json: tokenizers and transformers read ours, and we read theirs or say why not."""

import json

import pytest
from tokenizer_kinds import TEXT, tokenizers_of_many_kinds
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, trainers
from tokenizers import models as hf_models
from tokenizers import pre_tokenizers as hf_pre_tokenizers

from models.tokenizer.bpe import Tokenizer
from models.tokenizer.formats import gpt2_files, load_tokenizer, save_tokenizer
from models.tokenizer.gpt2_vocabulary import CHARACTER_FROM_ID


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
    "'ab' is a special token and an ordinary one": {"added_tokens": [{"id": 256, "content": "ab"}]},
    "'!' is a special token and an ordinary one": {"added_tokens": [{"id": 0, "content": "!"}]},
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
