// What a person does with a page, done in a real browser: one check a run.
//
//   browse check.mjs CHECK PAGE.html [FOLDER FOR PICTURES]
//
// Exits with 1 and says why where the page does not do it. A page that logs an error or asks the network for anything
// fails every check.
import assert from "node:assert/strict";
import { browser, wrong } from "./browser.mjs";
import * as drawing from "./drawing.mjs";
import * as features from "./features.mjs";
import * as pictures from "./pictures.mjs";
import * as ranks from "./ranks.mjs";

const checks = { ...features, ...drawing, ...pictures, ...ranks };
const [name] = process.argv.slice(2);
let code = 0;
try {
  assert.ok(name in checks, `no check is called ${name}; there are: ${Object.keys(checks).join(", ")}`);
  await checks[name]();
  assert.deepEqual(wrong, [], "the page logged errors or asked for something");
} catch (error) {
  for (let one = error; one; one = one.cause) console.error(one.stack);
  code = 1;
} finally {
  await browser.close();
}
process.exit(code);
