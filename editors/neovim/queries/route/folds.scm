[(model) (head) (policy) (start_rules) (at) (test)] @fold
