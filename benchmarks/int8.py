"""What `quantize int8` loses: the demo's models on text that the large one writes itself.

    python benchmarks/int8.py [--requests 16] [--tokens 128]

The text is drawn at temperature 1 from the large model in float32, behind a few words each, so every run sees the same. Then each model reads it in
float32, bfloat16 and int8: perplexity, and how often its likeliest next token is that of its own float32.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from tokenrouter.models import locate
from tokenrouter.runtime.model import ExtendBatch, Extension, LanguageModel
from tokenrouter.runtime.model.load import load

PAGE = 16
FORMS = {
    "float32": ("float32", False),
    "bfloat16": ("bfloat16", False),
    "int8": ("bfloat16", True),
}


def main() -> None:
    """Write, read, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=16, metavar="N", help="(%(default)s)")
    parser.add_argument("--tokens", type=int, default=128, help="of each (%(default)s)")
    args = parser.parse_args()
    texts = written(model("demo:large", "float32"), args.requests, args.tokens)
    n = sum(len(text) - 1 for text in texts)
    print(f"{time.strftime('%d %b %Y')}, {n} tokens of text")
    print(f"{'':12}{'':10}{'perplexity':>11}{'to float32':>12}{'agreement':>11}")
    for use in ("demo:large", "demo:small"):
        true: tuple[float, torch.Tensor] | None = None
        for form in FORMS:
            found = read(model(use, form), texts)
            true = true or found
            perplexity, likeliest = found
            agreement = float((likeliest == true[1]).double().mean())
            ratio = perplexity / true[0] - 1
            print(
                f"{use:12}{form:10}{perplexity:11.3f}{100 * ratio:+11.2f}%{100 * agreement:10.1f}%"
            )


def model(use: str, form: str) -> LanguageModel:
    """Return one of the demo's models."""
    dtype, int8 = FORMS[form]
    return load(locate(use, Path()), dtype, int8=int8)


def written(model: LanguageModel, requests: int, tokens: int) -> list[list[int]]:
    """Return texts that a model draws."""
    draw = torch.Generator().manual_seed(0)
    texts = torch.randint(1000, 20000, (requests, 4), generator=draw).tolist()
    per = -(-(tokens + 4) // PAGE)
    cache = model.new_cache(per * requests, PAGE)
    pages = [range(at * per, (at + 1) * per) for at in range(requests)]
    start = 0
    for _ in range(tokens):
        news = [Extension(text[start:], start, pages[at]) for at, text in enumerate(texts)]
        logits = model.extend(ExtendBatch.of(news, PAGE), cache).logits.double()
        start = len(texts[0])
        drawn = torch.multinomial(logits.softmax(-1), 1, generator=draw).flatten().tolist()
        for text, token in zip(texts, drawn, strict=True):
            text.append(token)
    return texts


def read(model: LanguageModel, texts: list[list[int]]) -> tuple[float, torch.Tensor]:
    """Return a model's perplexity over texts, and its likeliest tokens."""
    losses, likeliest = [], []
    for text in texts:
        n = len(text) - 1
        pages = range(-(-n // PAGE))
        batch = ExtendBatch.of([Extension(text[:-1], 0, pages, n)], PAGE)
        logits = model.extend(batch, model.new_cache(len(pages), PAGE)).logits.double()[4:]
        losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(text[5:])))
        likeliest.append(logits.argmax(-1))
    return float(torch.stack(losses).mean().exp()), torch.cat(likeliest)


if __name__ == "__main__":
    main()
