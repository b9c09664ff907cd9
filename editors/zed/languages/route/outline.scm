(model "model" @context name: (name) @name) @item
(head "head" @context name: (name) @name) @item
(param "param" @context name: (name) @name) @item
(var "var" @context name: (name) @name) @item
(signal "signal" @context name: (name) @name) @item
(policy "policy" @context name: (name) @name) @item
(at "at" @context model: (name) @name) @item
(test "test" @context title: (string) @name) @item
