"""Installed grammars: `route.lark`, the surface syntax of `.route` files."""
