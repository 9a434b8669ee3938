// Handles each event of Postrider once, with Redis. Scripts, keys and values are those of the Rust library.
//
//   // Without Redis it fails at once, and with one that is silent after a few seconds; without these two it would hang.
//   const client = createClient({ url, disableOfflineQueue: true, socket: { socketTimeout: 3000 }, pingInterval: 1000 });
//   client.on("error", log); // without a listener, a connection that breaks ends the process
//   const inbox = new RedisInbox(await client.connect(), "mailer");
//   const outcome = await inbox.runOnce(headers.event_id, () => send(body));
//   // Acknowledge if mayAck(outcome). Otherwise, and after every exception, let the broker bring it again.
//
// The directory `lua` goes beside the compiled file.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";

/** What is needed of a client of the package `redis`, for one server or a cluster. */
export interface RedisClient {
  eval(script: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
}

export type Outcome = "ran" | "processed" | "in progress" | "stale";

export interface Settings {
  prefix?: string;
  claimMs?: number; // how long a claim outlives a consumer that died; it is extended while the handler runs
  keepMs?: number; // how long an event counts as processed
}

const script = (name: string) => readFileSync(new URL(`./lua/${name}.lua`, import.meta.url), "utf8");
const SCRIPTS = {
  begin: script("begin"),
  confirm: script("confirm"),
  release: script("release"),
  extend: script("extend"),
  mark: script("mark"),
};
const EVENT = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

export function mayAck(outcome: Outcome): boolean {
  return outcome === "ran" || outcome === "processed";
}

/** Another delivery has taken the event. Do not acknowledge; what the handler did may be done twice. */
export class ClaimLost extends Error {}

/** Another delivery is being handled. Do not acknowledge. */
export class InProgress extends Error {}

export class RedisInbox {
  readonly claimMs: number;
  readonly keepMs: number;
  private readonly prefix: string;

  constructor(private readonly client: RedisClient, private readonly consumer: string, settings: Settings = {}) {
    this.prefix = settings.prefix ?? "pf:evt:processed";
    this.claimMs = settings.claimMs ?? 30_000;
    this.keepMs = settings.keepMs ?? 7 * 24 * 60 * 60 * 1000;
  }

  /** Takes a delivery, or says why not. `attempt` is "<replayed>.<number>"; then an older one is stale. */
  async begin(event: string, attempt = ""): Promise<Claim | Outcome> {
    const token = randomUUID();
    const answer = await this.call("begin", event, token, this.claimMs, attempt);
    return answer === "first" ? new Claim(this, event, token, attempt) : (answer as Outcome);
  }

  /** Handles a delivery unless that was done before, and remembers it if the handler does not throw. */
  async runOnce(event: string, handler: () => Promise<void>, attempt = ""): Promise<Outcome> {
    const claim = await this.begin(event, attempt);
    if (!(claim instanceof Claim)) return claim;
    // If an extension fails, the next is tried; if the claim runs out, the commit finds out whether somebody has taken it.
    let extending: Promise<unknown> = Promise.resolve();
    const extender = setInterval(() => (extending = claim.extend().catch(() => {})), this.claimMs / 3);
    const stop = async () => {
      clearInterval(extender);
      await extending; // an extension that comes after the release would take the claim again
    };
    try {
      await handler();
    } catch (error) {
      await stop();
      await claim.release().catch(() => {}); // the claim runs out then
      throw error;
    }
    await stop();
    await claim.commit();
    return "ran";
  }

  /** Whether it was processed already; from now on it counts as such, although its handler has yet to run. */
  async checkAndMarkProcessed(event: string, ttlMs: number): Promise<boolean> {
    const answer = await this.call("mark", event, randomUUID(), ttlMs);
    if (answer === "in progress") throw new InProgress(event);
    return answer === "processed";
  }

  async call(name: keyof typeof SCRIPTS, event: string, ...words: (string | number)[]): Promise<string> {
    const id = event.toLowerCase();
    if (!EVENT.test(id)) throw new Error("the event id is not a UUID: the message did not come from Postrider");
    const key = `${this.prefix}:${this.consumer}:${id}`;
    const answer = await this.client.eval(SCRIPTS[name], { keys: [key], arguments: words.map(String) });
    return (answer as [string, string])[0];
  }
}

/** The right to handle an event. */
export class Claim {
  constructor(
    private readonly inbox: RedisInbox,
    private readonly event: string,
    private readonly token: string,
    private readonly attempt: string,
  ) {}

  /** The handler has succeeded. Acknowledge after this, and only if it does not throw. */
  async commit(): Promise<void> {
    const answer = await this.inbox.call("confirm", this.event, this.token, this.inbox.keepMs, this.attempt);
    if (answer === "lost") throw new ClaimLost(this.event);
  }

  /** The handler has failed: lets the next delivery in. */
  async release(): Promise<boolean> {
    return (await this.inbox.call("release", this.event, this.token, this.inbox.keepMs)) !== "lost";
  }

  /** The handler still runs. Answers whether the event is still ours. */
  async extend(): Promise<boolean> {
    return (await this.inbox.call("extend", this.event, this.token, this.inbox.claimMs, this.attempt)) !== "lost";
  }
}
