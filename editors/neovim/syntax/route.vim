" Written by tools/editors.py from the tables of the language; do not edit.
if exists("b:current_syntax")
  finish
endif

syntax case match
syntax keyword routeDeclare route import model head param var signal policy test
syntax keyword routeKeyword and any at enforce fallback for from given guarantee in is mix most not objective or otherwise set start template then until when where
syntax keyword routeAction commit retry borrow stop fuse probe undo verify
syntax keyword routeUnit nats ms tokens
syntax keyword routeConstant true false
syntax keyword routeSignal entropy entropy_norm varentropy maxprob margin mass column aleatoric epistemic logprob rank chance position since_switch switches prompt_tokens count share queue elapsed mean ewma max token class
syntax keyword routeClass contained code number word space newline punct special
syntax keyword routeProperty contained use cost dtype quantize tensor_parallel file python kind reads
syntax match routeIs /\<is\>\s\+\%(not\s\+\)\?\w\+/ contains=routeClass,routeKeyword
syntax region routeBlock matchgroup=routeBrace start=/\%(\<\%(model\|head\)\s\+\w\+\s*\)\@<={/ end=/}/ contains=routeProperty,routeString,routeNumber,routeComment
syntax match routeNumber /\v<[0-9][0-9_]*%(\.[0-9][0-9_]*){0,1}%([eE][+-]{0,1}[0-9]+){0,1}/
syntax region routeString start=/"/ skip=/\\./ end=/"/ oneline
syntax match routeComment /#.*/ contains=@Spell
syntax match routeOperator /->\|[<>=!]=\|[<>=+*\/-]/

highlight default link routeDeclare Structure
highlight default link routeKeyword Keyword
highlight default link routeAction Statement
highlight default link routeUnit Type
highlight default link routeConstant Boolean
highlight default link routeSignal Function
highlight default link routeClass Constant
highlight default link routeProperty Identifier
highlight default link routeNumber Number
highlight default link routeString String
highlight default link routeComment Comment
highlight default link routeOperator Operator

let b:current_syntax = "route"
