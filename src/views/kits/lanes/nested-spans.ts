import { extentOf, wide } from '../../shared/scale';

/** A span as a view gives it. */
export interface ILaneSpan {
  /** Name of its lane. Lanes stand in the order in which they come. */
  readonly lane: string;
  /** Milliseconds. */
  readonly begin: number;
  readonly end: number;
  /** What colours it, and what the legend says. */
  readonly kind: string;
  readonly name?: string;
  /** Step and layer that it is of: it is marked where another view points at them. */
  readonly step?: number;
  readonly layer?: number;
}

/** A span in its lane, and how many others it lies in. */
export interface INestedSpan extends Omit<ILaneSpan, 'lane'> {
  readonly lane: number;
  readonly depth: number;
}

export interface INestedLanes {
  readonly names: readonly string[];
  /** All kinds, hidden ones among them, in the order in which they come. */
  readonly kinds: readonly string[];
  /** By lane, those that are not hidden, by their beginnings: what lies in another comes after it. */
  readonly spans: readonly (readonly INestedSpan[])[];
  /** How many lie in one another. */
  readonly depths: number;
  /** By kind, the time in which one of it is the deepest, ms. */
  readonly taken: ReadonlyMap<string, number>;
  /** What they cover, hidden ones among them. */
  readonly x: readonly [number, number];
  /** How many have no finite times, or end before they begin. */
  readonly left: number;
}

/** Deeper ones are drawn as those are. */
const MOST_DEPTH = 7;

/** Put spans into their lanes, and see which lie in others. */
export function nestedLanes(all: readonly ILaneSpan[], hidden: readonly string[]): INestedLanes {
  const names = [...new Set(all.map(({ lane }) => lane))];
  const kinds = [...new Set(all.map(({ kind }) => kind))];
  const places = new Map(names.map((name, at) => [name, at]));
  const lanes = names.map((): ILaneSpan[] => []);
  const gone = new Set(hidden);
  const able = all.filter(({ begin, end }) => Number.isFinite(begin) && Number.isFinite(end) && end >= begin);
  for (const each of able) {
    if (!gone.has(each.kind)) {
      lanes[places.get(each.lane) ?? 0]?.push(each);
    }
  }
  const taken = new Map<string, number>();
  const spans = lanes.map((lane, at) => nested(lane, at, taken));
  return {
    names,
    kinds,
    spans,
    depths:
      1 + spans.reduce((most, lane) => lane.reduce((deep, { depth }) => Math.max(deep, depth), most), 0),
    taken,
    x: wide(extentOf([able.map(({ begin }) => begin), able.map(({ end }) => end)]) ?? [0, 1]),
    left: all.length - able.length
  };
}

/** The spans of a lane with their depths. Of each moment the one that began last has it. */
function nested(lane: readonly ILaneSpan[], at: number, taken: Map<string, number>): INestedSpan[] {
  const add = (kind: string, ms: number): void => void taken.set(kind, (taken.get(kind) ?? 0) + ms);
  // Each ends before the one below it: what is covered to its end is not looked at again.
  const open: { kind: string; end: number }[] = [];
  return [...lane]
    .sort((a, b) => a.begin - b.begin || b.end - a.end)
    .map(span => {
      const { begin, end, kind } = span;
      while ((open.at(-1)?.end ?? Infinity) <= begin) {
        open.pop();
      }
      const depth = Math.min(MOST_DEPTH, open.length);
      add(kind, end - begin);
      let from = begin;
      for (let under = open.at(-1); under && from < end; under = open.at(-1)) {
        const to = Math.min(end, under.end);
        add(under.kind, from - to);
        from = to;
        if (under.end > end) {
          break;
        }
        open.pop();
      }
      open.push({ kind, end });
      return { ...span, lane: at, depth };
    });
}
