"""The scripted model's server, without the Claude CLI: its HTTP face, and its process."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest

from pykoclaw_acp.scripted_model.process import ScriptedModel
from tests.waiting import eventually_sync


def user(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "model": "claude-test",
        "max_tokens": 1000,
        "tools": [{"name": "Bash"}],
        "messages": list(messages),
        **more,
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedModel]:
    with ScriptedModel(record=tmp_path_factory.mktemp("model") / "record.ndjson") as started:
        yield started


def connect(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)


def ask(
    url: str, request: object, path: str = "/v1/messages"
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = connect(url)
    try:
        connection.request("POST", path, json.dumps(request), {"content-type": "application/json"})
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def events(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    parsed = []
    for event in data.decode().split("\n\n")[:-1]:
        name, payload = event.split("\n")
        parsed.append((name.removeprefix("event: "), json.loads(payload.removeprefix("data: "))))
    return parsed


class TestHttp:
    thinking: ClassVar = {"type": "adaptive", "display": "summarized"}
    script = "[[script\nthinking hm\ntext a\ntext b\nbash echo 1\n& bash echo 2\n]]"

    def test_the_stream_is_that_of_the_messages_api(self, model: ScriptedModel) -> None:
        response, data = ask(
            model.url, body(user(self.script), stream=True, thinking=self.thinking)
        )
        assert response.status == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["request-id"].startswith("req_")
        stream = events(data)
        assert all(name == payload["type"] for name, payload in stream)
        blocks = ["content_block_start", "content_block_delta", "content_block_stop"]
        names = [name for name, _ in stream]
        assert names[:2] == ["message_start", "ping"]
        assert names[-2:] == ["message_delta", "message_stop"]
        collapsed = [
            name for place, name in enumerate(names) if place == 0 or names[place - 1] != name
        ]
        assert collapsed == ["message_start", "ping", *blocks * 4, "message_delta", "message_stop"]
        starts = [payload for name, payload in stream if name == "content_block_start"]
        assert [(start["index"], start["content_block"]["type"]) for start in starts] == [
            (0, "thinking"),
            (1, "text"),
            (2, "tool_use"),
            (3, "tool_use"),
        ]
        deltas = [payload for name, payload in stream if name == "content_block_delta"]
        kinds = [delta["delta"]["type"] for delta in deltas]
        assert kinds[:4] == ["thinking_delta", "signature_delta", "text_delta", "text_delta"]
        assert "".join(delta["delta"].get("text", "") for delta in deltas) == "a\nb"
        tool_input = "".join(
            delta["delta"]["partial_json"] for delta in deltas if delta["index"] == 3
        )
        assert json.loads(tool_input)["command"] == "echo 2"
        final = stream[-2][1]
        assert final["delta"]["stop_reason"] == "tool_use"
        assert final["usage"]["input_tokens"] > 10
        assert final["usage"]["output_tokens"] > stream[0][1]["message"]["usage"]["output_tokens"]

    def test_one_piece_holds_the_same(self, model: ScriptedModel) -> None:
        _, data = ask(model.url, body(user(self.script), thinking=self.thinking))
        message = json.loads(data)
        assert [block["type"] for block in message["content"]] == [
            "thinking",
            "text",
            "tool_use",
            "tool_use",
        ]
        assert message["content"][1]["text"] == "a\nb"
        assert message["stop_reason"] == "tool_use"
        assert message["usage"]["output_tokens"] > 1

    @pytest.mark.parametrize("display", ["omitted", None])
    def test_thinking_text_is_withheld_unless_requested(
        self, model: ScriptedModel, display: str | None
    ) -> None:
        thinking = {"type": "adaptive"} | ({"display": display} if display else {})
        _, data = ask(model.url, body(user(self.script), stream=True, thinking=thinking))
        kinds = [
            payload["delta"]["type"]
            for name, payload in events(data)
            if name == "content_block_delta"
        ]
        assert "signature_delta" in kinds
        assert "thinking_delta" not in kinds

    def test_identifiers_are_never_the_same_twice(self, model: ScriptedModel) -> None:
        found: list[str] = []
        for _ in range(20):
            _, data = ask(model.url, body(user(self.script)))
            found += re.findall(r'"id": ?"((?:msg|toolu)_01\w{22})"', data.decode())
        assert len(found) == len(set(found)) == 60

    def test_an_error_comes_with_its_header_and_type(self, model: ScriptedModel) -> None:
        response, data = ask(
            model.url, body(user("[[script error 429 retry-after=7 slow down]]"), stream=True)
        )
        assert (response.status, response.headers["retry-after"]) == (429, "7")
        error = json.loads(data)
        assert (error["type"], error["error"]) == (
            "error",
            {"type": "rate_limit_error", "message": "slow down"},
        )

    def test_error_inside_stream_is_its_last_event(self, model: ScriptedModel) -> None:
        request = body(user("[[script text a ;; stream-error overloaded_error ;; text b]]"))
        _, data = ask(model.url, request | {"stream": True})
        name, payload = events(data)[-1]
        assert (name, payload["error"]["type"]) == ("error", "overloaded_error")
        response, _ = ask(model.url, request)
        assert response.status == 529

    @pytest.mark.parametrize("stream", [True, False])
    def test_cut_ends_the_connection_without_an_end(
        self, model: ScriptedModel, stream: bool
    ) -> None:
        with pytest.raises(http.client.IncompleteRead) as cut:
            ask(model.url, body(user("[[script text before ;; cut ;; text after]]"), stream=stream))
        assert (b"before" in cut.value.partial) == stream
        assert b"after" not in cut.value.partial
        assert model.requests()[-1]["outcome"] == "cut"

    def test_repeat_sends_its_deltas_at_its_pace(self, model: ScriptedModel) -> None:
        started = time.monotonic()
        _, data = ask(model.url, body(user("[[script repeat 200x2ms n{n}]]"), stream=True))
        assert time.monotonic() - started >= 199 * 0.002
        texts = [
            payload["delta"]["text"]
            for name, payload in events(data)
            if name == "content_block_delta"
        ]
        assert "".join(texts) == " ".join(f"n{n}" for n in range(1, 201))
        assert len(texts) == model.requests()[-1]["deltas"] == 200

    def test_hang_says_nothing_until_the_client_is_gone(self, model: ScriptedModel) -> None:
        connection = connect(model.url)
        connection.request(
            "POST",
            "/v1/messages",
            json.dumps(body(user("[[script hang ;; text never]]"), stream=True)),
        )
        eventually_sync(
            lambda: model.requests()[-1]["user_texts"] == ["[[script hang ;; text never]]"]
        )
        assert model.requests()[-1]["outcome"] is None
        connection.close()
        eventually_sync(lambda: model.requests()[-1]["outcome"] == "client_gone")

    def test_bad_request_and_unknown_path_get_api_errors(self, model: ScriptedModel) -> None:
        requests: list[object] = [{"messages": []}, [], {"messages": "hi"}]
        for request in requests:
            response, data = ask(model.url, request)
            assert (response.status, json.loads(data)["error"]["type"]) == (
                400,
                "invalid_request_error",
            )
        response, data = ask(model.url, {}, "/v1/nothing")
        assert (response.status, json.loads(data)["error"]["type"]) == (404, "not_found_error")

    def test_count_tokens_grows_with_the_text(self, model: ScriptedModel) -> None:
        counts = [
            json.loads(ask(model.url, body(user("x" * size)), "/v1/messages/count_tokens")[1])
            for size in (40, 4000)
        ]
        assert counts[1]["input_tokens"] - counts[0]["input_tokens"] == pytest.approx(990, abs=2)

    def test_the_record_can_be_filtered_and_cleared(self, model: ScriptedModel) -> None:
        ask(model.url, body(user("probe"), max_tokens=1))
        ask(model.url, body(user("[[script text a]]")))
        probe, main = model.requests(None)[-2:]
        assert (probe["kind"], probe["user_texts"], probe["n"] + 1) == (
            "side",
            ["probe"],
            main["n"],
        )
        assert model.requests("side")[-1] == probe
        assert model.requests()[-1] == main
        model.clear()
        assert model.requests(None) == []


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    command = [sys.executable, "-m", "pykoclaw_acp.scripted_model", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.kill()


class TestProcess:
    def test_received_requests_are_on_file_after_server_kill(self, tmp_path: Path) -> None:
        file = tmp_path / "record.ndjson"
        with serving("--record", str(file)) as (process, url):
            ask(url, body(user("[[script text a]]"), stream=True))
            connection = connect(url)
            connection.request("POST", "/v1/messages", json.dumps(body(user("[[script hang]]"))))
            eventually_sync(lambda: len(file.read_text().splitlines()) == 3)
            process.kill()
            connection.close()
        arrived, ended, hanging = [json.loads(line) for line in file.read_text().splitlines()]
        assert (arrived["n"], arrived["user_texts"]) == (1, ["[[script text a]]"])
        assert ended == {"n": 1, "outcome": "served", "deltas": 1}
        assert (hanging["n"], hanging["outcome"]) == (2, None)

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_signal_is_clean_end_despite_hanging_request(self, number: signal.Signals) -> None:
        with serving() as (process, url):
            assert url.startswith("http://127.0.0.1:")
            connection = connect(url)
            connection.request(
                "POST",
                "/v1/messages",
                json.dumps(body(user("[[script text a ;; hang]]"), stream=True)),
            )
            assert connection.getresponse().status == 200
            process.send_signal(number)
            assert process.wait(10) == 0
            connection.close()

    def test_it_does_not_outlive_a_killed_parent(self) -> None:
        code = (
            "from pykoclaw_acp.scripted_model.process import ScriptedModel\n"
            "model = ScriptedModel().start()\n"
            "print(model.url, model._process.pid, flush=True)\n"
            "input()\n"
        )
        parent = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with parent:
            assert parent.stdout is not None
            _, pid = parent.stdout.readline().split()
            parent.kill()
        try:
            eventually_sync(lambda: not _runs(int(pid)))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def test_the_same_port_again_and_a_taken_port(self) -> None:
        with ScriptedModel() as first:
            port = urlsplit(first.url).port
            assert port is not None
            with pytest.raises(RuntimeError, match="exit status"):
                ScriptedModel(port=port).start()
        with ScriptedModel(port=port) as second:
            assert second.url == first.url
            assert second.requests() == []


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
