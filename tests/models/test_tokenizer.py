"""Tokenizers: what a GGUF file's rebuilt one must equal, bytes by id, and chat templates."""

import json
from pathlib import Path

import gguf
import pytest
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tests.factories import SPECIAL, TEXT, save_model, save_tokenizer, tokenizer
from tests.models.ggufs import close, write_byte_level
from tokenrouter.models import Located, ModelError, locate, read_vocabulary
from tokenrouter.models.chat import ChatTemplate
from tokenrouter.models.tokenizer import TextTokenizer

NASTY = [
    "",
    " ",
    "   leading and trailing   ",
    "1234567890 3.14159 1e-9 0x1F 12,345 ½ ² ٣٤",
    "I'm you'RE they'll don't 'tis ''' \"quoted\"",
    "line\nline\r\n\r\n\ttab\t\t \n  \n   x",
    "def f(x):\n    return x**2  # squares\n\n\nclass A:\n\tpass",
    "naïve café ÅÄÖ e\u0301 ﬁ ǅ ß İ",
    "東京タワーは333メートル。你好,世界!안녕하세요",
    "🙂🙃👩‍👩‍👧‍👦🏳️‍🌈 \U0001f9ff",
    "שלום עולם مرحبا بالعالم हिन्दी ไทย",
    "\x00\x01\x7f\x80\u00a0\u200b\u2028\ufeff\ufffd",
    "a<|im_start|>user\nhi<|im_end|><|endoftext|> <|im_end|>b",
    "https://example.org/a?b=c&d=%20#x  user@example.com",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "... !!! ?!?! --- ___ *** /// \\\\\\ ((())) [[]] {}{} <>",
    TEXT,
]
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def saved(directory):
    save_tokenizer(directory)
    return Located("directory", directory)


def rebuilt(path, original, pre):
    """Return what we make of a GGUF file that holds an original byte-level tokenizer."""
    writer = gguf.GGUFWriter(path, "llama")
    write_byte_level(writer, json.loads(original.to_str()), pre)
    close(writer)
    return TextTokenizer.load(Located("gguf", path))


@pytest.mark.parametrize("pre", ["default", "smollm", "qwen2", "llama-bpe"])
def test_a_tokenizer_rebuilt_from_gguf_encodes_as_its_original(tmp_path, pre):
    original = Tokenizer.from_str(tokenizer().to_str())
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if pre == "smollm":
        original.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    elif pre == "qwen2":
        original.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(QWEN2), "isolated")
        original.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    elif pre == "llama-bpe":
        split = pre_tokenizers.Split(Regex(QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")), "isolated")
        original.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])

    got = rebuilt(tmp_path / "model.gguf", original, pre)

    for text in NASTY:
        assert got.encode(text) == original.encode(text).ids, text


def test_the_splits_of_qwen2_and_llama_3_are_those_of_transformers():
    from transformers.convert_slow_tokenizer import TikTokenConverter
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    from tokenrouter.models import rebuild

    assert rebuild._SPLIT % "" == PRETOKENIZE_REGEX == QWEN2
    assert TikTokenConverter().pattern == rebuild._SPLIT % "{1,3}"


def test_a_pre_tokeniser_that_is_not_known_is_refused(tmp_path):
    with pytest.raises(ModelError, match="has the pre-tokeniser `unheard-of`, which is not known"):
        rebuilt(tmp_path / "model.gguf", tokenizer(), "unheard-of")


def sentence_piece():
    """Return a BPE with byte fallback and spaces spelled `▁`, as SentencePiece models are converted."""
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    made.train_from_iterator([TEXT.replace("\n", " ")], trainer)
    raw = json.loads(made.to_str())
    # The bytes are pieces, not added tokens.
    raw["added_tokens"] = [token for token in raw["added_tokens"] if token["id"] < 3]
    return Tokenizer.from_str(json.dumps(raw))


def write_sentence_piece(path, original):
    vocab = original.get_vocab()
    tokens = sorted(vocab, key=vocab.get)
    types = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 259 + [-float(i) for i in range(len(tokens) - 259)])
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    close(writer)
    return Located("gguf", path)


def test_a_sentence_piece_tokenizer_is_rebuilt_from_its_scores(tmp_path):
    original = sentence_piece()

    got = TextTokenizer.load(write_sentence_piece(tmp_path / "model.gguf", original))

    for text in NASTY:
        if text and "<|" not in text:
            assert got.encode(text) == [1, *original.encode(text).ids], text


def test_byte_fallback_and_spaces_stand_for_their_bytes(tmp_path):
    original = sentence_piece()
    got = TextTokenizer.load(write_sentence_piece(tmp_path / "model.gguf", original))

    assert got.id_to_bytes(3 + 0xE6) == b"\xe6"
    assert got.decode(got.encode("The sea 東京 🙂")) == " The sea 東京 🙂"


def test_a_vocabulary_spelled_another_way_is_the_same_vocabulary(tmp_path):
    original = sentence_piece()
    (tmp_path / "dir").mkdir()
    original.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    original.save(str(tmp_path / "dir" / "tokenizer.json"))
    directory = Located("directory", tmp_path / "dir")
    file = write_sentence_piece(tmp_path / "model.gguf", original)

    assert read_vocabulary(directory).digest == read_vocabulary(file).digest


def test_every_id_stands_for_the_bytes_that_the_tokenizer_decodes(tmp_path):
    got = TextTokenizer.load(saved(tmp_path))

    for text in NASTY:
        # Special tokens are text for this purpose.
        joined = b"".join(got.id_to_bytes(id_) for id_ in got.encode(text))
        assert joined.decode() == text, text
    assert [got.id_to_bytes(id_).decode() for id_ in range(len(SPECIAL))] == SPECIAL
    assert got.special_ids == frozenset(range(len(SPECIAL)))
    assert got.decode(got.encode("<|im_start|>naïve 🙂<|im_end|>")) == "naïve 🙂"


def test_padding_of_the_head_is_no_part_of_the_vocabulary(tmp_path):
    plain = locate(str(save_model(tmp_path / "a")), Path())
    padded = locate(str(save_model(tmp_path / "b", padding=13)), Path())

    assert read_vocabulary(padded) == read_vocabulary(plain)
    assert read_vocabulary(plain).size == tokenizer().get_vocab_size()


def edited(directory, edit):
    """Return the digest of a tokenizer.json after an edit."""
    found = saved(directory)
    file = directory / "tokenizer.json"
    raw = json.loads(file.read_text())
    edit(raw)
    file.write_text(json.dumps(raw))
    return read_vocabulary(found).digest


def swap(raw):
    vocab = raw["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]


def unspecial(raw):
    raw["added_tokens"][3]["special"] = False


def grow(raw):
    token = {"id": len(raw["model"]["vocab"]), "content": "<new>", "special": False}
    raw["added_tokens"].append(raw["added_tokens"][0] | token)


def test_digests_tell_vocabularies_apart(tmp_path):
    edits = [lambda raw: None, swap, unspecial, grow]
    digests = [edited(tmp_path / str(at), edit) for at, edit in enumerate(edits)]

    assert len(set(digests)) == len(edits)


def test_the_begin_token_stands_before_text_and_not_before_a_rendered_conversation(tmp_path):
    found = saved(tmp_path)
    raw = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    raw.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    raw.save(str(tmp_path / "tokenizer.json"))
    got = TextTokenizer.load(found)

    assert got.encode("hi") == [0, *tokenizer().encode("hi").ids]
    chat = got.apply_chat_template([{"role": "user", "content": "hi"}])
    assert chat == tokenizer().encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n").ids


@pytest.mark.parametrize("place", ["chat_template.jinja", "named"])
def test_a_template_is_found_in_each_of_its_places(tmp_path, place):
    found = saved(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    config = json.loads(file.read_text())
    del config["chat_template"]
    if place == "named":
        config["chat_template"] = [
            {"name": "tool_use", "template": "no"},
            {"name": "default", "template": "yes {{ eos_token }}"},
        ]
    else:
        (tmp_path / "chat_template.jinja").write_text("yes {{ eos_token }}")
    file.write_text(json.dumps(config))

    got = TextTokenizer.load(found)

    ids = got.apply_chat_template([{"role": "user", "content": "hi"}])
    assert ids == tokenizer().encode("yes <|im_end|>").ids


def test_without_a_template_a_conversation_is_refused_in_one_line(tmp_path):
    found = saved(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")

    with pytest.raises(ModelError, match="the model has no chat template"):
        TextTokenizer.load(found).apply_chat_template([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('roles must\nalternate') }}", "refuses this: roles must alternate"),
        ("{% if %}", "is wrong"),
        ("{{ messages[7].content.x }}", "is wrong"),
        ("{{ messages | length / 0 }}", "refuses this"),
        ("{{ ''.__class__.__mro__ }}", "is wrong"),
        ("{{ messages.append(1) }}", "is wrong"),
    ],
    ids=["raises", "syntax", "undefined", "divides", "escapes", "mutates"],
)
def test_what_a_template_does_wrong_is_one_line(template, said):
    with pytest.raises(ModelError) as caught:
        ChatTemplate(template, {}).render([{"role": "user", "content": "hi"}])

    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_templates_may_use_what_transformers_gives_them():
    text = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{{ m | tojson }}{{ bos_token }}{% endfor %}{{ strftime_now('%Y') | length }}"
    )

    got = ChatTemplate(text, {"bos_token": "<s>"}).render([{"role": "user", "content": "é"}] * 2)

    assert got == '{"role": "user", "content": "é"}<s>4'


@pytest.fixture(scope="module")
def teacher():
    return TextTokenizer.load(locate("demo:large", Path()))


@pytest.fixture(scope="module")
def mended():
    """Return the teacher's tokenizer as transformers rebuilds it, its lost digit splitting put back."""
    from transformers import AutoTokenizer

    from tokenrouter.demo import teacher_path

    path = teacher_path()
    whole = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    made = whole.backend_tokenizer
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    return whole


@pytest.mark.demo
def test_the_teachers_tokenizer_is_that_of_transformers_mended(teacher, mended):
    for text in NASTY:
        assert teacher.encode(text) == mended.encode(text, add_special_tokens=False), text
    digits = [teacher.id_to_bytes(id_) for id_ in teacher.encode("2026")]
    assert digits == [b"2", b"0", b"2", b"6"]


@pytest.mark.demo
def test_the_teachers_conversations_are_those_of_transformers(teacher, mended):
    messages = [
        {"role": "user", "content": "What is 12 x 12?"},
        {"role": "assistant", "content": "144"},
        {"role": "user", "content": "And in 東京?"},
    ]

    expected = mended.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert teacher.apply_chat_template(messages) == mended.encode(
        expected, add_special_tokens=False
    )
    assert teacher.template is not None and teacher.template.render(messages) == expected


@pytest.mark.demo
def test_the_teachers_ids_join_to_the_text_they_were_made_from(teacher):
    for text in NASTY:
        assert b"".join(teacher.id_to_bytes(id_) for id_ in teacher.encode(text)).decode() == text
    assert teacher.size == 49152 and teacher.special_ids == frozenset(range(17))
