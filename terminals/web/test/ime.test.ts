import assert from "node:assert/strict";
import { test } from "node:test";
import { typed } from "../src/ime";

test("what is added is typed, and what is gone is deleted", () => {
  assert.equal(typed("ab", "abc"), "c");
  assert.equal(typed("abc", "ab"), "\x7f");
  assert.equal(typed("teh ", "the "), "\x7f\x7f\x7fhe ");
  assert.equal(typed("", "a\n"), "a\r");
  assert.equal(typed("same", "same"), "");
});

test("a character is deleted once, however long it is", () => {
  assert.equal(typed("😀", "😁"), "\x7f😁");
});
