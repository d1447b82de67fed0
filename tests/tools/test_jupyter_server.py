"""A Jupyter server that has Jupytext opens what is on disk as it is, and saves what was changed."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import websocket
from requests.adapters import HTTPAdapter
from urllib3 import Retry

ROOT = Path(__file__).parents[2]
TOKEN = "open"
Ask = Callable[..., requests.Response]
ORDERS = [(1, 2), (2, 1)]  # the times of .py and .ipynb, which a clone writes in any order


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The notebooks of a clone, and its settings where `make setup` puts them."""
    folder = tmp_path_factory.mktemp("clone")
    settings = folder / ".venv/etc/jupyter"
    settings.mkdir(parents=True)
    shutil.copy(ROOT / "tools/notebooks/jupyter_server_config.py", settings)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder)
    unwanted = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    shutil.copytree(ROOT / "notebooks", folder / "notebooks", ignore=unwanted)
    return folder


@pytest.fixture(scope="module")
def server(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab, started as `make lab` does, but for the browser."""
    own = tmp_path_factory.mktemp("jupyter")
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    env = {**os.environ, **dict.fromkeys(names, str(own)), "PATH": os.defpath, "JUPYTER_TOKEN": TOKEN}
    env["JUPYTER_CONFIG_PATH"] = str(clone / ".venv/etc/jupyter")
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.port=0"]
    log = own / "log"
    with log.open("w") as stderr, subprocess.Popen(command, cwd=clone, env=env, stderr=stderr) as process:
        try:
            while not (found := re.search(r"http://localhost:\d+/", log.read_text())):
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            yield found[0]
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def ask(server: str) -> Ask:
    """A request to the server: method, and path below its address."""
    session = requests.Session()
    session.mount(server, HTTPAdapter(max_retries=Retry(connect=8, backoff_factor=0.1)))  # it tells early
    session.headers["Authorization"] = f"token {TOKEN}"

    def request(method: str, path: str, **content: Any) -> requests.Response:
        response = session.request(method, server + path, allow_redirects=False, **content)
        assert response.status_code < 400, response.text
        return response

    return request


def in_a_browser(text: str) -> dict[str, Any]:
    """JSON as JavaScript reads it: a number has no point that it does not need."""
    return json.loads(text, parse_float=lambda number: json.loads(number.removesuffix(".0")))


def opened(ask: Ask, path: str) -> dict[str, Any]:
    return in_a_browser(ask("GET", f"api/contents/{path}").text)["content"]


def save(ask: Ask, path: str, notebook: dict[str, Any]) -> None:
    ask("PUT", f"api/contents/{path}", json={"type": "notebook", "format": "json", "content": notebook})


def set_times(path: Path, times: tuple[int, int]) -> None:
    for suffix, seconds in zip((".py", ".ipynb"), times, strict=True):
        os.utime(path.with_suffix(suffix), (seconds * 1e9, seconds * 1e9))


def test_saving_what_was_opened_changes_no_byte(clone: Path, ask: Ask) -> None:
    paths = sorted(path for path in clone.glob("notebooks/**/*.ipynb") if path.parent.name[0] != ".")
    assert len(paths) > 30
    changed = []
    for number, path in enumerate(paths):
        set_times(path, ORDERS[number % 2])
        before, name = path.read_bytes(), path.relative_to(clone).as_posix()
        notebook = opened(ask, name)
        notebook["metadata"]["language_info"]["version"] = "4.0"  # which JupyterLab hears from the kernel
        notebook["metadata"]["kernelspec"]["display_name"] = "Python 4"
        for cell in notebook["cells"]:
            if cell["metadata"].pop("collapsed", False):  # as JupyterLab does when a folded cell runs
                del cell["metadata"]["jupyter"]["outputs_hidden"]
        save(ask, name, notebook)
        changed += [name] * (path.read_bytes() != before)
    assert changed == []


@pytest.mark.parametrize("times", ORDERS, ids=["ipynb newer", "py newer"])
def test_an_answer_stays_whatever_wrote_it(clone: Path, ask: Ask, times: tuple[int, int]) -> None:
    path = clone / "notebooks/02_attention.ipynb"
    name = path.relative_to(clone).as_posix()
    expected = json.loads(path.read_text(encoding="utf-8"))
    first, second = [cell for cell in expected["cells"] if cell["cell_type"] == "code"][-2:]
    first["source"] = ["answer = 1"]
    path.write_text(json.dumps(expected, indent=4), encoding="utf-8")  # as an editor might
    set_times(path, times)
    notebook = opened(ask, name)
    assert "answer = 1" in [cell["source"] for cell in notebook["cells"]]
    assert any("attachments" in cell for cell in notebook["cells"])
    next(cell for cell in notebook["cells"] if cell["id"] == second["id"])["source"] = "answer = 2"
    save(ask, name, notebook)
    second["source"] = ["answer = 2"]
    assert json.loads(path.read_text(encoding="utf-8")) == expected
    assert "answer = 2" in [cell["source"] for cell in opened(ask, name)["cells"]]


@pytest.mark.parametrize("folder", ["notebooks", "notebooks/evidence", "notebooks/zh"])
def test_a_notebook_is_listed_once(clone: Path, ask: Ask, folder: str) -> None:
    listed = [entry["name"] for entry in ask("GET", f"api/contents/{folder}").json()["content"]]
    built = {path.name for path in (clone / folder).glob("*.ipynb")}
    assert built <= set(listed)
    assert not {path.with_suffix(".py").name for path in map(Path, built)} & set(listed)


def test_what_is_no_notebook_is_listed(ask: Ask) -> None:
    listed = {entry["name"] for entry in ask("GET", "api/contents").json()["content"]}
    assert {"README.md", "notebooks", "pyproject.toml"} <= listed


def test_the_first_lesson_opens_first(ask: Ask) -> None:
    assert ask("GET", "").headers["Location"].startswith("/lab/tree/notebooks/00_start_here.ipynb")


@pytest.mark.skipif(os.name == "nt", reason="the terminal of Windows has another language")
def test_the_command_is_found_in_a_terminal(server: str, ask: Ask) -> None:
    terminal = ask("POST", "api/terminals").json()["name"]
    address = f"{server.replace('http', 'ws', 1)}terminals/websocket/{terminal}?token={TOKEN}"
    socket = websocket.create_connection(address, timeout=20)
    socket.send(json.dumps(["stdin", "command -v annotated; echo do''ne\r"]))
    said = ""
    while "done" not in said:
        stream, *text = json.loads(socket.recv())
        said += "".join(map(str, text)) if stream == "stdout" else ""
    socket.close()
    assert str(Path(sys.executable).with_name("annotated")) in said
