"""An agent whose model does what it is told: the steps that it reads, one JSON document per line; what the model is shown of each goes to a line.

Usage: mcp_agent.py FRAMEWORK URL; FRAMEWORK is `pydantic-ai` or `openai-agents`. The framework, its loop and its MCP client are as they come; only
the model is a script. Steps: {"list": true}, {"call": NAME, "args": {…}}, {"cancelled_call": NAME, "args": {…}, "after_ms": N}, where the whole
run of the agent is cancelled. A line holds {"tools": […]} or {"text": what the model is shown} or {"cancelled": true}.
"""

import asyncio
import json
import sys
import warnings

warnings.simplefilter("ignore")


class Script:
    """The model's side: the next step, and the tool call in it."""

    def __init__(self, steps):
        self.steps = steps
        self.pending = None
        self.run = None
        self.count = 0

    async def next_call(self, tools, shown):
        """The next call that the model makes, with an id; none where the script has ended."""
        if self.pending is not None:
            self.pending = None
            answer({"text": shown})
        while line := await self.steps.readline():
            step = json.loads(line)
            if "list" in step:
                answer({"tools": [{"name": name} for name in tools]})
                continue
            self.count += 1
            name = step.get("call") or step["cancelled_call"]
            self.pending = name
            if "after_ms" in step:
                asyncio.get_running_loop().call_later(step["after_ms"] / 1000, self.cancel)
            return f"call-{self.count}", name, step.get("args", {})
        return None

    def cancel(self):
        self.pending = None
        self.run.cancel()


def answer(document):
    print(json.dumps(document), flush=True)


def plain(content):
    return content if isinstance(content, str) else json.dumps(content, default=str)


async def pydantic_ai(url, script, go):
    from pydantic_ai import Agent
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.messages import ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    async def model(messages, info):
        parts = [part for part in messages[-1].parts if isinstance(part, (ToolReturnPart, RetryPromptPart))]
        shown = " ".join(plain(part.content) for part in parts)
        call = await script.next_call([tool.name for tool in info.function_tools], shown)
        if call is None:
            return ModelResponse(parts=[TextPart("done")])
        number, name, args = call
        return ModelResponse(parts=[ToolCallPart(name, args, tool_call_id=number)])

    # A refusal is shown to the model as something to correct, which the framework limits.
    agent = Agent(FunctionModel(model), toolsets=[MCPToolset(url, max_retries=10)])
    async with agent:
        await go(lambda: agent.run("go"))


async def openai_agents(url, script, go):
    from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
    from agents.mcp import MCPServerStreamableHttp
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Scripted(Model):
        async def get_response(self, system_instructions, input, model_settings, tools, *rest, **named):
            last = input[-1] if isinstance(input, list) else {}
            call = await script.next_call([tool.name for tool in tools], plain(last.get("output")))
            if call is None:
                text = ResponseOutputText(type="output_text", text="done", annotations=[])
                said = ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[text]
                )
            else:
                number, name, args = call
                said = ResponseFunctionToolCall(
                    type="function_call", call_id=number, name=name, arguments=json.dumps(args)
                )
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *all, **named):
            raise NotImplementedError("the script is not streamed")

    set_tracing_disabled(True)
    async with MCPServerStreamableHttp(params={"url": url}, client_session_timeout_seconds=60) as server:
        agent = Agent(name="scripted", mcp_servers=[server], model=Scripted())
        await go(lambda: Runner.run(agent, "go", max_turns=50))


async def main(framework, url):
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    script = Script(reader)

    async def go(run):
        """Runs the agent until its script has ended, again after a run that was cancelled."""
        while True:
            script.run = asyncio.ensure_future(run())
            try:
                return await script.run
            except asyncio.CancelledError:
                answer({"cancelled": True})

    answer({"framework": framework})
    await {"pydantic-ai": pydantic_ai, "openai-agents": openai_agents}[framework](url, script, go)


asyncio.run(main(*sys.argv[1:]))
