// Loads Python, the wheel and pyflakes that lie beside the page, and answers each question with what `truestep read` finds.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const READING = `
import json
from truestep.doctor.fixing import is_certain_fix, rewritten_by_findings
from truestep.doctor.linting import read_text

def answer(kind, text):
    reading = read_text(text, "script.py")
    if kind == "fix":
        for _ in range(8):
            text, made = rewritten_by_findings(text, [each for each in reading.findings if is_certain_fix(each)])
            if not made:
                break
            reading = read_text(text, "script.py")
    found = [{**each.to_dict(), "certain": is_certain_fix(each)} for each in reading.findings]
    problem = reading.unreadable[0][1] if reading.unreadable else ""
    return json.dumps({"findings": found, "problem": problem, "text": text})
answer
`;

async function loaded() {
  const pyodide = await loadPyodide({ indexURL: new URL("./pyodide/", import.meta.url).href });
  const wheel = await fetch(new URL("./truestep.whl", import.meta.url));
  pyodide.unpackArchive(await wheel.arrayBuffer(), "wheel");
  const pyflakes = await fetch(new URL("./pyflakes.zip", import.meta.url));
  pyodide.unpackArchive(await pyflakes.arrayBuffer(), "zip");
  return pyodide.runPython(READING);
}

const answer = loaded();

self.onmessage = async ({ data }) => {
  try {
    const found = JSON.parse((await answer)(data.kind, data.text));
    self.postMessage({ ...found, number: data.number });
  } catch (error) {
    self.postMessage({ failed: String(error), number: data.number });
  }
};
