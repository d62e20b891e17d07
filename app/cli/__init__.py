"""The commands of `solar`: the module `app.cli.NAME` has the arguments and the work of one.

`app/__main__.py` imports only the module of the command that is called: `solar key` does not wait
for a compiler.
"""
