"""Claims of a policy: `enforce` and `guarantee`, which bound `share(M)` or `count(M)` from above.

Reports: TR3001 a claim of another form, TR1105 a share that is none.
"""

from __future__ import annotations

from typing import TypeGuard, cast

from tokenrouter.diagnostics import Edit, Fix, Span
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.rules import Rules


class Claims:
    """Reads the claims of one policy."""

    def __init__(self, rules: Rules) -> None:
        self.rules, self.tree, self.found = rules, rules.tree, rules.found

    def span(self, node: ast.Node) -> Span:
        """Return the place of a node."""
        return self.rules.span(node)

    def read(self, node: ast.Claim) -> hir.Claim | None:
        """Return a claim; None where it is of another form, which is told."""
        kind = cast("hir.ClaimKind", node.keyword.text)
        if self._other_sign(node.bound, kind):
            return None
        bound = self.rules.expressions.condition(node.bound)
        if bound.unit == "any":
            return None
        if (
            isinstance(bound, hir.Compare)
            and bound.sign == "<="
            and _counts(bound.left)
            and isinstance(bound.right, hir.Const)
        ):
            model, value = str(bound.left.args[0]), float(bound.right.value)
            if bound.left.name == "share" and not 0 <= value <= 1:
                self.found.add(
                    "TR1105",
                    "a share lies between 0 and 1",
                    bound.right.span,
                    help="40 % is written `40%` or `0.4`",
                )
                return None
            measure = cast("hir.Measure", bound.left.name)
            return hir.Claim(kind, measure, model, value, self.span(node))
        self._nearly(node.bound, bound, kind)
        return None

    def _nearly(self, node: ast.Expr, bound: hir.Expr, kind: str) -> None:
        """Report a condition that is no claim, with what makes it one where little does."""
        while isinstance(node, ast.Group):
            node = node.of
        if not isinstance(node, ast.Comparison) or not isinstance(bound, hir.Compare):
            self._no_claim(node, kind)
            return
        left, right = (self.tree.one_line(side.start, side.end) for side in node.operands)
        sign: str = bound.sign
        turned = False
        if not _counts(bound.left) and _counts(bound.right):
            left, right, turned = right, left, True
            sign = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
        counts, value = (bound.right, bound.left) if turned else (bound.left, bound.right)
        if not _counts(counts) or sign not in ("<", "<="):
            self._no_claim(node, kind)
            return
        if not isinstance(value, hir.Const):
            self.found.add(
                "TR3001",
                f"`{kind}` bounds by a literal, and `{right}` is none",
                value.span,
                help="a claim is decided when the policy is compiled: write the number out",
            )
            return
        safe = sign == "<="
        if sign == "<" and counts.name == "count" and not float(value.value) % 1:
            right, safe = f"{float(value.value) - 1:g}", True
        text = f"{left} <= {right}"
        what = "with `<=`, not with `<`" if sign == "<" else "with what is bounded on the left"
        self.found.add(
            "TR3001",
            f"`{kind}` is written {what}",
            self.span(node),
            help=f"write `{kind} {text}`",
            fix=Fix(f"write `{text}`", (Edit(self.span(node), text),), safe=safe),
        )

    def _no_claim(self, bound: ast.Expr, kind: str, fix: Fix | None = None) -> None:
        self.found.add(
            "TR3001",
            f"`{kind}` bounds `share(M)` or `count(M)` from above",
            self.span(bound),
            help=f"write `{kind} share(M) <= 40%` or `{kind} count(M) <= 100`",
            fix=fix,
        )

    def _other_sign(self, bound: ast.Expr, kind: str) -> bool:
        """Report a bound whose sign, or number of signs, is that of no claim; return whether it is that."""
        if not isinstance(bound, ast.Comparison):
            return False
        signs = [sign for sign in bound.signs if sign.kind == "ASSIGN"]
        if len(bound.signs) == 1 and not signs:
            return False
        fix = None
        if len(bound.signs) == 1:
            fix = Fix("write `<=`", (Edit(self.span(signs[0]), "<="),), safe=False)
        self._no_claim(bound, kind, fix)
        for operand in bound.operands:  # its names are names all the same
            self.rules.expressions.read(operand)
        return True


def _counts(expr: hir.Expr) -> TypeGuard[hir.SignalRef]:
    return isinstance(expr, hir.SignalRef) and expr.name in ("share", "count")
