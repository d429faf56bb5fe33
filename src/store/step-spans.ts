/** First and last step, both included. */
export type StepSpan = readonly [number, number];

const MOST = 256;

/** Ranges of steps, ascending and apart, in bounded memory: beyond 256 of them the two that are nearest to each other become one. */
export class StepSpans {
  /** The ranges. The same array until something changes. */
  get all(): readonly StepSpan[] {
    return this.spans;
  }

  add(first: number, last: number): void {
    const before = this.spans.filter(span => span[1] < first - 1);
    const after = this.spans.filter(span => span[0] > last + 1);
    const touched = this.spans.slice(before.length, this.spans.length - after.length);
    const low = Math.min(first, ...touched.map(span => span[0]));
    const high = Math.max(last, ...touched.map(span => span[1]));
    this.spans = [...before, [low, high], ...after];
    if (this.spans.length > MOST) {
      const distances = this.spans.slice(1).map((span, at) => span[0] - (this.spans[at]?.[1] ?? 0));
      const nearest = distances.indexOf(Math.min(...distances));
      const [left, right] = this.spans.slice(nearest, nearest + 2);
      if (left && right) {
        this.spans.splice(nearest, 2, [left[0], right[1]]);
      }
    }
  }

  /** Take a range away that is one of them. */
  remove(first: number, last: number): void {
    this.spans = this.spans.filter(span => span[0] !== first || span[1] !== last);
  }

  /** The ranges that lie, in part at least, between two steps. */
  within(first: number, last: number): StepSpan[] {
    return this.spans.filter(span => span[1] >= first && span[0] <= last);
  }

  clear(): void {
    this.spans = [];
  }

  private spans: StepSpan[] = [];
}
