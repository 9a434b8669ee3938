// Packages are installed below target/, beside the build, and not beside these programs.
import { createRequire } from "node:module";
import { join } from "node:path";

const directory = process.env.PEERS_NODE;
if (!directory) throw new Error("PEERS_NODE must name the directory that bench/peers/install installed packages to");

export const load = createRequire(join(directory, "package.json"));
