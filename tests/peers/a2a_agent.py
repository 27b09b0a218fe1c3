"""An A2A 1.0 agent of the official SDK that keeps books: a sub-agent that others call over JSON-RPC.

Usage: a2a_agent.py RECORD; prints the port that it listens on. What it is told goes to RECORD, a JSON document per line, before it is acted on.
Words: `add N …` gives the sum as text and as data; `slow S` works for S seconds first; `ask` wants to know more; `fail` fails.
"""

import asyncio
import json
import socket
import sys

import uvicorn
from a2a.helpers import proto_helpers as made
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette


class Books(AgentExecutor):
    def __init__(self, record):
        self.record = record

    async def execute(self, context, events):
        with open(self.record, "a", encoding="utf-8") as record:
            record.write(json.dumps(MessageToDict(context.message)) + "\n")
        task = context.current_task or made.new_task_from_user_message(context.message)
        if not context.current_task:
            await events.enqueue_event(task)
        updater = TaskUpdater(events, task.id, task.context_id)
        await updater.start_work()
        words = context.get_user_input().split()
        said = lambda text: updater.new_agent_message([made.new_text_part(text)])
        match words[0]:
            case "ask":
                return await updater.requires_input(said("Which account?"))
            case "fail":
                return await updater.failed(said("The books are closed."))
            case "slow":
                await asyncio.sleep(float(words[1]))
        total = sum(int(word) for word in words[1:] if word.isdigit())
        parts = [made.new_text_part(f"The sum is {total}."), made.new_data_part({"sum": total})]
        await updater.add_artifact(parts, name="sum")
        await updater.complete()

    async def cancel(self, context, events):
        await TaskUpdater(events, context.task_id, context.context_id).cancel()


def main(record):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}/a2a"
    card = AgentCard(
        name="books",
        description="Keeps books.",
        version="1.0.0",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        capabilities=AgentCapabilities(streaming=False),
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
    )
    handler = DefaultRequestHandler(agent_executor=Books(record), task_store=InMemoryTaskStore(), agent_card=card)
    app = Starlette(routes=create_jsonrpc_routes(handler, "/a2a"))
    print(port, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1])
