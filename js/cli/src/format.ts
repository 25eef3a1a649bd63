/** A count of bytes in the unit that suits it: `7.45 MiB`. */
export function bytes(count: number): string {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${Math.round(count)} bytes` : `${value.toFixed(value < 10 ? 2 : 1)} ${units[unit]}`;
}

/** A share of 0 to 1 as a percentage. */
export function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

/** Labels and values in two columns, one row a line. */
export function table(rows: [label: string, value: string][]): string {
  const width = Math.max(...rows.map(([label]) => label.length));
  return rows.map(([label, value]) => `${label.padEnd(width)}  ${value}\n`).join("");
}

/** Rows in columns: the first flush left, the others flush right. */
export function columns(rows: string[][]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const line = (row: string[]): string =>
    row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join("  ");
  return rows.map((row) => `${line(row).trimEnd()}\n`).join("");
}
