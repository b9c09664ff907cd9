"""The plan: schema, hashes and views of the one thing that compiler and runtime share."""
