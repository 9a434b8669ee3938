// Handles each event of Postrider once, in one transaction of PostgreSQL with what the handler writes.
//
//   const outcome = await runOnce(client, "mailer", headers.event_id, () => save(client, body));
//   // Acknowledge if mayAck(outcome). Otherwise, and after every exception, let the broker bring it again.
//
// The client is one connection, `await pool.connect()` and not the pool. Another delivery of the same event waits until this
// transaction ends. Connect with a lock_timeout, `new Pool({ lock_timeout: 2000 })`, to be told "in progress" instead.

import type { ClientBase } from "pg";

export type Outcome = "ran" | "processed" | "in progress" | "stale";
export type Attempt = { replayed: number; number: number };

const FIRST = "insert into inbox_messages (consumer, event_id) values ($1, $2) on conflict (consumer, event_id) do nothing";
const PROCESSED = "select 1 from inbox_messages where consumer = $1 and event_id = $2";
const NEWEST = `
  insert into inbox_attempts as seen (consumer, event_id, replayed, attempt) values ($1, $2, $3, $4)
  on conflict (consumer, event_id) do update set replayed = excluded.replayed, attempt = excluded.attempt
  where (seen.replayed, seen.attempt) <= (excluded.replayed, excluded.attempt)`;
const LOCK_NOT_AVAILABLE = "55P03";

export function mayAck(outcome: Outcome): boolean {
  return outcome === "ran" || outcome === "processed";
}

/** Runs the handler and remembers the event with one commit. With an attempt, an older one is stale. */
export async function runOnce(
  client: ClientBase,
  consumer: string,
  event: string,
  handler: () => Promise<void>,
  attempt?: Attempt,
): Promise<Outcome> {
  if (attempt && !(await isNewest(client, consumer, event, attempt))) {
    const { rowCount } = await client.query(PROCESSED, [consumer, event]);
    return rowCount ? "processed" : "stale";
  }
  await client.query("begin");
  try {
    const first = await take(client, consumer, event);
    if (first !== "first") {
      await client.query("rollback");
      return first;
    }
    await handler();
    // After an error that the handler went past, PostgreSQL answers a commit with a rollback, and without an error.
    const { command } = await client.query("commit");
    if (command !== "COMMIT") throw new Error("the handler went on after an error of the database: nothing was committed");
    return "ran";
  } catch (error) {
    await client.query("rollback").catch(() => {});
    throw error;
  }
}

async function take(client: ClientBase, consumer: string, event: string): Promise<"first" | Outcome> {
  try {
    const { rowCount } = await client.query(FIRST, [consumer, event]);
    return rowCount === 1 ? "first" : "processed";
  } catch (error) {
    if ((error as { code?: string }).code === LOCK_NOT_AVAILABLE) return "in progress";
    throw error;
  }
}

/** Notes the attempt, at once and for good, unless a newer one has been here. */
async function isNewest(client: ClientBase, consumer: string, event: string, attempt: Attempt): Promise<boolean> {
  const { rowCount } = await client.query(NEWEST, [consumer, event, attempt.replayed, attempt.number]);
  return rowCount === 1;
}
