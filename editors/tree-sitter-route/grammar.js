// The syntax of `.route` files for editors that colour and fold by tree-sitter: what grammars/route.lark accepts, and no more.
// Patterns, units and signs come from language.json, which tools/editors.py writes from the tables of that grammar.
// `tools/tree_sitter.py` writes src/ from this file; a test holds both grammars to each other.

const { patterns, units, comparisons } = require("./language.json");

const list = (item) => optional(seq(item, repeat(seq(",", item))));

module.exports = grammar({
  name: "route",

  // A word of the language is never a name, wherever it stands. Tree-sitter would take it as one where no word fits, so
  // src/scanner.c reads the names.
  externals: ($) => [$.name],
  word: ($) => $._word,
  extras: ($) => [/[ \t\r\n\f]/, $.comment],
  supertypes: ($) => [$.expression, $.action],
  inline: ($) => [$._literal, $._body],

  rules: {
    file: ($) => seq(optional($.header), repeat($._item)),
    header: ($) => seq("route", $.number),
    _item: ($) =>
      choice($.import, $.model, $.head, $.param, $.var, $.signal, $.policy, $.test),

    // Declarations

    import: ($) => seq("import", $.string),
    model: ($) => seq("model", field("name", $.name), "{", repeat($.property), "}"),
    head: ($) => seq("head", field("name", $.name), "{", repeat($.property), "}"),
    property: ($) =>
      seq(field("key", $.name), field("value", choice($._literal, $.name, $.part))),
    part: ($) =>
      seq(
        field("model", $.name),
        ".",
        choice(seq("{", list(field("part", $.name)), "}"), field("part", $.name)),
      ),
    param: ($) =>
      seq(
        "param",
        field("name", $.name),
        optional(seq(":", $._type)),
        optional(seq("=", field("value", $._literal))),
        optional($.bounds),
      ),
    bounds: ($) => seq("in", "[", $._literal, ",", $._literal, "]"),
    var: ($) =>
      seq(
        "var",
        field("name", $.name),
        optional(seq(":", $._type)),
        optional(seq("=", field("value", $._literal))),
      ),
    signal: ($) => seq("signal", field("name", $.name), "=", field("value", $.expression)),
    _type: ($) => field("type", choice($.name, $.unit)),

    // Policies

    policy: ($) => seq("policy", field("name", $.name), "{", repeat($._member), "}"),
    _member: ($) =>
      choice($.start, $.at, $.claim, $.objective, $.fallback, $.template),
    start: ($) => seq("start", choice(field("model", $.name), $.mix, $.start_rules)),
    start_rules: ($) => seq("{", repeat($.start_rule), "}"),
    start_rule: ($) => seq($._guard, "->", choice(field("model", $.name), $.mix)),
    at: ($) =>
      seq("at", choice(field("model", $.name), "any"), "{", repeat($.rule), "}"),
    rule: ($) => seq($._guard, "->", $._body),
    _guard: ($) => choice(seq("when", field("condition", $.expression)), "otherwise"),
    _body: ($) => seq(field("action", $.action), repeat($.set)),
    claim: ($) => seq(choice("guarantee", "enforce"), $.expression),
    objective: ($) =>
      seq("objective", field("goal", $.name), optional(seq("where", $.expression))),
    fallback: ($) => seq("fallback", field("model", $.name)),
    template: ($) => seq("template", "from", field("model", $.name)),

    // Actions

    action: ($) => choice($.commit, $.retry, $.borrow, $.mix, $.stop, $.reserved),
    commit: ($) =>
      seq(
        "commit",
        optional(seq("then", choice(field("model", $.name), $.mix, $.borrow))),
      ),
    retry: ($) => seq("retry", field("model", $.name)),
    borrow: ($) => seq("borrow", field("model", $.name), choice($.for, $.until)),
    for: ($) => seq("for", $._sum),
    until: ($) => seq("until", $.expression, "at", "most", $._sum),
    stop: () => "stop",
    mix: ($) => seq("mix", "{", repeat($.share), "}"),
    share: ($) =>
      seq(field("model", $.name), ":", field("weight", $._literal), optional(",")),
    // Words of the next version: `trc check` says what is planned.
    reserved: ($) =>
      seq(
        choice("fuse", "verify", "probe", "undo"),
        repeat(field("model", $.name)),
        optional(
          choice(
            $.number,
            $.for,
            seq(
              "{",
              repeat(choice($.share, seq(field("model", $.name), optional(",")))),
              "}",
            ),
          ),
        ),
      ),
    set: ($) => seq("set", field("variable", $.name), "=", $.expression),

    // Tests

    test: ($) =>
      seq(
        "test",
        field("title", $.string),
        "for",
        field("policy", $.name),
        "{",
        repeat($.case),
        "}",
      ),
    case: ($) =>
      seq(
        choice(seq("at", field("model", $.name)), "start"),
        optional(seq("given", $.given, repeat(seq(",", $.given)))),
        "->",
        choice($._body, field("model", $.name)),
      ),
    given: ($) =>
      seq($._sum, choice(seq("=", $._sum), seq("is", $._class))),

    // Expressions: one rule a level, as in the grammar proper, so that `a < not b` is refused here too.

    expression: ($) => choice($.or, $._and),
    or: ($) => seq($.expression, "or", $._and),
    _and: ($) => choice($.and, $._not),
    and: ($) => seq($._and, "and", $._not),
    _not: ($) => choice($.not, $._comparison),
    not: ($) => seq("not", $._not),
    _comparison: ($) => choice($.comparison, $.is, $.in, $._sum),
    comparison: ($) =>
      seq(
        choice($.comparison, $._sum),
        field("operator", choice(...comparisons, "=")),
        $._sum,
      ),
    is: ($) => seq($._sum, "is", optional("not"), $._class),
    _class: ($) => choice($._literal, field("class", $.name)),
    in: ($) =>
      seq(
        $._sum,
        optional("not"),
        "in",
        "{",
        list(choice($.string, field("class", $.name))),
        "}",
      ),
    _sum: ($) => choice($.sum, $._product),
    sum: ($) => seq($._sum, field("operator", choice("+", "-")), $._product),
    _product: ($) => choice($.product, $._factor),
    product: ($) => seq($._product, field("operator", choice("*", "/")), $._factor),
    _factor: ($) => choice($.minus, $._atom),
    minus: ($) => seq(choice("+", "-"), $._factor),
    _atom: ($) =>
      choice($.quantity, $.string, $.boolean, $.reference, $.call, $.field, $.group),
    reference: ($) => $.name,
    call: ($) =>
      seq(field("function", $.name), "(", list(choice($.argument, $.expression)), ")"),
    argument: ($) => prec(1, $.name), // a name alone, which may be a model: `share(large)`
    field: ($) => seq(field("of", $.name), ".", field("name", $.name)),
    group: ($) => seq("(", $.expression, ")"),

    // Tokens

    _literal: ($) =>
      choice(alias($.signed_quantity, $.quantity), $.string, $.boolean),
    signed_quantity: ($) => seq(optional(choice("+", "-")), $.number, optional($.unit)),
    quantity: ($) => seq($.number, optional($.unit)),
    unit: () => choice(...units),
    boolean: () => choice("true", "false"),
    number: () => new RegExp(patterns.NUMBER),
    string: () => new RegExp(patterns.STRING),
    comment: () => new RegExp(patterns.COMMENT),
    _word: () => new RegExp(patterns.NAME),
  },
});
