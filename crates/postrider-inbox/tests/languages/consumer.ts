// A consumer in TypeScript that does what a test tells it, with the modules that the guide shows.
//
// Arguments: the inbox (redis, postgres or mysql) and its address. Reads a line of JSON per command and answers with one:
// {"answer": …}, or {"error": the name of the exception}. The handler of a "run" answers "first" and does then what the next
// line says: succeed, fail, swallow an error of the database, or end the transaction.

import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import mysql from "mysql2/promise";
import pg from "pg";
import { createClient } from "redis";
import * as onMysql from "./consumer_mysql.js";
import * as onPostgres from "./consumer_postgres.js";
import { Claim, RedisInbox } from "./consumer_redis.js";

interface Command {
  do: string;
  how: string;
  consumer: string;
  event: string;
  attempt?: string;
  claim_ms?: number;
}
type Verbs = Record<string, (command: Command) => Promise<unknown>>;

const [kind, address] = process.argv.slice(2) as [string, string];
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (value: unknown) => console.log(JSON.stringify(value));

class Told extends Error {}

async function handle(command: Command, execute: (sql: string) => Promise<unknown>): Promise<void> {
  await execute(`insert into effects (event) values ('${command.event}')`);
  say({ answer: "first" });
  const { how } = JSON.parse((await lines.next()).value) as Command;
  if (how === "fail") throw new Told();
  if (how === "rollback") await execute("rollback");
  if (how === "swallow") await execute("insert into nowhere values (1)").catch(() => {}); // what a careless handler does
}

/** Handles two events at the same time on one connection; answers how many were refused. */
function overlap(runOnce: (event: string, handler: () => Promise<void>) => Promise<unknown>) {
  return async () => {
    const runs = [0, 1].map(() => runOnce(randomUUID(), async () => {}));
    return (await Promise.allSettled(runs)).filter((run) => run.status === "rejected").length;
  };
}

async function redis(): Promise<Verbs> {
  const client = createClient({
    url: address,
    disableOfflineQueue: true,
    socket: { socketTimeout: 30_000 },
  });
  client.on("error", () => {}); // it connects again by itself
  await client.connect();
  const claims = new Map<string, Claim>();
  const inbox = (command: Command) => new RedisInbox(client, command.consumer, { claimMs: command.claim_ms ?? 60_000 });
  return {
    run: (command) => inbox(command).runOnce(command.event, () => handle(command, async () => {}), command.attempt),
    async begin(command) {
      const entry = await inbox(command).begin(command.event, command.attempt);
      if (!(entry instanceof Claim)) return entry;
      claims.set(command.event, entry);
      return "first";
    },
    settle: (command) => claims.get(command.event)![command.how as "commit" | "release" | "extend"](),
    mark: (command) => inbox(command).checkAndMarkProcessed(command.event, 60_000),
  };
}

async function postgres(): Promise<Verbs> {
  const client = new pg.Client({ connectionString: address, lock_timeout: 200 });
  await client.connect();
  const run = (command: Command) => {
    const [replayed, number] = (command.attempt?.split(".") ?? []).map(Number);
    const attempt = replayed !== undefined && number !== undefined ? { replayed, number } : undefined;
    const handler = () => handle(command, (sql) => client.query(sql));
    return onPostgres.runOnce(client, command.consumer, command.event, handler, attempt);
  };
  return { run, overlap: overlap((event, handler) => onPostgres.runOnce(client, "mailer", event, handler)) };
}

async function mysqlOrMariaDb(): Promise<Verbs> {
  const connection = await mysql.createConnection(address.split("?")[0]!); // what follows is for another client
  await connection.query("set session innodb_lock_wait_timeout = 1");
  // A deadlock ends the transaction; the handler goes on as if nothing had happened.
  const execute = (sql: string) => connection.query(sql.includes("nowhere") ? "rollback" : sql);
  const run = (command: Command) =>
    onMysql.runOnce(connection, command.consumer, command.event, () => handle(command, execute));
  return { run, overlap: overlap((event, handler) => onMysql.runOnce(connection, "mailer", event, handler)) };
}

const verbs = await { redis, postgres, mysql: mysqlOrMariaDb }[kind as "redis" | "postgres" | "mysql"]();
for (let line = await lines.next(); !line.done; line = await lines.next()) {
  const command = JSON.parse(line.value) as Command;
  try {
    say({ answer: (await verbs[command.do]!(command)) ?? null });
  } catch (error) {
    say({ error: (error as Error).constructor.name, text: (error as Error).message });
  }
}
process.exit(0);
