"""What each field of a request means, its default and an example, for whoever reads the OpenAPI document.

docs/serving.md says the same at more length. A default that is None depends on the request, or there is none.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Field(NamedTuple):
    """One field."""

    means: str
    default: Any = None
    example: Any = None


_PROMPT = [{"role": "user", "content": "Why is the sky blue?"}]
_SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

NO_EFFECT = Field("Accepted, without effect.")
UNSUPPORTED = Field("Not supported: accepted only where it asks for nothing.")

GENERATION = {
    "model": Field("The served name; any other is refused.", None, "demo"),
    "n": Field("Choices for each prompt; at most 128 with all prompts.", 1, 2),
    "max_tokens": Field("Most tokens of each choice; 0 runs nothing.", None, 64),
    "temperature": Field("0 is greedy, ties to the lowest id.", 1.0, 0.7),
    "top_p": Field("Draw from the likeliest tokens that together have this probability.", 1.0, 0.95),
    "top_k": Field("Draw from so many of the likeliest tokens; -1 and 0 are off.", 0, 40),
    "min_p": Field("Draw from tokens of at least this share of the likeliest one's probability.", 0.0, 0.05),
    "frequency_penalty": Field("Taken from a token's logit for each time that the output holds it.", 0.0, 0.5),
    "presence_penalty": Field("Taken from a token's logit once the output holds it.", 0.0, 0.5),
    "repetition_penalty": Field("Divides positive and multiplies negative logits of tokens of prompt and output.", 1.0, 1.1),
    "logit_bias": Field("By token id, what is added to its logit.", None, {"50": -100}),
    "response_format": Field("What the answer must be: JSON, or JSON that a schema allows.", None, {"type": "json_schema", "json_schema": {"name": "person", "schema": _SCHEMA}}),
    "regex": Field("A regular expression that the whole answer matches.", None, "(yes|no)"),
    "grammar": Field("A grammar in llguidance's dialect of Lark that the answer follows.", None, 'start: "yes" | "no"'),
    "seed": Field("Of all draws, 64 bits; drawn where there is none, and told in the answer.", None, 7),
    "stop": Field("A string, or up to 64, before which the text ends.", None, ["\n\n"]),
    "stop_token_ids": Field("Token ids that end the answer as an end of sequence does.", None, [50]),
    "ignore_eos": Field("Write end-of-sequence tokens like any other.", False, False),
    "stream": Field("Send server-sent events, the last of them `[DONE]`.", False, False),
    "stream_options": Field("What a stream holds beside the text; needs `stream`."),
    "priority": Field("Lower goes sooner; a step lets at most 64 later requests pass.", 0, 0),
    "timeout": Field("Seconds that the request has, from its body to its end.", None, 60),
    "route": Field("How this one request is routed, and whether the answer says so token by token.", None, {"trace": True}),
}  # fmt: skip

FIELDS: dict[str, dict[str, Field]] = {
    "CompletionRequest": {
        **GENERATION,
        "max_tokens": Field("Most tokens of each choice; 0 runs nothing.", 16, 64),
        "prompt": Field("Text, token ids, or a list of up to 128 of either.", None, "The sea"),
        "logprobs": Field("Log probabilities of the tokens and of so many likeliest ones, 0 to 20.", None, 1),
        "echo": Field("Begin each choice with its prompt.", False, False),
    },
    "ChatRequest": {
        **GENERATION,
        "messages": Field("The conversation, put through the plan's chat template.", None, _PROMPT),
        "max_completion_tokens": Field("As `max_tokens`; one of the two, or both alike.", None, 64),
        "logprobs": Field("Tell the tokens' log probabilities.", False, True),
        "top_logprobs": Field("Tell so many likeliest tokens too; needs `logprobs`.", 0, 0),
    },
    "RouteOptions": {
        "params": Field("Dials of the policy by name, within their bounds.", None, {}),
        "metadata": Field("What the policy's rules read as `request.NAME`.", None, {"tier": "pro"}),
        "trace": Field("Tell model, rule and signals of each token.", False, True),
    },
    "StreamOptions": {
        "include_usage": Field("End with a chunk that holds the usage.", False, True),
        "include_obfuscation": UNSUPPORTED,
    },
    "ResponseFormat": {
        "type": Field("`text` asks for nothing.", None, "json_object"),
        "json_schema": Field("The schema, where the type is `json_schema`."),
    },
    "JsonSchema": {
        "name": Field("Without effect.", None, "person"),
        "description": Field("Without effect."),
        "schema": Field("A JSON Schema; any object where there is none.", None, _SCHEMA),
        "strict": Field("Without effect: a schema is always kept to.", None, True),
    },
    "TokenizeRequest": {
        "model": GENERATION["model"],
        "prompt": Field("A text; this or `messages`.", None, "The sea"),
        "messages": Field("A conversation, as a chat would send it.", None, _PROMPT),
        "add_special_tokens": Field("Add the tokens that the tokenizer puts around a text; by default to a `prompt` only.", None, True),
        "add_generation_prompt": Field("End a conversation where the answer would begin.", True, False),
        "return_token_strs": Field("Tell the tokens as texts too.", False, True),
    },
    "DetokenizeRequest": {
        "model": GENERATION["model"],
        "tokens": Field("Token ids.", None, [50, 51]),
    },
}  # fmt: skip


def describe(schemas: dict[str, Any], no_effect: tuple[str, ...], neutral: tuple[str, ...]) -> None:
    """Write into the schemas of requests what their fields mean."""
    for name, fields in FIELDS.items():
        for field, schema in schemas[name]["properties"].items():
            known = fields.get(field)
            if known is None:
                known = NO_EFFECT if field in no_effect else UNSUPPORTED
                assert field in no_effect or field in neutral, (name, field)
            schema["description"] = known.means
            if known.default is not None:
                schema["default"] = known.default
            if known.example is not None:
                schema["examples"] = [known.example]
