"""A translation service over CTranslate2: `python examples/service/app.py`, then http://127.0.0.1:8000.

    POST /translate   {"sentences": ["A dog runs.", ...]} -> {"translations": ["Ein Hund rennt.", ...],
                                                           "remarks": [...]}
    GET /health       what it has done, and what waits
    GET /             a page to try it

Sentences that wait while others are translated form the next batch, whichever requests they come from.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, create_model
from pydantic.dataclasses import dataclass
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from annotated import Translator


@dataclass(frozen=True)
class Settings:
    """The model, the address and the limits of the service."""

    model: str = "multi30k-en-de"  # a model folder, or a shipped model's name
    quantization: str = "float32"  # or int8, see `to_ctranslate2`
    beam: PositiveInt = 4
    host: str = "127.0.0.1"  # this machine alone; 0.0.0.0 is the whole network
    port: Annotated[int, Field(ge=0, lt=65536)] = 8000
    letters: PositiveInt = 1000  # of a sentence at most
    tokens: PositiveInt = 256  # of a sentence and of its translation at most
    sentences: PositiveInt = 64  # of a request at most
    batch: PositiveInt = 64  # sentences translated together at most
    waiting: PositiveInt = 512  # sentences in the queue at most; further requests are refused
    connections: PositiveInt = 1000  # open at the same time at most
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = (
        20.0  # for a request's head, then for the rest
    )


class Batcher:
    """Pass waiting sentences to `translate` in batches, one batch at a time."""

    def __init__(self, translate: Callable[[list[str]], list[str]], batch: int, waiting: int):
        self.translate, self.batch, self.room = translate, batch, waiting
        self.queue: asyncio.Queue[tuple[str, asyncio.Future[str]]] = asyncio.Queue()
        self.batches = self.translated = 0

    async def ask(self, sentences: list[str]) -> list[str]:
        """Return translations in order. Raises asyncio.QueueFull if too many sentences wait already."""
        if self.queue.qsize() + len(sentences) > self.room:
            raise asyncio.QueueFull
        futures = [asyncio.get_running_loop().create_future() for _ in sentences]
        for pair in zip(sentences, futures, strict=True):
            self.queue.put_nowait(pair)
        return await asyncio.gather(*futures)  # cancelled with the request

    async def work(self) -> None:
        """Translate waiting sentences, forever."""
        while True:
            batch = [await self.queue.get()]
            while len(batch) < self.batch and not self.queue.empty():
                batch.append(self.queue.get_nowait())
            batch = [(sentence, future) for sentence, future in batch if not future.done()]  # not given up
            if batch:
                await self.settle(*map(list, zip(*batch, strict=True)))

    async def settle(self, sentences: list[str], futures: list[asyncio.Future[str]]) -> None:
        """Translate one batch in a thread and set the results of its futures."""
        try:
            results = await asyncio.to_thread(self.translate, sentences)
        except Exception as error:  # the requests must end, and the next batch may succeed
            results = [error] * len(sentences)
        self.batches, self.translated = self.batches + 1, self.translated + len(sentences)
        for future, result in zip(futures, results, strict=True):
            if not future.done():
                (future.set_exception if isinstance(result, Exception) else future.set_result)(result)


def heads_within(seconds: float) -> type[asyncio.Protocol]:
    """Make a protocol that closes a connection on which no whole head of a request comes in that time."""

    class Prompt(AutoHTTPProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.late = self.loop.call_later(seconds, transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self.late.cancel()  # the head is here: `translate` counts the time from now on
            elif self.late.cancelled():  # the next request on this connection begins
                self.late = self.loop.call_later(seconds, self.transport.close)

    return Prompt


async def read_body(request: Request, most: int) -> bytes:
    """Read a request's body. Raises HTTPException beyond `most` bytes, and if the client has left."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise HTTPException(413, f"a request may have {most:,} bytes")
    except ClientDisconnect:
        raise HTTPException(400, "the request broke off") from None
    return bytes(body)


def create_app(translator: Translator, settings: Settings) -> FastAPI:
    """Build the service around a translator that refuses sentences that are too long."""
    batcher = Batcher(
        lambda sentences: translator.translate(sentences, beam=settings.beam),
        settings.batch,
        settings.waiting,
    )
    sentence = Annotated[str, Field(max_length=settings.letters)]
    sentences = (Annotated[list[sentence], Field(min_length=1, max_length=settings.sentences)], ...)
    asked_for: type[BaseModel] = create_model(
        "Asked", __config__=ConfigDict(extra="forbid", strict=True), sentences=sentences
    )
    most = 1000 + settings.sentences * (20 + 6 * settings.letters)  # bytes: a letter may be spelled \uXXXX

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.worker = asyncio.create_task(batcher.work())
        yield
        app.state.worker.cancel()

    app = FastAPI(title="Translation", lifespan=lifespan)

    @app.post("/translate")
    async def translate(request: Request) -> dict[str, list[str]]:
        try:
            async with asyncio.timeout(settings.seconds):
                asked = asked_for.model_validate_json(await read_body(request, most))
                texts = asked.sentences
                tokens = {i: translator.encode(text, f"sentences[{i}]") for i, text in enumerate(texts)}
                remarks = list(translator.remarks(texts, range(1, len(texts) + 1), tokens, []))
                return {"translations": await batcher.ask(texts), "remarks": remarks}
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise HTTPException(422, f"{where}: {first['msg']}" if where else first["msg"]) from None
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        except asyncio.QueueFull:
            raise HTTPException(503, "too many sentences wait", {"Retry-After": "1"}) from None
        except TimeoutError:
            raise HTTPException(504, f"not done within {settings.seconds:g} seconds") from None

    @app.get("/health")
    async def health() -> dict[str, str | int]:
        if app.state.worker.done():
            raise HTTPException(503, "nothing translates any more")
        counts = {"waiting": batcher.queue.qsize(), "batches": batcher.batches}
        return {"model": repr(translator), "translated": batcher.translated, **counts}

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(Path(__file__).with_name("page.html"))

    return app


def main() -> None:
    """Load the model and serve until SIGTERM or Ctrl-C; requests that have arrived are answered."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for field in fields(Settings):
        parser.add_argument(f"--{field.name}", default=field.default)
    options = parser.parse_args()
    try:
        settings = Settings(**vars(options))
    except ValidationError as error:
        first = error.errors()[0]
        parser.error(f"argument --{first['loc'][0]}: {first['msg']}")
    lengths = {"max_source": settings.tokens, "max_target": settings.tokens, "too_long": "refuse"}
    engine = {"engine": "ctranslate2", "quantization": settings.quantization}
    try:
        translator = Translator.load(settings.model, **engine, **lengths)
    except (ValueError, OSError, ImportError) as error:
        parser.error(str(error))
    if translator.tokenized:
        print(
            f"{settings.model} reads lower-cased, tokenized text alone; it refuses capitals", file=sys.stderr
        )
    app = create_app(translator, settings)
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        http=heads_within(settings.seconds),
        limit_concurrency=settings.connections + 1,  # uvicorn refuses from this number on
        timeout_graceful_shutdown=int(settings.seconds) + 1,
        access_log=False,
    )


if __name__ == "__main__":
    main()
