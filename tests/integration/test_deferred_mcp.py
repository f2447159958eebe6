"""The import of the SDK in a new interpreter, without what it does not need of mcp 2; and that all of
that is there when it is used.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pykoclaw_acp.channel.files import WorkerFiles
from pykoclaw_acp.channel.processes import ForkRequest
from pykoclaw_acp.errors import LaunchFailed
from pykoclaw_acp.pool.local_forkserver import ForkServer
from pykoclaw_acp.worker.forkserver import REST
from tests import plugins
from tests.waiting import eventually, within
from tests.workers import spec

pytest.importorskip("mcp_types", reason="mcp 1 is imported as it is")

IMPORTED = "from pykoclaw_acp.worker import deferred_mcp\ndeferred_mcp.import_sdk()\n"
CALLED = """
import asyncio
import claude_agent_sdk as sdk
from claude_agent_sdk._internal.sdk_mcp_bridge import SdkMcpBridge

@sdk.tool("double", "Double a number", {"number": int}, annotations=sdk.ToolAnnotations(readOnlyHint=True))
async def double(given):
    return {"content": [{"type": "text", "text": str(2 * given["number"])}]}

async def call(server):
    bridge = SdkMcpBridge("numbers", server)
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    asked = [("initialize", client), ("tools/list", {}),
             ("tools/call", {"name": "double", "arguments": {"number": 21}})]
    answers = [
        await bridge.handle({"jsonrpc": "2.0", "id": at, "method": method, "params": params})
        for at, (method, params) in enumerate(asked)
    ]
    await bridge.aclose()
    (tool,) = answers[1]["result"]["tools"]
    return tool["annotations"], answers[2]["result"]["content"][0]["text"]

server = sdk.create_sdk_mcp_server("numbers", tools=[double])["instance"]
"""


def run(code: str, **environment: str) -> str:
    """What this prints in a new interpreter."""
    made = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_sdk_imports_no_mcp_clients_or_servers() -> None:
    code = "import sys\nprint(*(one for one in sys.modules if one.startswith(('mcp.', 'uvicorn'))))"
    modules = run(IMPORTED + code).split()
    assert "mcp.shared.memory" in modules
    assert not [one for one in modules if one.startswith(("mcp.client", "mcp.server.", "uvicorn"))]


@pytest.mark.long
@pytest.mark.parametrize("before", ["", "deferred_mcp.complete()\n", "import claude_agent_sdk\n"])
def test_tools_of_the_sdk_answer(before: str) -> None:
    code = (
        "print(deferred_mcp.is_complete())\n"
        "print(asyncio.run(call(server)), deferred_mcp.is_complete(), type(server).__name__)"
    )
    first = before if before.startswith("import") else ""
    pending, answer = run(first + IMPORTED + before + CALLED + code).splitlines()
    all_of_it = str(bool(before))
    assert pending == all_of_it
    server = "Server" if before else "_Server"
    assert answer == f"({{'readOnlyHint': True}}, '42') {all_of_it} {server}"


@pytest.mark.long
@pytest.mark.parametrize(
    "use",
    [
        "from mcp import ClientSession as found",
        "import mcp.types\nfound = mcp.types.methods.parse_client_request",
        "import mcp.server.lowlevel.server\nfrom mcp.server import MCPServer as found",
        "import mcp.client.session\nfound = mcp.client.session.ClientSession",
    ],
)
def test_whatever_mcp_is_used_is_the_real_thing(use: str) -> None:
    same = (
        "\nimport claude_agent_sdk._internal._mcp_compat as compat, mcp.server.lowlevel as lowlevel\n"
        "import mcp\nmcp.ClientSession\n"
        "print(found.__module__, compat.Server is compat._Server is mcp.server.Server is lowlevel.Server,"
        " type(mcp), mcp.types.Tool is compat.Tool)"
    )
    module, *rest = run(IMPORTED + use + same).split(" ", 1)
    assert module == run(f"{use}\nprint(found.__module__)").strip()
    assert rest == ["True <class 'module'> True\n"]


@pytest.mark.long
def test_many_threads_may_first_use_mcp_together() -> None:
    code = (
        "import threading\nfrom claude_agent_sdk import create_sdk_mcp_server\n"
        "servers = [create_sdk_mcp_server('one')['instance'] for _ in range(8)]\nnames = []\n"
        "threads = [threading.Thread(target=lambda one=one: names.append(one.name)) for one in servers]\n"
        "deferred_mcp.prepare_server()\n[one.start() for one in threads]\n[one.join() for one in threads]\n"
        "print(names == ['one'] * 8)"
    )
    assert run(IMPORTED + code) == "True\n"


HELD = """
import importlib.machinery, os, sys
path = [one for one in sys.path if one != os.path.dirname(os.path.dirname(__file__))]
real = importlib.machinery.PathFinder.find_spec(__name__, path)
__path__[:] = real.submodule_search_locations
exec(compile(open(real.origin).read(), real.origin, "exec"))
sys.modules["__main__"].held()
"""


def held(tmp_path: Path, code: str) -> str:
    """What this prints if its function `held` is called in the middle of an import that servers of
    mcp need.
    """
    package = tmp_path / "sse_starlette"
    package.mkdir()
    (package / "__init__.py").write_text(HELD)
    needed = "import sys, threading, mcp\nfrom tests.waiting import eventually_sync\n"
    return run(IMPORTED + needed + code, PYTHONPATH=f"{tmp_path}:{os.getcwd()}")


@pytest.mark.long
def test_import_that_needs_the_rest_never_hangs(tmp_path: Path) -> None:
    """One thread loads it, and comes to a module that another one imports, which needs it."""
    code = (
        "def held():\n"
        "    deferred_mcp.prepare_server()\n"
        "    eventually_sync(lambda: 'mcp.server.lowlevel.server' in sys.modules)\n"
        "    mcp.ClientSession\n"
        "import sse_starlette\n"
        "print(mcp.server.MCPServer.__name__, deferred_mcp.is_complete())"
    )
    assert held(tmp_path, code) == "MCPServer False\n"


@pytest.mark.long
def test_a_thread_waits_for_what_another_one_loads(tmp_path: Path) -> None:
    code = (
        "import time\nfound = []\n"
        "threads = [threading.Thread(target=lambda: found.append(mcp.ClientSession.__name__)),\n"
        "           threading.Thread(target=lambda: found.append(mcp.server.MCPServer.__name__))]\n"
        "def held():\n"
        "    [one.start() for one in threads]\n"
        "    late = time.monotonic() + 0.2\n"
        "    eventually_sync(lambda: time.monotonic() > late)\n"
        "deferred_mcp.complete()\n[one.join() for one in threads]\nprint(sorted(found))"
    )
    assert held(tmp_path, code) == "['ClientSession', 'MCPServer']\n"


@pytest.mark.long
def test_broken_package_says_so_each_time(tmp_path: Path) -> None:
    code = (
        "def held(): raise ImportError('gone')\n"
        "for name in ('ClientSession', 'Client'):\n"
        "    try: getattr(mcp, name)\n"
        "    except ImportError as error: print(error)"
    )
    assert held(tmp_path, code) == "gone\ngone\n"


@pytest.mark.long
@pytest.mark.parametrize(
    "other",
    [
        "from mcp.server import Server\nclass Own(Server): pass",
        "import mcp, sys\nif type(mcp) is not type(sys): raise ImportError\nOwn = mcp.server.Server",
    ],
)
def test_another_sdk_is_imported_as_it_is(tmp_path: Path, other: str) -> None:
    package = tmp_path / "claude_agent_sdk"
    package.mkdir()
    (package / "__init__.py").write_text(other)
    code = (
        "print(deferred_mcp.is_complete())\nimport claude_agent_sdk, mcp\n"
        "print(type(mcp), issubclass(claude_agent_sdk.Own, mcp.server.Server))"
    )
    found = run(IMPORTED + code, PYTHONPATH=f"{tmp_path}:{os.getcwd()}")
    assert found == "True\n<class 'module'> True\n"


def test_broken_package_costs_plugins_one_line(tmp_path: Path) -> None:
    plugins.install(
        tmp_path, "good", "class Plugin:\n    def get_mcp_servers(self, db, name): return {}\n"
    )
    said = tmp_path / "said"
    run(
        "import asyncio, pathlib\nfrom pykoclaw_acp.worker import deferred_mcp\n"
        "from pykoclaw_acp.worker.plugins.loading import Plugins\n"
        "def broken(): raise ImportError('gone')\n"
        "deferred_mcp.complete = broken\nmade = Plugins('acp-1', None)\nasyncio.run(made.load())\n"
        f"pathlib.Path({str(said)!r}).write_text(repr([(one.plugin, one.what) for one in made.complaints]))",
        PYTHONPATH=f"{tmp_path}:{os.getcwd()}",
    )
    assert said.read_text() == repr([("*", "cannot use the package mcp (ImportError('gone'))")])


async def test_idle_fork_server_imports_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # says what is imported, in its log
    log = tmp_path / "workers.log"
    server = ForkServer(log, resident=False)
    try:
        await server.warm()
        await eventually(lambda: "mcp.client.session" in log.read_text())
        assert "claude_agent_sdk" not in log.read_text(), "that was before it took its log"
    finally:
        await server.close()


@pytest.mark.long
async def test_fork_server_says_once_what_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sse_starlette.py").write_text("raise ImportError('not today')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    log = tmp_path / "workers.log"
    server = ForkServer(log, resident=False)
    try:
        await server.warm()
        await eventually(lambda: "ImportError: not today" in log.read_text())
        assert not await within(lambda: log.read_text().count("ImportError: ") > 1, 3 * REST)
    finally:
        await server.close()


async def test_fork_server_restarts_when_its_code_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, code = tmp_path / "python", f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    python.write_text(code)
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    server = ForkServer(tmp_path / "workers.log", resident=False)
    try:
        await server.warm()
        first = server.pid
        await server.warm()
        assert server.pid == first
        python.unlink()
        python.write_text(f"{code}# another version\n")
        python.chmod(0o755)
        await server.warm()
        assert server.pid != first
        again = server.pid
        await server.warm()
        assert server.pid == again
    finally:
        await server.close()


async def test_missing_pythons_error_names_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    server = ForkServer(tmp_path / "workers.log", resident=False)
    python.unlink()
    wanted = spec(tmp_path)
    with pytest.raises(LaunchFailed, match="pykoclaw-acp restart"):
        await server.fork(ForkRequest(wanted, WorkerFiles.of(tmp_path, wanted)))


def test_fork_server_has_what_each_worker_would_import() -> None:
    run(
        "import socket, sys\nfrom pykoclaw_acp.worker import forkserver\n"
        "ours, theirs = socket.socketpair()\nours.close()\n"
        "sys.argv = ['forkserver', str(theirs.detach())]\nforkserver.main()\n"
        "assert 'anyio._backends._asyncio' in sys.modules\n"
        "from pykoclaw_acp.worker.plugins import loading\n"
        "loading.entry_points = None\n"
        "loading.installed()\n"
    )
