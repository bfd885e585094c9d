import assert from "node:assert/strict";
import { test } from "node:test";
import { ending } from "../src/endings";

const told = (code: number, changes = {}) => ending({ code, reason: "", opened: true, session: "", framed: false, ...changes });

test("the server's own reason is what the user reads", () => {
  for (const code of [1000, 1001, 1011, 4001, 4002, 4003, 4008]) assert.equal(told(code, { reason: "because" }).why, "because");
});

test("every end has a title, a reason and what to do next", () => {
  for (const code of [1000, 1001, 1006, 1009, 1011, 4001, 4002, 4003, 4008, 4999])
    for (const opened of [true, false]) for (const text of [told(code, { opened }).title, told(code, { opened }).why, told(code, { opened }).next]) assert.ok(text);
});

test("no new terminal is offered where there is no sandbox any more", () => {
  assert.deepEqual([1000, 1001, 1006, 1011, 4008].map((code) => told(code).again), Array(5).fill(true));
  assert.deepEqual([4001, 4002, 4003].map((code) => told(code).again), Array(3).fill(false));
});

test("a named session is said to live on", () => {
  assert.match(told(1006, { session: "work" }).next, /session “work” keeps running/);
  assert.doesNotMatch(told(4001, { session: "work" }).next, /keeps running/);
});

test("a terminal that never opened is told apart from one that was lost", () => {
  assert.match(told(1006, { opened: false }).title, /could not be opened/);
  assert.match(told(1006).title, /connection was lost/);
});
