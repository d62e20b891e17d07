"""The least that a web service does, as a yardstick: `python -m benchmarks.hello PORT`.

FastAPI on uvicorn, one worker, with the same loop and parser as ours; the body is read by a model.
"""

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Named(BaseModel):
    """Who is greeted."""

    name: str


@app.get("/readyz")
async def readyz() -> dict[str, str]:
    """Whether it can be called."""
    return {"status": "ready"}


@app.post("/hello")
async def hello(body: Named) -> dict[str, str]:
    """Greet."""
    return {"hello": body.name}


if __name__ == "__main__":
    uvicorn.run(
        app, port=int(sys.argv[1]), loop="uvloop", http="httptools", ws="none",
        log_level="warning", access_log=False,
    )  # fmt: skip
