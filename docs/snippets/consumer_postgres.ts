// Handles each event of Postrider once, in one transaction of PostgreSQL with what the handler writes.
//
//   const client = await pool.connect(); // one for each message that is handled at the same time
//   client.on("error", log); // without a listener, a connection that breaks ends the process
//   try {
//     const outcome = await runOnce(client, "mailer", headers.event_id, () => save(client, body));
//     // Acknowledge if mayAck(outcome). Otherwise, and after every exception, let the broker bring it again.
//   } finally { client.release(); }
//
// Another delivery of the same event waits until this transaction ends. Connect with a lock_timeout,
// `new Pool({ lock_timeout: 2000 })`, to be told "in progress" instead.

import type { ClientBase } from "pg";

export type Outcome = "ran" | "processed" | "in progress" | "stale";
export type Attempt = { replayed: number; number: number };

const FIRST = "insert into inbox_messages (consumer, event_id) values ($1, $2) on conflict (consumer, event_id) do nothing";
const PROCESSED = "select 1 from inbox_messages where consumer = $1 and event_id = $2";
const NEWEST = `
  insert into inbox_attempts as seen (consumer, event_id, replayed, attempt) values ($1, $2, $3, $4)
  on conflict (consumer, event_id) do update set replayed = excluded.replayed, attempt = excluded.attempt, expires_at = excluded.expires_at
  where (seen.replayed, seen.attempt) <= (excluded.replayed, excluded.attempt)`;
const LOCK_NOT_AVAILABLE = "55P03";
const busy = new WeakSet<ClientBase>();

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
  if (busy.has(client)) throw new Error("the client is in use: two messages in one transaction would lose one of them");
  busy.add(client);
  try {
    return await enter(client, consumer, event, handler, attempt);
  } finally {
    busy.delete(client);
  }
}

async function enter(
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
    // A handler that went past an error, or ended the transaction, would seem to have succeeded: PostgreSQL makes no error of
    // such a commit. This query fails after an error, and finds nothing after a rollback.
    const { rowCount } = await client.query(PROCESSED, [consumer, event]);
    if (rowCount !== 1) throw new Error("the handler ended the transaction: nothing would be committed");
    await client.query("commit");
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
