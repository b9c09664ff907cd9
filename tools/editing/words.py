"""The words of the language in the groups that editors colour, and the scope of each kind of token.

The words are those of the grammar's tables, the signals those of the catalogue, the kinds of tokens the server's: nothing
is listed here that is listed there, but for which group a word belongs to.
"""

from tokenrouter.dsl.declare import CHOICES, HEAD_PROPERTIES, MODEL_PROPERTIES
from tokenrouter.dsl.expected import ACTIONS, PLANNED, UNITS
from tokenrouter.dsl.table import table
from tokenrouter.signals import CLASSES, SIGNALS, WINDOWS

WORDS = frozenset(table().words)
DECLARING = ("route", "import", "model", "head", "param", "var", "signal", "policy", "test")
CONSTANTS = ("true", "false")
LOGIC = ("and", "or", "not", "in", "is")
PLANNED_WORDS = tuple(sorted(set(PLANNED) & WORDS))
UNIT_WORDS = tuple(unit for unit in UNITS if unit in WORDS)
REST = tuple(
    sorted(WORDS - {*DECLARING, *ACTIONS, *PLANNED, *CONSTANTS, *UNIT_WORDS})
)  # LOGIC among them
BUILTINS = (*SIGNALS, *WINDOWS, "token", "class")
OF_MODELS = tuple(name for name, kind in SIGNALS.items() if kind.args == ("model",))
PROPERTIES = (*MODEL_PROPERTIES, *HEAD_PROPERTIES)
CHOSEN = tuple(choice for choices in CHOICES.values() for choice in choices)

# The kinds of the server's tokens (`tokenrouter.lsp.colour.TYPES`) as TextMate scopes. The extension tells VS Code the same,
# so that a theme that knows nothing of the server's tokens colours them as the grammar did before they came.
SCOPES = {
    "keyword": "keyword.control",
    "comment": "comment.line.number-sign",
    "string": "string.quoted.double",
    "number": "constant.numeric",
    "operator": "keyword.operator",
    "class": "entity.name.type.class.model",
    "function": "entity.name.function.head",
    "function.defaultLibrary": "support.function.signal",
    "parameter": "variable.parameter",
    "variable": "variable.other.readwrite",
    "property": "variable.other.property",
    "namespace": "entity.name.namespace.policy",
    "enumMember": "variable.other.enummember",
    "type": "support.type.unit",
}

__all__ = [
    "ACTIONS",
    "BUILTINS",
    "CHOSEN",
    "CLASSES",
    "CONSTANTS",
    "DECLARING",
    "HEAD_PROPERTIES",
    "LOGIC",
    "MODEL_PROPERTIES",
    "OF_MODELS",
    "PLANNED_WORDS",
    "PROPERTIES",
    "REST",
    "SCOPES",
    "UNITS",
    "UNIT_WORDS",
    "WORDS",
]
