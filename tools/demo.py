"""The whole way once: a policy becomes a plan, a real server serves it, and OpenAI's own client asks it a question.

What is printed is the answer with each token in the ink of the model that wrote it, then the totals. Every process
that this starts is gone when it ends; whatever fails is said in one line, with the server's log below it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenrouter.server.ink import Ink, totals, wants_colour

ROOT = Path(__file__).resolve().parents[1]
TRC = [sys.executable, "-P", "-m", "tokenrouter.cli"]
QUESTION = "What is the capital of France, and what is it known for?"
SEED = 6  # the same answer every time, on the same machine
READY_S = 900  # a hang limit, not an expectation
END_S = 60
LOG_LINES = 30


class DemoFailed(Exception):  # noqa: N818 - reads as what it says
    """One line that says what went wrong."""


def main() -> int:
    """Run the demo and return the exit status."""
    parser = argparse.ArgumentParser(description="compile, serve and ask the demo policy")
    parser.add_argument("--policy", type=Path, default=ROOT / "examples/demo.route")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--max-tokens", type=int, default=96)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokenrouter-demo-") as scratch:
        log = Path(scratch, "server.log")
        try:
            demo(args, Path(scratch, "plan.json"), log)
        except DemoFailed as error:
            print(f"demo: {error}", file=sys.stderr)
            show_log(log)
            return 1
        except KeyboardInterrupt:
            return 130
    return 0


def demo(args: argparse.Namespace, plan: Path, log: Path) -> None:
    """Go the whole way."""
    step("fetching the demo pair where it is not here yet")
    check([sys.executable, "-m", "tokenrouter.demo"], "the demo pair cannot be fetched")
    step(f"compiling {os.path.relpath(args.policy)}")
    check([*TRC, "compile", str(args.policy), "-o", str(plan)], "the policy does not compile")
    step("starting the server")
    with server(plan, log) as url:
        step(f"asking {url}: {args.question}")
        print()
        ask(url, args.question, args.max_tokens)
    step("the server has ended and left no process behind")


def step(text: str) -> None:
    """Say what happens now, apart from the answer."""
    print(f"demo: {text}", file=sys.stderr, flush=True)


def check(command: list[str], failure: str) -> None:
    """Run a command that must succeed; its own words are shown where it does not."""
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise DemoFailed(f"{failure} (`{' '.join(command[1:])}` ended with {done.returncode})")


@contextlib.contextmanager
def server(plan: Path, log: Path) -> Iterator[str]:
    """Give the URL of a running server; it ends with the block, and that is checked."""
    command = [*TRC, "serve", str(plan), "--port", "0"]
    with log.open("wb") as sink:
        # A session of its own: ^C reaches us alone, and its process group tells whether anything is left.
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=sink, start_new_session=True, text=True
        )
    with process:
        try:
            yield url_of(process)
            process.send_signal(signal.SIGINT)
            status = end_of(process)
            if status:
                raise DemoFailed(f"the server ended with status {status}")
            if not is_gone(process.pid):
                raise DemoFailed("the server ended but left a process behind")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def url_of(process: subprocess.Popen[str]) -> str:
    """Return the URL that the server prints when it is ready."""
    assert process.stdout is not None
    timer = signal.signal(signal.SIGALRM, too_slow)
    signal.alarm(READY_S)
    try:
        line = process.stdout.readline()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, timer)
    found = re.search(r"http://\S+/v1", line)
    if found is None:
        raise DemoFailed(f"the server did not start (status {end_of(process)})")
    return found[0]


def too_slow(*_: object) -> None:
    """Give up on a server that does not get ready."""
    raise DemoFailed(f"the server was not ready after {READY_S} s")


def end_of(process: subprocess.Popen[str]) -> int:
    """Return the exit status of a process that is about to end."""
    try:
        return process.wait(END_S)
    except subprocess.TimeoutExpired:
        raise DemoFailed(f"the server did not end within {END_S} s") from None


def is_gone(group: int) -> bool:
    """Return whether no process of a group is left; the last ones may take a moment."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def ask(url: str, question: str, max_tokens: int) -> None:
    """Stream one answer through OpenAI's client and print it, then the totals."""
    import openai

    try:
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
            card: Any = client.models.list().data[0]
            ink = Ink(card.route["models"], wants_colour(sys.stdout))
            print(ink.legend(), end="\n\n", flush=True)
            started = time.monotonic()
            report = print_answer(client, card.id, ink, question, max_tokens)
            seconds = time.monotonic() - started
    except openai.OpenAIError as error:
        raise DemoFailed(f"the request failed: {' '.join(str(error).split())}") from None
    print("\n\n" + totals(report["tokens_by_model"], report["handoffs"], seconds), flush=True)


def print_answer(
    client: Any, model: str, ink: Ink, question: str, max_tokens: int
) -> dict[str, Any]:
    """Print the answer as it comes and return what the server reports of its routing."""
    chunks = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        max_tokens=max_tokens,
        temperature=0.7,  # greedy, models of this size repeat themselves
        top_p=0.95,
        seed=SEED,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"route": {"trace": True}},
    )
    report: dict[str, Any] = {}
    text, usage = "", None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for token in choice.route.get("trace", ()):
                print(ink.write(token["text"], token["model"]), end="", flush=True)
            if choice.finish_reason:
                report = choice.route
    print(ink.close(), end="")
    if not text or not report:
        raise DemoFailed("the server sent no answer")
    if usage is None or usage.completion_tokens != sum(report["tokens_by_model"].values()):
        raise DemoFailed("the usage does not agree with the tokens by model")
    return report


def show_log(log: Path) -> None:
    """Print the end of the server's log, where there is one."""
    if log.exists() and (lines := log.read_text(errors="replace").splitlines()):
        print("--- server log", *lines[-LOG_LINES:], sep="\n", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
