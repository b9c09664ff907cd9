[(model) (head) (part) (policy) (start_rules) (at) (mix) (test) (in)] @indent

"}" @outdent
