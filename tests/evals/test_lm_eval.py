"""lm-evaluation-harness's `local-completions` against a real server: its scores are those of transformers.

Needs the extra `eval`; docs/testing.md says how to set it up.
"""

import json
import os
import subprocess
import sys

import pytest
import torch

from tests.server.conftest import bench, plan_path, server
from tests.server.serving import HANG_S

__all__ = ["bench", "plan_path", "server"]

pytestmark = pytest.mark.slow

LENGTH = 128  # that the harness takes for the model's, so that a text takes several windows
ROWS = [
    {"question": "The sea is", "choices": [" wide", " deep and cold"], "answer": 0},
    {"question": "客单价 is", "choices": [" a word", " 👋🏽 한국어"], "answer": 1},
    {"question": "x", "choices": [" y", " z"], "answer": 0},
    {"question": "The sea is. " * 4 + "It", "choices": [" is", " was not"], "answer": 1},
]
TEXTS = ["The sea is wide and deep.", "one two three " * 60, "ab"]
CHOICES = """task: choices
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: answer
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""
ROLLING = """task: rolling
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list: [{{metric: byte_perplexity}}]
"""
WRITING = """task: writing
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: answer
generation_kwargs: {{until: ["e"], max_gen_toks: 24, do_sample: false, temperature: 0}}
metric_list: [{{metric: exact_match}}]
"""


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def evaluate(server, bench, root, rows, *, tokenized):
    """Run the harness on three tasks, and return what it noted of each sample."""
    rows = jsonl(root / "rows.jsonl", rows)
    texts = jsonl(root / "texts.jsonl", [{"text": text} for text in TEXTS])
    for name, task, data in (
        ("choices", CHOICES, rows),
        ("rolling", ROLLING, texts),
        ("writing", WRITING, rows),
    ):
        (root / f"{name}.yaml").write_text(task.format(data=data))
    given = {
        "model": "ping_pong",
        "base_url": f"{server.url}/completions",
        "tokenizer": bench / "small",
        "tokenized_requests": tokenized,
        "num_concurrent": 3,
        "max_retries": 1,
        "max_length": LENGTH,
    }
    command = [sys.executable, "-m", "lm_eval", "--model", "local-completions"]
    done = subprocess.run(
        [
            *command,
            *("--model_args", ",".join(f"{key}={value}" for key, value in given.items())),
            *("--tasks", "choices,rolling,writing", "--include_path", root),
            *("--log_samples", "--output_path", root / "out"),
        ],
        env={
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
            "HF_DATASETS_CACHE": str(root / "cache"),
            "OPENAI_API_KEY": "none",
        },
        capture_output=True,
        text=True,
        timeout=10 * HANG_S,
        check=False,
    )
    assert "No module named lm_eval" not in done.stderr, "the extra `eval` is not installed"
    assert done.returncode == 0, done.stderr[-4000:]
    out = {}
    for path in (root / "out").rglob("samples_*.jsonl"):
        name = path.name.removeprefix("samples_").split("_")[0]
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        out[name] = sorted(lines, key=lambda each: each["doc_id"])
    return out


class Plain:
    """The policy's first model in transformers, float64."""

    def __init__(self, path):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.model = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float64, attn_implementation="sdpa"
        )

    def ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False)

    def logits(self, ids):
        with torch.no_grad():
            return self.model(torch.tensor([ids])).logits[0].double()

    def score(self, ids, begin):
        """Return the log probability of the ids from `begin` on, and whether each is the likeliest."""
        of = torch.log_softmax(self.logits(ids), dim=-1)
        own = [of[at - 1, ids[at]].item() for at in range(begin, len(ids))]
        best = all(of[at - 1].argmax() == ids[at] for at in range(begin, len(ids)))
        return sum(own), best

    def rolling(self, text):
        """Return the log probability of a text in windows, each after as much as there is room for."""
        ids, most = self.ids(text), LENGTH - 2  # as the harness has it
        total, _ = self.score([self.tokenizer.eos_token_id, *ids[:most]], 1)
        for begin in range(most, len(ids), most):
            end = min(begin + most, len(ids))
            window = ids[max(0, end - most - 1) : end]
            total += self.score(window, len(window) - (end - begin))[0]
        return total

    def likeliest(self):
        """Return a question and its two likeliest next tokens as a choice, where text and ids are the same thing."""
        for at in range(200):
            question = f"question {at}"
            ids = self.ids(question)
            for _ in range(2):
                ids = [*ids, int(self.logits(ids)[-1].argmax())]
            choice = self.tokenizer.decode(ids)[len(question) :]
            if self.ids(question + choice) == ids and choice.isprintable() and choice.strip():
                return {"question": question, "choices": [choice, " no"], "answer": 0}
        raise AssertionError("no likely text is made of its own tokens")


@pytest.mark.parametrize("tokenized", [True, False], ids=["ids", "text"])
def test_the_harness_finds_the_scores_of_transformers(server, bench, tmp_path, tokenized):
    plain = Plain(bench / "small")
    rows = [*ROWS, plain.likeliest()]

    got = evaluate(server, bench, tmp_path, rows, tokenized=tokenized)

    greedy = []
    for row, sample in zip(rows, got["choices"], strict=True):
        for choice, [[told, is_greedy]] in zip(row["choices"], sample["resps"], strict=True):
            ids, context = plain.ids(row["question"] + choice), plain.ids(row["question"])
            expected, best = plain.score(ids, len(context))
            assert float(told) == pytest.approx(expected, abs=1e-6), (row, choice)
            assert str(is_greedy) == str(best)
            greedy.append(best)
    assert greedy[-2] and not greedy[-1]
    for text, sample in zip(TEXTS, got["rolling"], strict=True):
        [[told]] = sample["resps"]
        assert float(told) == pytest.approx(plain.rolling(text), abs=1e-6), text
    for row, sample in zip(rows, got["writing"], strict=True):
        [[text]] = sample["resps"]
        body = {"prompt": row["question"], "max_tokens": 24, "temperature": 0, "stop": ["e"]}
        answer = server.post("/v1/completions", json=body).json()
        assert text == answer["choices"][0]["text"]
    server.idle()
