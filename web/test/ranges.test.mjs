// What a stranger says is missing is parsed strictly, or not at all.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./sources.mjs";

const { MAX_SPANS, parseMissing, within } = await load("ranges");
const { layout } = await load("seal");
const grid = layout(1000 * 3, 10, 20, 4);
const end = grid.total - 1;

test("spans at record borders are taken", () => {
  for (const [text, spans] of [
    ["", []], [`0-${end}`, [[0, end]]], ["0-29", [[0, 29]]], ["10-29", [[10, 29]]], ["10-29, 50-69", [[10, 29], [50, 69]]],
    ["10-29,50-69", [[10, 29], [50, 69]]], [`50-${end}`, [[50, end]]],
  ]) assert.deepEqual(parseMissing(text, grid), spans, text);
});

test("anything else is refused", () => {
  const many = Array.from({ length: MAX_SPANS + 1 }, (_, at) => `${10 + at * 40}-${29 + at * 40}`).join(", ");
  for (const text of [
    null, undefined, " ", "-", "10", "10-", "-29", "29-10", "10-29,", ",10-29", "10-29;50-69", "10-29, 10-29", "50-69, 10-29", "10-29, 30-49", "11-29", "10-28", `0-${end + 1}`,
    `10-${end + 20}`, "1-29", "+10-29", "1e1-29", "0x0-29", "10 -29", "10-29 ", "10-29,  50-69", "９0-99", "10-29\n", "00000000000000000-29", many, "9".repeat(9000),
  ]) assert.equal(parseMissing(text, grid), undefined, String(text).slice(0, 60));
});

test("as many spans as a gateway names are taken", () => {
  const most = Array.from({ length: MAX_SPANS }, (_, at) => `${10 + at * 40}-${29 + at * 40}`).join(", ");
  assert.equal(parseMissing(most, grid).length, MAX_SPANS);
});

test("the part of a segment that is missing is the least span that has all of it", () => {
  const spans = [[10, 29], [50, 69], [90, 109]];
  assert.deepEqual(within(spans, [0, 200]), [10, 109]);
  assert.deepEqual(within(spans, [20, 60]), [20, 60]);
  assert.deepEqual(within(spans, [30, 49]), undefined);
  assert.deepEqual(within(spans, [69, 89]), [69, 69]);
  assert.deepEqual(within([], [0, 9]), undefined);
});
