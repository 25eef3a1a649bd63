/** Version of this package; the compiled engine must have the same. */
export const version = "0.1.0";
