"""A client of the Python SDK, of the generation that PYTHONPATH leads to. Input and output are those of typescript.mjs.

python.py legacy|auto CALL COMMAND ARGUMENTS…
"""

import json
import os
import sys
from datetime import timedelta

import anyio
import mcp

MODE, CALL, COMMAND, *ARGUMENTS = sys.argv[1:]
PATIENCE = 20
notified = []


async def hear(params):
    notified.append(params.data)


def server():
    return mcp.StdioServerParameters(command=COMMAND, args=ARGUMENTS, env=dict(os.environ))


def tell(version, instructions, tools, called):
    print(
        json.dumps(
            {
                "version": version,
                "instructions": instructions,
                "tools": {tool.name: tool.description for tool in tools.tools},
                "blocks": [getattr(block, "text", None) for block in called.content],
                "notified": notified,
            }
        )
    )


async def of_the_first_generation(call):
    from mcp.client.stdio import stdio_client

    async with stdio_client(server()) as (read, write):
        patience = timedelta(seconds=PATIENCE)
        async with mcp.ClientSession(read, write, read_timeout_seconds=patience, logging_callback=hear) as client:
            begun = await client.initialize()
            tools = await client.list_tools()
            called = await client.call_tool(call["name"], call["arguments"])
            tell(begun.protocolVersion, begun.instructions, tools, called)


async def of_the_second_generation(call):
    about = {"mode": MODE, "read_timeout_seconds": PATIENCE, "logging_callback": hear, "log_level": "info"}
    async with mcp.Client(server(), **about) as client:
        tools = await client.list_tools()
        called = await client.call_tool(call["name"], call["arguments"])
        tell(client.protocol_version, client.instructions, tools, called)


anyio.run(of_the_second_generation if hasattr(mcp, "Client") else of_the_first_generation, json.loads(CALL))
