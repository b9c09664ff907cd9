; Written by tools/editors.py; do not edit.

["route" "import" "model" "head" "param" "var" "signal" "policy" "test"] @keyword.storage.type
["commit" "retry" "borrow" "fuse" "probe" "undo" "verify"] @keyword.control
(stop) @keyword.control
["and" "or" "not" "in" "is"] @keyword.operator
["any" "at" "enforce" "fallback" "for" "from" "given" "guarantee" "mix" "most" "objective" "otherwise" "set" "start" "template" "then" "until" "when" "where"] @keyword
(boolean) @constant.builtin.boolean

(comment) @comment
(string) @string
(number) @constant.numeric
(unit) @type.builtin
["->" "=" "+" "-" "*" "/" "<=" ">=" "==" "!=" "<" ">"] @operator
["{" "}" "[" "]" "(" ")"] @punctuation.bracket
["," ":" "."] @punctuation.delimiter

(model name: (name) @type)
(_ model: (name) @type)
(head name: (name) @function)
(policy name: (name) @namespace)
(test policy: (name) @namespace)
(param name: (name) @variable.parameter)
(var name: (name) @variable)
(set variable: (name) @variable)
(signal name: (name) @variable.other.member)
(property key: (name) @variable.other.member)
(property value: (name) @type.enum.variant)
(part part: (name) @type.enum.variant)
(objective goal: (name) @type.enum.variant)
(_ class: (name) @type.enum.variant)
(param type: (name) @type.builtin)
(var type: (name) @type.builtin)

(call function: (name) @function.builtin)
(field of: (name) @type.enum.variant)
(field name: (name) @variable.other.member)
(call
  function: (name) @function.builtin
  (argument (name) @type)
  (#match? @function.builtin "^(count|share|queue)$"))
(call
  function: (name) @function.builtin
  (argument (name) @variable)
  (#not-match? @function.builtin "^(count|share|queue)$")
  (#not-match? @variable "^(entropy|entropy_norm|varentropy|maxprob|margin|mass|column|aleatoric|epistemic|logprob|rank|chance|position|since_switch|switches|prompt_tokens|count|share|queue|elapsed|mean|ewma|max|token|class)$"))
(call
  function: (name) @function.builtin
  (argument (name) @function.builtin.argument)
  (#not-match? @function.builtin "^(count|share|queue)$")
  (#match? @function.builtin.argument "^(entropy|entropy_norm|varentropy|maxprob|margin|mass|column|aleatoric|epistemic|logprob|rank|chance|position|since_switch|switches|prompt_tokens|count|share|queue|elapsed|mean|ewma|max|token|class)$"))
((reference (name) @function.builtin)
  (#match? @function.builtin "^(entropy|entropy_norm|varentropy|maxprob|margin|mass|column|aleatoric|epistemic|logprob|rank|chance|position|since_switch|switches|prompt_tokens|count|share|queue|elapsed|mean|ewma|max|token|class)$"))
((reference (name) @variable)
  (#not-match? @variable "^(entropy|entropy_norm|varentropy|maxprob|margin|mass|column|aleatoric|epistemic|logprob|rank|chance|position|since_switch|switches|prompt_tokens|count|share|queue|elapsed|mean|ewma|max|token|class)$"))
