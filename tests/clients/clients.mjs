// Asks by Node's clients at once. Input and output are those of clients.py; TLS trusts NODE_EXTRA_CA_CERTS.

import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const PATIENCE = 100_000;
const require = createRequire(join(process.env.CLIENTS_MODULES ?? import.meta.dirname, 'anchor.cjs'));
const load = async (name) => import(pathToFileURL(require.resolve(name)));

const ofModule = (module, url) =>
  new Promise((resolve, reject) => {
    const request = module.get(url, { timeout: PATIENCE }, (answer) => {
      let said = '';
      answer.on('data', (more) => (said += more));
      answer.on('end', () => resolve(said));
      answer.on('error', reject);
    });
    request.on('error', reject);
    request.on('timeout', () => request.destroy(new Error('timeout')));
  });

const CLIENTS = {
  fetch: async (url) => (await fetch(url, { signal: AbortSignal.timeout(PATIENCE) })).text(),
  https: (url) => ofModule(url.startsWith('https:') ? https : http, url),
  undici: async (url) => (await (await load('undici')).request(url)).body.text(),
  axios: async (url) => (await (await load('axios')).default.get(url, { timeout: PATIENCE })).data,
  got: async (url) => (await load('got')).default(url, { retry: { limit: 0 }, timeout: { request: PATIENCE } }).text(),
  websocket: (url) =>
    new Promise((resolve, reject) => {
      const socket = new WebSocket(url.replace('http', 'ws'));
      socket.onopen = () => socket.send('there and back');
      socket.onmessage = (message) => resolve(message.data);
      socket.onerror = (event) => reject(event.error ?? new Error(event.message || 'refused'));
    }),
  net: (url) =>
    new Promise((resolve, reject) => {
      const { hostname, port } = new URL(url);
      let said = '';
      const socket = net.connect(Number(port), hostname, () => socket.end('there and back\n'));
      socket.setTimeout(PATIENCE, () => socket.destroy(new Error('timeout')));
      socket.on('data', (more) => (said += more));
      socket.on('end', () => resolve(said));
      socket.on('error', reject);
    }),
};

const reason = (error) => [error, error.cause, ...(error.errors ?? [])].filter(Boolean).map(String).join('; ');

const answer = async ([client, url]) => {
  try {
    return { client, url, reached: await CLIENTS[client](url) };
  } catch (error) {
    return { client, url, failed: reason(error) };
  }
};

let line;
for await (line of createInterface({ input: process.stdin })) break;
const asked = JSON.parse(line);
for (const [client] of asked) if (!CLIENTS[client]) throw new Error(`no client ${client}`);
console.log(JSON.stringify(await Promise.all(asked.map(answer))));
process.exit(0);
