/** What went wrong, as a word that programs can rely on. Messages may change, codes do not. */
export type ErrorCode =
  | "ADDON_MISSING"
  | "ADDON_VERSION"
  | "CANCELLED"
  | "CHAT_TEMPLATE"
  | "DISPOSED"
  | "FILE_CHANGED"
  | "FILE_NOT_FOUND"
  | "FILE_READ"
  | "FILE_WRITE"
  | "INTERNAL"
  | "INVALID_FILE"
  | "INVALID_MESSAGES"
  | "INVALID_OPTION"
  | "INVALID_PROMPT"
  | "KERNELS"
  | "NO_CHAT_TEMPLATE"
  | "NO_TOKENIZER"
  | "NO_WEIGHTS"
  | "OUT_OF_MEMORY"
  | "PROMPT_TOO_LONG"
  | "THREAD"
  | "UNSUPPORTED";

/** The one class of errors that this package makes. An aborted `signal` is the exception: its own reason is thrown. */
export class ClutorError extends Error {
  override readonly name = "ClutorError";
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** An error from the compiled engine, which names its own codes. */
export function fromFailure(failure: { code: string; message: string } | undefined): ClutorError {
  if (failure === undefined) return new ClutorError("INTERNAL", "the engine failed without a reason; please report it");
  return new ClutorError(failure.code as ErrorCode, failure.message);
}
