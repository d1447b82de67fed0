"""`examples/service`: under load, with bad requests, with clients that dawdle, and killed in the middle."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import util
from pathlib import Path

import pytest
from interop_models import ENGLISH, GERMAN, subwords, taught

from annotated.translation.storage.model_folder import save_model
from annotated.translation.translator import Translator

MISSING = '{} is missing: pip install ".[service]" in the clone'
for package in ("ctranslate2", "fastapi", "uvicorn"):
    pytest.importorskip(package, reason=MISSING.format(package))
httpx = pytest.importorskip("httpx", reason=MISSING.format("httpx"))

FOLDER = Path(__file__).parents[2] / "examples" / "service"
SECONDS = 3  # until the servers of these tests give a request up


spec = util.spec_from_file_location("service_app", FOLDER / "app.py")
app = util.module_from_spec(spec)
sys.modules[spec.name] = app
spec.loader.exec_module(app)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that has learned three sentences."""
    folder, tokenizer = tmp_path_factory.mktemp("model"), subwords(ENGLISH, GERMAN)
    save_model(folder, taught(tokenizer), tokenizer, tokenizer)
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    """The translations that are right."""
    return Translator.load(folder, max_target=64).translate


@contextmanager
def served(folder, **flags):
    """A server in a process of its own: its address and the process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = {"model": folder, "port": port, "tokens": 64, "seconds": SECONDS, **flags}
    command = [
        sys.executable,
        str(FOLDER / "app.py"),
        *(f"--{name}={value}" for name, value in flags.items()),
    ]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            assert process.poll() is None, process.stderr.read()
            try:
                httpx.get(f"{address}/health", timeout=60).raise_for_status()
                break
            except httpx.ConnectError:
                time.sleep(0.1)
        yield address, process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def address(folder):
    """A server that runs while the tests of this file do."""
    with served(folder) as (address, _):
        yield address


def ask(address, sentences):
    return httpx.post(f"{address}/translate", json={"sentences": sentences}, timeout=60)


def test_many_clients_each_get_their_own(address, expected):
    asked = [["", ENGLISH[i % 3], f"a dog {'and a cat ' * (i % 5)}"][: 2 + i % 2] for i in range(60)]
    before = httpx.get(f"{address}/health").json()
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda sentences: ask(address, sentences), asked))
    assert [answer.status_code for answer in answers] == [200] * 60
    assert [answer.json()["translations"] for answer in answers] == [expected(each) for each in asked]
    after = httpx.get(f"{address}/health").json()
    assert after["translated"] - before["translated"] == sum(map(len, asked))
    assert after["batches"] - before["batches"] < len(asked)  # those that waited went together
    assert after["waiting"] == 0


def test_nobody_else_on_the_network_is_served():
    assert app.Settings().host == "127.0.0.1"


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 422, "Invalid JSON"),
        (b"{}", 422, "sentences"),
        (b'{"sentences": []}', 422, "at least 1"),
        (b'{"sentences": ["a", 5]}', 422, "sentences.1: "),
        (b'{"sentences": ["a \\ud800"]}', 422, "JSON"),
        (b'{"sentences": ["a"], "beam": 900}', 422, "beam"),
        (b'{"sentences": [' + b'"a",' * 64 + b'"a"]}', 422, "at most 64"),
        (b'{"sentences": ["' + b"a" * 1001 + b'"]}', 422, "at most 1000"),
        (b'{"sentences": ["' + b"?" * 64 + b'"]}', 422, "sentences[0] has 6"),
        (b" " * 10**6, 413, "bytes"),
        (b"[" * 10**5, 422, "JSON"),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, bytes) else None,
)
def test_a_bad_request_is_told_why_and_harms_nobody(body, status, says, address):
    answer = httpx.post(f"{address}/translate", content=body, timeout=60)
    assert answer.status_code == status
    assert says in answer.json()["detail"]
    assert not answer.json()["detail"].startswith(":")
    assert ask(address, ENGLISH[:1]).json() == {"translations": GERMAN[:1], "remarks": []}


def test_who_sends_slowly_is_sent_away_and_holds_up_nobody(address):
    host, port = address.removeprefix("http://").split(":")
    slow = [socket.create_connection((host, int(port)), timeout=60) for _ in range(10)]
    for connection in slow:
        connection.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
    assert ask(address, ENGLISH).json()["translations"] == GERMAN
    for connection in slow:
        assert connection.recv(1000).startswith(b"HTTP/1.1 504")
        connection.close()


@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["first", "second"])
@pytest.mark.parametrize("begun", [b"", b"POST /translate HTTP/1.1\r\nHost"], ids=["nothing", "half"])
def test_who_sends_no_whole_head_is_sent_away(before, begun, address):
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        if before:
            connection.sendall(before)
            assert connection.recv(10_000).startswith(b"HTTP/1.1 200")
        connection.sendall(begun)
        started = time.monotonic()
        while connection.recv(1000):
            pass
        assert time.monotonic() - started < 3 * SECONDS


def test_a_pause_between_requests_is_no_fault(address):
    with httpx.Client(base_url=address, timeout=60) as client:
        assert client.get("/health").status_code == 200
        time.sleep(SECONDS + 1)
        assert client.get("/health").status_code == 200


def test_who_reads_slowly_or_leaves_holds_up_nobody(address):
    host, port = address.removeprefix("http://").split(":")
    body = b'{"sentences": ["the dog sees a cat"]}'
    head = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    slow = [socket.create_connection((host, int(port)), timeout=60) for _ in range(20)]
    for connection in slow:
        connection.sendall((head + body) * 20)  # one after the other, none of the answers read
    for connection in slow[:10]:
        connection.close()
    assert ask(address, ENGLISH).json()["translations"] == GERMAN
    for connection in slow[10:]:
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        connection.close()
    assert httpx.get(f"{address}/health").status_code == 200


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM that could be caught")
def test_what_was_asked_for_before_the_end_is_answered(folder):
    sentences, wanted = ENGLISH * 20, GERMAN * 20
    with served(folder, seconds=60) as (address, process):
        answers, begun = [], threading.Event()

        def client():
            with httpx.Client(timeout=60) as http:
                while True:
                    try:
                        answer = http.post(f"{address}/translate", json={"sentences": sentences})
                    except httpx.TransportError:
                        return  # nobody listens any more
                    answers.append(answer.json().get("translations", answer.json()))
                    begun.set()

        threads = [threading.Thread(target=client) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert begun.wait(60)
        process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert all(answer == wanted for answer in answers)
        process.wait(60)
        assert "Traceback" not in process.stderr.read()


class Slow:
    """A translator into capitals that begins when it is told to."""

    def __init__(self):
        self.go, self.batches = threading.Event(), []

    def encode(self, text, name):
        return []

    def remarks(self, texts, numbers, sources, cut):
        yield "symbols never seen"

    def translate(self, sentences, beam=4):
        assert self.go.wait(60)
        self.batches.append(sentences)
        if "fail" in sentences:
            raise RuntimeError("it failed")
        return [sentence.upper() for sentence in sentences]


def with_batcher(scene, batch=3, waiting=5):
    """Play a scene with a batcher that works, and what it hands its batches to."""

    async def play():
        slow = Slow()
        batcher = app.Batcher(slow.translate, batch, waiting)
        worker = asyncio.create_task(batcher.work())
        try:
            await asyncio.wait_for(scene(batcher, slow), 60)
        finally:
            slow.go.set()
            worker.cancel()

    asyncio.run(play())


def begin(batcher, *requests):
    return [asyncio.create_task(batcher.ask(list(request))) for request in requests]


def test_what_waits_goes_together_and_what_is_too_much_is_sent_away_whole():
    async def scene(batcher, slow):
        tasks = begin(batcher, "a")
        await asyncio.sleep(0.05)
        tasks += begin(batcher, "bc", "d", "e")
        await asyncio.sleep(0.05)
        with pytest.raises(asyncio.QueueFull):
            await batcher.ask(["f", "g"])
        tasks += begin(batcher, "h")
        await asyncio.sleep(0.05)
        slow.go.set()
        assert await asyncio.gather(*tasks) == [["A"], ["B", "C"], ["D"], ["E"], ["H"]]
        assert slow.batches == [["a"], ["b", "c", "d"], ["e", "h"]]

    with_batcher(scene)


def test_a_batch_that_fails_tells_who_waits_and_the_next_is_translated():
    async def scene(batcher, slow):
        slow.go.set()
        with pytest.raises(RuntimeError, match="it failed"):
            await batcher.ask(["fail"])
        assert await batcher.ask(["a"]) == ["A"]

    with_batcher(scene)


def test_a_busy_service_says_so_and_gives_up_in_time():
    translator = Slow()
    service = app.create_app(translator, app.Settings(waiting=2, seconds=0.3))

    async def play():
        transport = httpx.ASGITransport(service)
        async with (
            service.router.lifespan_context(service),
            httpx.AsyncClient(transport=transport, base_url="http://x", timeout=60) as http,
        ):
            try:
                full = await http.post("/translate", json={"sentences": ["a"] * 3})
                assert (full.status_code, full.headers["Retry-After"]) == (503, "1")
                late = await http.post("/translate", json={"sentences": ["a"]})
                assert (late.status_code, late.json()["detail"]) == (504, "not done within 0.3 seconds")
                assert (await http.get("/health")).status_code == 200
            finally:
                translator.go.set()
            done = await http.post("/translate", json={"sentences": ["b"]})
            assert done.json() == {"translations": ["B"], "remarks": ["symbols never seen"]}

    asyncio.run(play())
