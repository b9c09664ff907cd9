/** The page of the graph view. */

import assert from "node:assert/strict";
import test from "node:test";

import { page } from "../src/page";

const SVG = '<svg xmlns="http://www.w3.org/2000/svg"><style>rect{fill:#fff}@media(prefers-color-scheme:dark){text{fill:#eee}rect{fill:#000}}</style><rect/></svg>';
const DRAWN = [{ policy: "p", svg: SVG }];

test("graphs stand in the page, in the colours of the window's theme", () => {
  const made = page({ file: "p.route", drawn: DRAWN });
  assert.match(made, /<h1>p\.route<\/h1>/);
  assert.ok(made.includes("<style>rect{fill:#fff}</style><rect/>"), "the picture's own dark colours are gone");
  assert.ok(!made.includes('class="old"'));
});

test("nothing runs in the page and nothing is fetched", () => {
  const made = page({ file: "p.route", drawn: DRAWN });
  assert.ok(made.includes(`content="default-src 'none'; style-src 'unsafe-inline'"`));
  assert.ok(!/<script/i.test(made));
});

test("with mistakes the last graph stays, faded, and the mistakes stand above it", () => {
  const made = page({ file: "p.route", drawn: DRAWN, problem: "error: `a` < `b`" });
  assert.ok(made.includes('<body class="old">'));
  assert.match(made, /last text without mistakes[\s\S]*error: `a` &lt; `b`[\s\S]*<rect\/>/);
});

test("mistakes from the start stand alone", () => {
  const made = page({ file: "p.route", drawn: [], problem: "no" });
  assert.ok(!made.includes("last text") && made.includes(">no</pre>"));
});

test("a file without a policy says so", () => {
  assert.match(page({ file: "common.route", drawn: [] }), /There is no policy in this file/);
});

test("a file's name is text, whatever is in it", () => {
  assert.ok(page({ file: "<img src=x>.route", drawn: [] }).includes("<h1>&lt;img src=x&gt;.route</h1>"));
});
