import { fileURLToPath } from "node:url";

export const path = fileURLToPath(new URL("./tiny-qwen3moe-Q4_K_M.gguf", import.meta.url));
export const name = "tiny-stories-moe";
