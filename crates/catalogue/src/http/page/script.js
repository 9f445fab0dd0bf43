// Puts a button on every command that copies it. Without this script the commands are text like any other.
"use strict";
for (const command of document.querySelectorAll("pre.command")) {
  const code = command.querySelector("code");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    button.textContent = (await copy(code)) ? "Copied" : "Press Ctrl-C";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  command.append(button);
}

async function copy(node) {
  try {
    await navigator.clipboard.writeText(node.textContent);
    return true;
  } catch {
    // Browsers give the clipboard only to pages that came over TLS or from this machine.
    getSelection().selectAllChildren(node);
    return document.execCommand("copy");
  }
}
