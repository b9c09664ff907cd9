"""How long a keystroke's diagnostics take in a long policy file, and whether memory stays flat over many edits.

    python benchmarks/editor.py                 5,000 lines, 300 edits
    python benchmarks/editor.py --lines 200 --edits 10000 --every 10
    python benchmarks/editor.py --where broken --ask

Letters are typed at the end of a rule in the middle of the file: `--where rule` types a comment and a number, so that a policy is
another one with each key, `broken` types words that do not fit, `value` the digits of a param that all policies read, `end` a
comment behind everything. `--shape one` is a file of one policy. With `--ask` semantic tokens, inlay hints, symbols, folds and lenses are
asked for after each change, as VS Code does, and how long all of them take is told too. With `--every 10` it waits for the
diagnostics of each tenth edit only; those between are typed over. It talks to a `trc lsp` process as an editor does. The time
is from the change to the diagnostics of its version, less the server's own moment of rest; where long passes are waited for,
diagnostics of a version come twice, and with `--where value` the last are timed too.
"""

import argparse
import asyncio
import statistics
import sys
import time

from lsprotocol import types as t
from pygls.lsp.client import LanguageClient

from tokenrouter.lsp.problems import SOON
from tokenrouter.lsp.server import REST

HEAD = 'route 1\nmodel small { use "s" }\nmodel large { use "l" }\nparam tau: nats = 1 in [0, 4]\n'
RULES = 6


def policy(n: int) -> str:
    """Return a policy of some 20 lines."""
    rules = "\n".join(
        f"    when mean(entropy, {i + 1}) > tau and margin < 0.{i + 10} -> commit then large"
        for i in range(RULES)
    )
    back = rules.replace("large", "small")
    return (
        f"policy p{n} {{\n  start small\n  at small {{\n{rules}\n    otherwise -> commit\n  }}\n"
        f"  at large {{\n{back}\n    otherwise -> commit\n  }}\n}}\n"
    )


def long_file(lines: int) -> str:
    """Return a file of about so many lines."""
    each = policy(0).count("\n")
    return HEAD + "".join(policy(n) for n in range(lines // each))


def one_policy(lines: int) -> str:
    """Return a file of one policy of about so many lines, eight a model."""
    n = lines // 9
    head = "".join(f'model m{i} {{ use "w{i}" }}\n' for i in range(n))
    rules = [
        "".join(
            f"    when mean(entropy, {k + 1}) > tau and margin < 0.{k + 10} -> commit then m{(i + 1) % n}\n"
            for k in range(5)
        )
        for i in range(n)
    ]
    blocks = "".join(
        f"  at m{i} {{\n{own}    otherwise -> commit\n  }}\n" for i, own in enumerate(rules)
    )
    return f"route 1\n{head}param tau: nats = 1 in [0, 4]\npolicy big {{\n  start m0\n{blocks}}}\n"


def typed(text: str, where: str, version: int) -> str:
    """Return a file after some keys."""
    if where == "end":
        return f"{text}# {'x' * (version % 80)}"
    if where == "value":
        return text.replace("nats = 1 in", f"nats = 1.{version} in")
    middle = text.index("margin < 0.12", len(text) // 2) + len("margin < 0.12")
    what = f"{version}" if where == "rule" else f" x{'x' * (version % 7)}"
    return f"{text[:middle]}{what}{text[middle:]}"


async def everything(client: LanguageClient, uri: str, before: str, line: int) -> str:
    """Ask what VS Code asks after a change; return the name of the tokens."""
    document = t.TextDocumentIdentifier(uri)
    near = t.Range(t.Position(max(0, line - 40), 0), t.Position(line + 40, 0))
    got = await asyncio.gather(
        client.text_document_semantic_tokens_full_delta_async(
            t.SemanticTokensDeltaParams(document, before)
        ),
        client.text_document_inlay_hint_async(t.InlayHintParams(document, near)),
        client.text_document_document_symbol_async(t.DocumentSymbolParams(document)),
        client.text_document_folding_range_async(t.FoldingRangeParams(document)),
        client.text_document_code_lens_async(t.CodeLensParams(document)),
    )
    return got[0].result_id


def memory_kib(pid: int) -> int:
    """Return the resident memory of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


async def measure(text: str, edits: int, every: int, where: str, *, ask: bool) -> None:
    """Type into a long file and print what it took."""
    client = LanguageClient("benchmark", "1")
    told: dict[int, list[asyncio.Future[float]]] = {}

    @client.feature(t.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def _(params: t.PublishDiagnosticsParams) -> None:
        waiting = told.get(params.version or 0)
        if waiting:
            waiting.pop(0).set_result(time.perf_counter())

    await client.start_io(sys.executable, "-m", "tokenrouter.cli", "lsp")
    await client.initialize_async(t.InitializeParams(capabilities=t.ClientCapabilities()))
    client.initialized(t.InitializedParams())
    uri = "file:///long.route"
    loop = asyncio.get_running_loop()
    told[0] = [loop.create_future(), loop.create_future()]
    first, last = told[0]
    begin = time.perf_counter()
    client.text_document_did_open(
        t.DidOpenTextDocumentParams(t.TextDocumentItem(uri, "route", 0, text))
    )
    print(f"{text.count(chr(10))} lines; first diagnostics: {(await first - begin) * 1e3:.0f} ms")
    if text.count("when ") > SOON:
        print(f"all diagnostics: {(await last - begin) * 1e3:.0f} ms")
    pid = client._server.pid
    took, ends, answers, name = [], [], [], ""
    line = text.count("\n") // 2
    for version in range(1, edits + 1):
        begin = time.perf_counter()
        item = t.VersionedTextDocumentIdentifier(version, uri)
        change = t.TextDocumentContentChangeWholeDocument(typed(text, where, version))
        if version % every == 0:
            told[version] = [loop.create_future(), loop.create_future()]
            waiting = list(told[version])
        client.text_document_did_change(t.DidChangeTextDocumentParams(item, [change]))
        if ask:
            name = await everything(client, uri, name, line)
            answers.append(time.perf_counter() - begin)
        if version % every:
            continue
        took.append(await waiting[0] - begin)
        if where == "value":
            ends.append(await waiting[1] - begin)
        if len(took) in (20, edits // every // 2):
            print(f"memory after {version} edits {memory_kib(pid) / 1024:.1f} MiB")
    shown("diagnostics, behind the moment of rest", [s - REST for s in took])
    if ends:
        shown("the last of them", [s - REST for s in ends])
    if answers:
        shown("tokens, hints, symbols, folds and lenses", answers[1:])
    print(f"memory at the end {memory_kib(pid) / 1024:.1f} MiB")
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()


def shown(what: str, seconds: list[float]) -> None:
    """Print the median and the tail of some times."""
    took = sorted(s * 1e3 for s in seconds)
    late = took[min(len(took) - 1, len(took) * 95 // 100)]
    print(
        f"{what}: median {statistics.median(took):.0f} ms, p95 {late:.0f} ms, at worst {took[-1]:.0f} ms"
    )


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", type=int, default=5000)
    parser.add_argument("--edits", type=int, default=300)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--where", choices=("end", "rule", "broken", "value"), default="rule")
    parser.add_argument("--shape", choices=("many", "one"), default="many")
    parser.add_argument("--ask", action="store_true")
    args = parser.parse_args()
    text = (long_file if args.shape == "many" else one_policy)(args.lines)
    asyncio.run(measure(text, args.edits, args.every, args.where, ask=args.ask))


if __name__ == "__main__":
    main()
