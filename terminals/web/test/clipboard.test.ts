import assert from "node:assert/strict";
import { test } from "node:test";
import { fromOsc52 } from "../src/clipboard";

const base64 = (text: string): string => Buffer.from(text).toString("base64");

test("a program may write the clipboard", () => {
  assert.equal(fromOsc52(`c;${base64("naïve 😀")}`), "naïve 😀");
  assert.equal(fromOsc52(`;${base64("x")}`), "x");
});

test("it may not ask for it, clear it, or write what is no text", () => {
  for (const data of ["c;?", "?", "c;", "c;%%%", `c;${Buffer.from([0xff, 0xfe]).toString("base64")}`, base64("x"), `c;${"A".repeat((1 << 20) + 4)}`])
    assert.equal(fromOsc52(data), null);
});
