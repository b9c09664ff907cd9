"""The Python way in: text prompts and text completions of an engine over tiny models."""

import msgspec
import pytest

import tokenrouter
from tests.factories import save_bench
from tokenrouter.models import ModelError

POLICY = """route 1
model small { use "small" }
model large { use "large" }
policy text {
  start small
  at small {
    when entropy > 1.5 -> borrow large for 1
    otherwise -> commit
  }
}
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    bench = save_bench(tmp_path_factory.mktemp("bench"))
    path = bench.root / "text.route"
    path.write_text(bench.text(POLICY))
    return tokenrouter.Engine(tokenrouter.compile(path, kv_budget=8 << 20))


def test_a_text_is_served_as_its_ids_are(engine):
    sampling = tokenrouter.Sampling(max_tokens=12, temperature=1.0, seed=7)

    (text,) = engine.generate(["The sea is wide"], sampling)
    (ids,) = engine.generate([engine.tokenizer.encode("The sea is wide")], sampling)

    assert (text.ids, text.models) == (ids.ids, ids.models)
    assert set(text.models) == {0, 1}
    assert text.text == engine.tokenizer.decode(text.ids)


def test_a_chat_prompt_goes_through_the_template(engine):
    (completion,) = engine.generate(["The sea"], tokenrouter.Sampling(max_tokens=2), chat=True)

    assert completion.prompt == engine.tokenizer.apply_chat_template(
        [{"role": "user", "content": "The sea"}]
    )


def test_a_model_that_is_another_than_at_compile_time_is_refused_by_name(engine):
    small, large = engine.plan.models
    other = msgspec.structs.replace(
        engine.plan, models=[small, msgspec.structs.replace(large, use=small.use)]
    )

    with pytest.raises(ModelError, match=r"model `large`: .* not what the plan was compiled for"):
        tokenrouter.Engine(other)
