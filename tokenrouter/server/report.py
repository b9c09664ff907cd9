"""What is told of a choice beside its text: who wrote it, by which rules, token by token where that is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from tokenrouter.plan.nodes import reads_load
from tokenrouter.plan.structs import Plan
from tokenrouter.server.replies import (
    CompletionTokensDetails,
    RouteReport,
    RuleCount,
    TracedToken,
    Usage,
)
from tokenrouter.server.transcript import Transcript, Written


class Reporter:
    """Puts the plan's names to its indices."""

    def __init__(self, plan: Plan) -> None:
        self._models = [model.name for model in plan.models]
        self._reproducible = False if reads_load(plan) else UNSET
        self._lines = {(rule.model, rule.rule): rule.line for rule in plan.provenance.rules}

    def usage(self, n_prompt_tokens: int, transcripts: Sequence[Transcript]) -> Usage:
        """Return the tokens that count so far."""
        written = sum(transcript.n_tokens for transcript in transcripts)
        by_model = {
            name: sum(transcript.by_model[model] for transcript in transcripts)
            for model, name in enumerate(self._models)
        }
        return Usage(
            prompt_tokens=n_prompt_tokens,
            completion_tokens=written,
            total_tokens=n_prompt_tokens + written,
            completion_tokens_details=CompletionTokensDetails(tokens_by_model=by_model),
        )

    def route(
        self, seed: int, transcript: Transcript, tokens: Sequence[Written] | None
    ) -> RouteReport:
        """Return the totals of a choice, with its tokens unless they are None."""
        return RouteReport(
            seed=seed,
            handoffs=transcript.handoffs,
            tokens_by_model={
                name: transcript.by_model[model] for model, name in enumerate(self._models)
            },
            tokens_by_rule=self._by_rule(transcript),
            reproducible=self._reproducible,
            trace=UNSET if tokens is None else self.trace(tokens),
        )

    def _by_rule(self, transcript: Transcript) -> list[RuleCount]:
        """Return the counts in the order of models and rules, borrowed stays last."""
        found = sorted(
            transcript.by_rule.items(), key=lambda item: (item[0][0], item[0][1] is None, item[0])
        )
        return [
            RuleCount(
                model=self._models[model], rule=rule, line=self.line(model, rule), tokens=tokens
            )
            for (model, rule), tokens in found
        ]

    def line(self, model: int, rule: int | None) -> int | None:
        """Return the line of the policy's source where a rule stands."""
        return None if rule is None else self._lines.get((model, rule))

    def trace(self, tokens: Sequence[Written]) -> list[TracedToken]:
        """Return what is told of each token."""
        return [
            TracedToken(
                id=token.token,
                text=text,
                model=self._models[token.model],
                rule=token.rule,
                line=self.line(token.model, token.rule),
                logprob=token.logprob,
                signals=token.signals,
                loads=token.loads or UNSET,
            )
            for token, text in tokens
        ]
