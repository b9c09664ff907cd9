; Written by tools/editors.py; do not edit.

["route" "import" "model" "head" "param" "var" "signal" "policy" "test"] @keyword
["commit" "retry" "borrow" "fuse" "probe" "undo" "verify"] @keyword
(stop) @keyword
["and" "or" "not" "in" "is"] @keyword.operator
["any" "at" "enforce" "fallback" "for" "from" "given" "guarantee" "mix" "most" "objective" "otherwise" "set" "start" "template" "then" "until" "when" "where"] @keyword
(boolean) @boolean

(comment) @comment
(string) @string
(number) @number
(unit) @type.builtin
["->" "=" "+" "-" "*" "/" "<=" ">=" "==" "!=" "<" ">"] @operator
["{" "}" "[" "]" "(" ")"] @punctuation.bracket
["," ":" "."] @punctuation.delimiter

(model name: (name) @type)
(_ model: (name) @type)
(head name: (name) @function)
(policy name: (name) @module)
(test policy: (name) @module)
(param name: (name) @variable.parameter)
(var name: (name) @variable)
(set variable: (name) @variable)
(signal name: (name) @property)
(property key: (name) @property)
(property value: (name) @constant)
(part part: (name) @constant)
(objective goal: (name) @constant)
(_ class: (name) @constant)
(param type: (name) @type.builtin)
(var type: (name) @type.builtin)

(call function: (name) @function.builtin)
(field of: (name) @constant)
(field name: (name) @property)
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
