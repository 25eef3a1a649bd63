import { homedir } from "node:os";
import { join, resolve } from "node:path";

/** Folder of what is remembered between runs: `CLUTOR_HOME`, or `~/.clutor`; undefined where the user has no home. */
export function home(): string | undefined {
  const given = process.env["CLUTOR_HOME"];
  if (given) return resolve(given);
  try {
    const user = homedir();
    return user === "" ? undefined : join(user, ".clutor");
  } catch {
    return undefined; // The system knows no such user, as in some containers.
  }
}
