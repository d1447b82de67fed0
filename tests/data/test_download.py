import hashlib
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from annotated.data import multi30k
from annotated.data.download import cache_folder, corpus_folders, download, sha256_check

GOOD = b"guter Inhalt\n" * 10_000
CHECK = sha256_check(hashlib.sha256(GOOD).hexdigest())


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path not in self.server.bodies:
            self.send_error(404)
            return
        body, claimed = self.server.bodies[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(claimed))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.bodies = {}
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        server.url = f"http://127.0.0.1:{server.server_port}"
        yield server
        server.shutdown()
        thread.join()


def test_a_good_file_arrives_whole_and_alone(server, tmp_path, capsys):
    server.bodies["/file.gz"] = (GOOD, len(GOOD))
    path = download(f"{server.url}/file.gz", tmp_path / "a" / "file.gz", CHECK)
    assert path.read_bytes() == GOOD
    assert list(path.parent.iterdir()) == [path]
    assert capsys.readouterr().out == ""


def test_wrong_bytes_are_named_with_both_checksums_and_not_kept(server, tmp_path):
    server.bodies["/file.gz"] = (b"<html>moved</html>", 18)
    with pytest.raises(
        ValueError, match=r"/file\.gz is damaged .*SHA-256 [0-9a-f]{64}, expected [0-9a-f]{64}"
    ):
        download(f"{server.url}/file.gz", tmp_path / "file.gz", CHECK)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "bodies", [{}, {"/file.gz": (GOOD[:1000], len(GOOD))}, {"/file.gz": (b"", len(GOOD))}]
)
def test_a_missing_or_truncated_file_says_what_to_do_by_hand(server, tmp_path, bodies):
    server.bodies.update(bodies)
    url = f"{server.url}/file.gz"
    with pytest.raises(FileNotFoundError) as error:
        download(url, tmp_path / "file.gz", lambda path, name: None)
    for part in ("file.gz", url, str(tmp_path), "by hand"):
        assert part in str(error.value)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_connection_says_what_to_do_by_hand(server, tmp_path):
    url = f"{server.url}/file.gz"
    server.shutdown()
    server.server_close()
    with pytest.raises(FileNotFoundError, match=rf"refused.*put {url} into {tmp_path} by hand"):
        download(url, tmp_path / "file.gz", CHECK)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_keeps_no_half_file(server, tmp_path, monkeypatch):
    server.bodies["/file.gz"] = (GOOD, len(GOOD))

    def full(*args):
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(FileNotFoundError, match="No space left"):
        download(f"{server.url}/file.gz", tmp_path / "file.gz", CHECK)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_keeps_no_half_file(server, tmp_path):
    server.bodies["/file.gz"] = (GOOD, len(GOOD))

    def interrupt(path, name):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(f"{server.url}/file.gz", tmp_path / "file.gz", interrupt)
    assert list(tmp_path.iterdir()) == []


def test_two_downloads_at_a_time_do_not_mix(server, tmp_path):
    """Even of one process: the second begins while the first is being checked."""
    server.bodies["/file.gz"] = (GOOD, len(GOOD))
    url, path = f"{server.url}/file.gz", tmp_path / "file.gz"

    def meanwhile(temporary, name):
        server.bodies["/file.gz"] = (b"other", 5)
        download(url, path, lambda *_: None)
        assert path.read_bytes() == b"other"
        CHECK(temporary, name)

    download(url, path, meanwhile)
    assert path.read_bytes() == GOOD
    assert list(tmp_path.iterdir()) == [path]


def test_the_readers_folder_comes_before_the_cache(monkeypatch):
    monkeypatch.setenv("ANNOTATED_DATA", "/mine")
    assert corpus_folders("multi30k") == [Path("/mine/multi30k"), cache_folder("multi30k")]
    monkeypatch.delenv("ANNOTATED_DATA")
    assert corpus_folders("multi30k") == [cache_folder("multi30k")]


@pytest.fixture
def tiny_multi30k(tmp_path, monkeypatch, server):
    """A multi30k of three lines a file, served over HTTP; nothing in the reader's folder or the cache."""
    module = sys.modules["annotated.data.corpora"]
    files = {name: f"{name} eins\nzwei\ndrei\n".encode() for name in module._SHA256 if name.startswith("tok")}
    server.bodies |= {f"/data/task1/{name}": (data, len(data)) for name, data in files.items()}
    monkeypatch.setattr(module, "_URL", server.url)
    monkeypatch.setattr(
        module, "_SHA256", {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    )
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / "cache"))
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path / "mine"))
    return tmp_path


def test_multi30k_is_downloaded_once(tiny_multi30k, server):
    first = multi30k("en-de", "tok")
    assert first["val"].src[0] == "tok/val.lc.norm.tok.en eins"
    assert first["val"].tgt[0] == "tok/val.lc.norm.tok.de eins"
    server.bodies.clear()  # from now on every request fails
    assert multi30k("de-en", "tok")["val"].src == first["val"].tgt


def test_multi30k_by_hand_in_the_readers_folder_needs_no_network(tiny_multi30k, server):
    for name, (data, _) in server.bodies.items():
        path = tiny_multi30k / "mine" / "multi30k" / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    server.bodies.clear()
    assert len(multi30k("en-de", "tok")["train"]) == 3
    path.write_bytes(b"something else\n")
    with pytest.raises(ValueError, match=rf"{path} is damaged .*; delete it, and it is downloaded anew$"):
        multi30k("en-de", "tok")


def test_where_multi30k_was_looked_for_is_told(tiny_multi30k, server, monkeypatch):
    server.bodies.clear()
    mine, cache = tiny_multi30k / "mine" / "multi30k", tiny_multi30k / "cache" / "multi30k"
    with pytest.raises(FileNotFoundError) as error:
        multi30k("en-de", "tok")
    told = str(error.value)
    assert told.endswith(f"; looked in {mine} (no such folder) and {cache} (no such folder)")
    for name in ("train", "val", "test_2016_flickr"):
        assert f"{name}.lc.norm.tok.de, " in told or f"{name}.lc.norm.tok.de;" in told
    assert ".gz" not in told
    monkeypatch.delenv("ANNOTATED_DATA")
    with pytest.raises(FileNotFoundError, match=f"; looked in {cache}; ANNOTATED_DATA is not set$"):
        multi30k("en-de", "tok")


@pytest.mark.parametrize(("pair", "variant"), [("en-fr", "raw"), ("deen", "raw"), ("en-de", "bpe")])
def test_multi30k_names_what_it_has(pair, variant):
    with pytest.raises(ValueError, match=r"multi30k has no .*; it has (en-de and de-en|raw and tok)"):
        multi30k(pair, variant)


def test_the_real_multi30k(multi30k_folder, monkeypatch):
    def no_network(*args, **kwargs):
        raise AssertionError("the corpus is in the reader's folder")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    raw, turned, tok = multi30k(), multi30k("de-en"), multi30k(variant="tok")
    assert {name: len(split) for name, split in raw.splits.items()} == {
        "train": 29_000,
        "val": 1_014,
        "test_2016_flickr": 1_000,
        "test_2017_flickr": 1_000,
    }
    assert (raw.src_language, raw.tgt_language) == ("en", "de")
    assert raw["val"].src == turned["val"].tgt
    assert list(tok.splits) == ["train", "val", "test_2016_flickr"]
    assert all(" ." in src or "." not in src for src in tok["val"].src)
    assert tok["val"].src == [src.lower() for src in tok["val"].src]
