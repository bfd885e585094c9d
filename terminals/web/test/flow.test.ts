import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { ACK_AT, ACK_IDLE, CHUNK_MOST, InputQueue, OUTSTANDING_MOST, OutputAcks } from "../src/flow";

const bytes = (length: number, value = 0): Uint8Array => new Uint8Array(length).fill(value);

function queue(): { input: InputQueue; sent: Uint8Array[]; total(): number } {
  const sent: Uint8Array[] = [];
  const input = new InputQueue((chunk) => sent.push(chunk));
  return { input, sent, total: () => sent.reduce((sum, chunk) => sum + chunk.length, 0) };
}

test("many small outputs are acknowledged together, once they stop", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const acks: number[] = [];
  const output = new OutputAcks((count) => acks.push(count), () => false);
  for (let n = 0; n < 10; n++) output.shown(100);
  assert.deepEqual(acks, []);
  mock.timers.tick(ACK_IDLE);
  assert.deepEqual(acks, [1000]);
  mock.timers.tick(10 * ACK_IDLE);
  assert.deepEqual(acks, [1000]);
  mock.timers.reset();
});

test("much output is acknowledged at once, and each byte exactly once", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const acks: number[] = [];
  const output = new OutputAcks((count) => acks.push(count), () => false);
  output.shown(ACK_AT - 1);
  output.shown(1);
  output.shown(5);
  assert.deepEqual(acks, [ACK_AT]);
  mock.timers.tick(ACK_IDLE);
  assert.deepEqual(acks, [ACK_AT, 5]);
  mock.timers.reset();
});

test("a hidden tab does not wait for its slow timers", () => {
  const acks: number[] = [];
  const output = new OutputAcks((count) => acks.push(count), () => true);
  output.shown(1);
  assert.deepEqual(acks, [1]);
});

test("no more is sent than the server has room for, in frames of a bounded size, and nothing is lost or reordered", () => {
  const { input, sent, total } = queue();
  const data = Uint8Array.from({ length: 2 << 20 }, (_, index) => index % 251);
  input.push(data);
  let acknowledged = 0;
  while (total() > acknowledged) {
    assert.ok(total() - acknowledged <= OUTSTANDING_MOST);
    const step = Math.min(10_000, total() - acknowledged);
    acknowledged += step;
    input.acknowledged(step);
  }
  assert.ok(sent.every((chunk) => chunk.length <= CHUNK_MOST));
  assert.deepEqual(Buffer.concat(sent), Buffer.from(data));
  assert.equal(input.waiting, 0);
});

test("what is typed behind a paste stays behind it", () => {
  const { input, sent } = queue();
  input.push(bytes(OUTSTANDING_MOST + 10, 1));
  input.push(bytes(3, 2));
  assert.equal(input.waiting, 13);
  input.acknowledged(OUTSTANDING_MOST);
  assert.deepEqual([...Buffer.concat(sent).subarray(OUTSTANDING_MOST)], [...bytes(10, 1), ...bytes(3, 2)]);
});

test("giving up drops what waits, but closes a bracketed paste that has begun", () => {
  const { input, sent } = queue();
  input.push(bytes(OUTSTANDING_MOST + 10, 1), bytes(6, 9));
  input.push(bytes(5, 2), bytes(6, 8)); // not begun: it needs no end
  input.giveUp();
  input.push(bytes(1, 3));
  input.acknowledged(OUTSTANDING_MOST);
  assert.deepEqual([...Buffer.concat(sent).subarray(OUTSTANDING_MOST)], [...bytes(6, 9), 3]);
});
