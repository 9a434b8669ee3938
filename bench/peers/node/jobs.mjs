// The three jobs, for any peer in Node: the same as ../rust/src/jobs.rs and ../python/jobs.py do.
//
// A peer is an object with: name; numbers, SQL for the number of each message that waits; open, SQL for how many are not
// settled; setUp(args); settings(); client(), with a connection of its own; write(client, first, count), which commits a
// transaction of the caller; release(client); start(ledger); stop().
import { parseArgs } from "node:util";
import { Ledger, latency } from "./ledger.mjs";
import { load } from "./load.mjs";

const { Client } = load("pg");

// Messages in a transaction while a backlog is written.
const FILL = 1_000;
// Messages before those whose latency counts.
const WARM_UP = 20;
// Transactions of each client before the clock starts.
const WARM_UP_WRITES = 3;
const LOOK_MS = 5;
const PATIENCE_MS = 60_000;
const PAD = Array.from({ length: 175 }, (_, at) => "abcdefghijklmnopqrstuvwxyz0123456789"[at % 36]).join("");

export const letter = (n) => ({ n, pad: PAD });
export const letters = (first, count) => Array.from({ length: count }, (_, at) => letter(first + at));

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const now = () => process.hrtime.bigint();
const since = (began) => Number(now() - began) / 1e9;

function args() {
  const number = (fallback) => ({ type: "string", default: String(fallback) });
  const options = {
    url: { type: "string" },
    clients: number(1),
    "per-call": number(1),
    messages: number(1_000),
    seconds: number(1),
    rate: number(50),
    with: { type: "string", multiple: true, default: [] },
  };
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  if (positionals.length !== 1 || !values.url) throw new Error("usage: JOB --url URL …");
  const settings = Object.fromEntries(values.with.map((pair) => pair.split("=", 2)));
  const { clients, messages, seconds, rate } = values;
  const numbers = { clients: +clients, perCall: +values["per-call"], messages: +messages, seconds: +seconds, rate: +rate };
  return { job: positionals[0], url: values.url, settings, ...numbers };
}

// The server finishes what earlier work left to do.
async function settleDown(side) {
  await side.query("vacuum analyze");
  await side.query("checkpoint");
}

// How many messages are not settled.
async function unsettled(peer, side) {
  return Number((await side.query({ text: peer.open, rowMode: "array" })).rows[0][0]);
}

// Waits until every message is settled; answers how many are not.
async function settled(peer, side) {
  const began = now();
  for (;;) {
    const open = await unsettled(peer, side);
    if (open === 0 || since(began) * 1e3 > PATIENCE_MS) return open;
    await sleep(LOOK_MS);
  }
}

async function enqueue(peer, side, { clients, perCall, seconds: lasts }) {
  const writers = await Promise.all(Array.from({ length: clients }, () => peer.client()));
  let next = 0;
  for (const client of writers) {
    for (let at = 0; at < WARM_UP_WRITES; at += 1, next += perCall) await peer.write(client, next, perCall);
  }
  const warm = next;
  await settleDown(side);
  const began = now();
  const writing = async (client) => {
    while (since(began) < lasts) {
      const first = next;
      next += perCall;
      await peer.write(client, first, perCall);
    }
  };
  await Promise.all(writers.map(writing));
  const seconds = since(began);
  await Promise.all(writers.map((client) => peer.release(client)));
  const ledger = new Ledger(next);
  const { rows } = await side.query({ text: peer.numbers, rowMode: "array" });
  for (const [n] of rows) ledger.note(Number(n));
  const messages = next - warm;
  return { messages, seconds, per_second: messages / seconds, ...ledger.verdict() };
}

async function drain(peer, side, { messages }) {
  const client = await peer.client();
  for (let first = 0; first < messages; first += FILL) {
    await peer.write(client, first, Math.min(FILL, messages - first));
  }
  await peer.release(client);
  await settleDown(side);
  const waiting = await unsettled(peer, side);
  if (waiting < messages) throw new Error(`the table holds ${waiting} of ${messages} messages`);
  const ledger = new Ledger(messages);
  const began = now();
  await peer.start(ledger);
  await ledger.complete();
  const open = await settled(peer, side);
  const seconds = since(began);
  await peer.stop();
  return { messages, seconds, per_second: messages / seconds, ...ledger.verdict(open) };
}

async function latencies(peer, side, { rate, seconds: lasts }) {
  const messages = WARM_UP + Math.max(1, Math.floor(rate * lasts));
  const client = await peer.client();
  await settleDown(side);
  const ledger = new Ledger(messages);
  await peer.start(ledger);
  const began = now();
  const written = [];
  for (let n = 0; n < messages; n += 1) {
    const wait = n / rate - since(began);
    if (wait > 0) await sleep(wait * 1e3);
    written.push(now());
    await peer.write(client, n, 1);
  }
  await ledger.complete();
  const seconds = since(began);
  const open = await settled(peer, side);
  await peer.release(client);
  await peer.stop();
  const latency_ms = latency(written.slice(WARM_UP).map((at, i) => ledger.at[WARM_UP + i] - at));
  return { messages, seconds, per_second: messages / seconds, latency_ms, ...ledger.verdict(open) };
}

const JOBS = { enqueue, drain, latency: latencies };

// The program of a peer.
export async function main(peer) {
  const asked = args();
  const job = JOBS[asked.job];
  if (!job) throw new Error(`there is no job ${asked.job}`);
  await peer.setUp(asked);
  const side = new Client({ connectionString: asked.url });
  await side.connect();
  const found = await job(peer, side, asked);
  await side.end();
  console.log(JSON.stringify({ peer: peer.name, job: asked.job, ...found, settings: peer.settings() }));
  process.exit(found.ok ? 0 : 1);
}
