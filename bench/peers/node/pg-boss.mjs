// pg-boss: batches that are fetched without a pause while there is more, and NOTIFY where latency is measured.
import { letter, letters, main } from "./jobs.mjs";
import { load } from "./load.mjs";

const { Client } = load("pg");
const { PgBoss } = load("pg-boss");

const QUEUE = "letters";

// The caller's connection, in the form that pg-boss takes for its option `db`.
const inside = (client) => ({ db: { executeSql: (text, values) => client.query(text, values) } });

const peer = {
  name: "pg-boss",
  numbers: `select (data ->> 'n')::bigint from pgboss.job where name = '${QUEUE}'`,
  open: `select count(*) from pgboss.job where name = '${QUEUE}' and state < 'completed'`,

  async setUp({ url, job, settings }) {
    this.url = url;
    this.notify = job === "latency";
    this.options = {
      batchSize: Number(settings.batchSize ?? 300),
      localConcurrency: Number(settings.localConcurrency ?? 4),
      burstWhenBatchFull: true,
      pollingIntervalSeconds: 0.5,
    };
    // Schedules and maintenance are for long runs: here they would only be noise on all others' account.
    this.boss = new PgBoss({ connectionString: url, useListenNotify: this.notify, schedule: false, supervise: false });
    this.boss.on("error", (error) => console.error(error));
    await this.boss.start();
    await this.boss.createQueue(QUEUE, { notify: this.notify });
  },

  settings() {
    return {
      ...Object.fromEntries(Object.entries(this.options).map(([key, value]) => [key, String(value)])),
      "useListenNotify, notify": String(this.notify),
      "schedule, supervise": "false",
      enqueue: "send and insert in the caller's transaction (option db)",
    };
  },

  async client() {
    const client = new Client({ connectionString: this.url });
    await client.connect();
    return client;
  },

  async write(client, first, count) {
    await client.query("begin");
    if (count === 1) await this.boss.send(QUEUE, letter(first), inside(client));
    else await this.boss.insert(QUEUE, letters(first, count).map((data) => ({ data })), inside(client));
    await client.query("commit");
  },

  release: (client) => client.end(),

  async start(ledger) {
    await this.boss.work(QUEUE, this.options, async (jobs) => {
      for (const job of jobs) ledger.note(job.data.n);
    });
  },

  stop() {
    return this.boss.stop({ graceful: false });
  },
};

await main(peer);
