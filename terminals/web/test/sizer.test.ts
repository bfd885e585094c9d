import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { Sizer, usable, type Size } from "../src/sizer";

beforeEach(() => mock.timers.enable({ apis: ["setTimeout", "Date"] }));
afterEach(() => mock.timers.reset());

const initial = { cols: 80, rows: 24 };

test("a drag of 2 s makes 10 changes at most, and ends with the last size", () => {
  const applied: Size[] = [];
  let cols = 80;
  const sizer = new Sizer(initial, () => ({ cols, rows: 24 }), (size) => applied.push(size));
  for (let time = 0; time < 2000; time += 16) {
    cols++;
    sizer.changed();
    mock.timers.tick(16);
  }
  assert.ok(applied.length <= 10, `${applied.length}`);
  mock.timers.tick(1000);
  assert.equal(applied.at(-1)?.cols, cols);
});

test("one change is passed on soon", () => {
  const applied: Size[] = [];
  const sizer = new Sizer(initial, () => ({ cols: 132, rows: 43 }), (size) => applied.push(size));
  sizer.changed();
  mock.timers.tick(100);
  assert.deepEqual(applied, [{ cols: 132, rows: 43 }]);
});

test("the size that it was is no change, and neither is none", () => {
  const applied: Size[] = [];
  let size: Size | null = initial;
  const sizer = new Sizer(initial, () => size, (changed) => applied.push(changed));
  sizer.changed();
  mock.timers.tick(1000);
  size = null;
  sizer.changed();
  mock.timers.tick(1000);
  assert.deepEqual(applied, []);
});

test("only a size that a terminal can have is usable", () => {
  for (const bad of [undefined, {}, { cols: NaN, rows: 10 }, { cols: Infinity, rows: 10 }, { cols: 80 }, { cols: 0, rows: 5 }, { cols: 5, rows: -1 }])
    assert.equal(usable(bad), null);
  assert.deepEqual(usable({ cols: 1e9, rows: 43.9 }), { cols: 1000, rows: 43 });
});
