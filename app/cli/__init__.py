"""Commands of `solar`: the module `app.cli.NAME` has the arguments and the code of one command.

`app/__main__.py` imports only the module of the called command, so `solar key` does not import
numba.
"""
