// Loads a page of many parts: node browser.mjs URL STYLES SCRIPTS PICTURES [FIELD]
// Every answer must have FIELD, or, without it, the field x-checked must be in none.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const [url, ...counts] = process.argv.slice(2, 6);
const [styles, scripts, pictures] = counts.map(Number);
const field = process.argv[6];
const { chromium } = createRequire(join(process.env.LEVADA_PLAYWRIGHT, "x.js"))("playwright-core");
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});

try {
  const page = await browser.newPage();
  page.setDefaultTimeout(45_000);
  const wrong = [];
  let answers = 0;
  page.on("console", (message) => { if (message.type() === "error") wrong.push(message.text()); });
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("requestfailed", (request) => wrong.push(`${request.url()}: ${request.failure()?.errorText}`));
  page.on("response", (response) => {
    if (!response.url().startsWith(url)) return;
    answers += 1;
    if (response.status() !== 200) wrong.push(`${response.url()}: ${response.status()}`);
    const checked = response.headers()[field ?? "x-checked"] === "yes";
    if (checked !== (field !== undefined)) wrong.push(`${response.url()}: the field is ${checked}`);
  });
  await page.goto(url, { waitUntil: "load" });
  const arrived = await page.evaluate((styles) => {
    const root = getComputedStyle(document.documentElement);
    const rules = [...Array(styles).keys()].map((number) => root.getPropertyValue(`--part${number}`).trim());
    return {
      styles: rules.filter((value) => value === "arrived").length,
      scripts: window.scripts,
      pictures: [...document.images].filter((image) => image.complete && image.naturalWidth === 9).length,
    };
  }, styles);
  assert.deepEqual(arrived, { styles, scripts, pictures });
  assert.deepEqual(wrong, []);
  assert.equal(answers, 1 + styles + scripts + pictures);
} finally {
  await browser.close();
}
