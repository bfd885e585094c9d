import assert from "node:assert/strict";
import { test } from "node:test";
import { cleaned, prepare } from "../src/paste";

const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

test("lines end with Enter", () => {
  assert.equal(cleaned("a\nb\r\nc\rd"), "a\rb\rc\rd");
});

test("no control character is pasted but tab and the ends of lines", () => {
  const controls = [...Array(0xa0).keys()].filter((code) => code < 0x20 || code >= 0x7f).map((code) => String.fromCharCode(code));
  assert.equal(cleaned(controls.join("")), "\t\r\r");
});

test("all else is pasted as it is", () => {
  const samples = "naïve — 😀 🀄 漢字 \u200d \ufeff ~!@#$%^&*()";
  assert.equal(cleaned(samples), samples);
});

test("the end of a bracketed paste can't be pasted", () => {
  const { bytes, ending } = prepare("x\x1b[201~\ntouch pwned\n\u009b201~", true);
  assert.equal(text(bytes), "\x1b[200~x[201~\rtouch pwned\r201~\x1b[201~");
  assert.equal(ending && text(ending), "\x1b[201~");
});

test("a program that did not ask gets no brackets", () => {
  const { bytes, ending } = prepare("ls\n", false);
  assert.equal(text(bytes), "ls\r");
  assert.equal(ending, null);
});
