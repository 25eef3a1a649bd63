import type * as Native from "../../../index.js";
import { link } from "./link.js";
import { checkOptions, checkPath, signal } from "./options.js";

/** What a GGUF file holds. Numbers that the file does not state are 0: a dense model has no experts. */
export type Inspection = Readonly<Native.Inspection>;

/** Reads the header of any GGUF file, or of a model in several files; tensors stay on disk. */
export async function inspect(path: string | URL, options?: { signal?: AbortSignal | undefined }): Promise<Inspection> {
  const watch = checkOptions("inspect", options, { signal });
  const file = checkPath("inspect", path);
  const event = await link().ask((host, request) => host.inspect(request, file), watch);
  return event.inspection as Inspection;
}

/** Names of the arithmetic paths that this processor can run, scalar first, the fastest last. All give the same bits. */
export function kernels(): string[] {
  return link().kernels();
}
