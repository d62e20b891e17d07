"""A minimal FastAPI service as the reference of `service`: `python -m benchmarks.hello PORT`.

It runs on uvicorn with one worker and with SOLAR's event loop and parser. A pydantic model reads
the body.
"""

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Named(BaseModel):
    """The body of a request."""

    name: str


@app.get("/readyz")
async def readyz() -> dict[str, str]:
    """Report that the service is ready."""
    return {"status": "ready"}


@app.post("/hello")
async def hello(body: Named) -> dict[str, str]:
    """Return a greeting."""
    return {"hello": body.name}


if __name__ == "__main__":
    uvicorn.run(
        app, port=int(sys.argv[1]), loop="uvloop", http="httptools", ws="none",
        log_level="warning", access_log=False,
    )  # fmt: skip
