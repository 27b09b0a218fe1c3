"""An MCP client on the official Python SDK: does the steps that it reads, one JSON document per line, and answers each on a line.

Usage: mcp_client.py URL MODE [TOKEN]; MODE is `auto` (the newest revision that both speak) or `legacy` (2025-11-25, with a session).
Steps: {"list": true}, {"call": NAME, "args": {…}, "meta": {…}}, {"cancelled_call": NAME, "args": {…}, "after_ms": N}.
"""

import asyncio
import json
import sys

import anyio
from mcp import Client


def plain(result):
    return json.loads(result.model_dump_json(by_alias=True, exclude_none=True))


async def do(client, step):
    if "list" in step:
        return plain(await client.list_tools())
    if "cancelled_call" in step:
        with anyio.move_on_after(step["after_ms"] / 1000):
            return plain(await client.call_tool(step["cancelled_call"], step.get("args", {})))
        return {"cancelled": True}
    heard = []

    async def progress(done, total, message):
        heard.append(message)

    result = await client.call_tool(
        step["call"], step.get("args", {}), progress_callback=progress, meta=step.get("meta")
    )
    return plain(result) | {"progress": heard}


async def main(url, mode, token):
    async with Client(url, mode=mode) as client:
        print(json.dumps({"revision": client.protocol_version}), flush=True)
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            try:
                answer = await do(client, json.loads(line))
            except Exception as error:  # what a program on the SDK would see
                answer = {"error": str(error), "code": getattr(getattr(error, "error", None), "code", None)}
            print(json.dumps(answer), flush=True)


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None))
