#!/usr/bin/env node
// Starts the binary that npm has installed for this machine. Streams are the caller's own, so nothing passes through node.
"use strict";
const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const name = `@smcp/${process.platform}-${process.arch}`;
let binary;
try {
  binary = require.resolve(`${name}/bin/smcp${process.platform === "win32" ? ".exe" : ""}`);
} catch {
  console.error(`error: ${name} is not installed: smcp has no build for this machine, or npm left optional dependencies out`);
  console.error("hint: npm install --include=optional smcp");
  process.exit(126);
}
const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (why) => {
  console.error(`error: ${binary}: ${why.message}`);
  process.exit(126);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
