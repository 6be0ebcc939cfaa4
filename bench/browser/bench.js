// What the benchmarks in browsers share: medians, tables, verdicts, as in bench/src/lib.rs.

/** The least of which a median means something. */
export const ROUNDS = 5;

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Smallest and largest, for the column that shows how noisy the machine was. */
export function spread(values) {
  return `${Math.min(...values).toFixed(0)}-${Math.max(...values).toFixed(0)}`;
}

/** Whether a figure keeps its limit; one that does not makes the benchmark fail. */
export function judge(holds) {
  if (holds) return "holds";
  process.exitCode = 1;
  return "MISSED";
}

/** Prints a table in Markdown, so that it can stand in docs/results.md as it is. */
export function table(head, rows) {
  const lines = [head, ...rows].map((row) => row.map(String));
  const widths = head.map((_, column) => Math.max(...lines.map((row) => row[column].length)));
  const line = (row) => `| ${row.map((cell, column) => cell.padEnd(widths[column])).join(" | ")} |`;
  console.log([line(lines[0]), line(widths.map((width) => "-".repeat(width))), ...lines.slice(1).map(line)].join("\n"));
}
