// Two services in one browser: node sites.mjs ONE TWO, the addresses of both.
// Prints what a page of TWO reaches of ONE, as JSON.
import { createRequire } from "node:module";
import { join } from "node:path";

const [one, two] = process.argv.slice(2);
const { chromium } = createRequire(join(process.env.LEVADA_PLAYWRIGHT, "x.js"))("playwright-core");
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});

try {
  const context = await browser.newContext();
  const page = await context.newPage();
  page.setDefaultTimeout(45_000);
  await page.goto(`${one}login`);
  await page.goto(`${one}page`);
  const own = await page.evaluate(async () => (await fetch("/own", { method: "POST" })).status);
  await page.goto(`${two}page`);
  // Requests of a page of another site, with the cookies that the browser would send.
  const reached = await page.evaluate(async (one) => {
    const send = async (path, options) => {
      const sent = fetch(`${one}${path}`, { credentials: "include", ...options });
      return sent.then(async (answer) => answer.type + (await answer.text()), () => "failed");
    };
    return {
      cookie: document.cookie,
      read: await send("read", {}),
      opaque: await send("opaque", { mode: "no-cors" }),
      forged: await send("forged", { mode: "no-cors", method: "POST", body: "a=b" }),
    };
  }, one);
  const cookies = (await context.cookies()).map(({ name, domain }) => `${name} ${domain}`);
  console.log(JSON.stringify({ own, reached, cookies }));
} finally {
  await browser.close();
}
