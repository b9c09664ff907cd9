"""The page in a real Chromium: what somebody who writes a policy sees and can do."""

import pytest

from tests.playground.conftest import looking, playground

HOSTILE = """route 1
# </script><script>window.hacked = 1</script>
model small { use "</pre><img src=x onerror='window.hacked = 1'>" }
model large { use "<svg onload='window.hacked = 1'>" }
policy p {
  start small
  at any {
    when token in {"</text><script>window.hacked = 1</script>"} -> retry large
    otherwise -> commit
  }
}
"""
TWO = """route 1
model small { use "s" }
model large { use "l" }
policy first {
  start small
  at any { otherwise -> commit }
}
policy second {
  start small
  at small { when margin < 10% -> retry large otherwise -> commit }
  at large { otherwise -> commit then small }
}
"""


def summary(page, text):
    """Wait until the page sums its problems up so."""
    page.wait_for_function(
        "text => document.getElementById('summary').textContent === text", arg=text
    )


def write(page, text):
    """Put a text in place of all that is there."""
    page.click("#text")
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(text)


def graph(page):
    """Return what the graph shows, in words."""
    return page.get_attribute("#graph img", "alt")


def test_a_mistake_is_underlined_and_told_and_mending_it_draws_the_graph_anew(page):
    summary(page, "no problems")
    assert "retry large" in graph(page)

    write(page, TWO.replace("margin", "margni"))

    summary(page, "1 error")
    assert page.text_content(".d-error") == "margni"
    assert "margni" in page.text_content("#problems")
    assert page.is_visible("#stale")
    assert "entropy > tau" in graph(page)  # still of the text before

    page.click(".fix")

    summary(page, "no problems")
    assert page.query_selector(".d-error") is None
    assert "margin" in page.input_value("#text")
    assert page.is_hidden("#stale")
    assert graph(page) == "start to small; small to small rule 0: otherwise -> commit"

    page.select_option("#policies", "second")
    page.wait_for_function(
        "() => document.querySelector('#graph img').alt.includes('margin < 0.1')"
    )


def test_typed_values_tell_which_rule_fires_and_where_it_stands(page):
    page.fill("#fields input[name=entropy]", "4.2 nats")
    page.wait_for_selector(".fires")

    assert page.text_content("#fired") == "rule 0 fires: retry large"
    assert page.text_content(".lit").strip() == "when entropy > tau -> retry large"

    page.fill("#fields input[name=tau]", "5")
    page.wait_for_function(
        "() => document.getElementById('fired').textContent === 'rule 1 fires: commit'"
    )
    assert [item.get_attribute("class") for item in page.query_selector_all("#rules li")] == [
        "not",
        "fires",
    ]

    page.fill("#fields input[name=tau]", "50")  # the file bounds it, and a test may not
    page.fill("#fields input[name=entropy]", "a lot")
    page.wait_for_selector("[aria-invalid=true]")
    assert page.query_selector(".lit") is None

    page.fill("#fields input[name=entropy]", "")
    page.wait_for_function(
        "() => document.getElementById('fired').textContent.includes('does not give')"
    )


def test_the_plan_is_explained_with_the_models_of_this_machine_and_without_those_that_are_not_here(
    page,
):
    page.click("#tab-plan")
    page.wait_for_function(
        "() => document.getElementById('explained').textContent.includes('tasks of small')"
    )
    assert page.is_hidden("#why")

    write(page, TWO)

    page.wait_for_function(
        "() => document.getElementById('why').textContent.startsWith('without its models')"
    )
    assert "state small" in page.text_content("#explained")


def test_everything_can_be_done_with_the_keyboard(page):
    page.keyboard.press("Control+Home")  # the editor has the focus from the beginning
    page.keyboard.press("Control+End")
    page.keyboard.type("\nmodel third { us")
    page.keyboard.press("Control+Space")
    page.wait_for_selector("#words li")
    assert page.get_attribute("#text", "aria-activedescendant") == "word-0"
    page.keyboard.press("Enter")
    page.keyboard.type(' "t" }')
    assert 'model third { use "t" }' in page.input_value("#text")
    summary(page, "1 warning")
    page.keyboard.press("Control+Home")
    page.keyboard.press("F8")
    at = page.evaluate("() => document.getElementById('text').selectionStart")
    assert page.input_value("#text")[at:].startswith("third")

    reached = []
    for _ in range(25):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "() => document.activeElement.id || document.activeElement.name || document.activeElement.className"
            )
        )
    assert {"go", "graph", "tab-try", "place", "entropy", "examples"} <= set(reached)

    page.focus("#tab-try")
    page.keyboard.press("ArrowRight")
    assert page.is_visible("#plan") and page.is_hidden("#try")
    page.keyboard.press("ArrowRight")
    assert page.is_visible("#try")


def test_a_completion_can_be_left_and_the_indentation_goes_on(page):
    write(page, "route 1\npolicy p {")
    page.keyboard.press("Enter")
    page.keyboard.press("Control+Space")
    page.wait_for_selector("#words li")
    page.keyboard.press("Escape")
    assert page.is_hidden("#words")
    page.keyboard.type("start x")
    assert page.input_value("#text") == "route 1\npolicy p {\n  start x"


CONTRAST = """() => {
  const channel = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const light = rgb => { const [r, g, b] = rgb.match(/[\\d.]+/g).map(Number).map(channel); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = node => { for (let n = node; n; n = n.parentElement) { const c = getComputedStyle(n).backgroundColor; if (!/, 0\\)$/.test(c)) return c; } };
  const found = {};
  for (const node of document.querySelectorAll('.mirror span, h1, h2, label, small, .rules li, #fired, .numbers div, .tabs button, .keys')) {
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const name = node.className || node.tagName;
    found[name] = Math.min(found[name] ?? 99, ratio);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_readable_in_light_and_in_dark(chromium, server, scheme):
    with looking(chromium, server, color_scheme=scheme) as page:
        page.fill("#fields input[name=entropy]", "4.2 nats")
        page.wait_for_selector(".fires")

        ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        found = page.evaluate(CONTRAST)

    assert (sum(map(int, ground.removeprefix("rgb(").removesuffix(")").split(", "))) > 384) == (
        scheme == "light"
    )
    assert "t-keyword" in found
    assert {name: ratio for name, ratio in found.items() if ratio < 4.5} == {}


def test_nothing_overflows_a_small_screen(page):
    write(page, TWO.replace("margin", "m" * 300) + "# " + "long " * 200)
    summary(page, "1 error")

    wide, high = page.evaluate(
        "() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    )
    outside = page.evaluate(
        """() => [...document.querySelectorAll('header *, .problems, .graph, .panel, .tabs *, .keys, .editor')]
        .filter(n => n.offsetParent).map(n => [n.id || n.className || n.tagName, n.getBoundingClientRect()])
        .filter(([_, box]) => box.right > 1280 || box.bottom > 800 || box.left < 0 || box.top < 0).map(([name]) => name)"""
    )

    scrolls = page.evaluate(
        "() => { const l = document.getElementById('problems'); return l.scrollWidth > l.clientWidth; }"
    )

    assert (wide, high) == (1280, 800)
    assert not scrolls
    assert outside == []


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("# é" + 500 * "<b>x</b> ", 1200),
        pytest.param("# é<b>x</b>", 420_000, marks=pytest.mark.slow),
    ],
)
def test_a_paste_of_five_megabytes_is_told_and_taken_back(page, line, lines):
    before = page.input_value("#text")
    page.evaluate(
        "text => { const a = document.getElementById('text'); a.focus(); a.setRangeText(text); a.dispatchEvent(new Event('input')); }",
        f"{line}\n" * lines,
    )
    page.wait_for_function(
        "() => document.getElementById('summary').textContent.startsWith('not looked at')"
    )
    assert page.query_selector(".mirror div") is None

    page.evaluate(
        "text => { const a = document.getElementById('text'); a.value = text; a.dispatchEvent(new Event('input')); }",
        before,
    )
    summary(page, "no problems")
    assert "retry large" in graph(page)


def test_markup_in_a_policy_is_text_and_nothing_else(page):
    write(page, HOSTILE)
    page.wait_for_function("() => document.querySelector('#graph img').alt.includes('script')")
    page.fill("#fields input[name=token]", "<img src=x onerror='window.hacked = 1'>")
    page.wait_for_function("() => document.getElementById('fired').textContent.includes('commit')")
    page.click("#tab-plan")
    page.wait_for_function(
        "() => document.getElementById('explained').textContent.includes('<svg')"
    )
    write(page, HOSTILE.replace("retry large", "retry <img src=x onerror='window.hacked = 1'>"))
    page.wait_for_selector(".d-error")

    assert page.evaluate("() => window.hacked") is None
    assert page.evaluate("() => document.querySelectorAll('img').length") == 1  # the graph
    assert page.evaluate("() => document.querySelectorAll('script').length") == 1


def test_colours_and_problems_stand_where_wide_characters_are(page):
    write(page, TWO.replace("margin <", "/*").replace('use "s"', 'use "😀é"  cosst 1'))
    page.wait_for_selector(".d-error")

    assert "cosst" in [mark.text_content() for mark in page.query_selector_all(".d-error")]
    assert page.text_content(".t-string") == '"😀é"'


def test_a_file_is_loaded_and_written_when_asked_in_its_own_line_ends(chromium, tmp_path):
    path = tmp_path / "mine <b>.route"
    path.write_bytes(TWO.replace("\n", "\r\n").encode())
    path.chmod(0o640)
    with playground(path) as url, looking(chromium, url) as page:
        assert page.input_value("#text") == TWO
        assert page.text_content("#file") == "mine <b>.route"
        assert page.is_disabled("#save")
        page.click("#text")
        page.keyboard.press("Control+End")
        page.keyboard.type("# mine\n")
        assert page.text_content("#file") == "mine <b>.route (changed)"
        assert b"mine" not in path.read_bytes()

        page.keyboard.press("Control+S")
        page.wait_for_function("() => document.getElementById('save').disabled")

    assert path.read_bytes() == (TWO + "# mine\n").replace("\n", "\r\n").encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_an_example_can_be_chosen_and_undo_brings_the_text_back(page):
    before = page.input_value("#text")

    page.select_option("#examples", "guarded")
    page.wait_for_function("() => document.querySelector('#graph img').alt.includes('(enforced)')")
    page.focus("#text")
    page.keyboard.press("Control+Z")

    page.wait_for_function("() => !document.querySelector('#graph img').alt.includes('(enforced)')")
    assert page.input_value("#text") == before


def test_the_page_says_when_its_server_has_gone(chromium):
    with playground() as url:
        page = chromium.new_page()
        page.goto(url)
        page.wait_for_selector("#fields input")
    page.click("#text")
    page.keyboard.type("#")
    summary(page, "trc playground does not answer; start it again")
    page.close()
