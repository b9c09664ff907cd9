"""The examples, as files: `*.route`. The playground offers them."""
