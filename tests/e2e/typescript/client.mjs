// The official TypeScript SDK's client, over everything that it can call of ours. Usage:
//   node client.mjs DIRECTORY SERVER COMMAND [ARGUMENT...]
// SERVER is an MCP server with the tools `whisper` and `survey`, as JSON.
// Ends with status 0 and "ok" if all is as expected, and the SDK had nothing to complain of.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

// What the SDK cannot read or does not expect it only logs.
const complaints = [];
for (const level of ["error", "warn"]) console[level] = (...words) => complaints.push(words.join(" "));
process.on("warning", (warning) => complaints.push(String(warning)));

const [cwd, server, ...command] = process.argv.slice(2);
const mcpServers = [JSON.parse(server)];
const updates = [];
const asked = [];
const forms = [];
let choice = "allow_once";
const said = (kind = "agent_message_chunk") =>
  updates.filter((one) => one.sessionUpdate === kind).map((one) => one.content.text).join("");
const PICTURE =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
const script = (...lines) => [{ type: "text", text: ["[[script", ...lines, "]]"].join("\n") }];

let seen = () => {};
const until = (condition) =>
  new Promise((resolve) => {
    seen = () => condition() && resolve();
    seen();
  });

const app = acp
  .client({ name: "typescript" })
  .onNotification(acp.methods.client.session.update, ({ params }) => {
    updates.push(params.update);
    seen();
  })
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    asked.push(params.toolCall);
    const { optionId } = params.options.find((one) => one.kind === choice);
    return { outcome: { outcome: "selected", optionId } };
  })
  .onRequest(acp.methods.client.elicitation.create, ({ params }) => {
    forms.push(params);
    return { action: "accept", content: { name: "Ada" } };
  });

const agent = spawn(command[0], command.slice(1), { cwd, stdio: ["pipe", "pipe", "inherit"] });
const ended = new Promise((resolve) => agent.on("exit", (status) => resolve(status)));
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));

await app.connectWith(stream, async (ctx) => {
  const { session } = acp.methods.agent;
  const hello = await ctx.request(acp.methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientInfo: { name: "typescript", version: "1" },
    clientCapabilities: { auth: { terminal: true }, elicitation: { form: {} } },
  });
  assert.equal(hello.protocolVersion, acp.PROTOCOL_VERSION);
  assert.equal(hello.agentCapabilities.loadSession, true);
  const [login, , key] = hello.authMethods;
  assert.deepEqual([login.type, login.args], ["terminal", ["login"]]);
  await ctx.request(acp.methods.agent.authenticate, { methodId: key.id });
  const status = await ctx.request("auth/status", {});
  assert.equal(status.state, "authenticated");
  assert.notEqual(status.accounts.length, 0);
  await ctx.request(acp.methods.agent.logout, {});
  await assert.rejects(ctx.request(session.new, { cwd, mcpServers: [] }), { code: -32000 });
  await ctx.request(acp.methods.agent.authenticate, { methodId: key.id });

  const made = await ctx.request(session.new, { cwd, mcpServers });
  const { sessionId } = made;
  assert.equal(made.modes.currentModeId, "default");
  assert.deepEqual(made.configOptions.map((one) => one.id).sort(), ["effort", "mode", "model"]);
  assert.equal("models" in made, false);

  choice = "reject_once";
  const refused = script("thinking Hm.", "write refused.txt <<< x", "text Refused.");
  const first = await ctx.request(session.prompt, { sessionId, prompt: refused });
  assert.equal(first.stopReason, "end_turn");
  assert.equal(said(), "Refused.");
  assert.equal(said("agent_thought_chunk"), "Hm.");
  assert.equal(asked.length, 1);
  assert.equal(existsSync(join(cwd, "refused.txt")), false);

  await ctx.request(session.setMode, { sessionId, modeId: "acceptEdits" });
  const link = { type: "resource_link", name: "notes", uri: "file:///notes.md" };
  const picture = { type: "image", mimeType: "image/png", data: PICTURE };
  const notes = { type: "resource", resource: { uri: "file:///notes.md", text: "The word is ananas." } };
  const allowed = [link, picture, notes, ...script("write made.txt <<< x", "text Made.")];
  await ctx.request(session.prompt, { sessionId, prompt: allowed });
  assert.equal(asked.length, 1);
  assert.equal(existsSync(join(cwd, "made.txt")), true);

  await ctx.request(session.setConfigOption, { sessionId, configId: "effort", value: "high" });
  const chosen = { sessionId, configId: "model", value: "haiku" };
  const { configOptions } = await ctx.request(session.setConfigOption, chosen);
  const values = Object.fromEntries(configOptions.map((one) => [one.id, one.currentValue]));
  assert.deepEqual(values, { mode: "acceptEdits", model: "haiku", effort: "high" });

  const long = script("repeat 600x100ms w{n} ");
  const running = ctx.request(session.prompt, { sessionId, prompt: long });
  await until(() => said().includes("w2"));
  await ctx.notify(session.cancel, { sessionId });
  assert.equal((await running).stopReason, "cancelled");

  choice = "allow_once";
  const form = {
    message: "Who are you?",
    requestedSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
  };
  const survey = script(`tool mcp__local__survey ${JSON.stringify(form)}`, "text Surveyed.");
  await ctx.request(session.prompt, { sessionId, prompt: survey });
  assert.deepEqual(forms.map((one) => one.message), [`local asks: ${form.message}`]);
  const { rawOutput } = updates.findLast((one) => one.sessionUpdate === "tool_call_update");
  assert.deepEqual(JSON.parse(rawOutput.output), { action: "accept", content: { name: "Ada" } });

  const cancelling = new AbortController();
  const { length } = updates;
  const withdrawn = { sessionId, prompt: script("repeat 600x100ms v{n} ") };
  const abandoned = ctx.request(session.prompt, withdrawn, { cancellationSignal: cancelling.signal });
  await until(() => updates.length > length && said().includes("v2"));
  cancelling.abort();
  assert.equal((await abandoned).stopReason, "cancelled");

  const steered = { sessionId, prompt: script("text Steered.") };
  assert.deepEqual(await ctx.request("_session/steering", steered), { outcome: "startedNewTurn" });
  await until(() => said().includes("Steered."));
  const forked = await ctx.request("session/fork", { sessionId, cwd, mcpServers: [] });
  assert.notEqual(forked.sessionId, sessionId);
  assert.equal(forked.modes.currentModeId, "acceptEdits");
  await ctx.request(session.prompt, { sessionId: forked.sessionId, prompt: script("text Forked.") });
  assert.ok(said().endsWith("Forked."));
  await ctx.request(session.delete, { sessionId: forked.sessionId });

  const { sessions } = await ctx.request(session.list, { cwd });
  assert.deepEqual(sessions.map((one) => one.sessionId), [sessionId]);
  const { title } = await ctx.request("session/set_title", { sessionId, title: " A title " });
  assert.equal(title, "A title");
  await ctx.request("session/archive", { sessionId });
  assert.deepEqual((await ctx.request(session.list, { cwd })).sessions, []);
  const archived = (await ctx.request(session.list, { cwd, archived: "only" })).sessions;
  assert.deepEqual(archived.map((one) => [one.sessionId, one.title]), [[sessionId, title]]);
  await ctx.request("session/unarchive", { sessionId });
  await ctx.request(session.resume, { sessionId, cwd, mcpServers });
  await assert.rejects(ctx.request(session.list, { cursor: "unknown" }), { code: -32602 });

  await assert.rejects(ctx.request("_example.com/unknown", {}), { code: -32601 });
  await assert.rejects(
    ctx.request(session.load, { sessionId: "no-such-session", cwd, mcpServers: [] }),
    { code: -32002 },
  );
  await ctx.request(session.close, { sessionId });
  const resumed = await ctx.request(session.resume, { sessionId, cwd, mcpServers: [] });
  assert.equal(resumed.modes.currentModeId, "acceptEdits");
  updates.length = 0;
  await ctx.request(session.load, { sessionId, cwd, mcpServers: [] });
  assert.ok(said().startsWith("Refused.Made.w1"), said());
  assert.ok(said("user_message_chunk").includes("refused.txt"));
  const shown = updates.filter((one) => one.sessionUpdate === "user_message_chunk").map((one) => one.content);
  assert.deepEqual(shown.slice(1, 4), [link, picture, notes]);
  await ctx.request(session.delete, { sessionId });
  await ctx.request(session.delete, { sessionId });
  assert.deepEqual((await ctx.request(session.list, {})).sessions, []);
});

agent.stdin.end();
assert.equal(await ended, 0);
assert.deepEqual(complaints, []);
process.stdout.write("ok\n");
