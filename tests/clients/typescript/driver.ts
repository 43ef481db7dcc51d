// The official TypeScript SDK as the client of the built program: one life of a session, every step asserted.
// It checks what a client sees; which bytes were sent is left to the other tests.
//
//     node driver.ts AGENT PROJECT     with HOME set to the agent's home
//     node driver.ts URL PROJECT       with a token in ZEROCLAW_TOKEN; ws:// and http:// choose the transport
//
// Prints one line of JSON and exits with 0 when every step was as it should be.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";
import { createHttpStream } from "@agentclientprotocol/sdk/experimental/http-client";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";

const [agentPath, project] = process.argv.slice(2);
assert(agentPath !== undefined && project !== undefined, "usage: driver.ts AGENT PROJECT");

const TEXT_CHUNKS = 20_000;
/** More than any limit of a line that a client is known to have by default. */
const OUTPUT_BYTES = 1024 * 1024;

/** How the next permission request is answered: with the option of this kind, or with a cancel that comes instead. */
type Answer = acp.PermissionOptionKind | "cancel";

/** What one connection has seen. */
class Log {
  updates: acp.SessionUpdate[] = [];
  asked: acp.RequestPermissionRequest[] = [];
  answer: Answer = "allow_once";
  #watchers: Array<{ matches: (update: acp.SessionUpdate) => boolean; resolve: () => void }> = [];

  update(update: acp.SessionUpdate): void {
    this.updates.push(update);
    this.#watchers = this.#watchers.filter((watcher) => {
      if (!watcher.matches(update)) return true;
      watcher.resolve();
      return false;
    });
  }

  /** Resolves with the first update from now on that matches. */
  next(matches: (update: acp.SessionUpdate) => boolean): Promise<void> {
    return new Promise((resolve) => this.#watchers.push({ matches, resolve }));
  }

  /** The updates from this one on. */
  since(start: number): acp.SessionUpdate[] {
    return this.updates.slice(start);
  }
}

/** A way to an agent, and what has to hold when it is not needed any more. */
interface Link {
  stream: acp.Stream;
  end: () => Promise<void>;
}

/** A fresh agent process, which has to end by itself when its input ends. */
function spawned(): Link {
  const child = spawn(agentPath!, [], { stdio: ["pipe", "pipe", "inherit"] });
  const exited = once(child, "exit");
  const stream = acp.ndJsonStream(
    Writable.toWeb(child.stdin),
    Readable.toWeb(child.stdout) as ReadableStream<Uint8Array>,
  );
  const end = async (): Promise<void> => {
    child.stdin.end();
    assert.deepEqual(await exited, [0, null], "the agent did not end well");
  };
  return { stream, end };
}

/** A new connection to a gateway. */
function connected(url: string): Link {
  const token = process.env["ZEROCLAW_TOKEN"];
  assert(token, "ZEROCLAW_TOKEN is missing");
  const stream = url.startsWith("ws")
    ? createWebSocketStream(url, { protocols: ["zeroclaw.acp.v1", `bearer.${token}`] })
    : createHttpStream(url, { headers: { Authorization: `Bearer ${token}` } });
  return { stream, end: async () => {} };
}

/** Runs a workflow against the agent. */
async function withAgent<T>(log: Log, work: (agent: acp.ClientContext) => Promise<T>): Promise<T> {
  const { stream, end } = /^(ws|http)s?:/.test(agentPath!) ? connected(agentPath!) : spawned();
  const app = acp
    .client({ name: "zeroclaw-typescript-driver" })
    .onRequest(acp.methods.client.session.requestPermission, async ({ params, agent }) => {
      log.asked.push(params);
      if (log.answer === "cancel") {
        await agent.notify(acp.methods.agent.session.cancel, { sessionId: params.sessionId });
        return { outcome: { outcome: "cancelled" } };
      }
      const option = params.options.find((option) => option.kind === log.answer);
      assert(option, `no option ${log.answer} among ${JSON.stringify(params.options)}`);
      return { outcome: { outcome: "selected", optionId: option.optionId } };
    })
    .onNotification(acp.methods.client.session.update, ({ params }) => log.update(params.update));
  const result = await app.connectWith(stream, work);
  await end();
  return result;
}

async function greet(agent: acp.ClientContext): Promise<void> {
  const hello = await agent.request(acp.methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: { fs: { readTextFile: false, writeTextFile: false }, terminal: false },
    clientInfo: { name: "zeroclaw-typescript-driver", version: "1.0.0" },
  });
  assert.equal(hello.protocolVersion, acp.PROTOCOL_VERSION);
  assert.equal(hello.agentInfo?.name, "zeroclaw-acp");
  assert.equal(hello.agentCapabilities?.loadSession, true);
  const { list, delete: remove, close, resume } = hello.agentCapabilities?.sessionCapabilities ?? {};
  assert(list && remove && close && resume, "list, delete, close or resume is not advertised");
}

async function prompt(agent: acp.ClientContext, sessionId: string, text: string): Promise<acp.StopReason> {
  const request: acp.PromptRequest = { sessionId, prompt: [{ type: "text", text }] };
  const response = await agent.request(acp.methods.agent.session.prompt, request);
  return response.stopReason;
}

function textOf(updates: acp.SessionUpdate[], kind: "agent_message_chunk" | "user_message_chunk"): string {
  return updates
    .map((update) => (update.sessionUpdate === kind && update.content.type === "text" ? update.content.text : ""))
    .join("");
}

function said(chunks: number): string {
  return Array.from({ length: chunks }, (_, index) => `chunk ${index + 1} `).join("");
}

/** The states that each tool call went through, in the order of the calls; output in between is no new state. */
function calls(updates: acp.SessionUpdate[]): Map<string, string[]> {
  const states = new Map<string, string[]>();
  for (const update of updates) {
    if (update.sessionUpdate === "tool_call") {
      assert(!states.has(update.toolCallId), "a tool call was announced twice");
      states.set(update.toolCallId, [update.status ?? "pending"]);
    } else if (update.sessionUpdate === "tool_call_update") {
      const known = states.get(update.toolCallId);
      assert(known, "an update of a tool call that was not announced");
      if (update.status && update.status !== known.at(-1)) known.push(update.status);
    }
  }
  return states;
}

/** What belongs to the conversation: the commands that are offered are a state of now. */
function history(updates: acp.SessionUpdate[]): acp.SessionUpdate[] {
  return updates.filter((update) => update.sessionUpdate !== "available_commands_update");
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(() => true, () => false);
}

async function live(agent: acp.ClientContext, log: Log, prompts: string[]): Promise<string> {
  await greet(agent);
  const opened = await agent.request(acp.methods.agent.session.new, { cwd: project!, mcpServers: [] });
  const sessionId = opened.sessionId;
  const turn = async (text: string, answer: Answer, stop: acp.StopReason): Promise<acp.SessionUpdate[]> => {
    const start = log.updates.length;
    log.answer = answer;
    prompts.push(text);
    assert.equal(await prompt(agent, sessionId, text), stop);
    return log.since(start);
  };

  let seen = await turn("/say 5", "allow_once", "end_turn");
  assert.equal(textOf(seen, "agent_message_chunk"), said(5));
  assert.equal(log.asked.length, 0);

  seen = await turn("/think hm\n/plan one; two\n/run echo hello > made.txt", "allow_once", "end_turn");
  assert(seen.some((update) => update.sessionUpdate === "agent_thought_chunk"), "no thought");
  assert(seen.some((update) => update.sessionUpdate === "plan" && update.entries.length === 2), "no plan");
  const permitted = log.asked[0]!.toolCall.toolCallId;
  assert.deepEqual(calls(seen).get(permitted), ["pending", "in_progress", "completed"]);
  assert.equal(await readFile(join(project!, "made.txt"), "utf8"), "hello\n");

  seen = await turn("/run touch refused.txt", "reject_once", "end_turn");
  assert.deepEqual(calls(seen).get(log.asked[1]!.toolCall.toolCallId), ["pending", "failed"]);
  assert(!(await exists(join(project!, "refused.txt"))), "the refused command ran");

  seen = await turn(`/say ${TEXT_CHUNKS}`, "allow_once", "end_turn");
  assert.equal(textOf(seen, "agent_message_chunk"), said(TEXT_CHUNKS));

  seen = await turn(`/run head -c ${OUTPUT_BYTES} /dev/zero | tr '\\0' '\\001'`, "allow_once", "end_turn");
  assert.deepEqual([...calls(seen).values()], [["pending", "in_progress", "completed"]]);

  seen = await turn("/deliver big.bin", "allow_once", "end_turn");
  const blobs = seen.flatMap((update) => (update.sessionUpdate === "tool_call_update" ? (update.content ?? []) : []));
  const blob = blobs.flatMap((part) =>
    part.type === "content" && part.content.type === "resource" && "blob" in part.content.resource
      ? [part.content.resource.blob]
      : [],
  );
  assert.deepEqual(blob, [await readFile(join(project!, "big.bin"), "base64")], "the file was not delivered whole");

  seen = await turn("/run touch cancelled.txt", "cancel", "cancelled");
  assert.deepEqual([...calls(seen).values()].map((states) => states.at(-1)), ["failed"]);
  assert(!(await exists(join(project!, "cancelled.txt"))), "the cancelled command ran");

  const running = log.next((update) => update.sessionUpdate === "tool_call_update" && update.status === "in_progress");
  const cancel = running.then(() => agent.notify(acp.methods.agent.session.cancel, { sessionId }));
  seen = await turn("/run sleep 3600", "allow_once", "cancelled");
  await cancel;
  assert.deepEqual([...calls(seen).values()].map((states) => states.at(-1)), ["failed"]);

  seen = await turn("/say 1", "allow_once", "end_turn");
  assert.equal(textOf(seen, "agent_message_chunk"), said(1));

  await agent.request(acp.methods.agent.session.close, { sessionId });
  return sessionId;
}

async function later(agent: acp.ClientContext, log: Log, before: Log, prompts: string[], id: string): Promise<void> {
  await greet(agent);
  const { sessions } = await agent.request(acp.methods.agent.session.list, { cwd: project! });
  assert.deepEqual(sessions.map((session) => [session.sessionId, session.cwd, session.title]), [[id, project, "/say 5"]]);

  await agent.request(acp.methods.agent.session.load, { sessionId: id, cwd: project!, mcpServers: [] });
  const replayed = history(log.updates);
  const users = replayed.filter((update) => update.sessionUpdate === "user_message_chunk");
  assert.deepEqual(users.map((update) => textOf([update], "user_message_chunk")), prompts);
  assert.deepEqual(
    replayed.filter((update) => update.sessionUpdate !== "user_message_chunk"),
    history(before.updates),
    "the replay is not what was seen",
  );

  await agent.request(acp.methods.agent.session.close, { sessionId: id });
  await agent.request(acp.methods.agent.session.delete, { sessionId: id });
  const left = await agent.request(acp.methods.agent.session.list, { cwd: project! });
  assert.deepEqual(left.sessions, []);
  const load = agent.request(acp.methods.agent.session.load, { sessionId: id, cwd: project!, mcpServers: [] });
  await assert.rejects(load, (error) => error instanceof acp.RequestError && kindOf(error) === "session_not_found");
}

function kindOf(error: acp.RequestError): unknown {
  return typeof error.data === "object" && error.data !== null && "kind" in error.data ? error.data.kind : undefined;
}

const first = new Log();
const prompts: string[] = [];
const id = await withAgent(first, (agent) => live(agent, first, prompts));
const second = new Log();
await withAgent(second, (agent) => later(agent, second, first, prompts, id));
const summary = { prompts: prompts.length, permissions: first.asked.length, live: first.updates.length, replayed: second.updates.length };
console.log(JSON.stringify(summary));
