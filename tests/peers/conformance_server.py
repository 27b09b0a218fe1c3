"""The MCP server that the official conformance suite talks to, directly and through Placet, on the official Python SDK.

Usage: conformance_server.py; prints its port, and serves Streamable HTTP at /mcp in the revisions that the SDK speaks: those with sessions and
the stateless one. Its tools, resources and prompts have the names that the suite asks for; each does what the suite's requirement for it says.
"""

import asyncio
import json
import logging
import socket
import struct
import warnings
import zlib
from base64 import b64encode

import uvicorn
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolResult,
    CompleteResult,
    EmptyResult,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceResult,
    SamplingMessage,
    TextContent,
)

NAME = "conformance-upstream"
STATELESS = "2026-07-28"
MISSING_CAPABILITY = -32021

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)


# What is served as data.


def png():
    """One red pixel."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\x00\xff\x00\x00")
    return b64encode(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")).decode()


def wav():
    """Eight samples of silence."""
    samples = b"\x80" * 8
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8)
    data = struct.pack("<4sI", b"data", len(samples)) + samples
    return b64encode(struct.pack("<4sI4s", b"RIFF", 4 + len(form) + len(data), b"WAVE") + form + data).decode()


def text(content):
    return {"type": "text", "text": content}


def image():
    return {"type": "image", "data": png(), "mimeType": "image/png"}


def embedded(uri, content, mime_type):
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": content}}


def result(*content):
    return {"content": list(content)}


# What is asked of the client: in a request of its own where there is a session, else in the result (SEP-2322).


def form(properties, required=()):
    return {"type": "object", "properties": properties, "required": list(required)}


NAME_FORM = form({"name": {"type": "string"}}, ["name"])


def asks_form(message, schema):
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def asks_model(prompt, tokens):
    message = {"role": "user", "content": text(prompt)}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": tokens}}


ASKS_ROOTS = {"method": "roots/list", "params": {}}


def wants(requests, state=None):
    answer = {"resultType": "input_required", "inputRequests": requests}
    return answer if state is None else answer | {"requestState": state}


def answers(params):
    """What the client sent with a retry, as plain objects."""
    given = params.input_responses or {}
    return {key: value.model_dump(mode="json", by_alias=True, exclude_none=True) for key, value in given.items()}


def filled(answer, name):
    """A field of a form that was filled in; nothing where it was not."""
    content = (answer or {}).get("content")
    return content.get(name) if isinstance(content, dict) else None


def of_model(answer):
    content = (answer or {}).get("content")
    return content.get("text") if isinstance(content, dict) else None


# Tools with plain results.


async def simple_text(_ctx, _params):
    return result(text("This is a simple text response for testing."))


async def image_content(_ctx, _params):
    return result(image())


async def audio_content(_ctx, _params):
    return result({"type": "audio", "data": wav(), "mimeType": "audio/wav"})


async def embedded_resource(_ctx, _params):
    return result(embedded("test://embedded-resource", "This is an embedded resource content.", "text/plain"))


async def multiple_content_types(_ctx, _params):
    data = json.dumps({"test": "data", "value": 123})
    return result(
        text("Multiple content types test:"),
        image(),
        embedded("test://mixed-content-resource", data, "application/json"),
    )


async def error_handling(_ctx, _params):
    return result(text("This tool intentionally returns an error for testing")) | {"isError": True}


async def with_progress(ctx, _params):
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
        await asyncio.sleep(0.05)
    return result(text("three steps were reported"))


async def with_logging(ctx, _params):
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", message, related_request_id=ctx.request_id)
        await asyncio.sleep(0.05)
    return result(text("three messages were logged"))


async def greets(_ctx, params):
    return result(text("hello from " + str((params.arguments or {}).get("region"))))


# Tools that ask the client.


async def sampling(ctx, params):
    prompt = SamplingMessage(role="user", content=TextContent(type="text", text=params.arguments["prompt"]))
    answer = await ctx.session.create_message([prompt], max_tokens=100, related_request_id=ctx.request_id)
    return result(text("LLM response: " + answer.content.text))


async def elicited(ctx, message, schema, prefix):
    answer = await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)
    content = json.dumps(answer.content)
    return result(text(f"{prefix}: action={answer.action}, content={content}"))


async def elicitation(ctx, params):
    properties = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    schema = form(properties, ["username", "email"])
    return await elicited(ctx, params.arguments["message"], schema, "User response")


async def elicitation_defaults(ctx, _params):
    schema = form(
        {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        }
    )
    return await elicited(ctx, "Is this right?", schema, "Elicitation completed")


async def elicitation_enums(ctx, _params):
    def titled(*titles):
        return [{"const": f"value{number}", "title": title} for number, title in enumerate(titles, 1)]

    options = ["option1", "option2", "option3"]
    old = {"enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]}
    first = titled("First Option", "Second Option", "Third Option")
    choices = titled("First Choice", "Second Choice", "Third Choice")
    schema = form(
        {
            "untitledSingle": {"type": "string", "enum": options},
            "titledSingle": {"type": "string", "oneOf": first},
            "legacyEnum": {"type": "string"} | old,
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
            "titledMulti": {"type": "array", "items": {"anyOf": choices}},
        }
    )
    return await elicited(ctx, "Choose.", schema, "Elicitation completed")


async def wants_name(_ctx, params):
    name = filled(answers(params).get("user_name"), "name")
    if name is None:
        return wants({"user_name": asks_form("What is your name?", NAME_FORM)})
    return result(text(f"Hello, {name}!"))


async def wants_model(_ctx, params):
    said = of_model(answers(params).get("capital_question"))
    if said is None:
        return wants({"capital_question": asks_model("What is the capital of France?", 100)})
    return result(text(said))


async def wants_roots(_ctx, params):
    roots = answers(params).get("client_roots", {}).get("roots")
    if roots is None:
        return wants({"client_roots": ASKS_ROOTS})
    return result(text("the roots are " + ", ".join(root["uri"] for root in roots)))


async def wants_state(_ctx, params):
    confirm = form({"ok": {"type": "boolean"}}, ["ok"])
    if params.request_state is None:
        return wants({"confirm": asks_form("Please confirm", confirm)}, "asked to confirm")
    return result(text("state-ok"))


async def wants_several(_ctx, params):
    given = answers(params)
    asked = {
        "user_name": asks_form("What is your name?", NAME_FORM),
        "greeting": asks_model("Generate a greeting", 50),
        "client_roots": ASKS_ROOTS,
    }
    if params.request_state is None or not asked.keys() <= given.keys():
        return wants(asked, "asked for three")
    return result(text(f"{of_model(given['greeting'])}, {filled(given['user_name'], 'name')}"))


async def wants_rounds(_ctx, params):
    given = answers(params)
    if params.request_state is None:
        return wants({"step1": asks_form("Step 1: What is your name?", NAME_FORM)}, json.dumps([]))
    before = json.loads(params.request_state)
    if not before:
        color = form({"color": {"type": "string"}}, ["color"])
        known = [filled(given.get("step1"), "name")]
        return wants({"step2": asks_form("Step 2: What is your favorite color?", color)}, json.dumps(known))
    return result(text(f"{before[0]} likes {filled(given.get('step2'), 'color')}"))


async def wants_what_is_offered(ctx, _params):
    offered = ctx.session.client_capabilities
    asked = {}
    if offered and offered.sampling is not None:
        asked["model"] = asks_model("Say something", 50)
    if offered and offered.elicitation is not None:
        asked["name"] = asks_form("What is your name?", NAME_FORM)
    return wants(asked) if asked else result(text("nothing can be asked"))


async def needs_sampling(ctx, _params):
    offered = ctx.session.client_capabilities
    if offered is None or offered.sampling is None:
        data = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(MISSING_CAPABILITY, "the client has to offer sampling", data)
    return result(text("the client offers sampling"))


# Tools that change what is listed.

BUS = InMemorySubscriptionBus()


async def changes_tools(ctx, _params):
    await BUS.publish(ToolsListChanged())
    if ctx.protocol_version < STATELESS:
        await ctx.session.send_tool_list_changed()
    return result(text("the tools have changed"))


async def changes_prompts(ctx, _params):
    await BUS.publish(PromptsListChanged())
    if ctx.protocol_version < STATELESS:
        await ctx.session.send_prompt_list_changed()
    return result(text("the prompts have changed"))


NOTHING = {"type": "object", "properties": {}}
TEXT = {"type": "string"}

# The keywords of JSON Schema 2020-12 that must survive (SEP-1613, SEP-2106).
RICH = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "whereabouts", "type": "object", "properties": {"street": TEXT, "city": TEXT}}},
    "properties": {
        "name": TEXT,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": TEXT,
        "email": TEXT,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

HEADED = {"type": "object", "properties": {"region": TEXT | {"x-mcp-header": "Region"}}, "required": ["region"]}

# Name, what it does, its arguments.
TOOLS = {
    "test_simple_text": (simple_text, NOTHING),
    "test_image_content": (image_content, NOTHING),
    "test_audio_content": (audio_content, NOTHING),
    "test_embedded_resource": (embedded_resource, NOTHING),
    "test_multiple_content_types": (multiple_content_types, NOTHING),
    "test_error_handling": (error_handling, NOTHING),
    "test_tool_with_progress": (with_progress, NOTHING),
    "test_tool_with_logging": (with_logging, NOTHING),
    "test_logging_tool": (with_logging, NOTHING),
    "test_custom_headers": (greets, HEADED),
    "json_schema_2020_12_tool": (simple_text, RICH),
    "test_sampling": (sampling, form({"prompt": TEXT}, ["prompt"])),
    "test_elicitation": (elicitation, form({"message": TEXT}, ["message"])),
    "test_elicitation_sep1034_defaults": (elicitation_defaults, NOTHING),
    "test_elicitation_sep1330_enums": (elicitation_enums, NOTHING),
    "test_streaming_elicitation": (wants_name, NOTHING),
    "test_missing_capability": (needs_sampling, NOTHING),
    "test_input_required_result_elicitation": (wants_name, NOTHING),
    "test_input_required_result_sampling": (wants_model, NOTHING),
    "test_input_required_result_list_roots": (wants_roots, NOTHING),
    "test_input_required_result_request_state": (wants_state, NOTHING),
    "test_input_required_result_tampered_state": (wants_state, NOTHING),
    "test_input_required_result_multiple_inputs": (wants_several, NOTHING),
    "test_input_required_result_multi_round": (wants_rounds, NOTHING),
    "test_input_required_result_capabilities": (wants_what_is_offered, NOTHING),
    "test_trigger_tool_change": (changes_tools, NOTHING),
    "test_trigger_prompt_change": (changes_prompts, NOTHING),
}


async def list_tools(_ctx, _params):
    tools = [
        {"name": name, "description": f"For the conformance suite: {does.__name__}.", "inputSchema": schema}
        for name, (does, schema) in TOOLS.items()
    ]
    return {"tools": tools}


async def call_tool(ctx, params):
    if params.name not in TOOLS:
        raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
    does, _schema = TOOLS[params.name]
    return await does(ctx, params)


# Resources.

STATIC = {
    "test://static-text": ("text/plain", {"text": "This is the content of the static text resource."}),
    "test://static-binary": ("image/png", {"blob": png()}),
    "test://watched-resource": ("text/plain", {"text": "This content may change."}),
}


async def list_resources(_ctx, _params):
    resources = [
        {"uri": uri, "name": uri.removeprefix("test://"), "description": "For the conformance suite.", "mimeType": kind}
        for uri, (kind, _content) in STATIC.items()
    ]
    return {"resources": resources}


async def list_templates(_ctx, _params):
    template = {
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "description": "For the conformance suite.",
        "mimeType": "application/json",
    }
    return {"resourceTemplates": [template]}


async def read_resource(_ctx, params):
    uri = str(params.uri)
    if uri in STATIC:
        kind, content = STATIC[uri]
        return {"contents": [{"uri": uri, "mimeType": kind} | content]}
    if uri.startswith("test://template/") and uri.endswith("/data"):
        number = uri.removeprefix("test://template/").removesuffix("/data")
        data = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}]}
    raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri})


# Prompts and completions.


def of_user(*content):
    return {"messages": [{"role": "user", "content": one} for one in content]}


def simple_prompt(_arguments):
    return of_user(text("This is a simple prompt for testing."))


def prompt_with_arguments(arguments):
    return of_user(text(f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'"))


def prompt_with_resource(arguments):
    resource = embedded(arguments["resourceUri"], "Embedded resource content for testing.", "text/plain")
    return of_user(resource, text("Please process the embedded resource above."))


def prompt_with_image(_arguments):
    return of_user(image(), text("Please analyze the image above."))


PROMPTS = {
    "test_simple_prompt": (simple_prompt, []),
    "test_prompt_with_arguments": (prompt_with_arguments, ["arg1", "arg2"]),
    "test_prompt_with_embedded_resource": (prompt_with_resource, ["resourceUri"]),
    "test_prompt_with_image": (prompt_with_image, []),
    "test_input_required_result_prompt": (None, []),
}


async def list_prompts(_ctx, _params):
    prompts = [
        {
            "name": name,
            "description": "For the conformance suite.",
            "arguments": [{"name": one, "description": "A text.", "required": True} for one in arguments],
        }
        for name, (_says, arguments) in PROMPTS.items()
    ]
    return {"prompts": prompts}


async def get_prompt(_ctx, params):
    if params.name not in PROMPTS:
        raise MCPError(INVALID_PARAMS, f"Unknown prompt: {params.name}")
    says, _arguments = PROMPTS[params.name]
    if says is not None:
        return says(params.arguments or {})
    context = filled(answers(params).get("user_context"), "context")
    if context is None:
        schema = form({"context": {"type": "string"}}, ["context"])
        return wants({"user_context": asks_form("What context should the prompt use?", schema)})
    return of_user(text(f"The context is {context}"))


async def complete(_ctx, params):
    values = [word for word in ("paris", "park", "party", "test") if word.startswith(params.argument.value)]
    return {"completion": {"values": values, "total": len(values), "hasMore": False}}


async def nothing(_ctx, _params):
    return {}


def typed(model, handler):
    """The handler with its result in the SDK's form, which has what each revision wants of a result."""

    async def handle(ctx, params):
        answer = await handler(ctx, params)
        form = InputRequiredResult if answer.get("resultType") == "input_required" else model
        return form.model_validate(answer)

    return handle


def server():
    cached = ["tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"]
    made = Server(
        NAME,
        version="1",
        cache_hints={method: CacheHint(ttl_ms=1_000, scope="private") for method in cached},
        get_tool_input_schema=lambda name: TOOLS[name][1] if name in TOOLS else None,
        on_list_tools=typed(ListToolsResult, list_tools),
        on_call_tool=typed(CallToolResult, call_tool),
        on_list_resources=typed(ListResourcesResult, list_resources),
        on_list_resource_templates=typed(ListResourceTemplatesResult, list_templates),
        on_read_resource=typed(ReadResourceResult, read_resource),
        on_subscribe_resource=typed(EmptyResult, nothing),
        on_unsubscribe_resource=typed(EmptyResult, nothing),
        on_subscriptions_listen=ListenHandler(BUS),
        on_list_prompts=typed(ListPromptsResult, list_prompts),
        on_get_prompt=typed(GetPromptResult, get_prompt),
        on_completion=typed(CompleteResult, complete),
        on_set_logging_level=typed(EmptyResult, nothing),
    )
    made.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME))
    return made


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(server().streamable_http_app(), log_level="critical")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


main()
