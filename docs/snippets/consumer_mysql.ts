// Handles each event of Postrider once, in one transaction of MySQL or MariaDB with what the handler writes.
//
//   const outcome = await runOnce(connection, "mailer", headers.event_id, () => save(connection, body));
//   // Acknowledge if mayAck(outcome). Otherwise, and after every exception, let the broker bring it again.
//
// One connection for each message that is handled at the same time. Another delivery of the same event waits until this transaction ends, or for innodb_lock_wait_timeout seconds (50, unless
// `set session` says otherwise) and is told "in progress" then. A handler must not change tables: that would commit.

import type { Connection, RowDataPacket } from "mysql2/promise";

export type Outcome = "ran" | "processed" | "in progress";

const FIRST = "insert into inbox_messages (consumer, event_id) values (?, ?)";
const PROCESSED = "select 1 from inbox_messages where consumer = ? and event_id = ?";
const DUPLICATE = 1062;
const LOCK_WAIT_TIMEOUT = 1205;
const DEADLOCK = 1213;
const busy = new WeakSet<Connection>();

export function mayAck(outcome: Outcome): boolean {
  return outcome !== "in progress";
}

/** Runs the handler and remembers the event with one commit. */
export async function runOnce(
  connection: Connection,
  consumer: string,
  event: string,
  handler: () => Promise<void>,
): Promise<Outcome> {
  if (busy.has(connection)) throw new Error("the connection is in use: two messages in one transaction would lose one of them");
  busy.add(connection);
  try {
    return await enter(connection, consumer, event, handler);
  } finally {
    busy.delete(connection);
  }
}

async function enter(
  connection: Connection,
  consumer: string,
  event: string,
  handler: () => Promise<void>,
): Promise<Outcome> {
  await connection.query("start transaction");
  try {
    const first = await take(connection, consumer, event);
    if (first !== "first") {
      await connection.query("rollback");
      return first;
    }
    await handler();
    // A deadlock rolls everything back. A handler that went past it would seem to have succeeded.
    const [rows] = await connection.execute<RowDataPacket[]>(PROCESSED, [consumer, event.toLowerCase()]);
    if (rows.length === 0) throw new Error("the handler went on after an error that ended the transaction");
    await connection.query("commit");
    return "ran";
  } catch (error) {
    await connection.query("rollback").catch(() => {});
    throw error;
  }
}

async function take(connection: Connection, consumer: string, event: string): Promise<"first" | Outcome> {
  try {
    await connection.execute(FIRST, [consumer, event.toLowerCase()]);
    return "first";
  } catch (error) {
    const code = (error as { errno?: number }).errno;
    if (code === DUPLICATE) return "processed";
    if (code === LOCK_WAIT_TIMEOUT || code === DEADLOCK) return "in progress";
    throw error;
  }
}
