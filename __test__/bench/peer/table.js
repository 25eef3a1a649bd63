// Medians and ratios of runs, and the table of them.

const works = ["prompt", "decode"];

/** The middle of some numbers; between the two middle ones where their count is even. */
export function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const [low, high] = [sorted[Math.floor((sorted.length - 1) / 2)], sorted[Math.floor(sorted.length / 2)]];
  return (low + high) / 2;
}

/**
 * A row for each engine: median speeds, and how often as fast this project was in the same rounds (medians of the rounds'
 * ratios).
 */
export function compare(model, runs) {
  return runs.map(({ engine, speeds, failure }) => {
    const row = { model, engine: engine.name };
    if (failure !== undefined) return { ...row, failure };
    const own = runs.find((run) => run.engine.own && run.engine.way === engine.way);
    for (const work of works) {
      row[work] = median(speeds.map((speed) => speed[work]));
      if (engine.own || own.failure !== undefined) continue;
      row[`${work}Ratio`] = median(speeds.map((speed, round) => own.speeds[round][work] / speed[work]));
    }
    if (speeds[0].found !== undefined) row.limit = limit(speeds.map((speed) => speed.found));
    return row;
  });
}

/** What the machine's memory allows, and the share of it that decoding reached. */
function limit(found) {
  const decode = ({ results }) => results.find((result) => result.kind === "decode");
  return {
    bytesPerToken: median(found.map((one) => decode(one).weightBytesPerToken)),
    bandwidth: median(found.map((one) => one.bandwidth.allThreads)),
    share: median(found.map((one) => decode(one).bandwidthShare)),
  };
}

/** The rows as a table in Markdown, with the limits below it. */
export function markdown(rows) {
  const heads = ["model", "engine", "prompt tokens/s", "decode tokens/s", "clutor is: prompt", "decode"];
  const cells = rows.map((row) => {
    if (row.failure !== undefined) return [row.model, row.engine, row.failure, "", "", ""];
    const ratios = works.map((work) => (row[`${work}Ratio`] === undefined ? "" : `${row[`${work}Ratio`].toFixed(2)}x`));
    return [row.model, row.engine, row.prompt.toFixed(1), row.decode.toFixed(2), ...ratios];
  });
  const line = (row) => `| ${row.join(" | ")} |`;
  const table = [line(heads), line(heads.map((_, i) => (i < 2 ? "---" : "---:"))), ...cells.map(line)];
  return [...table, "", ...rows.filter((row) => row.limit !== undefined).map(limitText)].join("\n");
}

function limitText({ model, decode, limit }) {
  const { bytesPerToken, bandwidth, share } = limit;
  return (
    `${model}: ${(bytesPerToken / 1e6).toFixed(0)} MB of weights a token; memory was read at ` +
    `${(bandwidth / 1e9).toFixed(1)} GB/s, which allows ${(bandwidth / bytesPerToken).toFixed(1)} tokens/s; ` +
    `${decode.toFixed(2)} are ${(100 * share).toFixed(0)} % of it.`
  );
}
