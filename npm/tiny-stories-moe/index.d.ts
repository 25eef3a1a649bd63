/** Absolute path of the model file, `tiny-qwen3moe-Q4_K_M.gguf`. */
export declare const path: string;
/** The model's short name, for messages. */
export declare const name: string;
