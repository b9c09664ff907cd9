"""Write what editors know of the language anew, from the grammar's tables and the catalogue of signals.

    python tools/editors.py           write the files
    python tools/editors.py --check   1 where a file would change

What an editor colours before, or without, the language server is in editors/; a test runs the check.
"""

import json
import sys
from functools import partial
from pathlib import Path

from editing import textmate, tree_sitter, vim

ROOT = Path(__file__).parents[1]
PACKAGE = "editors/vscode/package.json"


def package() -> str:
    """Return the extension's manifest with the scopes of the server's tokens; the rest is as it is."""
    made = json.loads((ROOT / PACKAGE).read_text(encoding="utf-8"))
    made["contributes"]["semanticTokenScopes"] = [
        {"language": "route", "scopes": textmate.semantic_scopes()}
    ]
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


FILES = {
    "editors/neovim/syntax/route.vim": vim.syntax,
    "editors/vscode/syntaxes/route.tmLanguage.json": textmate.grammar,
    PACKAGE: package,
    "editors/tree-sitter-route/language.json": tree_sitter.language,
    "editors/tree-sitter-route/src/words.h": tree_sitter.header,
    "editors/tree-sitter-route/queries/highlights.scm": partial(
        tree_sitter.highlights, tree_sitter.COMMON
    ),
    "editors/neovim/queries/route/highlights.scm": partial(
        tree_sitter.highlights, tree_sitter.COMMON
    ),
    "editors/helix/queries/route/highlights.scm": partial(
        tree_sitter.highlights, tree_sitter.HELIX
    ),
    "editors/zed/languages/route/highlights.scm": partial(tree_sitter.highlights, tree_sitter.ZED),
}


def main() -> int:
    """Write or compare every file."""
    stale = [
        name
        for name, make in FILES.items()
        if not (ROOT / name).is_file() or (ROOT / name).read_text(encoding="utf-8") != make()
    ]
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"{name} is stale: run tools/editors.py", file=sys.stderr)
        return int(bool(stale))
    for name in stale:
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FILES[name](), encoding="utf-8")
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
