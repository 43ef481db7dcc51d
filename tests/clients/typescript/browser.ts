// A page in a real browser that talks to a gateway with the official TypeScript SDK, over WebSocket and over HTTP.
//
//     node browser.ts CHROMIUM ORIGIN URL PROJECT      with a token in ZEROCLAW_TOKEN
//
// Serves the page at ORIGIN, which the browser is told to find on this machine, and prints what the page met as JSON: for
// each transport the text of a turn, or that it was refused.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, normalize } from "node:path";

const [chromium, origin, url, project] = process.argv.slice(2);
const token = process.env["ZEROCLAW_TOKEN"];
assert(chromium && origin && url && project && token, "usage: browser.ts CHROMIUM ORIGIN URL PROJECT");

const MODULES = join(import.meta.dirname, "node_modules");
const SDK = "/modules/@agentclientprotocol/sdk/dist";
const IMPORTS = {
  "@agentclientprotocol/sdk": `${SDK}/v1/stable/acp.js`,
  "ws-client": `${SDK}/transports/ws-stream.js`,
  "http-client": `${SDK}/transports/http-stream.js`,
  "zod/v4": "/modules/zod/v4/index.js",
};

const PAGE = `<!doctype html><title>page</title>
<script type="importmap">${JSON.stringify({ imports: IMPORTS })}</script>
<script type="module">
import * as acp from "@agentclientprotocol/sdk";
import { createHttpStream } from "http-client";
import { createWebSocketStream } from "ws-client";

const { url, token, project } = await (await fetch("/task")).json();

async function turn(stream) {
  let text = "";
  const app = acp.client({ name: "zeroclaw-browser-driver" }).onNotification(
    acp.methods.client.session.update,
    ({ params: { update } }) => {
      if (update.sessionUpdate === "agent_message_chunk") text += update.content.text;
    },
  );
  await app.connectWith(stream, async (agent) => {
    await agent.request(acp.methods.agent.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
    const { sessionId } = await agent.request(acp.methods.agent.session.new, { cwd: project, mcpServers: [] });
    const prompt = [{ type: "text", text: "/say 3" }];
    await agent.request(acp.methods.agent.session.prompt, { sessionId, prompt });
    await agent.request(acp.methods.agent.session.close, { sessionId });
  });
  return text;
}

const met = (stream) => turn(stream).catch(() => "refused");
const websocket = await met(
  createWebSocketStream(url.replace("http", "ws"), { protocols: ["zeroclaw.acp.v1", "bearer." + token] }),
);
const http = await met(createHttpStream(url, { headers: { Authorization: "Bearer " + token } }));
await fetch("/met", { method: "POST", body: JSON.stringify({ origin: location.origin, websocket, http }) });
</script>`;

const meeting = Promise.withResolvers<string>();

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const path = request.url ?? "/";
  if (path === "/") {
    response.setHeader("content-type", "text/html").end(PAGE);
  } else if (path === "/task") {
    response.setHeader("content-type", "application/json").end(JSON.stringify({ url, token, project }));
  } else if (path === "/met") {
    let text = "";
    for await (const chunk of request) text += chunk;
    response.end();
    meeting.resolve(text);
  } else if (path.startsWith("/modules/") && !normalize(path).includes("..")) {
    const code = await readFile(join(MODULES, path.slice("/modules/".length)));
    response.setHeader("content-type", "text/javascript").end(code);
  } else {
    response.writeHead(404).end();
  }
}

const server = createServer((request, response) => {
  answer(request, response).catch(() => response.writeHead(404).end());
});
server.listen(0, "127.0.0.1");
await once(server, "listening");
const { port } = server.address() as AddressInfo;
const profile = await mkdtemp(join(tmpdir(), "zeroclaw-browser-"));
const { hostname } = new URL(origin);
const browser = spawn(
  chromium,
  [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    `--user-data-dir=${profile}`,
    `--host-resolver-rules=MAP ${hostname}:80 127.0.0.1:${port}`,
    "--remote-debugging-port=0",
    origin,
  ],
  { stdio: "ignore" },
);
const exited = once(browser, "exit");
exited.then(() => meeting.reject(new Error("the browser ended before the page was done")));
try {
  console.log(await meeting.promise);
} finally {
  browser.kill();
  await exited;
  server.closeAllConnections();
  server.close();
  await rm(profile, { recursive: true, force: true, maxRetries: 5 });
}
