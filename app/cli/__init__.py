"""One door for each command: its options, and what it does with them.

`app/__main__.py` loads only the one that is called: `solar key` does not wait for compilers.
"""
