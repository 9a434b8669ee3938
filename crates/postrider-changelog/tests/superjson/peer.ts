// Reads and writes superjson with the package itself. Reads a line of JSON per command and answers with one.
//
// Values are compared as dumps, which say of everything what it is: ["number", the hexadecimal digits of its bits].

import { createInterface } from "node:readline";
import { isDeepStrictEqual } from "node:util";
import superjson, { SuperJSON } from "superjson";

type Dump = [string, ...unknown[]];

function dump(value: unknown): Dump {
  if (value === undefined) return ["undefined"];
  if (value === null) return ["null"];
  if (typeof value === "number") {
    const bits = Buffer.alloc(8);
    bits.writeDoubleBE(value);
    return ["number", Number.isNaN(value) ? "NaN" : bits.toString("hex")];
  }
  if (typeof value === "boolean" || typeof value === "string") return [typeof value, value];
  if (typeof value === "bigint") return ["bigint", value.toString()];
  if (value instanceof Date) return ["date", value.getTime()];
  if (value instanceof Uint8Array) return ["bytes", Buffer.from(value).toString("hex")];
  if (Array.isArray(value)) return ["array", value.map(dump)];
  if (value instanceof Set) return ["set", [...value].map(dump)];
  if (value instanceof Map) return ["map", [...value].map(([key, item]) => [dump(key), dump(item)])];
  const fields = Object.entries(value).sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  return ["object", fields.map(([key, field]) => [key, dump(field)])];
}

/** What Rust wrote, as the package reads it, and as it would have written it. */
function read(text: string) {
  const value = superjson.parse(text);
  const { json, meta } = superjson.serialize(value as never);
  // Values in Rust have no identity, so it never says which are the same.
  const { referentialEqualities: _, ...rest } = meta ?? {};
  const written = JSON.stringify(rest.values ? { json, meta: rest } : { json });
  return { dump: dump(value), written, same: isDeepStrictEqual(JSON.parse(written), JSON.parse(text)) };
}

/** A generator of numbers from 0 to 1 that repeats itself from the same seed. */
function chance(seed: number) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Any value of up to so many levels, in which some objects are there several times. */
function anything(random: () => number, levels: number, seen: unknown[]): unknown {
  const below = (count: number) => Math.floor(random() * count);
  const some = <T>(make: () => T) => Array.from({ length: below(5) }, make);
  const text = () => some(() => ["a", "b", ".", "\\", '"', "0", "1", "é", "😀", "\u0000", "\n", " "][below(12)]).join("");
  const inner = () => anything(random, levels - 1, seen);
  const keep = <T>(value: T) => (seen.push(value), value);
  const leaves = [
    () => undefined,
    () => null,
    () => random() < 0.5,
    () => below(10),
    () => -below(10),
    () => [NaN, Infinity, -Infinity, -0, 2 ** 53, 1e21, 5e-324][below(7)],
    () => Buffer.from(some(() => 0).concat(Array.from({ length: 8 }, () => below(256)))).readDoubleBE(0),
    () => BigInt(below(3)) ** 90n * -1n,
    () => text(),
    () => keep(new Date(Math.trunc((random() - 0.5) * 2 * 8.64e15))),
    () => keep(Uint8Array.from(some(() => below(256)))),
  ];
  const deep = [
    () => keep(some(inner)),
    () => keep(new Set(some(inner))),
    () => keep(new Map(some(() => [inner(), inner()] as const))),
    () => keep(Object.fromEntries(some(() => [text(), inner()]))),
    () => keep(Object.fromEntries(some(() => [text(), inner()]))),
    () => (seen.length > 0 ? seen[below(seen.length)] : null),
  ];
  const makers = levels > 0 && random() < 0.7 ? deep : leaves;
  return makers[below(makers.length)]!();
}

/** Values from a seed, written by the package in both of its ways. */
function write(seed: number, count: number) {
  const random = chance(seed);
  return Array.from({ length: count }, (_, index) => {
    const value = anything(random, 5, []);
    const writer = new SuperJSON({ dedupe: index % 2 === 1 });
    return { text: writer.stringify(value as never), dump: dump(value) };
  });
}

/** Values that were thought of. */
function samples() {
  const shared = { at: new Date(5), ["a.b\\c"]: 1n };
  const values: unknown[] = [
    { a: shared, b: [shared, new Set([shared]), new Map([[shared, shared]])], "": { "": shared } },
    { x: { n: 1 }, y: { p: shared, q: shared }, z: null },
    new Map<unknown, unknown>([[new Date(0), new Set([new Map([[1n, undefined]])])], ["k", new Uint8Array([0, 127, 255])]]),
    { "": 1n, ".": 2n, "..": { ".": 3n }, "\\": 4n, "\\.": 5n, "\\\\.": { "\\": 6n }, 0: 7n, 10: { 2: 8n }, '"': 9n, "ключ": 10n, "😀": 11n },
    [[[[new Date(8.64e15)]]], [new Date(-8.64e15)], [new Date(253402300800000), new Date(-62167219200001)]],
    { same: [1n, 1n, NaN, NaN, -0, -0] },
    [undefined, null, 3],
    new Set([NaN, undefined, null, 0, "", false]),
    undefined, null, 0, -0, "", [], {}, new Set(), new Map(), new Uint8Array(), 0n,
  ];
  const twice = { y: { p: shared, q: shared }, z: null as unknown };
  twice.z = twice.y;
  values.push(twice);
  const writers = [new SuperJSON(), new SuperJSON({ dedupe: true })];
  return values.flatMap((value) =>
    writers.map((writer) => ({ text: writer.stringify(value as never), dump: dump(value) })),
  );
}

/** What has no value in Rust, and what the error has to name. */
function refused() {
  class User {
    name = "secret";
  }
  const sign = Symbol("sign");
  const ring: Record<string, unknown> = {};
  ring["me"] = { again: ring };
  const inside: Record<string, unknown> = {};
  inside["self"] = inside;
  const writer = new SuperJSON();
  writer.registerClass(User);
  writer.registerSymbol(sign, "sign");
  writer.registerCustom({ isApplicable: (v): v is URLSearchParams => v instanceof URLSearchParams, serialize: String,
    deserialize: (v) => new URLSearchParams(v) }, "query");
  const cases: [unknown, ...string[]][] = [
    [{ a: [new User()] }, "class", "User", "a.0"],
    [{ a: sign }, "symbol", "sign", "a"],
    [{ a: new URLSearchParams("secret=1") }, "custom", "query", "a"],
    [{ "a.b": /secret/ }, "regexp", "a\\.b"],
    [{ a: new URL("http://secret.example") }, "URL", "a"],
    [{ a: new Error("secret") }, "Error", "a"],
    [new Set([new Float32Array([1])]), "typed-array", "Float32Array", "0"],
    [Buffer.from("secret"), "typed-array", "Buffer", "the whole"],
    [ring, "the whole contains itself"],
    [{ inside }, "inside contains itself"],
    [{ deep: { er: { inside } }, inside }, "inside contains itself"],
    ["secret \ud800", "hex escape"],
  ];
  return cases.map(([value, ...names]) => ({ text: writer.stringify(value as never), names }));
}

/** Whether the package refuses a text. */
function refuses(text: string) {
  try {
    superjson.parse(text);
    return false;
  } catch {
    return true;
  }
}

interface Command {
  do: "read" | "write" | "samples" | "refused" | "refuses";
  texts: string[];
  seed: number;
  count: number;
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line) as Command;
  const answers = {
    read: () => command.texts.map(read),
    write: () => write(command.seed, command.count),
    samples,
    refused,
    refuses: () => command.texts.map(refuses),
  };
  console.log(JSON.stringify(answers[command.do]()));
}
