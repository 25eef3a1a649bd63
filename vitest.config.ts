import { defineConfig } from "vitest/config";

export default defineConfig({
  test: { include: ["__test__/api/*.test.ts"], pool: "forks", testTimeout: 60_000 },
});
