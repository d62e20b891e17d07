"""Whether the server of this process is stopping: uvicorn does not say so to the application."""

import signal


def server_stops() -> bool:
    """Whether a uvicorn server that handles the signals of this process is to stop.

    Its handler is a method of the server. Under `solar serve` there is none: there the protocol
    ends the streams (`LimitedProtocol.shutdown`).
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))
