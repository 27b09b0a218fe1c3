# A small MCP server for tests: `python3 peer.py MODE`. Good by default; each mode and each tool is one oddity.
import json, os, signal, socket, subprocess, sys, threading, time

MODE = sys.argv[1] if len(sys.argv) > 1 else "good"
LOCK = threading.Lock()
CANCELLED = []
REPLIES = {}


def send(message):
    with LOCK:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def result(request, value):
    send({"jsonrpc": "2.0", "id": request["id"], "result": value})


def text(value):
    return {"content": [{"type": "text", "text": value}]}


def tool(name, **more):
    return {"name": name, "description": "tool " + name, "inputSchema": {"type": "object"}, **more}


def process():
    """What the system says about us."""
    opened = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            opened[name] = os.readlink("/proc/self/fd/" + name)
        except OSError:
            pass  # The listing itself, which is closed by now.
    limits = {}
    for line in open("/proc/self/limits").read().splitlines()[1:]:
        words = [word for word in line.split("  ") if word]
        limits[words[0].strip()] = [word.strip() for word in words[1:3]]
    status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
    return {"fds": opened, "limits": limits, "no_new_privs": status["NoNewPrivs"].strip(), "group": os.getpgid(0) == os.getpid()}


def tries(args):
    """Which of these the system lets us do."""
    done = {}
    for name, attempt in [
        ("connect", lambda: socket.create_connection(("127.0.0.1", args["port"]), 5).close()),
        ("bind", lambda: socket.create_server(("127.0.0.1", 0)).close()),
        ("read", lambda: open(args["read"]).close()),
        ("write", lambda: open(args["write"], "a").close()),
        ("outside", lambda: open(args["outside"]).close()),
        ("change", lambda: open(args["read"], "a").close()),
        ("remove", lambda: os.remove(args["read"])),
    ]:
        try:
            attempt()
            done[name] = True
        except PermissionError:
            done[name] = False
        except (KeyError, FileNotFoundError):
            pass
    return done


def page(params):
    if MODE == "endless":
        return {"tools": [], "nextCursor": "again"}
    if MODE == "many":
        start = int((params or {}).get("cursor", "0"))
        tools = [tool("t%d" % n) for n in range(start, start + 100)]
        return {"tools": tools, "nextCursor": str(start + 100)}
    if MODE == "counts":
        return {"tools": [tool("count")]}
    if MODE == "lies":
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        return {"tools": [tool("die"), tool("other_kind"), *(tool(name, outputSchema=schema) for name in ("misfit", "fail", "big", "both"))]}
    if MODE == "twins":
        return {"tools": [tool("a"), tool("a")]}
    if (params or {}).get("cursor") == "2":
        return {"tools": [tool("echo", title="Echo", annotations={"readOnlyHint": True})]}
    if MODE.startswith("askable"):
        return {"tools": [tool("status"), tool("echo")]}
    return {"tools": [tool("slow"), tool("odd", inputSchema={"type": "object", "maximum": 2**63})], "nextCursor": "2"}


def call(request):
    params = request["params"]
    name, args = params["name"], params.get("arguments", {})
    if name == "echo":
        seen = {"args": args, "meta": params.get("_meta", {}), "env": dict(os.environ), "argv": sys.argv[1:], "cwd": os.getcwd(), "process": process()}
        result(request, {**text("done"), "structuredContent": seen})
    elif name == "tries":
        result(request, {**text("done"), "structuredContent": tries(args)})
    elif name == "status":
        # Says what it is told to say, but only about one token.
        if MODE == "askable:silent":
            return
        say = args["say"] if args["token"] == "dispatch-token-1" else {"state": "not_found"}
        with open(args["log"], "a") as out:
            out.write(json.dumps(params) + "\n")
        result(request, {**text("asked"), "structuredContent": say, "isError": bool(args.get("error"))})
    elif name == "slow":
        while args.get("spin"):
            pass
        time.sleep(args["ms"] / 1000)
        result(request, text("slept %d" % args["ms"]))
    elif name == "fail":
        result(request, {**text("no such row"), "isError": True})
    elif name == "error":
        send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": args["code"], "message": "bad\nthing"}})
    elif name == "die":
        os._exit(3)
    elif name == "garbage":
        with LOCK:
            sys.stdout.write("[INFO] an answer that cannot be read follows\n")
            sys.stdout.write('{"jsonrpc": "2.0", "result": {"content": [{"type": "text", "text": "\\q"}]}, "id": %d}\n' % request["id"])
            sys.stdout.flush()
    elif name == "other_kind":
        result(request, "a string")
    elif name == "sources":
        result(request, {"content": [
            {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt", "title": "A"},
            {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "b"}},
            {"type": "resource_link", "uri": "file:///evil\u202e", "name": "hidden"},
        ]})
    elif name == "big":
        result(request, text("x" * args["bytes"]))
    elif name == "both":
        result(request, {**text("x" * args["bytes"]), "structuredContent": {"n": 1}})
    elif name == "misfit":
        result(request, {**text("paid"), "structuredContent": {"n": "seven"}})
    elif name == "twice":
        result(request, text("first"))
        result(request, text("second"))
    elif name == "number":
        result(request, {**text("n"), "structuredContent": {"n": 9007199254740993}})
    elif name == "change":
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        result(request, text("changed"))
    elif name == "ask":
        said = []
        for method in ("sampling/createMessage", "elicitation/create", "roots/list", "ping"):
            key = "ask-" + method
            params = {"messages": [], "maxTokens": 1} if method.startswith("sampling") else {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}
            REPLIES[key] = threading.Event()
            send({"jsonrpc": "2.0", "id": key, "method": method, "params": params})
            REPLIES[key].wait(5)
            answer = REPLIES.get(key + "!", {})
            said.append([method, answer.get("error", {}).get("code"), "result" in answer])
        result(request, {**text("asked"), "structuredContent": {"said": said}})
    elif name == "count":
        told = {"progressToken": params["_meta"]["progressToken"], "total": 3}
        for done in range(1, 4):
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {**told, "progress": done}})
        result(request, text("counted"))
    elif name == "flood":
        for _ in range(args["mib"]):
            sys.stderr.write("y" * (1 << 20))
        sys.stderr.flush()
        result(request, text("flooded"))
    elif name == "cancelled":
        result(request, {**text("c"), "structuredContent": {"cancelled": CANCELLED}})
    elif name == "input_required":
        result(request, {"resultType": "input_required", "inputRequests": {}, "requestState": "s"})
    else:
        send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32602, "message": "unknown tool"}})


def handle(request):
    method = request.get("method")
    if method is None:
        REPLIES[request["id"] + "!"] = request
        REPLIES[request["id"]].set()
    elif method == "initialize":
        version = MODE.split(":", 1)[1] if MODE.startswith("version:") else request["params"]["protocolVersion"]
        result(request, {
            "protocolVersion": version, "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "peer", "version": "1"}})
    elif method == "tools/list":
        if MODE == "silent_list":
            return
        result(request, page(request.get("params")))
    elif method == "tools/call":
        threading.Thread(target=call, args=(request,), daemon=True).start()
    elif method == "notifications/cancelled":
        CANCELLED.append(request["params"]["requestId"])
    elif "id" in request:
        send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "no such method"}})


if MODE.startswith("family:"):
    child = subprocess.Popen(["/bin/sleep", "300"])
    with open(MODE.split(":", 1)[1], "w") as out:
        out.write("%d %d" % (os.getpid(), child.pid))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if MODE == "exit":
    sys.exit(1)
if MODE == "garbage":
    print("{garbage", flush=True)
    time.sleep(600)
if MODE == "noise":
    while True:
        print("hello", flush=True)
if MODE == "endless_line":
    while True:
        sys.stdout.write("z" * 65536)
if MODE == "silent":
    time.sleep(600)
if MODE == "banner":
    print("welcome to the peer", flush=True)
if MODE == "flood_pings":
    number = 0
    while True:
        number += 1
        send({"jsonrpc": "2.0", "id": "p%d" % number, "method": "ping"})

for line in sys.stdin:
    handle(json.loads(line))
    if MODE.startswith("deaf:") and "initialized" in line:
        time.sleep(int(MODE.split(":")[1]) / 1000)
        os._exit(0)
if MODE.startswith("family:"):
    time.sleep(600)
