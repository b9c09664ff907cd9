"""`trc lsp`: the language server. It asks the front end and the passes, and knows no grammar of its own."""
