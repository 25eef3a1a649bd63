// What the benchmark needs of Linux: a control group with a limit, the drive of a file, and its page cache. Needs root.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmdirSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";

/** A control group that limits memory, the page cache included. */
export class MemoryGroup {
  #dir;
  #v1;

  /** @param {number} bytes */
  constructor(bytes) {
    const v1 = "/sys/fs/cgroup/memory";
    this.#v1 = existsSync(`${v1}/memory.limit_in_bytes`);
    this.#dir = path.join(this.#v1 ? v1 : "/sys/fs/cgroup", `clutor-bench-${process.pid}`);
    mkdirSync(this.#dir);
    this.#write(this.#v1 ? "memory.limit_in_bytes" : "memory.max", bytes);
  }

  /** The command and arguments that run `command` inside the group. */
  wrap(command, args) {
    return ["/bin/sh", ["-c", 'echo $$ > "$0" && exec "$@"', path.join(this.#dir, "cgroup.procs"), command, ...args]];
  }

  /** Most memory that was charged to the group, in bytes. */
  peakBytes() {
    return Number(this.#read(this.#v1 ? "memory.max_usage_in_bytes" : "memory.peak"));
  }

  /** How often the system killed a process of the group. */
  kills() {
    const events = this.#read(this.#v1 ? "memory.oom_control" : "memory.events");
    return Number(/^oom_kill (\d+)/m.exec(events)?.[1] ?? 0);
  }

  /** Removes the group, whose processes have ended; the system may take a moment to see that. */
  async remove() {
    for (let tries = 50; ; tries--) {
      try {
        return rmdirSync(this.#dir);
      } catch (error) {
        if (tries === 0) throw error;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  #write(name, value) {
    writeFileSync(path.join(this.#dir, name), String(value));
  }

  #read(name) {
    return readFileSync(path.join(this.#dir, name), "utf8");
  }
}

/** The drive that holds a file. */
export class Drive {
  #file;
  #device;

  /** @param {string} file */
  constructor(file) {
    this.#file = file;
    const { dev } = statSync(file);
    // The layout of device numbers in Linux: minor bits 0-7 and 20-31, major bits 8-19.
    const sys = `/sys/dev/block/${(dev >> 8) & 0xfff}:${(dev & 0xff) | ((dev >> 12) & 0xfff00)}`;
    this.#device = existsSync(`${sys}/queue`) ? sys : path.join(sys, "..");
  }

  /** Read-ahead in KiB. */
  get readAheadKib() {
    return Number(readFileSync(`${this.#device}/queue/read_ahead_kb`, "utf8"));
  }

  set readAheadKib(kib) {
    writeFileSync(`${this.#device}/queue/read_ahead_kb`, String(kib));
  }

  /** Bytes read from it since the system started, by anyone. */
  readBytes() {
    return 512 * Number(readFileSync(`${this.#device}/stat`, "utf8").trim().split(/\s+/)[2]);
  }

  /** Drops the file's pages from the page cache. */
  forget() {
    execFileSync("dd", [`if=${this.#file}`, "iflag=nocache", "count=0"], { stdio: "ignore" });
  }

  /**
   * Bytes a second of direct reads. What it reads first is not counted: many drives have a burst allowance after idle
   * time, and a benchmark that begins with it compares its first run with nothing.
   */
  sustainedRate(drainBytes = 6e9, countedBytes = 3e9) {
    const read = (offset, bytes) => {
      const blocks = Math.floor(bytes / 2 ** 22);
      const args = [`if=${this.#file}`, "of=/dev/null", "bs=4M", "iflag=direct", `skip=${offset}`, `count=${blocks}`];
      execFileSync("dd", args, { stdio: "ignore" });
      return blocks;
    };
    const { size } = statSync(this.#file);
    const drain = Math.min(drainBytes, size / 2);
    const skipped = read(0, drain);
    const began = performance.now();
    const counted = read(skipped, Math.min(countedBytes, size / 3));
    return (counted * 2 ** 22) / ((performance.now() - began) / 1e3);
  }
}
