// Operates the catalogue's web page: node browser.mjs URL
// A click does not wait for the next page to load, so each one is followed by an explicit wait.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const base = process.argv[2];
const { chromium } = createRequire(join(process.env.LEVADA_PLAYWRIGHT, "x.js"))("playwright-core");
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});

try {
  for (const colorScheme of ["light", "dark"]) {
    for (const javaScriptEnabled of [true, false]) {
      await visit(colorScheme, javaScriptEnabled);
    }
  }
} finally {
  await browser.close();
}

async function visit(colorScheme, javaScriptEnabled) {
  const context = await browser.newContext({ colorScheme, javaScriptEnabled, viewport: { width: 1000, height: 760 } });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const wrong = [];
  page.on("dialog", (dialog) => { wrong.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  // Violations of the content security policy, missing resources, script errors.
  page.on("console", (message) => { if (message.type() === "error") wrong.push(message.text()); });
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("request", (request) => { if (!request.url().startsWith(base)) wrong.push(`request to another origin: ${request.url()}`); });

  await page.goto(base + "/");
  assert.equal(await page.locator("h1").textContent(), "Catalogue");
  assert.equal(await page.locator("tbody tr").count(), 50);
  await picture(page, `catalogue-${colorScheme}`, javaScriptEnabled);
  await page.getByRole("link", { name: "More" }).click();
  await page.waitForURL(/cursor=/);
  assert.ok(await page.locator("tbody tr").count() > 0);

  await page.getByLabel("Search").fill("talks everybody");
  await page.getByRole("button", { name: "Search" }).click();
  await page.waitForURL(/q=talks/);
  assert.equal(await page.locator("tbody tr").count(), 1);
  await page.getByRole("link", { name: "Chat" }).click();
  await page.waitForURL(/objects\/hyperty\/Chat$/);
  assert.match(await page.locator("h1").textContent(), /^Chat/);
  assert.match(await page.locator("main").textContent(), /Version 1\.1\.0/);
  await picture(page, `catalogue-object-${colorScheme}`, javaScriptEnabled);
  await commands(page, javaScriptEnabled);
  await page.getByRole("link", { name: "1.0.0" }).click();
  await page.waitForURL(/Chat\/1\.0\.0$/);
  assert.match(await page.locator("main").textContent(), /Version 1\.0\.0/);

  await page.goto(base + "/?q=script&kind=service");
  await page.locator("tbody a").first().click();
  await page.waitForURL(/objects\/service\//);
  assert.match(await page.locator("pre.descriptor").textContent(), /<script>alert\(2\)<\/script>/);
  assert.equal(await page.locator("main script, main img").count(), 0);

  const back = await page.locator("body").evaluate((body) => getComputedStyle(body).backgroundColor).catch(() => null);
  if (back !== null) {
    const bright = back.match(/\d+/g).slice(0, 3).map(Number).every((part) => part > 127);
    assert.equal(bright, colorScheme === "light", back);
  }
  assert.deepEqual(wrong, []);
  await context.close();
}

// A command is text; with scripts enabled it has a button that copies it.
async function commands(page, scripted) {
  const command = page.locator("pre.command").first();
  const text = await command.locator("code").textContent();
  assert.match(text, new RegExp(`^curl -fsS '${base}/v1/objects/hyperty/Chat/1\\.1\\.0'$`));
  assert.equal(await command.getByRole("button").count(), scripted ? 1 : 0);
  if (!scripted) return;
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"], { origin: base });
  await command.getByRole("button").click();
  await command.getByText("Copied").waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), text);
}

async function picture(page, name, wanted) {
  const folder = process.env.LEVADA_SCREENSHOTS;
  if (folder && wanted) await page.screenshot({ path: join(folder, `${name}.png`) });
}
