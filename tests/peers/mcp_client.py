"""An MCP client on the official Python SDK: does the steps that it reads, one JSON document per line, and answers each on a line.

Usage: mcp_client.py SERVER MODE [ACTION]; SERVER is a URL, or the command of a server over stdio as a list of words in JSON; MODE is `auto` (the newest revision that both speak) or `legacy` (2025-11-25, with a session). With ACTION
(`accept`, `decline` or `cancel`) the client can open pages, and its person answers so to every request to open one.
Steps: {"list": true}, {"call": NAME, "args": {…}, "meta": {…}}, {"cancelled_call": NAME, "args": {…}, "after_ms": N}, {"ping": true},
{"listen": true}, {"changed": true}: waits until the list of tools has changed since it listened.
"""

import asyncio
import json
import sys

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters

CHANGED = asyncio.Event()
OPENED = []


def plain(result):
    return json.loads(result.model_dump_json(by_alias=True, exclude_none=True))


async def hears(message):
    if isinstance(message, types.ToolListChangedNotification):
        CHANGED.set()


async def listens(client, established):
    async with client.listen(tools_list_changed=True) as changes:
        established.set()
        async for _ in changes:
            CHANGED.set()


async def do(client, step):
    if "list" in step:
        return plain(await client.list_tools())
    if "ping" in step:
        return plain(await client.session.send_ping())
    if "listen" in step:
        if client.protocol_version >= "2026-07-28":
            established = asyncio.Event()
            client.listening = asyncio.create_task(listens(client, established))
            await established.wait()
        return {"listening": True}
    if "changed" in step:
        await CHANGED.wait()
        CHANGED.clear()
        return {"changed": True}
    if "cancelled_call" in step:
        with anyio.move_on_after(step["after_ms"] / 1000):
            return plain(await client.call_tool(step["cancelled_call"], step.get("args", {})))
        return {"cancelled": True}
    heard = []

    async def progress(done, total, message):
        heard.append(message)

    OPENED.clear()
    result = await client.call_tool(
        step["call"], step.get("args", {}), progress_callback=progress, meta=step.get("meta")
    )
    return plain(result) | {"progress": heard, "opened": list(OPENED)}


async def main(server, mode, action=None):
    if server.startswith("["):
        command, *args = json.loads(server)
        server = StdioServerParameters(command=command, args=args)

    async def opens(context, params):
        OPENED.append(plain(params))
        return types.ElicitResult(action=action)

    callback = opens if action else None
    async with Client(server, mode=mode, elicitation_callback=callback, message_handler=hears) as client:
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


asyncio.run(main(*sys.argv[1:]))
