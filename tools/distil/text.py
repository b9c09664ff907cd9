"""The teacher's tokenizer and chat format, rebuilt from its GGUF.

`transformers` rebuilds SmolLM2's tokenizer without its digit splitter; this one splits digits,
which gives the ids that the teacher was trained on.
"""

from __future__ import annotations

from pathlib import Path

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

END = 2  # <|im_end|>
STOPS = (0, 2)  # <|endoftext|>, <|im_end|>
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
CONTROL = 3  # the GGUF's token type of special tokens


def load_tokenizer(gguf: Path) -> Tokenizer:
    """Vocabulary, merges and special tokens of the GGUF, with the right splitting."""
    fields = GGUFReader(gguf).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(line.split(" ")) for line in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return tokenizer


def chat(turns: list[str], system: str = SYSTEM) -> str:
    """The prompt for the next answer; `turns` alternate user, assistant, user."""
    parts = [f"<|im_start|>system\n{system}<|im_end|>\n"]
    for index, turn in enumerate(turns):
        role = "assistant" if index % 2 else "user"
        parts.append(f"<|im_start|>{role}\n{turn}<|im_end|>\n")
    return "".join(parts) + "<|im_start|>assistant\n"
