; A policy is a class, the rules of a model and a rule are functions.
(policy) @class.around
(at) @function.around
(start_rules) @function.around
(test) @test.around
(case) @entry.around
(argument) @parameter.inside
(comment) @comment.inside
(comment)+ @comment.around
