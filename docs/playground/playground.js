// The page: the editor, its marks, and the list of findings. Reading is done in a worker, so that typing never waits.
const code = document.getElementById("code");
const marks = document.getElementById("marks");
const list = document.getElementById("findings");
const state = document.getElementById("state");
const fix = document.getElementById("fix");
const choice = document.getElementById("example");
const PATIENCE = 400; // milliseconds without a key before the text is read

const worker = new Worker("worker.js", { type: "module" });
let asked = 0;

function ask(kind) {
  asked += 1;
  worker.postMessage({ kind, number: asked, text: code.value });
}

worker.onmessage = ({ data }) => {
  if (data.failed) {
    state.textContent = `It did not work: ${data.failed}`;
    document.body.dataset.state = "failed";
    return;
  }
  if (data.number !== asked) return; // the text has changed meanwhile
  if (data.text !== undefined && data.text !== code.value) {
    code.value = data.text;
    ask("read");
    return;
  }
  show(data.findings, data.problem);
};

worker.onerror = (event) => {
  state.textContent = `Python could not be loaded: ${event.message || "is the page served over HTTP?"}`;
  document.body.dataset.state = "failed";
};

function element(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

function show(findings, problem) {
  const count = findings.length;
  state.textContent = problem || (count ? `${count} finding${count === 1 ? "" : "s"}` : "Nothing found by reading.");
  fix.disabled = !findings.some((each) => each.certain);
  list.replaceChildren(...findings.map(shown));
  mark(new Set(findings.map((each) => each.line)));
  document.body.dataset.state = "done";
}

function shown(finding) {
  const item = document.createElement("li");
  item.tabIndex = 0;
  item.append(
    element("h2", `Line ${finding.line}: ${finding.severity} ${finding.code}  ${finding.name}`, finding.severity),
    element("p", finding.message),
    element("p", `Why: ${finding.why}`),
    element("p", `Fix: ${finding.fix}`),
    page(finding.code),
  );
  if (finding.replacement) item.append(element("pre", finding.replacement.diff.join("\n")));
  const go = () => select(finding.line);
  item.addEventListener("click", go);
  item.addEventListener("keydown", (event) => event.key === "Enter" && go());
  return item;
}

function page(code) {
  const link = element("a", `${code} with examples`);
  link.href = `../checks/${code}.html`; // the playground lies in the built documentation
  link.target = "_blank"; // what was pasted stays
  return link;
}

function select(line) {
  const lines = code.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  code.focus();
  code.setSelectionRange(start, start + (lines[line - 1] || "").length);
  code.scrollTop = Math.max(0, (line - 5) * 20);
}

function mark(lines) {
  marks.replaceChildren(
    ...code.value.split("\n").map((each, index) =>
      lines.has(index + 1) ? element("span", each || " ", "line") : document.createTextNode(`${each}\n`),
    ),
  );
  follow();
}

function follow() {
  marks.scrollTop = code.scrollTop;
  marks.scrollLeft = code.scrollLeft;
}

let waiting = 0;
code.addEventListener("scroll", follow);
code.addEventListener("input", () => {
  marks.replaceChildren();
  clearTimeout(waiting);
  waiting = setTimeout(() => ask("read"), PATIENCE);
});
fix.addEventListener("click", () => ask("fix"));

const examples = await (await fetch("examples.json")).json();
choice.append(...examples.map((each) => element("option", each.title)));
choice.addEventListener("change", () => {
  code.value = examples[choice.selectedIndex].code;
  ask("read");
});
code.value = examples[0].code;
ask("read");
