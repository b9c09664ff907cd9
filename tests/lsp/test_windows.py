"""Where a profile is near a policy, its models show the windows that the compiler solves for it; no key waits for that."""

import asyncio

import pytest
from lsprotocol import types as t

from tests.factories import save_model
from tests.profile.profiles import profile_of
from tokenrouter import cli
from tokenrouter.lsp.windows import full, near, told
from tokenrouter.plan.io import read
from tokenrouter.profile.io import write

pytestmark = pytest.mark.asyncio(loop_scope="module")
POLICY = """route 1
model small { use "small" }
model large { use "large" }
policy two {
  start small
  at small { when chance < 0.25 -> commit then large  when margin < 0.1 -> retry large  otherwise -> commit }
  at large { otherwise -> commit then small }
}
"""
EVERYWHERE = t.Range(t.Position(0, 0), t.Position(99, 0))


@pytest.fixture(scope="module")
def asked(client):
    """Return a list that grows whenever the server asks for hints to be drawn again."""
    found = []

    @client.feature(t.WORKSPACE_INLAY_HINT_REFRESH)
    def _(*_):
        found.append(True)

    return found


@pytest.fixture(scope="module")
def profiled(client):
    """Write a policy with its models and a profile of it; return its name and its plan with that."""
    folder = client.editor.folder
    for seed, name in enumerate(("small", "large")):
        save_model(folder / name, seed=seed, layers=1)
    policy, plan, profile = (folder / f"two{end}" for end in (".route", ".plan", ".profile.json"))
    policy.write_text(POLICY, encoding="utf-8")
    assert cli.main(["compile", str(policy), "-o", str(plan)]) == 0
    made = profile_of(
        read(plan), moves=((0, 0, True, 1, 30), (0, 2, True, 0, 70), (1, 0, True, 0, 30))
    )
    write(made, profile)
    assert cli.main(["compile", str(policy), "--profile", str(profile), "-o", str(plan)]) == 0
    return "two.route", read(plan)


async def windows(client, uri):
    """Return the hints of windows, by line."""
    document = t.TextDocumentIdentifier(uri)
    found = await client.text_document_inlay_hint_async(t.InlayHintParams(document, EVERYWHERE))
    return {h.position.line: h for h in found if "window" in str(h.label)}


async def opened(client, name):
    """Open the policy, and wait for its windows."""
    place = await client.editor.open(POLICY, name)
    while not await windows(client, place.uri):
        await asyncio.sleep(0.05)
    return place


async def test_models_show_the_windows_that_are_solved_for_the_profile(client, asked, profiled):
    name, plan = profiled
    place = await opened(client, name)

    while not asked:
        await asyncio.sleep(0.05)
    found = await windows(client, place.uri)

    assert plan.windows.source == "profile"
    rows = [tuple(row) for row in plan.windows.table]
    assert max(map(max, rows)) > 1
    assert [found[line].label for line in (1, 2)] == [f" {told(row)}" for row in rows]
    assert found[1].position.character == len("model small")
    assert found[1].tooltip.startswith("a batch waits for 1 (N=1), ")
    assert found[1].tooltip.endswith(
        "solved for a machine, 2 cores, 1 threads a model, by two.profile.json"
    )


async def test_they_stay_while_the_policy_means_the_same_and_no_longer(client, profiled):
    place = await opened(client, profiled[0])

    await client.editor.type(place.uri, POLICY.replace("route 1", "route 1\n# λ"))
    moved = await windows(client, place.uri)
    await client.editor.type(place.uri, POLICY.replace("0.25", "0.3"))
    gone = await windows(client, place.uri)
    await client.editor.type(place.uri, POLICY)

    assert sorted(moved) == [2, 3]
    assert gone == {}
    assert sorted(await windows(client, place.uri)) == [1, 2]


async def test_a_saved_policy_that_the_profile_is_not_of_shows_none(client, profiled):
    place = await opened(client, profiled[0])
    path = client.editor.folder / profiled[0]
    other = POLICY.replace("margin < 0.1", "margin < 0.2")
    path.write_text(other, encoding="utf-8")

    client.text_document_did_save(t.DidSaveTextDocumentParams(t.TextDocumentIdentifier(place.uri)))
    while await windows(client, place.uri):  # although the open text is that of before
        await asyncio.sleep(0.05)
    path.write_text(POLICY, encoding="utf-8")


@pytest.mark.parametrize(
    ("row", "label"),
    [
        ((1, 1, 1), "window 1"),
        ((1, 2, 2, 3), "window 1, 2 from N=2, 3 from N=4"),
        ((1, 2, 3, 4, 5, 6), "window 1, 2 from N=2, 3 from N=3, 4 from N=4, ..."),
    ],
)
async def test_windows_are_told_in_short_and_in_full(row, label):
    assert told(row) == label
    assert full((1, 2)) == "a batch waits for 1 (N=1), 2 (N=2)"


async def test_the_profile_of_a_policy_goes_before_that_of_its_folder(tmp_path):
    policy = tmp_path / "a.route"
    assert near(str(policy)) is None

    (tmp_path / "profile.json").touch()
    assert near(str(policy)) == tmp_path / "profile.json"
    assert near(str(tmp_path / "a.py")) is None

    (tmp_path / "a.profile.json").touch()
    assert near(str(policy)) == tmp_path / "a.profile.json"
