// Serves a server of stdio by streamable HTTP on loopback, for the conformance suite, which speaks nothing else.
//
// bridge.mjs COMMAND ARGUMENTS…: writes its URL in a line on stdout. A session of the older era has a process of its own; requests of 2026-07-28, which know no
// sessions, share one, under ids of the bridge's. What a server sends that answers nothing goes to the stream of the request that it names
// by its progress token, else of the newest that waits, else to the session's own stream. Bodies are passed on as they are read, but for
// ids: nothing is looked at that the suite judges.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { createInterface } from 'node:readline';

const [command, ...args] = process.argv.slice(2);
const NEWER = '2026-07-28';
const META = 'io.modelcontextprotocol/protocolVersion';

/** A process and who waits for what it says. */
class Server {
  constructor() {
    this.pending = new Map();
    this.own = null;
    this.early = [];
    this.process = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    createInterface({ input: this.process.stdout }).on('line', (line) => this.hear(line));
    this.process.on('exit', () => {
      for (const { response } of this.pending.values()) response.destroy();
    });
  }

  hear(line) {
    const message = JSON.parse(line);
    const asked = message.method === undefined && this.pending.get(message.id);
    if (asked) {
      this.pending.delete(message.id);
      asked.finish({ ...message, id: asked.id });
      return;
    }
    const token = message.params?.progressToken;
    const waiting = [...this.pending.values()];
    const of = (token !== undefined && waiting.find((one) => one.token === token)) || waiting.at(-1);
    if (of) of.stream(message);
    else if (this.own) event(this.own, message);
    else this.early.push(message);
  }

  say(message) {
    this.process.stdin.write(`${JSON.stringify(message)}\n`);
  }

  /** Passes a request on; the answer is a body, or a stream where something comes before it. */
  ask(message, response, headers, id = message.id) {
    let streams = false;
    const stream = (sent) => {
      if (!streams) response.writeHead(200, { ...headers, 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
      streams = true;
      event(response, sent);
    };
    const finish = (answer) => {
      if (!streams) {
        response.writeHead(status(answer), { ...headers, 'content-type': 'application/json' });
        response.end(JSON.stringify(answer));
        return;
      }
      event(response, answer);
      response.end();
    };
    this.pending.set(id, { id: message.id, token: message.params?._meta?.progressToken, stream, finish, response });
    response.on('close', () => this.pending.delete(id));
    this.say({ ...message, id });
  }

  end() {
    this.process.stdin.end();
  }
}

const event = (response, message) => response.write(`event: message\ndata: ${JSON.stringify(message)}\n\n`);

/** As 2026-07-28 has it over HTTP. */
const status = ({ error }) => ({ '-32601': 404, '-32602': 400, '-32020': 400, '-32021': 400, '-32022': 400 })[error?.code] ?? 200;

const sessions = new Map();
let shared = null;
let count = 0;

const refuse = (response, code, error, message) => {
  response.writeHead(code, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: error, message } }));
};

const isLocal = (name) => ['localhost', '127.0.0.1', '[::1]'].includes(name);

/** Names that lead to loopback from elsewhere are refused. */
const isForeign = ({ host, origin }) =>
  !isLocal(new URL(`http://${host}`).hostname) || (origin !== undefined && !isLocal(new URL(origin).hostname));

const ofNewer = (message, request, response) => {
  const named = request.headers['mcp-protocol-version'];
  const version = message.params?._meta?.[META];
  const isOther = request.headers['mcp-method'] !== undefined && request.headers['mcp-method'] !== message.method;
  if (named === undefined || (version !== undefined && named !== version) || isOther) {
    response.writeHead(400, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id ?? null, error: { code: -32020, message: 'Header mismatch' } }));
    return;
  }
  shared ??= new Server();
  if (message.id === undefined) {
    shared.say(message);
    response.writeHead(202).end();
  } else shared.ask(message, response, {}, `bridge-${++count}`);
};

const ofOlder = (message, request, response) => {
  if (message.method === 'initialize') {
    const id = randomUUID();
    const server = new Server();
    sessions.set(id, server);
    server.ask(message, response, { 'mcp-session-id': id });
    return;
  }
  const id = request.headers['mcp-session-id'];
  const server = sessions.get(id);
  if (server === undefined) return refuse(response, id === undefined ? 400 : 404, -32600, 'no such session');
  if (message.method !== undefined && message.id !== undefined) return server.ask(message, response, {});
  server.say(message);
  response.writeHead(202).end();
};

const listen = (request, response) => {
  const server = sessions.get(request.headers['mcp-session-id']);
  if (server === undefined) return refuse(response, 405, -32600, 'no such session');
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
  response.flushHeaders();
  server.own = response;
  response.on('close', () => (server.own = null));
  for (const message of server.early.splice(0)) event(response, message);
};

const hang = (request, response) => {
  const id = request.headers['mcp-session-id'];
  const server = sessions.get(id);
  if (server === undefined) return refuse(response, 404, -32600, 'no such session');
  sessions.delete(id);
  server.end();
  response.writeHead(200).end();
};

const bridge = http.createServer(async (request, response) => {
  if (isForeign(request.headers)) return refuse(response, 403, -32600, 'a foreign host or origin');
  if (request.method === 'GET') return listen(request, response);
  if (request.method === 'DELETE') return hang(request, response);
  if (request.method !== 'POST') return refuse(response, 405, -32600, 'no such method');
  let body = '';
  for await (const chunk of request) body += chunk;
  let message;
  try {
    message = JSON.parse(body);
  } catch {
    return refuse(response, 400, -32700, 'Parse error');
  }
  const isNewer =
    message.method !== 'initialize' &&
    request.headers['mcp-session-id'] === undefined &&
    (request.headers['mcp-protocol-version'] === NEWER || message.params?._meta !== undefined || message.method === 'server/discover');
  if (isNewer) ofNewer(message, request, response);
  else ofOlder(message, request, response);
});

bridge.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${bridge.address().port}/mcp`));
process.stdin.on('end', () => process.exit(0)).resume();
