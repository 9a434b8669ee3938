// graphile-worker, with the settings of its own performance page.
import { letter, letters, main } from "./jobs.mjs";
import { load } from "./load.mjs";

const { Client } = load("pg");
const { Logger, run, runMigrations } = load("graphile-worker");

const ADD_JOB = "select graphile_worker.add_job('letter', $1::json)";
// What addJobs of the library sends.
const ADD_JOBS = `select count(*) from graphile_worker.add_jobs(
  array(select json_populate_recordset(null::graphile_worker.job_spec, $1::json)), false)`;

const quiet = new Logger(() => () => {});

const peer = {
  name: "graphile-worker",
  numbers: "select (payload ->> 'n')::bigint from graphile_worker._private_jobs",
  open: "select count(*) from graphile_worker._private_jobs",

  async setUp({ url, settings }) {
    this.url = url;
    this.worker = {
      connectionString: url,
      concurrentJobs: Number(settings.concurrentJobs ?? 24),
      maxPoolSize: 25,
      localQueue: { size: Number(settings["localQueue.size"] ?? 500) },
      completeJobBatchDelay: Number(settings.completeJobBatchDelay ?? 0),
      failJobBatchDelay: 0,
    };
    await runMigrations({ connectionString: url, logger: quiet });
  },

  settings() {
    const { concurrentJobs, maxPoolSize, localQueue, completeJobBatchDelay, failJobBatchDelay } = this.worker;
    return {
      concurrentJobs: String(concurrentJobs),
      maxPoolSize: String(maxPoolSize),
      "localQueue.size": String(localQueue.size),
      completeJobBatchDelay: String(completeJobBatchDelay),
      failJobBatchDelay: String(failJobBatchDelay),
      enqueue: "graphile_worker.add_job and add_jobs in the caller's transaction",
    };
  },

  async client() {
    const client = new Client({ connectionString: this.url });
    await client.connect();
    return client;
  },

  async write(client, first, count) {
    await client.query("begin");
    if (count === 1) {
      await client.query({ name: "add_job", text: ADD_JOB, values: [JSON.stringify(letter(first))] });
    } else {
      const specs = letters(first, count).map((payload) => ({ identifier: "letter", payload }));
      await client.query({ name: "add_jobs", text: ADD_JOBS, values: [JSON.stringify(specs)] });
    }
    await client.query("commit");
  },

  release: (client) => client.end(),

  async start(ledger) {
    const taskList = { letter: (payload) => ledger.note(payload.n) };
    this.runner = await run({ preset: { worker: this.worker }, logger: quiet, taskList, noHandleSignals: true });
  },

  stop() {
    return this.runner.stop();
  },
};

await main(peer);
