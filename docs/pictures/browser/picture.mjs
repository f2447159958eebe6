// Takes a picture of a page as a browser shows it: node picture.mjs PAGE PICTURE WIDTH
import { pathToFileURL } from "node:url";
import chromium from "@sparticuz/chromium";
import puppeteer from "puppeteer-core";

const [, , page, picture, width] = process.argv;
const browser = await puppeteer.launch({
  args: chromium.args,
  executablePath: await chromium.executablePath(),
  headless: "shell",
});
try {
  const tab = await browser.newPage();
  await tab.setViewport({ width: Number(width), height: 600 });
  await tab.goto(pathToFileURL(page).href);
  await tab.screenshot({ path: picture, fullPage: true });
} finally {
  await browser.close();
}
