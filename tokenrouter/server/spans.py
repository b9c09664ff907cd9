"""A span of each completion by OpenTelemetry. Only `trc serve --otel` imports this, and with it the library.

Attributes follow the semantic conventions for HTTP servers and for generative AI where those have a word, else they begin with
`tokenrouter.`. What a client or a model wrote is in none of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tokenrouter.runtime.messages import Token
from tokenrouter.server.access import Taken
from tokenrouter.server.answer import Answer
from tokenrouter.version import __version__

OPERATIONS = {"/v1/completions": "text_completion", "/v1/chat/completions": "chat"}
MAX_HANDOFF_EVENTS = 100  # a span keeps its latest 128 events, and the first token must stay


def otlp(name: str) -> TracerProvider:
    """Return what sends spans by OTLP over HTTP, as the standard OTEL_ variables say."""
    ours = Resource({"service.name": name, "service.version": __version__})
    provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class Spans:
    """Makes the spans; an `access.Observer`."""

    def __init__(self, provider: TracerProvider, models: Sequence[str]) -> None:
        self._provider = provider
        self._models = models
        self._tracer = provider.get_tracer("tokenrouter", __version__)
        self._open: dict[Taken, Span] = {}
        self._handoffs: dict[Taken, int] = {}

    def begun(self, taken: Taken) -> None:
        """Begin a span, below the one that the client names."""
        operation = OPERATIONS.get(taken.path)
        if operation is None or taken.method != "POST":
            return
        carrier = {
            name.decode(): value.decode("latin-1")
            for name, value in taken.headers.items()
            if name in (b"traceparent", b"tracestate")
        }
        self._handoffs[taken] = 0
        self._open[taken] = self._tracer.start_span(
            operation,
            context=TraceContextTextMapPropagator().extract(carrier),
            kind=SpanKind.SERVER,
            attributes={
                "http.request.method": taken.method,
                "http.route": taken.path,
                "client.address": taken.client,
                "gen_ai.operation.name": operation,
                "gen_ai.provider.name": "tokenrouter",
                "tokenrouter.request.id": taken.id,
            },
        )

    def answered(self, taken: Taken, answer: Answer) -> None:
        """Tell what was asked for."""
        span, sampling = self._open[taken], answer.work.jobs[0].sampling
        span.update_name(f"{OPERATIONS[taken.path]} {answer.name}")
        span.set_attributes(
            {
                "gen_ai.request.model": answer.name,
                "gen_ai.response.model": answer.name,
                "gen_ai.response.id": answer.id,
                "gen_ai.request.choice.count": len(answer.work.jobs),
                "gen_ai.request.max_tokens": sampling.max_tokens,
                "gen_ai.request.temperature": sampling.temperature,
                "gen_ai.request.top_p": sampling.top_p,
                "gen_ai.request.top_k": sampling.top_k,
                "gen_ai.request.seed": _signed(answer.work.seed),
                "gen_ai.request.presence_penalty": sampling.presence_penalty,
                "gen_ai.request.frequency_penalty": sampling.frequency_penalty,
            }
        )

    def first_token(self, taken: Taken) -> None:
        """Mark when the first token came."""
        span = self._open[taken]
        span.add_event("first_token")
        span.set_attribute("gen_ai.response.time_to_first_chunk", time.monotonic() - taken.begun)

    def handed_off(self, taken: Taken, choice: int, token: Token) -> None:
        """Mark a hand-off, up to a number that leaves room for what else is marked."""
        if self._handoffs[taken] == MAX_HANDOFF_EVENTS:
            return
        self._handoffs[taken] += 1
        attributes: dict[str, int | str] = {
            "tokenrouter.choice": choice,
            "tokenrouter.position": token.state.position - 1,
            "tokenrouter.model": self._models[token.model],
            "tokenrouter.handoffs": token.state.switches,
        }
        self._open[taken].add_event("handoff", attributes)

    def ended(self, taken: Taken) -> None:
        """Tell what became of the request, and end its span."""
        span = self._open.pop(taken, None)
        if span is None:
            return
        del self._handoffs[taken]
        span.set_attribute("http.response.status_code", taken.status)
        if taken.answer is not None:
            told = taken.fields()
            span.set_attributes(
                {
                    "gen_ai.usage.input_tokens": told["prompt_tokens"],
                    "gen_ai.usage.output_tokens": told["completion_tokens"],
                    "gen_ai.response.finish_reasons": [r or "cut" for r in told["finish"]],
                    "tokenrouter.handoffs": told["handoffs"],
                }
            )
            for model, n in told["tokens_by_model"].items():
                span.set_attribute(f"tokenrouter.tokens.{model}", n)
        if taken.error is not None:
            span.set_attribute("error.type", taken.error.code or taken.error.type)
            if taken.error.type == "server_error":
                span.set_status(StatusCode.ERROR)
        elif taken.gone:
            span.set_attribute("error.type", "client_gone")
        span.end()

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()


def _signed(seed: int) -> int:
    """Return a seed as the 64 bits of an attribute, which are signed."""
    return seed - (1 << 64) if seed >= 1 << 63 else seed
