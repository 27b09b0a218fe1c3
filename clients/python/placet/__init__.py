"""A client of Placet: every call is decided by policy, made at most once, and recorded.

The forms of requests and answers are those of Placet's OpenAPI document (``GET /v1/openapi.json``). Every method raises
:class:`PlacetError` for a refusal and :class:`Unanswered` where nothing was answered.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

__all__ = ["CallResult", "Client", "PlacetError", "Run", "Unanswered"]

Json = dict[str, Any]
Mode = Literal["read_only", "local_write", "network", "delegated", "destructive"]

DEFAULT_URL = "http://127.0.0.1:7411"
# How long one request waits for people; longer waits are made of several.
_WAIT_S = 60.0
# How long an answer may take besides.
_ANSWER_S = 60.0
# How often what got no answer is sent again, where that acts no second time.
_TRIES = 5


class PlacetError(Exception):
    """A refusal: ``code`` says why, ``remediation`` what to do, ``problems`` where in the request."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem: Json = dict(problem)
        self.code: str = problem.get("error_code", "")
        self.detail: str = problem.get("detail", f"refused with status {status}")
        self.remediation: str = problem.get("remediation", "")
        self.retryable: bool = problem.get("retryable", False)
        self.problems: list[Json] = problem.get("problems", [])
        super().__init__(f"{self.code}: {self.detail}")


class Unanswered(Exception):
    """Nothing was answered. A call may have been made: send it again under the same ids."""


class CallResult(TypedDict, total=False):
    """What became of one call of a batch."""

    id: str
    tool: str
    status: Literal["succeeded", "failed", "refused", "pending", "unknown"]
    result: Json
    error: Json
    duplicate_of: str
    warning: str


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A token goes to the one host that it is for."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Client:
    """A client with the caller's tokens; what is not given is read from PLACET_URL, PLACET_TOKEN and PLACET_DELEGATION."""

    def __init__(
        self, url: str | None = None, token: str | None = None, delegation: str | None = None
    ) -> None:
        self._url = (url or os.environ.get("PLACET_URL") or DEFAULT_URL).rstrip("/")
        if urllib.parse.urlsplit(self._url).scheme not in ("http", "https"):
            raise ValueError(f"{self._url!r} is no http or https URL")
        token = token or os.environ.get("PLACET_TOKEN")
        if not token:
            raise ValueError("there is no token to call with: give one, or set PLACET_TOKEN")
        self._headers = {"Authorization": f"Bearer {token.strip()}", "Accept": "application/json"}
        delegation = delegation or os.environ.get("PLACET_DELEGATION")
        if delegation:
            self._headers["Placet-Delegation"] = delegation.strip()
        # No proxy of the environment sees the token.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)

    def __repr__(self) -> str:
        return f"Client({self._url!r})"

    def tools(self) -> list[Json]:
        """The tools that some circumstance could let the caller call."""
        return self._send("GET", "/v1/tools")["tools"]

    def call(
        self,
        tool: str,
        args: Mapping[str, Any],
        *,
        run_id: str,
        step_id: str,
        request_id: str,
        safety_mode: Mode | None = None,
        mode: Mode | None = None,
        wait_s: float = 0,
    ) -> Json:
        """Makes one call and gives its result. The same call under the same three ids acts once, so it is sent again where nothing is
        answered. One that waits for people longer than ``wait_s`` is ``pending``: :meth:`wait` collects it."""
        run = {"run_id": run_id, **_given(safety_mode=safety_mode)}
        request = {
            "tool": tool,
            "args": dict(args),
            "step_id": step_id,
            "request_id": request_id,
            "run": run,
            **_given(approval_mode_requested=mode),
        }
        result = self._send("POST", "/v1/calls", request, repeats=True)
        if result["status"] == "pending" and wait_s > 0:
            return self.wait(result["tool_call_id"], wait_s)
        return result

    def wait(self, tool_call_id: str, wait_s: float) -> Json:
        """How a call stands, when it has ended or ``wait_s`` seconds are over."""
        until = time.monotonic() + wait_s
        while True:
            left_s = max(0.0, min(until - time.monotonic(), _WAIT_S))
            result = self._send(
                "GET", f"/v1/calls/{_part(tool_call_id)}?wait_ms={int(left_s * 1000)}", wait_s=left_s
            )
            if result["status"] != "pending" or left_s == 0:
                return result

    def open_run(
        self,
        run_id: str,
        *,
        safety_mode: Mode | None = None,
        run_budget: Mapping[str, int] | None = None,
        tools: Iterable[str] = (),
        tool_choice: str | Mapping[str, Any] = "auto",
        calls_per_batch_max: int | None = None,
    ) -> Run:
        """Opens a run with a surface of its own."""
        run = {"run_id": run_id, **_given(safety_mode=safety_mode, run_budget=run_budget)}
        request = {
            "run": run,
            "tools": list(tools),
            "tool_choice": tool_choice,
            **_given(calls_per_batch_max=calls_per_batch_max),
        }
        self._send("POST", "/v1/runs", request)
        return Run(self, run_id)

    def run(self, run_id: str) -> Run:
        """A run that is open."""
        return Run(self, run_id)

    def _send(
        self,
        method: str,
        path: str,
        document: Any = None,
        *,
        wait_s: float = 0,
        repeats: bool = False,
    ) -> Any:
        body = None if document is None else json.dumps(document).encode()
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        tries = _TRIES if repeats or method == "GET" else 1
        for attempt in range(1, tries + 1):
            request = urllib.request.Request(self._url + path, body, headers, method=method)
            try:
                with self._opener.open(request, timeout=wait_s + _ANSWER_S) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                refusal = PlacetError(error.code, _problem(error))
                may_repeat = error.code in (429, 503) and refusal.retryable
                if attempt == tries or not may_repeat:
                    result = refusal.problem.get("result")
                    if result is not None:
                        # The call has a record: its result says more than the refusal.
                        return result
                    raise refusal from None
                pause_s = refusal.problem.get("retry_after_ms", 0) / 1000
            except (OSError, ValueError) as error:
                if attempt == tries:
                    raise Unanswered(f"no answer from {self._url}: {error}") from error
                pause_s = 0
            time.sleep(min(max(pause_s, 0.1 * 2**attempt), 30.0))
        raise AssertionError("a request is sent at least once")


class Run:
    """An open run, as the tool side of a model's loop."""

    def __init__(self, client: Client, run_id: str) -> None:
        self._client = client
        self.run_id = run_id
        self._path = f"/v1/runs/{_part(run_id)}"

    def state(self) -> Json:
        """How it stands: ceiling, budget, taint, iteration, tools."""
        return self._client._send("GET", self._path)

    def tools(self, form: Literal["openai", "mcp", "plain"] = "openai") -> Json:
        """What its model is offered at its next turn: ``tools``, ``tool_choice``, ``prompts``, ``formatting``."""
        return self._client._send("GET", f"{self._path}/tools?format={form}")

    def batch(self, calls: Iterable[Any], *, batch_id: str, wait_s: float = 0) -> list[CallResult]:
        """Makes the calls of one answer, and gives what became of each, in order. While calls wait for people, the same batch is sent again
        until ``wait_s`` seconds are over."""
        request: Json = {"batch_id": batch_id, "calls": [_call(call) for call in calls]}
        until = time.monotonic() + wait_s
        while True:
            left_s = max(0.0, min(until - time.monotonic(), _WAIT_S))
            request["wait_ms"] = int(left_s * 1000)
            made = self._client._send(
                "POST", f"{self._path}/batches", request, wait_s=left_s, repeats=True
            )
            results: list[CallResult] = made["results"]
            if left_s == 0 or all(result["status"] != "pending" for result in results):
                return results

    def execute(self, tool_calls: Iterable[Any], *, batch_id: str, wait_s: float = 0) -> list[Json]:
        """As :meth:`batch`, with the messages (role ``tool``) for the model's next turn."""
        results = self.batch(tool_calls, batch_id=batch_id, wait_s=wait_s)
        return [
            {"role": "tool", "tool_call_id": result["id"], "content": json.dumps(_told(result))}
            for result in results
        ]


def _told(result: CallResult) -> Json:
    """What a model is told of a call."""
    made = result.get("result") or {}
    error = made.get("error") or result.get("error")
    output = made.get("output")
    if isinstance(output, dict) and output.get("structured") is not None:
        output = output["structured"]
    told: Json = {"status": result["status"]}
    if output is not None:
        told["output"] = output
    if error:
        told["error"] = {key: error[key] for key in ("error_code", "message", "remediation") if key in error}
        if result["status"] == "pending":
            # Its program sends the batch again. The same call in another batch would be another call.
            told["error"]["remediation"] = "Do not repeat the call: it is not made yet, and waits for people."
    return told


def _call(call: Any) -> Json:
    """A call as a model answers it, from a dictionary or an object of an SDK."""
    if isinstance(call, Mapping):
        return dict(call)
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _given(**values: Any) -> Json:
    return {name: value for name, value in values.items() if value is not None}


def _part(text: str) -> str:
    """A part of a path. What the path would lead elsewhere with is refused."""
    if text in ("", ".", ".."):
        raise ValueError(f"{text!r} is no id")
    return urllib.parse.quote(text, safe="")


def _problem(error: urllib.error.HTTPError) -> Json:
    try:
        problem = json.load(error)
    except (OSError, ValueError):
        return {}
    return problem if isinstance(problem, dict) else {}
