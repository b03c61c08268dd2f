"""The server that the conformance suite is run against: what its scenarios ask for, by the standard library alone, over stdio and in both eras
of the protocol. One thread reads, each request has its own: some ask the client meanwhile.
"""

import json
import queue
import sys
import threading
import time

NEWER = "2026-07-28"
OLDER = ["2025-03-26", "2025-06-18", "2025-11-25"]
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LEVEL = "io.modelcontextprotocol/logLevel"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{n}", "title": title} for n, title in enumerate(["First", "Second", "Third"], 1)]
ENUMS = {
    "untitledSingle": {"type": "string", "enum": OPTIONS},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}

writing = threading.Lock()
waiting = {}


class Failed(Exception):
    """An error for the client: code, message, data."""


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            waiting.pop(message["id"], queue.Queue()).put(message)
        elif "id" in message:
            threading.Thread(target=answer, args=(message,), daemon=True).start()


def send(message):
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def answer(message):
    params = message.get("params") or {}
    meta = params.get("_meta") or {}
    try:
        is_newer = VERSION in meta or message["method"] == "server/discover"
        result = of_newer(message["method"], params, meta) if is_newer else of_older(message["method"], params)
        send({"id": message["id"], "result": result})
    except Failed as why:
        code, text, *data = why.args
        send({"id": message["id"], "error": {"code": code, "message": text, **({"data": data[0]} if data else {})}})


def ask(method, params):
    """A request to a client of the older era."""
    number, came = f"server-{time.monotonic_ns()}", queue.Queue()
    waiting[number] = came
    send({"id": number, "method": method, "params": params})
    reply = came.get()
    if "error" in reply:
        raise Failed(-32603, reply["error"]["message"])
    return reply["result"]


def log(text, wanted=True):
    if wanted:
        send({"method": "notifications/message", "params": {"level": "info", "logger": "test", "data": text}})


def of_older(method, params):
    if method == "initialize":
        asked = params.get("protocolVersion")
        capabilities = {"logging": {}, "tools": {}, "prompts": {}, "resources": {"subscribe": True}, "completions": {}}
        return {
            "protocolVersion": asked if asked in OLDER else OLDER[-1],
            "capabilities": capabilities,
            "serverInfo": {"name": "conformance", "version": "1"},
            "instructions": "Has what the suite asks for.",
        }
    if method in ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
        return {}
    return of_both(method, params, True)


def of_newer(method, params, meta):
    if VERSION not in meta or CAPABILITIES not in meta:
        raise Failed(-32602, "Invalid params: _meta lacks what each request carries")
    if meta[VERSION] != NEWER:
        raise Failed(-32022, "Unsupported protocol version", {"supported": [NEWER], "requested": meta[VERSION]})
    about = {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "conformance", "version": "1"}}}
    cached = {"ttlMs": 0, "cacheScope": "private"}
    if method == "server/discover":
        capabilities = {"tools": {}, "prompts": {}, "resources": {}, "completions": {}}
        return {**about, **cached, "supportedVersions": [NEWER], "capabilities": capabilities, "instructions": "Has it."}
    result = of_both(method, params, LEVEL in meta, meta)
    return {**about, **(cached if method.endswith("/list") or method == "resources/read" else {}), **result}


def of_both(method, params, logs, meta=None):
    if method == "tools/list":
        return {"tools": [described(name) for name in TOOLS]}
    if method == "tools/call":
        tool = TOOLS.get(params.get("name"))
        if tool is None:
            raise Failed(-32602, f"Unknown tool: {params.get('name')}")
        return tool(params, logs, meta)
    if method == "resources/list":
        return {"resources": [{"uri": uri, "name": uri, "mimeType": kind} for uri, kind in RESOURCES.items()]}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "test://template/{id}/data", "name": "template"}]}
    if method == "resources/read":
        return {"contents": [contents(params.get("uri", ""))]}
    if method == "prompts/list":
        return {"prompts": [{"name": name, "description": f"Prompt {name}", "arguments": [{**one, "description": one["name"]} for one in arguments]} for name, arguments in PROMPTS.items()]}
    if method == "prompts/get":
        if params.get("name") == "test_input_required_result_prompt" and "inputResponses" not in params:
            return required({"user_context": elicitation("What context should the prompt use?", "context")})
        return {"messages": prompt(params.get("name"), params)}
    if method == "completion/complete":
        return {"completion": {"values": ["paris", "park"], "total": 2, "hasMore": False}}
    raise Failed(-32601, f"Method not found: {method}")


def described(name):
    schema = {"type": "object", "properties": {}}
    if name == "json_schema_2020_12_tool":
        schema = SCHEMA
    elif name in ("test_sampling", "test_elicitation"):
        argument = "prompt" if name == "test_sampling" else "message"
        schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"name": name, "description": f"Tool {name} of the suite", "inputSchema": schema}


def said(text):
    return {"content": [{"type": "text", "text": text}]}


def embedded(uri, text="This is an embedded resource content."):
    return {"type": "resource", "resource": {"uri": uri, "mimeType": "text/plain", "text": text}}


def with_logging(_params, logs, _meta):
    for text in ["Tool execution started", "Tool processing data", "Tool execution completed"]:
        log(text, logs)
        time.sleep(0.05)
    return said("Logged")


def with_progress(params, _logs, _meta):
    token = (params.get("_meta") or {}).get("progressToken")
    for progress in [0, 50, 100]:
        if token is not None:
            told = {"progressToken": token, "progress": progress, "total": 100}
            send({"method": "notifications/progress", "params": told})
        time.sleep(0.05)
    return said("Done")


def sampling(params, _logs, _meta):
    prompt = {"role": "user", "content": {"type": "text", "text": params["arguments"]["prompt"]}}
    reply = ask("sampling/createMessage", {"messages": [prompt], "maxTokens": 100})
    return said(f"LLM response: {reply['content']['text']}")


def elicits(message, properties):
    def tool(params, _logs, _meta):
        schema = {"type": "object", "properties": properties, "required": []}
        text = params.get("arguments", {}).get("message", message)
        reply = ask("elicitation/create", {"message": text, "requestedSchema": schema})
        return said(f"Elicitation completed: action={reply['action']}, content={json.dumps(reply.get('content'))}")

    return tool


def missing_capability(_params, _logs, meta):
    if meta is not None and "sampling" not in meta[CAPABILITIES]:
        raise Failed(-32021, "Missing required client capability", {"requiredCapabilities": {"sampling": {}}})
    return said("It has it")


def required(requests, state=None):
    """What the newer era has in place of a request of the server's."""
    return {"resultType": "input_required", "inputRequests": requests, **({"requestState": state} if state else {})}


def requires(requests, finished, state=None):
    """A tool of the newer era that answers by what it has to know first."""

    def tool(params, _logs, _meta):
        replies = params.get("inputResponses") or {}
        if state and params.get("requestState") not in (None, state):
            raise Failed(-32602, "Invalid params: this state is not the server's")
        if not all(key in replies for key in requests):
            return required(requests, state)
        return said(finished(replies))

    return tool


def elicitation(message, name):
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def completion(text):
    prompt = {"role": "user", "content": {"type": "text", "text": text}}
    return {"method": "sampling/createMessage", "params": {"messages": [prompt], "maxTokens": 100}}


def multi_round(params, _logs, _meta):
    replies, state = params.get("inputResponses") or {}, params.get("requestState")
    if "step1" in replies and state == "round-1":
        return required({"step2": elicitation("Step 2: What is your favorite color?", "color")}, "round-2")
    if "step2" in replies and state == "round-2":
        return said("Done")
    return required({"step1": elicitation("Step 1: What is your name?", "name")}, "round-1")


def by_capabilities(_params, _logs, meta):
    requests = {"elicitation": elicitation("?", "name"), "sampling": completion("?"), "roots": ROOTS}
    declared = (meta or {}).get(CAPABILITIES, {})
    return required({name: request for name, request in requests.items() if name in declared})


ROOTS = {"method": "roots/list", "params": {}}
ASK_NAME = elicitation("What is your name?", "name")


def name_in(reply):
    content = reply.get("content") if isinstance(reply, dict) else None
    name = content.get("name") if isinstance(content, dict) else None
    if not isinstance(name, str):
        raise Failed(-32602, "Invalid params: the reply has no name")
    return name


TOOLS = {
    "test_simple_text": lambda *_: said("This is a simple text response for testing."),
    "test_image_content": lambda *_: {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]},
    "test_audio_content": lambda *_: {"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]},
    "test_embedded_resource": lambda *_: {"content": [embedded("test://embedded-resource")]},
    "test_multiple_content_types": lambda *_: {
        "content": [
            {"type": "text", "text": "Multiple content types test:"},
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            embedded("test://mixed-content-resource"),
        ]
    },
    "test_error_handling": lambda *_: {**said("This tool intentionally returns an error for testing"), "isError": True},
    "test_tool_with_logging": with_logging,
    "test_logging_tool": with_logging,
    "test_tool_with_progress": with_progress,
    "test_sampling": sampling,
    "test_elicitation": elicits("?", {"username": {"type": "string"}, "email": {"type": "string"}}),
    "test_elicitation_sep1034_defaults": elicits("Defaults", DEFAULTS),
    "test_elicitation_sep1330_enums": elicits("Enums", ENUMS),
    "json_schema_2020_12_tool": lambda *_: said("Valid"),
    "test_missing_capability": missing_capability,
    "test_streaming_elicitation": requires({"user_name": ASK_NAME}, lambda _: "Streamed"),
    "test_input_required_result_elicitation": requires(
        {"user_name": ASK_NAME}, lambda replies: f"Hello, {name_in(replies['user_name'])}!"
    ),
    "test_input_required_result_sampling": requires(
        {"capital_question": completion("What is the capital of France?")},
        lambda replies: replies["capital_question"]["content"]["text"],
    ),
    "test_input_required_result_list_roots": requires(
        {"client_roots": ROOTS}, lambda replies: json.dumps(replies["client_roots"])
    ),
    "test_input_required_result_request_state": requires({"user_name": ASK_NAME}, lambda _: "state-ok", "state"),
    "test_input_required_result_tampered_state": requires({"ok": ASK_NAME}, lambda _: "state-ok", "state"),
    "test_input_required_result_multiple_inputs": requires(
        {"user_name": ASK_NAME, "greeting": completion("Generate a greeting"), "client_roots": ROOTS}, lambda _: "all", "state"
    ),
    "test_input_required_result_multi_round": multi_round,
    "test_input_required_result_capabilities": by_capabilities,
}
RESOURCES = {
    "test://static-text": "text/plain",
    "test://static-binary": "image/png",
    "test://watched-resource": "text/plain",
}
PROMPTS = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": [{"name": "arg1", "required": True}, {"name": "arg2", "required": True}],
    "test_prompt_with_embedded_resource": [{"name": "resourceUri", "required": True}],
    "test_prompt_with_image": [],
    "test_input_required_result_prompt": [],
}


def contents(uri):
    if uri == "test://static-binary":
        return {"uri": uri, "mimeType": "image/png", "blob": PNG}
    if uri in RESOURCES:
        return {"uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource."}
    if uri.startswith("test://template/") and uri.endswith("/data"):
        number = uri.removeprefix("test://template/").removesuffix("/data")
        data = json.dumps({"id": number, "templateTest": True, "data": f"Data for ID: {number}"})
        return {"uri": uri, "mimeType": "application/json", "text": data}
    raise Failed(-32602, f"Resource not found: {uri}", {"uri": uri})


def prompt(name, params):
    arguments = params.get("arguments") or {}
    text = lambda said: {"role": "user", "content": {"type": "text", "text": said}}
    if name == "test_simple_prompt":
        return [text("This is a simple prompt for testing.")]
    if name == "test_prompt_with_arguments":
        return [text(f"Prompt with arguments: arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'")]
    if name == "test_prompt_with_embedded_resource":
        resource = embedded(arguments.get("resourceUri"), "Embedded resource content for testing.")
        return [{"role": "user", "content": resource}, text("Please process the embedded resource above.")]
    if name == "test_prompt_with_image":
        image = {"type": "image", "data": PNG, "mimeType": "image/png"}
        return [{"role": "user", "content": image}, text("Please analyze the image above.")]
    if name == "test_input_required_result_prompt":
        return [text("With its context.")]
    raise Failed(-32602, f"Unknown prompt: {name}")


main()
