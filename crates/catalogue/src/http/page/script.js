// Adds a button to every command that copies it. Without this script the commands are plain text.
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
    // Browsers allow the Clipboard API only in secure contexts: HTTPS or localhost.
    getSelection().selectAllChildren(node);
    return document.execCommand("copy");
  }
}
