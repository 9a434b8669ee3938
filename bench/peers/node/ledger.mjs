// Who arrived: each message once, and when. The clock is process.hrtime.bigint, in nanoseconds.

const PATIENCE_MS = 120_000;

export class Ledger {
  constructor(messages) {
    this.messages = messages;
    this.at = new BigUint64Array(messages);
    this.seen = 0;
    this.repeated = 0;
    this.foreign = 0;
    this.done = new Promise((resolve) => (this.resolve = resolve));
  }

  note(n) {
    if (!Number.isInteger(n) || n < 0 || n >= this.messages) this.foreign += 1;
    else if (this.at[n] !== 0n) this.repeated += 1;
    else {
      this.at[n] = process.hrtime.bigint();
      this.seen += 1;
      if (this.seen === this.messages) this.resolve();
    }
  }

  get missing() {
    return this.messages - this.seen;
  }

  // Waits until all are there.
  async complete() {
    if (this.missing === 0) return;
    let timer;
    const late = new Promise((_, reject) => {
      const stuck = () => reject(new Error(`${this.missing} of ${this.messages} messages did not arrive`));
      timer = setTimeout(stuck, PATIENCE_MS);
    });
    await Promise.race([this.done, late]).finally(() => clearTimeout(timer));
  }

  // What goes into the report.
  verdict(open = 0) {
    const { missing, repeated, foreign } = this;
    return { missing, repeated, foreign, open, ok: missing === 0 && repeated === 0 && foreign === 0 && open === 0 };
  }
}

// Percentiles by nearest rank, in milliseconds, of nanoseconds.
export function latency(values) {
  const sorted = values.map((value) => Number(value) / 1e6).sort((a, b) => a - b);
  const rank = (share) => sorted[Math.max(1, Math.ceil(sorted.length * share)) - 1];
  return { p50: rank(0.5), p99: rank(0.99), max: sorted[sorted.length - 1] };
}
