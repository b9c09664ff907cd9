"""How long a keystroke's diagnostics take in a long policy file, and whether memory stays flat over many edits.

    python benchmarks/editor.py                 5,000 lines, 300 edits
    python benchmarks/editor.py --lines 200 --edits 10000 --every 10

With `--every 10` it waits for the diagnostics of each tenth edit only; those between are typed over. It talks to a `trc lsp`
process as an editor does. The time is from the change to the diagnostics of its version, with the
server's own moment of rest in it.
"""

import argparse
import asyncio
import statistics
import sys
import time

from lsprotocol import types as t
from pygls.lsp.client import LanguageClient

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


def memory_kib(pid: int) -> int:
    """Return the resident memory of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


async def measure(lines: int, edits: int, every: int) -> None:
    """Type into a long file and print what it took."""
    client = LanguageClient("benchmark", "1")
    told: dict[int, asyncio.Future[float]] = {}

    @client.feature(t.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def _(params: t.PublishDiagnosticsParams) -> None:
        waiting = told.pop(params.version or 0, None)
        if waiting is not None:
            waiting.set_result(time.perf_counter())

    await client.start_io(sys.executable, "-m", "tokenrouter.cli", "lsp")
    await client.initialize_async(t.InitializeParams(capabilities=t.ClientCapabilities()))
    client.initialized(t.InitializedParams())
    text, uri = long_file(lines), "file:///long.route"
    loop = asyncio.get_running_loop()
    told[0] = first = loop.create_future()
    begin = time.perf_counter()
    client.text_document_did_open(
        t.DidOpenTextDocumentParams(t.TextDocumentItem(uri, "route", 0, text))
    )
    print(f"{text.count(chr(10))} lines; opened: {(await first - begin) * 1e3:.0f} ms")
    pid = client._server.pid
    took = []
    for version in range(1, edits + 1):
        begin = time.perf_counter()
        item = t.VersionedTextDocumentIdentifier(version, uri)
        change = t.TextDocumentContentChangeWholeDocument(f"{text}# {'x' * (version % 80)}")
        if version % every == 0:
            told[version] = waiting = loop.create_future()
        client.text_document_did_change(t.DidChangeTextDocumentParams(item, [change]))
        if version % every:
            continue
        took.append(await waiting - begin)
        if len(took) in (20, edits // every // 2):
            print(f"memory after {version} edits {memory_kib(pid) / 1024:.1f} MiB")
    behind = [s * 1e3 - REST * 1e3 for s in took]
    print(
        f"{edits} edits; diagnostics {statistics.median(behind):.0f} ms behind the moment of rest, at worst {max(behind):.0f} ms"
    )
    print(f"memory at the end {memory_kib(pid) / 1024:.1f} MiB")
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", type=int, default=5000)
    parser.add_argument("--edits", type=int, default=300)
    parser.add_argument("--every", type=int, default=1)
    args = parser.parse_args()
    asyncio.run(measure(args.lines, args.edits, args.every))


if __name__ == "__main__":
    main()
