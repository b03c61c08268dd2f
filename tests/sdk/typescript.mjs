// A client of the TypeScript SDK: connects, lists, calls one tool, and says on stdout, in a line of JSON, what of it reached the caller.
//
// typescript.mjs NODE_MODULES v1|v2 legacy|auto CALL COMMAND ARGUMENTS…
// CALL is JSON, {"name", "arguments"}. Said are {"version", "instructions", "tools": {NAME: DESCRIPTION}, "blocks": [TEXT], "notified": [TEXT]}.

import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, generation, mode, call, command, ...args] = process.argv.slice(2);
const require = createRequire(join(modules, 'anchor.cjs'));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const patience = { timeout: 20_000 };
const about = { name: 'smcp-test', version: '1' };
const notified = [];

const ofFirstGeneration = async () => {
  const { Client } = await load('@modelcontextprotocol/sdk/client/index.js');
  const { StdioClientTransport } = await load('@modelcontextprotocol/sdk/client/stdio.js');
  const { LoggingMessageNotificationSchema } = await load('@modelcontextprotocol/sdk/types.js');
  const client = new Client(about);
  client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => notified.push(params.data));
  const transport = new StdioClientTransport({ command, args, env: process.env });
  let version;
  transport.setProtocolVersion = (agreed) => (version = agreed);
  await client.connect(transport, patience);
  return { client, meta: undefined, version };
};

const ofSecondGeneration = async () => {
  const { Client } = await load('@modelcontextprotocol/client');
  const { StdioClientTransport } = await load('@modelcontextprotocol/client/stdio');
  const client = new Client(about, { versionNegotiation: { mode } });
  client.setNotificationHandler('notifications/message', ({ params }) => notified.push(params.data));
  await client.connect(new StdioClientTransport({ command, args, env: process.env }), patience);
  const version = client.getNegotiatedProtocolVersion();
  const meta = version === '2026-07-28' ? { 'io.modelcontextprotocol/logLevel': 'info' } : undefined;
  return { client, meta, version };
};

const { client, meta, version } = await (generation === 'v1' ? ofFirstGeneration() : ofSecondGeneration());
const { tools } = await client.listTools(meta && { _meta: meta }, patience);
const called = { ...JSON.parse(call), ...(meta && { _meta: meta }) };
const { content } = await (generation === 'v1' ? client.callTool(called, undefined, patience) : client.callTool(called, patience));
const said = {
  version,
  instructions: client.getInstructions() ?? null,
  tools: Object.fromEntries(tools.map(({ name, description }) => [name, description ?? null])),
  blocks: content.map(({ text }) => text ?? null),
  notified,
};
await client.close();
console.log(JSON.stringify(said));
