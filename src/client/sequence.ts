import { BIT_CAUGHT_UP, BIT_MERGED, type IFrame } from '../protocol/frame';
import type { Hello } from '../protocol/messages.generated';

/** Frames that did not come: sequence numbers, both inclusive. */
export interface IGap {
  readonly first: number;
  readonly last: number;
  /** Whether the hub said that it gave rows up for this viewer. */
  readonly announced: boolean;
}

/** Follows the sequence numbers of one run over all its links: what is new, what is double, what is missing. */
export class Sequence {
  /** Last number that this side surely has, or null; what a join names as `since`. */
  get since(): number | null {
    return this.complete;
  }

  /**
   * Take in the first hello of a link.
   *
   * @returns Whether the numbering goes on; false when the hub counts anew and everything it sends is a first time.
   */
  begin(hello: Hello): boolean {
    const resumes = this.complete !== null && hello.resumed !== undefined && hello.seq >= this.complete;
    if (!resumes) {
      this.complete = null;
    }
    this.newest = hello.seq;
    this.caughtUpTo = this.complete ?? 0;
    this.open = [];
    if (hello.seq === this.caughtUpTo) {
      this.complete = hello.seq;
    }
    return resumes;
  }

  /** Take in a frame. Answers false for one that came before. */
  accept(frame: IFrame): boolean {
    if ((frame.bits & BIT_CAUGHT_UP) !== 0) {
      // A merged frame carries its newest number but may hold rows from before and after its neighbours.
      return (frame.bits & BIT_MERGED) !== 0 || frame.seq > this.caughtUpTo;
    }
    if (frame.seq <= this.newest) {
      return false;
    }
    if (frame.seq > this.newest + 1) {
      this.open.push({ first: this.newest + 1, last: frame.seq - 1 });
    }
    this.newest = frame.seq;
    this.complete = frame.seq;
    return true;
  }

  /**
   * Close the gaps seen so far, with the next status's count of rows that the hub gave up for this viewer.
   *
   * @param dropped - `status.dropped.viewer`.
   */
  settle(dropped: number): IGap[] {
    const announced = dropped > this.dropped;
    this.dropped = dropped;
    const gaps = this.open.map(gap => ({ ...gap, announced }));
    this.open = [];
    return gaps;
  }

  private complete: number | null = null;
  private newest = 0;
  private caughtUpTo = 0;
  private dropped = 0;
  private open: { first: number; last: number }[] = [];
}
