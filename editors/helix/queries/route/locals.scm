(file) @local.scope

(param name: (name) @local.definition)
(var name: (name) @local.definition)
(signal name: (name) @local.definition)
(head name: (name) @local.definition)
(reference (name) @local.reference)
