"""Diagnostics for machines: JSON and SARIF 2.1.0.

Columns count code points; JSON gives the UTF-16 columns of editors beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenrouter.diagnostics import CODES, Diagnostic, Fix, Span
from tokenrouter.dsl.source import Source

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
_LEVELS: dict[str, str] = {"error": "error", "warning": "warning", "info": "note"}
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_json(diagnostics: Sequence[Diagnostic], texts: Mapping[str, str]) -> Json:
    """Return diagnostics as a list of plain values."""
    sources = {name: Source.of(name, text) for name, text in texts.items()}
    return [_diagnostic(d, sources) for d in diagnostics]


def _diagnostic(d: Diagnostic, sources: Mapping[str, Source]) -> Json:
    fix: Json = None
    if d.fix is not None:
        edits: list[Json] = [{"span": _span(e.span, sources), "text": e.text} for e in d.fix.edits]
        fix = {"title": d.fix.title, "safe": d.fix.safe, "edits": edits}
    labels: list[Json] = [
        {"span": _span(item.span, sources), "text": item.text} for item in d.labels
    ]
    return {
        "code": d.code,
        "severity": d.severity,
        "message": d.message,
        "help": d.help,
        "span": _span(d.span, sources),
        "labels": labels,
        "fix": fix,
    }


def _span(span: Span, sources: Mapping[str, Source]) -> Json:
    source = sources.get(span.file)
    return {
        "file": span.file,
        "start": _place(span.start, span.line, span.column, source),
        "end": _place(span.end, span.end_line, span.end_column, source),
    }


def _place(offset: int, line: int, column: int, source: Source | None) -> Json:
    utf16 = column
    if source is not None and line <= len(source.starts):
        before = source.text[source.starts[line - 1] : offset]
        before = before.removeprefix("\ufeff" if line == 1 else "")
        utf16 = len(before.encode("utf-16-le")) // 2 + 1
    return {"offset": offset, "line": line, "column": column, "utf16_column": utf16}


def as_sarif(diagnostics: Sequence[Diagnostic], version: str) -> Json:
    """Return diagnostics as one SARIF run."""
    codes = sorted({d.code for d in diagnostics})
    rules: list[Json] = [
        {
            "id": code,
            "shortDescription": {"text": CODES[code].title},
            "defaultConfiguration": {"level": _LEVELS[CODES[code].severity]},
        }
        for code in codes
    ]
    results: list[Json] = [_result(d, codes.index(d.code)) for d in diagnostics]
    driver: Json = {"name": "trc", "version": version, "rules": rules}
    run: Json = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(d: Diagnostic, rule: int) -> Json:
    text = f"{d.message}. {d.help}" if d.help else d.message
    result: dict[str, Json] = {
        "ruleId": d.code,
        "ruleIndex": rule,
        "level": _LEVELS[d.severity],
        "message": {"text": text},
        "locations": [{"physicalLocation": _location(d.span)}],
    }
    if d.labels:
        result["relatedLocations"] = [
            {"id": at, "physicalLocation": _location(label.span), "message": {"text": label.text}}
            for at, label in enumerate(d.labels, start=1)
        ]
    if d.fix is not None:
        result["fixes"] = [_fix(d.fix)]
    return result


def _location(span: Span) -> Json:
    return {"artifactLocation": {"uri": _uri(span.file)}, "region": _region(span)}


def _region(span: Span) -> Json:
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }


def _uri(file: str) -> str:
    from urllib.parse import quote  # noqa: PLC0415

    return quote(file.replace("\\", "/"))


def _fix(fix: Fix) -> Json:
    by_file: dict[str, list[Json]] = {}
    for edit in fix.edits:
        by_file.setdefault(edit.span.file, []).append(
            {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.text}}
        )
    changes: list[Json] = [
        {"artifactLocation": {"uri": _uri(file)}, "replacements": edits}
        for file, edits in by_file.items()
    ]
    return {"description": {"text": fix.title}, "artifactChanges": changes}
